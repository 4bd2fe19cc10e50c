"""From a name to something that plays: baselines, trained runs, and the policies that ship with the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stockade.baselines import BASELINES, Defender, make_baseline
from stockade.cage2.actions import N_ACTIONS
from stockade.errors import InputError, did_you_mean, missing_package
from stockade.learn.files import SHIPPED, builtin_names, check_runs, shipped_names
from stockade.learn.mixture import rules_context

if TYPE_CHECKING:
    from stockade.learn.checkpoint import Checkpoint
    from stockade.learn.policy import Policy

#: `builtin:NAME` is always the baseline or shipped policy, never a run.
BUILTIN = "builtin:"


class Agent(Defender):
    """A trained policy at play. It never changes Torch's global number of threads.

    Args:
        context: bits that follow every observation, for instance the order of a workflow.
        card: what else was saved with it.
        reward_scale: what rewards were multiplied by in training; `value` divides by it.
    """

    def __init__(
        self, policy: Policy, obs: str, greedy: bool = True, context: np.ndarray | None = None,
        card: dict[str, Any] | None = None, name: str = "agent", reward_scale: float = 1.0,
    ) -> None:  # fmt: skip
        self.policy, self.context = policy, np.zeros(0, np.uint8) if context is None else context
        self._reward_scale = reward_scale
        super().__init__(name, obs, policy.architecture.n_inputs - len(self.context), greedy, card)

    def __repr__(self) -> str:
        arch = self.policy.architecture
        episodes = self.card.get("episodes", self.card.get("trained", {}).get("episodes"))
        parts = [
            f"obs={self.obs!r} ({self._size} values)",
            f"context of {len(self.context)} bits" if len(self.context) else "",
            f"{len(arch.actions)} actions",
            f"hidden layers {' x '.join(map(str, arch.hidden))}",
            "greedy" if self.greedy else "samples its actions",
            f"trained for {episodes:,} episodes" if episodes else "",
        ]
        return f"<Agent {self.name}: {', '.join(filter(None, parts))}>"

    def probabilities(self, observation: np.ndarray) -> np.ndarray:
        batch, single = self._batch(observation)
        logits, _ = self._forward(batch)
        weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        out = np.zeros((len(batch), N_ACTIONS))
        out[:, self.policy.actions] = weights / weights.sum(axis=1, keepdims=True)
        return out[0] if single else out

    def value(self, observation: np.ndarray) -> Any:
        batch, single = self._batch(observation)
        values = self._forward(batch)[1].astype(np.float64) / self._reward_scale
        return float(values[0]) if single else values

    def _choose(self, batch: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
        with one_torch_thread():
            return self.policy.act(self._inputs(batch), generator)

    def _forward(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with one_torch_thread():
            return self.policy.evaluate(self._inputs(batch))

    def _inputs(self, batch: np.ndarray) -> np.ndarray:
        """Observations with the context: (n, inputs of the network)."""
        if not len(self.context):
            return batch
        return np.hstack([batch, np.broadcast_to(self.context, (len(batch), len(self.context)))])


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Products as small as ours are slower on several threads; the caller's setting is given back."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load(
    name: str | Path, runs: Path | str = "runs", *, greedy: bool = True, last: bool = False, rules: str = "current"
) -> Defender:
    """`stockade.load`, but for searches; InputError if nothing, or more than one thing, has this name."""
    name, runs = str(name), Path(runs)
    check_runs(runs)
    builtin = name.removeprefix(BUILTIN)
    if builtin in builtin_names():
        if builtin == name and (runs / name / "config.json").exists():
            raise InputError(f"{name!r} is both a policy of the package and a run: use {runs / name} for the run, "
                             f"{BUILTIN}{name} for the policy of the package")  # fmt: skip
        if builtin not in shipped_names():
            return make_baseline(builtin)
    elif builtin != name:
        raise InputError(f"no policy of the package is called {builtin!r}; these are: {', '.join(builtin_names())}")
    try:
        from stockade.learn.checkpoint import load as load_checkpoint
        from stockade.learn.policy import Architecture, Policy
    except ModuleNotFoundError as error:
        raise missing_package(error) from error

    shipped = SHIPPED / f"{builtin}-{rules}"
    checkpoint = load_checkpoint(shipped) if builtin in shipped_names() else _find(name, runs, last)
    card = checkpoint.rest
    policy = Policy(Architecture.from_json(card["architecture"]))
    policy.load_weights(checkpoint.arrays, prefix="policy.")
    has_rules = card.get("context_rules", card.get("told_rules"))  # `told`: as version 0.1.0 wrote it
    bits = rules_context(rules) if has_rules else card.get("context", card.get("told"))
    context = None if bits is None else np.array(bits, np.uint8)
    scale = card.get("trained", {}).get("settings", {}).get("ppo", {}).get("reward_scale", 0.1)
    return Agent(policy, card["obs"], greedy, context, card, name, card.get("reward_scale", scale))


def _find(name: str, runs: Path, last: bool) -> Checkpoint:
    """The checkpoint of a run, or of the file of a policy; `workflow.policies` finds those of searches."""
    from stockade.learn.checkpoint import CheckpointFolder
    from stockade.learn.checkpoint import load as load_checkpoint

    for folder in (runs / name, Path(name)):
        if (folder / "checkpoints").is_dir():
            checkpoints = CheckpointFolder(folder / "checkpoints")
            return checkpoints.load_last() if last else checkpoints.load_best()
        if folder.suffix == ".json" and folder.is_file():
            return load_checkpoint(folder.with_suffix(""))
    near = did_you_mean(name, [*builtin_names(), *(path.parent.name for path in runs.glob("*/config.json"))])
    raise InputError(f"{name!r} is neither a baseline nor shipped ({', '.join([*BASELINES, *shipped_names()])}), nor "
                     f"a run or search in {runs}, nor the folder of one, nor the file of a policy.{near}")  # fmt: skip
