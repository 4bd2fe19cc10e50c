"""The settings of training: dataclasses that the command line is made of, and presets. Nothing here imports Torch."""

import inspect
import json
import numbers
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from stockade import startup
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights
from stockade.errors import InputError, SettingError, did_you_mean, require_packages
from stockade.learn.files import find_run
from stockade.text import plural

OPTIONAL = tyro.conf.arg(help_behavior_hint="")  #: for flags without a default: tyro would show `(default: None)`
#: Settings that version 0.1.0 wrote into config.json by another name.
RENAMED = {"red_agent": "red", "max_steps": "horizon"}
AT_LEAST_1 = "must be at least 1"

T = TypeVar("T")


def require(config: object, names: Sequence[str], fine: Callable[[Any], object], problem: str) -> None:
    """Refuse settings that could not work, before any work; None, which is for not given, always can."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not fine(value):
            raise SettingError(name, value, problem)


def require_seed(config: object) -> None:
    """Refuse a seed that is negative, or so large that seeds counted from it would not fit into 64 bits."""
    require(config, ("seed",), lambda v: 0 <= v < 2**63, "must be from 0 to 2**63 - 1")


def refuse_changes(asked: Any, own: Any, free: Collection[str] = ()) -> None:
    """Refuse settings beside --resume that are not what the run has: it keeps its own."""
    for f in sorted(fields(asked), key=lambda f: f.name != "preset"):  # of which the others may come
        value, mine = getattr(asked, f.name), getattr(own, f.name)
        if f.name not in free and value != mine:
            raise SettingError(f.name, value, f"cannot be changed by --resume: it was begun with {mine}")


def checked(config: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a dataclass, from Python or JSON, of the types that it wants: text becomes a path and a list a tuple
    where one is wanted."""
    hints, changes = get_type_hints(config), {}
    for name, value in settings.items():
        hint = hints[name]
        if isinstance(value, str) and Path in (hint, *get_args(hint)) and not _fits(value, hint):
            value = Path(value)
        elif isinstance(value, list) and get_origin(hint) is tuple:
            value = tuple(value)
        if not _fits(value, hint):
            one_of = f"one of {', '.join(map(repr, get_args(hint)))}"
            wanted = one_of if get_origin(hint) is Literal else f"of type {inspect.formatannotation(hint)}"
            raise SettingError(name, value, f"is not possible: it must be {wanted}")
        changes[name] = value
    return changes


def from_json(config: type[T], content: dict[str, Any]) -> T:
    """A dataclass of settings, and those in it, from what JSON holds of `asdict`."""
    hints = get_type_hints(config)
    if unknown := content.keys() - hints.keys():
        raise InputError(f"it has settings that this version does not know: {sorted(unknown)}")
    parts = {name: from_json(hints[name], value) for name, value in content.items() if is_dataclass(hints[name])}
    return config(**checked(config, content | parts))


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, numbers.Integral if hint is int else numbers.Real) and not isinstance(value, bool)
    return isinstance(value, hint)


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation. The defaults suit CAGE 2; see docs/guides/training.md."""

    update_steps: int = 100  # Steps of each environment between two updates.
    epochs: int = 4  # Passes of an update over its steps.
    minibatch_size: int = 2560  # Steps per gradient, about: the steps of an update are split evenly.
    learning_rate: float = 1e-3  # Learning rate of Adam at the start.
    final_learning_rate: float = 0.0  # Learning rate at the end; it changes linearly with the episodes played.
    entropy_weight: float = 0.01  # Weight of the entropy bonus at the start.
    final_entropy_weight: float = 0.0  # Weight of the entropy bonus at the end; it changes linearly, too.
    gamma: float = 0.99  # Discount per step at the start.
    final_gamma: float | None = None  # Discount at the end; it changes linearly. None: as at the start.
    gae_lambda: float = 0.95  # Weight of longer advantage estimates (GAE).
    clip: float = 0.2  # Relative change of a probability beyond which it earns nothing more.
    value_clip: float = 0.0  # Largest change of a value in an update; 0 does not clip.
    value_weight: float = 0.5  # Weight of the value loss.
    max_grad_norm: float = 0.5  # Gradients that are longer are shortened to this.
    target_kl: float = 0.0  # An update ends early once its KL divergence exceeds 1.5 times this; 0 never ends early.
    normalise_advantages: bool = True  # Give the advantages of an update mean 0 and standard deviation 1.
    reward_scale: float = 0.1  # Rewards are multiplied by this before they are learned from.
    # What follows a truncated episode: the value of its last observation (`bootstrap`), or nothing (`terminal`).
    # With `auto` it is `terminal` if the agent sees how many steps remain, since then the end is part of the state.
    time_limit: Literal["auto", "bootstrap", "terminal"] = "auto"
    hidden: tuple[int, ...] = (64, 64)  # Sizes of the hidden layers.
    activation: Literal["relu", "tanh"] = "relu"  # Activation between layers. tanh takes ten times as long as relu.
    shared: bool = False  # One body for actor and critic instead of one each.
    shards: int = 2  # Parts that each minibatch (and the native environments) are cut into. Results depend on it.
    threads: Annotated[int | None, OPTIONAL] = None  # Threads for the shards. Default: one each, up to the cores.

    def __post_init__(self) -> None:
        require(self, ("update_steps", "epochs", "minibatch_size", "shards", "threads"), lambda v: v >= 1, AT_LEAST_1)
        at_most = f"must be at most --minibatch-size {self.minibatch_size}"
        require(self, ("shards",), lambda v: v <= self.minibatch_size, at_most)
        positive = ("learning_rate", "max_grad_norm", "reward_scale", "clip")
        require(self, positive, lambda v: v > 0, "must be more than 0")
        require(self, ("gamma", "final_gamma", "gae_lambda"), lambda v: 0 <= v <= 1, "must be from 0 to 1")
        require(self, ("hidden",), lambda v: v and min(v) >= 1, "must be one or more sizes of at least 1")


#: Where `stockade train` begins, as far as it isn't the learner's own default: what was best for the champion too. The
#: score isn't discounted, but without a discount at the start some seeds stay on a plateau.
LEARNER = PPOConfig(final_gamma=1.0, minibatch_size=1280, learning_rate=2e-3)


@dataclass(frozen=True)
class TrainConfig:
    """Train a PPO agent that defends the network, or attacks it. Settings, metrics and checkpoints go to runs/NAME."""

    # Who attacks: bline, meander, sleep, mix (one of the three, chosen anew each episode), or CybORG's class names
    # B_lineAgent, RedMeanderAgent, SleepAgent. Several, with their shares of the environments: bline:9,meander:9.
    red: Annotated[str, tyro.conf.arg(name="red-agent", metavar="NAME")] = "bline"
    side: Literal["blue", "red"] = "blue"  # Who learns: blue defends, red attacks the defender that --blue names.
    # With --side red, who defends: any policy that `stockade evaluate` takes. Several, with their shares of the
    # environments: champion:3,react-restore.
    blue: Annotated[str, tyro.conf.arg(metavar="POLICY")] = "champion"
    total_episodes: int = 100_000  # Episodes to train for.
    horizon: Annotated[int, tyro.conf.arg(name="max-steps")] = 100  # Steps per episode.
    rules: Literal["current", "leaderboard", "both"] = "current"  # Rule set; with both, half of the environments each.
    n_envs: int = 256  # Environments that run at once.
    seed: int = 0  # Seed of everything: the same seed gives the same agent, bit for bit.
    # Start from the settings of a preset; other flags change single ones. The shipped policies have theirs: `champion`
    # and `challenger`, `oracle`, for attackers `nemesis`. A short one that beats the challenge's winner is `sprint`.
    preset: Annotated[Literal["champion", "challenger", "oracle", "sprint", "nemesis"] | None, OPTIONAL] = None
    name: Annotated[str | None, OPTIONAL] = None  # Name of the run. Default: made of attacker, observation and seed.
    resume: Annotated[str | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None
    """Continue this run (name or folder) from its last checkpoint, with its own settings."""
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.
    start: Annotated[str | None, tyro.conf.arg(metavar="POLICY", help_behavior_hint="")] = None
    """Begin with the weights of this policy, for instance champion, instead of random ones."""
    # Train a defender against attackers that learn against it: in each round one more learns, and joins the pool.
    league: bool = False
    league_rounds: int = 4  # Rounds of a league; each has its share of the episodes.
    league_episodes: int = 20_000  # Episodes for which each attacker of a league learns.
    # What the agent sees: bits (52 of them), memory (these and what it knows from its own history), or belief (what red
    # probably holds and knows, too: from its own history); belief:256 has room for 256 possible worlds, not 64.
    obs: Annotated[str, tyro.conf.arg(metavar="VIEW")] = "memory"
    # What the critic sees while it learns: what the agent sees, or also the true state. The agent itself never sees it.
    critic: Literal["observation", "truth"] = "observation"
    horizons: str = ""  # Episodes of several lengths instead, with their shares of the environments: 30,50,100:2.
    # With both rule sets, the agent knows which of them applies: by one more bit, or because its belief takes no other
    # to be possible.
    tell_rules: bool = True
    # Share of the environments in which it does not know them after all, but has to find out: for a belief.
    untold: float = 0.0
    # Points that such an agent is paid at first for finding them out; runs out over the first 60% of the training.
    rules_bonus: float = 0.0
    # Weights of the parts of the reward that the agent learns from; evaluations always use the challenge's reward.
    reward: RewardWeights = CHALLENGE_REWARD
    action_mask: bool = True  # Leave out the 63 decoy actions that can never succeed.
    backend: Literal["native", "serial", "pipes", "shared_memory", "async"] = "native"  # How the environments are run.
    # Learn by PyTorch on a device. With `cuda`, environments, rollout and update are on a GPU. `cpu` runs the same code
    # without one, slower than the compiled learner that is the default.
    device: Annotated[Literal["cpu", "cuda"] | None, OPTIONAL] = None
    checkpoint_episodes: int = 5_000  # Episodes from one checkpoint to the next.
    keep_checkpoints: int = 3  # Checkpoints that are kept, beside the best.
    # Greedy episodes per kind of world at each checkpoint, on seeds of their own: the checkpoint with the highest sum
    # of mean returns is the best. With 0 the returns of training decide.
    validation_episodes: int = 0
    tensorboard: bool = True  # Write TensorBoard events too.
    ppo: Annotated[PPOConfig, tyro.conf.arg(name="PPO"), tyro.conf.OmitArgPrefixes] = LEARNER
    """The learner. The defaults suit CAGE 2; docs/guides/training.md explains them."""

    def __post_init__(self) -> None:
        counts = ("total_episodes", "n_envs", "horizon", "checkpoint_episodes", "keep_checkpoints", "league_rounds")
        require(self, (*counts, "league_episodes"), lambda v: v >= 1, AT_LEAST_1)
        if self.critic == "truth":
            sees, alone = "needs an actor of its own: leave out", "needs the compiled learner on native environments: "
            require(self.ppo, ("shared",), lambda v: not v, f"{sees} --shared beside --critic truth")
            require(self, ("device",), lambda v: v is None, f"{alone}leave it out beside --critic truth")
            require(self, ("backend",), lambda v: v == "native", f"{alone}leave it out beside --critic truth")
            require(
                self, ("side",), lambda v: v == "blue", "is of no use beside --critic truth: red sees its own truth"
            )
        if self.league:
            require(self, ("side",), lambda v: v == "blue", "cannot have a league: its defender learns")
            require(self, ("rules",), lambda v: v != "both", "cannot have a league: take one rule set")
            require(self, ("backend",), lambda v: v == "native", "cannot have a league: take native")
        require(self, ("validation_episodes",), lambda v: v >= 0, "must be 0 or more")
        require(self, ("untold",), lambda v: 0 <= v < 1, "must be below 1; for all of them take --no-tell-rules")
        require(self, ("untold",), lambda v: not v or self.belief_rules, "is for --rules both and --obs belief")
        believes = self.obs.split(":")[0] == "belief" and self.side == "blue" and not self.device
        problem = "must be 0 or more, and is for a defender with --rules both and --obs belief, without --device"
        require(self, ("rules_bonus",), lambda v: not v or (v > 0 and self.rules == "both" and believes), problem)
        if self.device:
            beside = f"is not possible beside --device {self.device}"
            require(self, ("side",), lambda v: v == "blue", f"{beside}, where only blue learns")
            require(self, ("league",), lambda v: not v, f"{beside}, whose attackers are scripted")
            require(self, ("backend",), lambda v: v == "native", f"{beside}: leave it out")
        one_of_both = f"is of no use beside --horizons {self.horizons}: leave one out"
        require(self, ("horizon",), lambda v: not self.horizons or v == TrainConfig.horizon, one_of_both)
        require_seed(self)
        if self.side == "red":
            require(self, ("red",), lambda v: v == "bline", "is of no use beside --side red, which learns to attack")
            require(self, ("backend",), lambda v: v == "native", "is of no use beside --side red: it takes native")
        else:
            require(self, ("blue",), lambda v: v == TrainConfig.blue, "is who defends with --side red: add that")

    def run(self) -> int:
        """Train; the exit code is 128 + the number of the signal that ended it, 1 if its end is not on disk."""
        from stockade.cage2.prepare import prepare

        require_packages("torch", "safetensors")
        prepare(None)  # before the slow import of Torch: a first compilation says at once what it is
        with startup.interrupts_at_once():
            from stockade.learn.train import train

        result = train(self)
        if result.stopped is not None:
            print(f"stopped by {signal.Signals(result.stopped).name} after {plural(result.episodes, 'episode')}; "
                  f"continue with: stockade train --resume {result.folder}", file=sys.stderr)  # fmt: skip
        if not result.saved:
            print(f"{result.folder}: what it reached is not all on disk (see the warnings): make room, then stockade "
                  f"train --resume {result.folder} continues from the last checkpoint", file=sys.stderr)  # fmt: skip
        return 128 + result.stopped if result.stopped is not None else 0 if result.saved else 1

    @classmethod
    def of_preset(cls, name: str) -> "TrainConfig":
        """Settings that were found good and are worth a name."""
        if name not in PRESETS:
            near = did_you_mean(name, PRESETS)
            raise SettingError("preset", name, f"is unknown; take one of {', '.join(PRESETS)}.{near}")
        return PRESETS[name]

    @classmethod
    def resumed(cls, name: str, runs: Path) -> "TrainConfig":
        """The settings of a run, to continue it with."""
        return replace(read_config(find_run(name, runs)), resume=name, runs=runs)

    @property
    def context_rules(self) -> bool:
        """Whether the agent's context says which rules it plays by."""
        return self._tells_rules and not self._believes

    @property
    def belief_rules(self) -> bool:
        """Whether the agent's belief knows which rules it plays by."""
        return self._tells_rules and self._believes

    @property
    def _tells_rules(self) -> bool:
        return self.rules == "both" and self.tell_rules

    @property
    def _believes(self) -> bool:
        return self.obs.split(":")[0] in ("belief", "truth")

    def to_json(self) -> dict[str, Any]:
        """What decides the result, for config.json."""
        return {name: v for name, v in asdict(self).items() if name not in ("preset", "name", "runs", "resume")}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Back from config.json; that of version 0.1.0 too."""
        return from_json(cls, {RENAMED.get(name, name): value for name, value in content.items()})


def read_config(run: Path) -> TrainConfig:
    """Settings of a run, by its folder."""
    try:
        content = json.loads((run / "config.json").read_text())
        del content["stockade"]
        return TrainConfig.from_json(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{run / 'config.json'} cannot be used: {error}") from error


# -------------------------------------------------------------------------------------------------------------- presets
#: One policy against every attacker and over every horizon; docs/results/champion.md says why each setting is so.
#: Long episodes against Meander take the longest to learn, so they have the largest share. `--rules leaderboard` gives
#: the other one.
CHAMPION = TrainConfig(
    preset="champion",
    red="bline:6,meander:18,sleep:1",
    horizons="30,50:2,100:3",
    total_episodes=400_000,
    checkpoint_episodes=20_000,
    validation_episodes=500,
)
#: An agent that sees the true state: what it does better than others is what information is worth. The shipped one
#: began as one that had met only Meander, by the rules `leaderboard`: few seeds find what is best against that.
ORACLE = replace(
    CHAMPION,
    preset="oracle",
    rules="both",
    obs="truth",
    total_episodes=160_000,
    checkpoint_episodes=20_000,
    validation_episodes=300,
    ppo=replace(CHAMPION.ppo, learning_rate=1e-3),
)
#: One policy by both rule sets, which knows what the challenge shows and its own actions; in some of the environments
#: the rules too, so that it can be played either way. It begins as the one that sees the true state and goes on with
#: what it believes. Active green, pauses and a change of attacker have a share: the belief knows them. So have
#: attackers that it does not know, for it must hold where its belief is wrong.
CHALLENGER = replace(
    CHAMPION,
    preset="challenger",
    start="oracle",
    red="bline:8,meander:12,"
    "sleep|bline+green:0.25|meander+green:0.25|bline+idle:0.2|meander+idle:0.2|meander>bline@20-80:4,"
    "bline+delay:15|meander+delay:6|bline+noise:0.2|meander+noise:0.2|bline-detour|meander-aggressive:3.5",
    obs="belief:32:both:bline|meander|sleep|bline+green:0.25|meander+green:0.25|bline+idle:0.2|meander+idle:0.2|"
    "meander>bline@20-80",
    rules="both",
    critic="truth",
    untold=0.5,
    rules_bonus=4.0,
    total_episodes=400_000,
    checkpoint_episodes=50_000,
    validation_episodes=20,
    ppo=replace(CHAMPION.ppo, learning_rate=1.5e-3),
)
#: The challenge's winner beaten as early as possible: fewer environments, so more updates for the same episodes, with
#: a higher rate. `stockade bench time-to-score` measures it.
SPRINT = replace(
    CHAMPION,
    preset="sprint",
    rules="leaderboard",
    total_episodes=80_000,
    n_envs=128,
    checkpoint_episodes=2_000,
    ppo=replace(CHAMPION.ppo, learning_rate=3e-3),
)
#: An attacker against one defender. `--blue` says against whom.
NEMESIS = TrainConfig(
    preset="nemesis",
    side="red",
    total_episodes=30_000,
    checkpoint_episodes=3_000,
    validation_episodes=500,
    ppo=PPOConfig(),
)
PRESETS = {preset.preset: preset for preset in (CHAMPION, CHALLENGER, ORACLE, SPRINT, NEMESIS) if preset.preset}
