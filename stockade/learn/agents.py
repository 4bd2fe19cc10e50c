"""From a name to something that plays: baselines, trained runs, and the policies that ship with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stockade.baselines import BASELINES, BluePolicy, make_baseline
from stockade.errors import InputError
from stockade.learn.config import needs_training_packages

if TYPE_CHECKING:
    from stockade.learn.policy import Policy

#: Policies in the package: `<name>.json` and its arrays, checkpoints like any other.
SHIPPED = Path(__file__).parent / "weights"


class Agent:
    """A trained policy at play.

    Args:
        policy: the network.
        obs: what it sees, `bits` or `memory`.
        greedy: always take the likeliest action instead of drawing one.
    """

    def __init__(self, policy: Policy, obs: str, greedy: bool = False) -> None:
        self.policy, self.obs, self.greedy = policy, obs, greedy

    def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """(n,) int64 for (n, size) observations."""
        return self.policy.act(observations, None if self.greedy else generator)


def load(name: str, runs: Path = Path("runs"), *, greedy: bool = False, last: bool = False) -> BluePolicy:
    """A policy that can be played on any backend.

    Args:
        name: a baseline (`sleep`, `random`, `react-remove`, `react-restore`, `greedy`), a shipped policy, the name of a
            run, or a run's folder.
        runs: folder of all runs.
        greedy: play the likeliest action; for trained policies only.
        last: take a run's last checkpoint instead of its best.
    """
    if name == "react" or name in BASELINES:
        return make_baseline(name)
    try:
        import torch

        from stockade.learn.checkpoint import CheckpointFolder
        from stockade.learn.checkpoint import load as load_checkpoint
        from stockade.learn.policy import Architecture, Policy
    except ModuleNotFoundError as error:
        raise needs_training_packages(error) from error

    if (SHIPPED / f"{name}.json").exists():
        checkpoint = load_checkpoint(SHIPPED / name)
    else:
        folder = next((f for f in (runs / name, Path(name)) if (f / "checkpoints").is_dir()), None)
        if folder is None:
            raise InputError(f"{name!r} is neither a baseline ({', '.join(BASELINES)}), nor a run in {runs}, nor the "
                             "folder of a run")  # fmt: skip
        checkpoints = CheckpointFolder(folder / "checkpoints")
        checkpoint = checkpoints.load_last() if last else checkpoints.load_best()
    torch.set_num_threads(1)  # products as small as these are slower on several
    policy = Policy(Architecture.from_json(checkpoint.rest["architecture"]))
    prefix = "policy."
    policy.load_weights({k.removeprefix(prefix): v for k, v in checkpoint.arrays.items() if k.startswith(prefix)})
    return Agent(policy, checkpoint.rest["obs"], greedy)
