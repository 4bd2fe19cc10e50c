"""The settings of training and evaluation: dataclasses that the command line is made of. Nothing here imports Torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from stockade.errors import InputError


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation. The defaults are for CAGE 2; see docs/training.md."""

    update_steps: int = 100
    """Steps that each environment makes between two updates."""
    epochs: int = 4
    """Times that an update goes over its steps."""
    minibatch_size: int = 2560
    """Steps of one gradient, about: the steps of an update are split evenly."""
    learning_rate: float = 1e-3
    """Of Adam, at the start."""
    final_learning_rate: float = 0.0
    """At the end; it changes linearly with the episodes played."""
    entropy_weight: float = 0.01
    """Weight of the entropy bonus at the start."""
    final_entropy_weight: float = 0.0
    """At the end; it changes linearly with the episodes played."""
    gamma: float = 0.99
    """Discount a step, at the start."""
    final_gamma: float | None = None
    """At the end; it changes linearly with the episodes played. Default: the same as at the start."""
    gae_lambda: float = 0.95
    """Weight of longer advantage estimates."""
    clip: float = 0.2
    """How far a probability may move, relatively, before it earns nothing more."""
    value_clip: float = 0.0
    """How far a value may move in an update; 0 does not clip."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients that are longer are shortened to this."""
    target_kl: float = 0.0
    """An update ends early once its KL divergence is half as large again; 0 never ends early."""
    normalise_advantages: bool = True
    """Give the advantages of an update mean 0 and standard deviation 1."""
    reward_scale: float = 0.1
    """Rewards are multiplied by this before they are learned from."""
    time_limit: Literal["auto", "bootstrap", "terminal"] = "auto"
    """What a truncated episode goes on with: the value of its last observation, or nothing. `auto` is `terminal` if the
    agent sees how many steps are left, since then the end is part of the state, else `bootstrap`."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    activation: Literal["relu", "tanh"] = "relu"
    """Between layers. tanh takes ten times as long as relu."""
    shared: bool = False
    """One body for actor and critic instead of one each."""
    shards: int = 2
    """Parts that each minibatch (and the native environments) are cut into. Results depend on it."""
    threads: int | None = None
    """Threads that work on the shards; results do not depend on it. Default: one a shard, if there are the cores."""

    def __post_init__(self) -> None:
        """Refuse what could not work, before any work."""
        for name in ("update_steps", "epochs", "minibatch_size", "shards"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("learning_rate", "max_grad_norm", "reward_scale", "clip"):
            _check(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        for name in ("gamma", "gae_lambda"):
            _check(0 <= getattr(self, name) <= 1, name, getattr(self, name), "from 0 to 1")
        _check(self.final_gamma is None or 0 <= self.final_gamma <= 1, "final_gamma", self.final_gamma, "from 0 to 1")
        _check(len(self.hidden) >= 1 and min(self.hidden) >= 1, "hidden", self.hidden, "one or more sizes")
        _check(self.threads is None or self.threads >= 1, "threads", self.threads, "at least 1")


@dataclass(frozen=True)
class TrainConfig:
    """Train a PPO agent; everything about the run goes to runs/NAME."""

    preset: Literal["champion"] | None = None
    """Begin with these settings instead of the defaults; other flags change single ones. `champion` is the recipe of
    the policy that ships with the package. In Python: stockade.learn.presets."""
    red_agent: str = "bline"
    """Who attacks: bline, meander, sleep, mix (one of the three, drawn anew each episode), or the reference's class
    names B_lineAgent, RedMeanderAgent, SleepAgent; or several with their shares of the environments:
    bline:9,meander:9,sleep:1."""
    total_episodes: int = 100_000
    """Episodes to train for."""
    n_envs: int = 256
    """Environments that run at once."""
    max_steps: int = 100
    """Steps of an episode."""
    horizons: str = ""
    """Episodes of several lengths instead, with their shares of the environments: 30,50,100:2."""
    rules: Literal["current", "leaderboard", "both"] = "current"
    """Rule set; with both, half of the environments each."""
    tell_rules: bool = True
    """With both rule sets, tell the agent by which it plays: one bit more to see."""
    obs: Literal["bits", "memory"] = "memory"
    """What the agent sees: the 52 bits of the challenge, or these and what it knows from its own history."""
    action_mask: bool = False
    """Leave out the 63 decoy actions that can never succeed."""
    backend: Literal["native", "serial", "pipes", "shared_memory", "async"] = "native"
    """How the environments are run."""
    seed: int = 0
    """Of everything. The same seed gives the same agent, bit for bit."""
    name: str | None = None
    """Of the run; default made of attacker, observation and seed."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    resume: str | None = None
    """Go on with this run, a name or a folder, from its last checkpoint; all other settings are the run's own."""
    checkpoint_episodes: int = 5_000
    """Episodes from one checkpoint to the next."""
    keep_checkpoints: int = 3
    """Checkpoints that are kept, beside the best."""
    validation_episodes: int = 0
    """At each checkpoint play so many episodes of each kind of world by the likeliest actions, on seeds of their own,
    and call the checkpoint with the highest sum of mean returns the best; 0 goes by the returns of training."""
    tensorboard: bool = True
    """Write TensorBoard events too."""
    ppo: Annotated[PPOConfig, tyro.conf.arg(name="")] = field(default_factory=PPOConfig)
    """Settings of the learner."""

    def __post_init__(self) -> None:
        """Refuse what could not work, before any work."""
        for name in ("total_episodes", "n_envs", "max_steps", "checkpoint_episodes", "keep_checkpoints"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("seed", "validation_episodes"):
            _check(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")

    def run(self) -> int:
        """Train; the exit code is 130 after Ctrl-C and 143 after SIGTERM."""
        try:
            from stockade.learn.train import command  # not before it is needed: brings Torch along
        except ModuleNotFoundError as error:
            raise needs_training_packages(error) from error
        return command(self)

    def to_json(self) -> dict[str, Any]:
        """What decides the result, for config.json."""
        content = asdict(self)
        for name in ("preset", "name", "runs", "resume"):
            del content[name]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TrainConfig:
        """Back from config.json."""
        ppo = {**content["ppo"], "hidden": tuple(content["ppo"]["hidden"])}
        unknown = (set(content) - {f.name for f in fields(cls)}) | (set(ppo) - {f.name for f in fields(PPOConfig)})
        if unknown:
            raise InputError(f"config.json has settings that this version does not know: {sorted(unknown)}")
        return cls(**{**content, "ppo": PPOConfig(**ppo)})


def _check(fine: bool, name: str, value: object, wanted: str) -> None:
    if not fine:
        raise InputError(f"{name}={value} is not possible; it must be {wanted}")


def needs_training_packages(error: ModuleNotFoundError) -> InputError:
    """What to say when Torch or safetensors are not installed."""
    return InputError(f"this needs {error.name}, which is not installed: pip install 'stockade[train]'")
