"""The settings of a workflow search: a dataclass that the command line is made of. Nothing here imports Torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from stockade.cage2.config import WorldConfig
from stockade.errors import InputError
from stockade.learn.config import PPOConfig


@dataclass(frozen=True)
class AlignmentConfig:
    """What an agent is paid for keeping to its order, beside the environment's reward."""

    alignment_lambda: float = 30.0
    """Weight of the compliance rate: each fix pays this times the change of the episode's rate, so that an episode pays
    this times its final rate."""
    no_fix_penalty: float = 0.0
    """Taken off at the end of an episode without a judged fix."""
    compliant_bonus: float = 0.0
    """Paid for each fix that complies."""
    violation_penalty: float = 0.0
    """Taken off for each fix that does not."""
    foothold: Literal["ignore", "count"] = "ignore"
    """Whether red's foothold on User0, which nobody can remove, makes `user` a compromised type."""
    idle_fixes: Literal["neutral", "violate"] = "neutral"
    """What a fix is while nothing is compromised: neither right nor wrong, or wrong."""
    no_fix_compliance: float | None = None
    """What an episode without a judged fix counts in the mean compliance; default: it has none and does not count."""


@dataclass(frozen=True)
class SearchConfig:
    """Search for the workflow (repair order) that defends best; everything about the search goes to runs/NAME."""

    red_agent: str = "bline"
    """Who attacks: bline, meander, sleep, mix, or the reference's class names B_lineAgent, RedMeanderAgent,
    SleepAgent."""
    n_envs: int = 200
    """Environments that run at once."""
    total_episodes: int = 100_000
    """Training episodes of the whole search, of all environments together; never exceeded."""
    n_workflows: int | None = None
    """Trainings at most; default: as many as the budget allows."""
    max_episodes: int = 12_000
    """Episodes of one workflow at most, of all environments together."""
    min_episodes: int = 8_000
    """Episodes of one workflow at least, before compliance or a plateau may end it; the learning rate falls until
    then. All workflows are judged after about the same training."""
    min_fixes: float = 1.0
    """Judged fixes an episode, on average, that compliance must rest on to end a workflow."""
    compliance_threshold: float = 0.95
    """A workflow whose policy complies at least so much is done, and feasible."""
    patience: int = 20
    """Updates without a gain of compliance of more than 0.01 after which a workflow has reached its plateau."""
    fixed_episodes: bool = False
    """Train every workflow for exactly --max-episodes; no threshold, no plateau."""
    n_eval_episodes: int = 0
    """Judge a workflow by so many greedy episodes after training; 0: by the last 3 training episodes of every
    environment. They do not count against the budget."""
    search: Literal["gp-ucb", "random", "round-robin", "all"] = "gp-ucb"
    """How the next workflow is chosen; `all` tries every class of equal orders once, in order."""
    gp_beta: float = 2.0
    """Standard deviations above the mean that GP-UCB looks at."""
    kernel: Literal["mallows", "spearman"] = "mallows"
    """Similarity of orders: exp(-theta x Kendall distance), or of Spearman's."""
    classes: bool = True
    """Treat orders as equal that differ only in types which red never holds; --no-classes for the plain 120."""
    inherit: Literal["none", "last", "nearest", "same"] = "none"
    """Weights that a workflow begins with: new ones, those of the last workflow, of the nearest by Kendall distance, or
    of the same workflow's earlier policy. What is inherited has been trained longer: later workflows look better."""
    parallel: int = 1
    """Workflows that are trained at once, each in a process of its own; the next are chosen by GP-BUCB."""
    engine: Literal["local", "ray"] = "local"
    """Where workflows are trained: on this machine, or on Ray, which may be a cluster; see docs/search.md."""
    address: str | None = None
    """Of the Ray cluster, HOST:PORT or `auto`; default: a Ray of this machine's own, or what RAY_ADDRESS names."""
    num_cpus_per_workflow: float = 1.0
    """With --engine ray: CPUs, and threads, of each workflow."""
    max_steps: int = 100
    """Steps of an episode."""
    update_steps: int | None = None
    """Steps of each environment between two updates; default: whole episodes, --max-steps + 1."""
    rules: Literal["current", "leaderboard"] = "current"
    """Rule set."""
    obs: Literal["bits", "memory"] = "memory"
    """What the agent sees beside its order: the 52 bits of the challenge, or these and its own history."""
    seed: int = 0
    """Of everything. The same seed gives the same search."""
    name: str | None = None
    """Of the run; default made of attacker and seed."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    resume: str | None = None
    """Go on with this search, a name or a folder; what decides its result are its own settings."""
    plots: bool = True
    """Draw pictures at the end."""
    json: Path | None = None
    """Write the summary to this file too."""
    alignment: Annotated[AlignmentConfig, tyro.conf.arg(name="")] = field(default_factory=AlignmentConfig)
    """The alignment reward."""

    def __post_init__(self) -> None:
        """Refuse what could not work, before any work."""
        WorldConfig(red=self.red_agent, horizon=self.max_steps)
        for name in ("n_envs", "patience", "parallel"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        _check(self.n_workflows is None or self.n_workflows >= 1, "n_workflows", self.n_workflows, "at least 1")
        _check(self.update_steps is None or self.update_steps >= 1, "update_steps", self.update_steps, "at least 1")
        _check(0 <= self.compliance_threshold <= 1, "compliance_threshold", self.compliance_threshold, "from 0 to 1")
        for name in ("seed", "n_eval_episodes", "min_episodes", "min_fixes", "gp_beta"):
            _check(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        for name in ("max_episodes", "total_episodes"):
            if getattr(self, name) < self.n_envs:
                raise InputError(
                    f"{_flag(name)} {getattr(self, name)} counts the episodes of all environments together and must "
                    f"be at least {_flag('n_envs')} {self.n_envs}, one each; for k episodes each say k times that"
                )
        _check(self.min_episodes <= self.max_episodes, "min_episodes", self.min_episodes, "at most max_episodes")
        self._check_engine()

    def _check_engine(self) -> None:
        cpus = self.num_cpus_per_workflow
        _check(0 < cpus < 1 or (cpus >= 1 and cpus == int(cpus)), "num_cpus_per_workflow", cpus,
               "a whole number, or above 0 and below 1")  # fmt: skip
        if self.engine != "ray":
            if self.address is not None:
                raise InputError(f"--address {self.address} is of a Ray cluster: say --engine ray too")
            _check(cpus == 1, "num_cpus_per_workflow", f"{cpus:g} without --engine ray", "left out there")
        elif (self.address or "").startswith("ray://"):
            raise InputError(f"--address {self.address}: Ray's client protocol cannot carry a search; run it on a node "
                             "of the cluster (a head without CPUs of its own will do) with --address auto")  # fmt: skip

    @property
    def ppo(self) -> PPOConfig:
        """The learner's settings: in short trainings, a shorter view ahead and more, larger steps learn faster."""
        return PPOConfig(
            update_steps=self.update_steps or self.max_steps + 1,
            minibatch_size=1280,
            learning_rate=2e-3,
            final_learning_rate=3e-4,
            entropy_weight=0.003,
            gamma=0.95,
            gae_lambda=0.9,
        )

    def run(self) -> int:
        """Search; the exit code is 130 after Ctrl-C and 143 after SIGTERM."""
        from stockade.workflow.plots import draw_search
        from stockade.workflow.search import search  # not before it is needed: brings Torch along

        return search(self, draw=draw_search)

    def to_json(self) -> dict[str, Any]:
        """What decides the result, for config.json."""
        content = asdict(self)
        for name in ("name", "runs", "resume", "plots", "json", "engine", "address", "num_cpus_per_workflow"):
            del content[name]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> SearchConfig:
        """Back from config.json."""
        alignment = content["alignment"]
        known = {f.name for f in fields(cls)}, {f.name for f in fields(AlignmentConfig)}
        unknown = (set(content) - known[0]) | (set(alignment) - known[1])
        if unknown:
            raise InputError(f"config.json has settings that this version does not know: {sorted(unknown)}")
        return cls(**{**content, "alignment": AlignmentConfig(**alignment)})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check(fine: bool, name: str, value: object, wanted: str) -> None:
    if not fine:
        raise InputError(f"{_flag(name)} {value} is not possible; it must be {wanted}")
