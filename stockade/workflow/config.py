"""The settings of a workflow search: a dataclass that the command line is made of. Nothing here imports Torch."""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tyro

from stockade import startup
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights, WorldConfig
from stockade.errors import InputError, flag_of
from stockade.files import JsonFile
from stockade.learn.config import AT_LEAST_1, OPTIONAL, PPOConfig, from_json, require, require_seed

#: Version of config.json; that of 0.1.0 has none.
FORMAT = 2
#: Steps of all environments in which the bonus of Restores runs out (conditioned.py), or half of a smaller budget. With
#: a third of them some trainings still gave up Restores, with twice as many one never learned to save them.
BONUS_STEPS = 1_200_000
_FIRST_VERSION = tyro.conf.arg(name="--constraint reward")


@dataclass(frozen=True)
class RewardFlags:
    """Flags of `--constraint reward`, the first version's way. None: not given; RewardProtocol has the defaults."""

    # Weight of the compliance rate: each fix pays this times the change of the episode's rate. Default 30.
    alignment_lambda: Annotated[float | None, OPTIONAL] = None
    # Taken off at the end of an episode without a judged fix. Default 0.
    no_fix_penalty: Annotated[float | None, OPTIONAL] = None
    compliant_bonus: Annotated[float | None, OPTIONAL] = None  # Paid for each fix that complies. Default 0.
    violation_penalty: Annotated[float | None, OPTIONAL] = None  # Taken off for each fix that does not. Default 0.
    # Whether red's foothold on User0, which nobody can remove, makes `user` a compromised type. Default: ignore.
    foothold: Annotated[Literal["ignore", "count"] | None, OPTIONAL] = None
    # What a fix is while nothing is compromised: neither right nor wrong (the default), or wrong.
    idle_fixes: Annotated[Literal["neutral", "violate"] | None, OPTIONAL] = None
    # What an episode without a judged fix counts in the mean compliance. By default it does not count.
    no_fix_compliance: Annotated[float | None, OPTIONAL] = None
    # Judged fixes per episode, on average, that compliance must rest on to end a training. Default 1.
    min_fixes: Annotated[float | None, OPTIONAL] = None
    # A training whose policy complies at least so much is done, and feasible. Default 0.95.
    compliance_threshold: Annotated[float | None, OPTIONAL] = None
    # Updates without a gain of compliance of more than 0.01 that end a training. Default 20.
    patience: Annotated[int | None, OPTIONAL] = None
    # Train every order for exactly --max-episodes; no threshold, no plateau.
    fixed_episodes: Annotated[bool | None, OPTIONAL] = None
    # Episodes of one training before compliance or a plateau may end it. Default 8,000.
    min_episodes: Annotated[int | None, OPTIONAL] = None
    # Weights that a training begins with: new ones (the default), or those of an earlier training.
    inherit: Annotated[Literal["none", "last", "nearest", "same"] | None, OPTIONAL] = None


@dataclass(frozen=True)
class RewardProtocol:
    """The same with every value filled in."""

    alignment_lambda: float = 30.0
    no_fix_penalty: float = 0.0
    compliant_bonus: float = 0.0
    violation_penalty: float = 0.0
    foothold: Literal["ignore", "count"] = "ignore"
    idle_fixes: Literal["neutral", "violate"] = "neutral"
    no_fix_compliance: float | None = None
    min_fixes: float = 1.0
    compliance_threshold: float = 0.95
    patience: int = 20
    fixed_episodes: bool = False
    min_episodes: int = 8_000
    inherit: Literal["none", "last", "nearest", "same"] = "none"

    def __post_init__(self) -> None:
        require(self, ("compliance_threshold",), lambda v: 0 <= v <= 1, "must be from 0 to 1")
        require(self, ("patience",), lambda v: v >= 1, AT_LEAST_1)
        require(self, ("min_fixes", "min_episodes"), lambda v: v >= 0, "must be 0 or more")


@dataclass(frozen=True)
class SearchConfig:
    """Find the repair order that defends best: by how much, how surely, and whether it matters."""

    # Who attacks: bline, meander, sleep, mix, or the reference's class names B_lineAgent, RedMeanderAgent,
    # SleepAgent. Several, separated by commas (bline,meander), give each order's value by attacker, their mean and
    # their worst.
    red: Annotated[str, tyro.conf.arg(name="red-agent", metavar="NAMES")] = "bline"
    horizon: Annotated[int, tyro.conf.arg(name="max-steps")] = 100  # Steps of an episode.
    # Training episodes of the whole search; never exceeded. Default 100,000. With --resume a larger number extends a
    # search that is finished.
    total_episodes: Annotated[int | None, OPTIONAL] = None
    units: Literal["types", "hosts"] = "types"  # What an order puts in sequence: the five unit types, or single hosts.
    # strict: a fix that the order forbids is not carried out. reward: the first version's way, where an agent is paid
    # for compliance and may violate.
    constraint: Literal["strict", "reward"] = "strict"
    # Who says what is compromised: the true state, or blue's own observation, which needs nothing hidden.
    judge: Literal["truth", "observed"] = "truth"
    # One policy for all orders that sees its order (the default of strict), or one training per order, chosen by
    # GP-UCB (the only way of reward).
    train: Annotated[Literal["together", "separate"] | None, OPTIONAL] = None
    # With several attackers: the best order has the highest mean over them, or the highest worst.
    goal: Literal["mean", "worst"] = "mean"
    # Orders whose values differ by less count as equal. Default: the larger of 0.3 points and 3%.
    margin: Annotated[float | None, OPTIONAL] = None
    # Confirm the verdict: train the leader and its best rival alone, from scratch, with so many seeds each.
    certify: int = 0
    rules: Literal["current", "leaderboard"] = "current"  # Rule set.
    # What the agent sees beside its order: the 52 bits of the challenge, or these and its own history.
    obs: Literal["bits", "memory"] = "memory"
    n_envs: int = 200  # Environments that run at once.
    # Greedy episodes that every order is judged by at the end, on the same seeds for all. They do not count against
    # the budget. Default 4,000; with reward 0, which judges by the last training episodes.
    n_eval_episodes: Annotated[int | None, OPTIONAL] = None
    # Steps of each environment between two updates. Default: whole episodes, --max-steps + 1.
    update_steps: Annotated[int | None, OPTIONAL] = None
    seed: int = 0  # Of everything. The same seed gives the same search.
    name: Annotated[str | None, OPTIONAL] = None  # Of the run. Default: made of attacker and seed.
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.
    # Continue this search, a name or a folder. Its own settings decide its result.
    resume: Annotated[str | None, tyro.conf.arg(metavar="SEARCH", help_behavior_hint="")] = None
    plots: bool = True  # Draw pictures at the end.
    json: JsonFile = None  # Write the summary to this file too; - for standard output.
    # Separate trainings: so many at most. Default: as many as the budget allows.
    n_workflows: Annotated[int | None, OPTIONAL] = None
    max_episodes: Annotated[int | None, OPTIONAL] = None  # Separate trainings: episodes of one at most. Default 12,000.
    # Separate trainings: how the next order is chosen.
    search: Literal["gp-ucb", "random", "round-robin", "all"] = "gp-ucb"
    gp_beta: float = 2.0  # Separate trainings: standard deviations above the mean that GP-UCB looks at.
    # Separate trainings: similarity of orders, exp(-theta x Kendall distance), or of Spearman's.
    kernel: Literal["mallows", "spearman"] = "mallows"
    classes: bool = True  # Treat orders as equal that differ only in units which red never holds.
    parallel: int = 1  # Separate trainings and --certify: so many at once, each in a process of its own.
    # Where separate trainings run: on this machine, or on Ray, which may be a cluster.
    engine: Literal["local", "ray"] = "local"
    address: Annotated[str | None, OPTIONAL] = None  # Of the Ray cluster, HOST:PORT or `auto`.
    num_cpus_per_workflow: float = 1.0  # With --engine ray: CPUs, and threads, of each training.
    reward: RewardWeights = CHALLENGE_REWARD  # Weights of the parts of the reward that the values are made of.
    # The first version's way; docs/concepts/compliance.md says why it does not rank orders.
    first_version: Annotated[RewardFlags, _FIRST_VERSION, tyro.conf.OmitArgPrefixes] = RewardFlags()

    def __post_init__(self) -> None:
        for red in self.reds:
            WorldConfig(red=red, horizon=self.horizon)
        counts = ("n_envs", "parallel", "n_workflows", "update_steps", "max_episodes", "total_episodes")
        require(self, counts, lambda v: v >= 1, AT_LEAST_1)
        require_seed(self)
        amounts = ("n_eval_episodes", "gp_beta", "certify", "margin")
        require(self, amounts, lambda v: v >= 0, "must be 0 or more")
        require(self, ("red",), lambda v: len(set(self.reds)) == len(self.reds), "must be different attackers")
        require(self, ("n_envs",), lambda v: v >= 2 * len(self.reds), "must be at least two per attacker")
        if self.resume is None:
            one_each = ("counts the episodes of all environments together and must be at least --n-envs "
                        f"{self.n_envs}, one each; for k episodes each say k times that")  # fmt: skip
            require(self, ("max_episodes", "total_episodes"), lambda v: v >= self.n_envs, one_each)
        if self.constraint == "strict":
            least = "must be at least 2: they give the values of the orders"
            require(self, ("n_eval_episodes",), lambda v: v >= 2, least)
        else:
            there = "with --constraint reward"
            require(self, ("train",), lambda v: v == "separate", f"must be separate {there}")
            require(self, ("units",), lambda v: v == "types", f"must be types {there}")
            require(self, ("red",), lambda v: len(self.reds) == 1, f"must be one attacker {there}")
            require(self, ("judge",), lambda v: v == "truth", f"must be truth {there}")
            require(self, ("certify",), lambda v: v == 0, f"must be 0 {there}: every order is trained alone anyway")
            most = f"must be at most --max-episodes {self.task_episodes}"
            require(self.protocol, ("min_episodes",), lambda v: v <= self.task_episodes, most)
        if self.units == "hosts":
            too_many = "must be together with --units hosts: there are too many orders"
            require(self, ("train",), lambda v: v == "together", too_many)
        whole = "must be a whole number, or above 0 and below 1"
        require(self, ("num_cpus_per_workflow",), lambda v: 0 < v < 1 or (v >= 1 and v % 1 == 0), whole)
        if self.engine != "ray":
            require(self, ("address",), lambda v: False, "is of a Ray cluster: say --engine ray too")
            require(self, ("num_cpus_per_workflow",), lambda v: v == 1, "must be left out without --engine ray")
        client = ("cannot carry a search, for it is Ray's client protocol; run it on a node of the cluster (a head "
                  "without CPUs of its own will do) with --address auto")  # fmt: skip
        require(self, ("address",), lambda v: not v.startswith("ray://"), client)

    @property
    def reds(self) -> tuple[str, ...]:
        """The attackers, by their short names."""
        return tuple(WorldConfig(red=part.strip()).red for part in self.red.split(","))

    @property
    def separate(self) -> bool:
        return self.constraint == "reward" or self.train == "separate"

    @property
    def budget(self) -> int:
        return self.total_episodes or 100_000

    @property
    def enough_episodes(self) -> float:
        """With a smaller budget the bonus of Restores runs out too soon, and some orders may look hopeless."""
        return 2 * BONUS_STEPS / self.horizon

    @property
    def task_episodes(self) -> int:
        """Training episodes of one separate training at most."""
        return self.max_episodes or 12_000

    @property
    def update_episodes(self) -> int:
        """Training episodes that an update plays at most."""
        return self.n_envs * -(-self.ppo.update_steps // (self.horizon + 1))

    @property
    def judged_episodes(self) -> int:
        """Greedy episodes that an order is judged by."""
        default = 0 if self.constraint == "reward" else 4_000
        return default if self.n_eval_episodes is None else self.n_eval_episodes

    @property
    def protocol(self) -> RewardProtocol:
        given = {name: value for name, value in asdict(self.first_version).items() if value is not None}
        return RewardProtocol(**given)

    @property
    def ppo(self) -> PPOConfig:
        base = PPOConfig(update_steps=self.update_steps or self.horizon + 1, minibatch_size=1280, learning_rate=2e-3)
        if self.constraint == "reward":  # short trainings: a shorter view ahead and more, larger steps learn faster
            return replace(base, final_learning_rate=3e-4, entropy_weight=0.003, gamma=0.95, gae_lambda=0.9)
        return replace(base, final_learning_rate=1e-4, entropy_weight=0.01, gamma=0.99, final_gamma=1.0)

    def without_effect(self) -> list[str]:
        """Flags that were given and change nothing, each with the reason."""
        changed, found = set(_changed(self)), {}
        if self.constraint == "strict":
            found = dict.fromkeys(_changed(self.first_version), "--constraint strict")
        if len(self.reds) == 1:
            found |= dict.fromkeys(changed & {"goal"}, "a single attacker")
        if self.separate and self.search != "gp-ucb":
            found |= dict.fromkeys(changed & {"gp_beta", "kernel"}, f"--search {self.search}")
        if not self.separate:
            used = {*(_CERTIFY if self.certify else ()), *(["gp_beta"] if self.units == "hosts" else ())}
            found |= dict.fromkeys(changed & (_SEPARATE - used), "--train together")
        return [f"{flag_of(name)} has no effect with {where}" for name, where in sorted(found.items())]

    def run(self) -> int:
        """Search; the exit code is 130 after Ctrl-C and 143 after SIGTERM."""
        with startup.interrupts_at_once():
            from stockade.workflow.search import search  # not before it is needed: brings Torch along

        return search(self).exit_code

    def to_json(self) -> dict[str, Any]:
        """What decides the result, for config.json."""
        content = {name: value for name, value in asdict(self).items() if name not in _ELSEWHERE}
        content["first_version"] = asdict(self.protocol) if self.constraint == "reward" else {}
        return {"format": FORMAT, **content}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        content = dict(content)
        if content.pop("format", 1) != FORMAT:
            raise InputError("this search is of another version of Stockade and cannot be continued; its policies can "
                             "be evaluated and its summary.json read")  # fmt: skip
        return from_json(cls, content)

    @classmethod
    def resumed(cls, name: str, runs: Path, /, **session: Any) -> "SearchConfig":
        """The settings of a search, to continue it with; those of a session are the defaults, unless given."""
        from stockade.workflow.store import SearchFolder

        own = SearchFolder.find(name, runs).read_config()
        for each in own.of_a_session:
            session.setdefault(each, getattr(cls, each))
        return replace(own, **{**session, "resume": name, "runs": runs})

    @property
    def of_a_session(self) -> set[str]:
        """Settings that may be others when it is continued: where and how, not what."""
        certifying = set() if self.separate else {"max_episodes"}
        return {*_ELSEWHERE, "certify", "parallel", *certifying}


#: Settings that do not decide the result, so that config.json lacks them.
_ELSEWHERE = ("name", "runs", "resume", "plots", "json", "engine", "address", "num_cpus_per_workflow")
_CERTIFY = {"parallel", "engine", "address", "num_cpus_per_workflow", "max_episodes"}
_SEPARATE = {"n_workflows", "search", "gp_beta", "kernel", *_CERTIFY}


def _changed(config: RewardFlags | SearchConfig) -> list[str]:
    return [f.name for f in fields(config) if getattr(config, f.name) != f.default]
