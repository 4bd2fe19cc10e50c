"""From a name to something that plays: baselines, trained runs, and the policies that ship with the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stockade.baselines import BASELINES, BluePolicy, make_baseline
from stockade.errors import InputError
from stockade.learn.config import needs_training_packages
from stockade.learn.mixture import rules_context

if TYPE_CHECKING:
    from stockade.learn.checkpoint import Checkpoint
    from stockade.learn.policy import Policy

#: Policies in the package: `<name>-<rules>.json` and its arrays, checkpoints like any other.
SHIPPED = Path(__file__).parent / "weights"


class Agent:
    """A trained policy at play.

    Args:
        policy: the network.
        obs: what it sees, `bits` or `memory`.
        greedy: always take the likeliest action instead of drawing one.
        context: bits that follow every observation, for instance the order of a workflow.
        card: what else was saved with it.
    """

    def __init__(
        self, policy: Policy, obs: str, greedy: bool = False, context: np.ndarray | None = None,
        card: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.policy, self.obs, self.greedy, self.context, self.card = policy, obs, greedy, context, card or {}

    def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """(n,) int64 for (n, size) observations."""
        if self.context is not None:
            observations = np.hstack([observations, np.tile(self.context, (len(observations), 1))])
        return self.policy.act(observations, None if self.greedy else generator)


def load(
    name: str, runs: Path = Path("runs"), *, greedy: bool = False, last: bool = False, rules: str = "current"
) -> BluePolicy:
    """A policy that can be played on any backend.

    Args:
        name: a baseline (`sleep`, `random`, `react-remove`, `react-restore`, `greedy`), a shipped policy, the name of a
            training run or of a search (whose best policy is taken), its folder, or a policy's file in a search.
        runs: folder of all runs.
        greedy: play the likeliest action; for trained policies only. Some say of themselves that they do.
        last: take a run's last checkpoint instead of its best.
        rules: rule set that it will play by: `champion` is a policy for each, others may get the rule set as context.
    """
    if name == "react" or name in BASELINES:
        return make_baseline(name)
    try:
        import torch

        from stockade.learn.checkpoint import load as load_checkpoint
        from stockade.learn.policy import Architecture, Policy
    except ModuleNotFoundError as error:
        raise needs_training_packages(error) from error

    if (SHIPPED / f"{name}-{rules}.json").exists():
        checkpoint = load_checkpoint(SHIPPED / f"{name}-{rules}")
    else:
        checkpoint = _find(name, runs, last)
    torch.set_num_threads(1)  # products as small as these are slower on several
    policy = Policy(Architecture.from_json(checkpoint.rest["architecture"]))
    prefix = "policy."
    policy.load_weights({k.removeprefix(prefix): v for k, v in checkpoint.arrays.items() if k.startswith(prefix)})
    rest = checkpoint.rest
    bits = rules_context(rules) if _entry(rest, "context_rules", "told_rules") else _entry(rest, "context", "told")
    context = None if bits is None else np.array(bits, np.uint8)
    return Agent(policy, rest["obs"], greedy or rest.get("greedy", False), context, rest)


def _entry(rest: dict[str, Any], name: str, old_name: str) -> Any:
    """What a checkpoint says; version 0.1.0 wrote it by another name."""
    return rest.get(name, rest.get(old_name))


def _find(name: str, runs: Path, last: bool) -> Checkpoint:
    """The checkpoint of a run, of a search's best workflow, or of a file."""
    from stockade.learn.checkpoint import CheckpointFolder
    from stockade.learn.checkpoint import load as load_checkpoint

    for folder in (runs / name, Path(name)):
        if (folder / "checkpoints").is_dir():
            checkpoints = CheckpointFolder(folder / "checkpoints")
            return checkpoints.load_last() if last else checkpoints.load_best()
        if (folder / "summary.json").exists():
            best = json.loads((folder / "summary.json").read_text())["best"]
            if best is None:
                raise InputError(f"no workflow of the search {folder} complied, so it has no best policy; name one of "
                                 f"its files in {folder / 'policies'}")  # fmt: skip
            return load_checkpoint((folder / best["policy"]).with_suffix(""))
        if folder.suffix == ".json" and folder.is_file():
            return load_checkpoint(folder.with_suffix(""))
    shipped = sorted({path.stem.rsplit("-", 1)[0] for path in SHIPPED.glob("*.json")})
    raise InputError(f"{name!r} is neither a baseline nor shipped ({', '.join([*BASELINES, *shipped])}), nor a run or "
                     f"search in {runs}, nor the folder of one, nor the file of a policy")  # fmt: skip
