"""Training against several attackers, horizons and rule sets at once: each gets a share of the environments.

TrainConfig -> cells (a world's settings, its weight) -> how many environments of each -> one vector environment
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from stockade.cage2.batch import Snapshot
from stockade.cage2.config import WorldConfig
from stockade.cage2.features import N_FEATURES
from stockade.cage2.views import RULES, with_rules
from stockade.errors import InputError
from stockade.learn.config import TrainConfig
from stockade.vector.native import NativeVectorEnv

#: NAME or NAME:WEIGHT; a name may have changes with colons of their own, such as +delay:5.
_WEIGHTED = re.compile(r"([^:+]*(?:\+[^:+]*:[^:+]*)*)(?::([^:+]*))?")


@dataclass(frozen=True)
class Cell:
    """Worlds of one kind in a mixture."""

    world: WorldConfig
    weight: float  #: their share of the environments, relative to the others'
    context: tuple[int, ...] = ()  #: bits that follow the observation there
    blue: str = ""  #: who defends, where red learns


def read_weights(text: str, flag: str) -> dict[str, float]:
    """`bline:9,meander:9,sleep+delay:5:2` -> names and weights; a name alone weighs 1."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        matched = _WEIGHTED.fullmatch(part.strip())
        name, weight = matched.groups() if matched else (part.strip(), None)
        try:
            value = float(weight or 1)
        except ValueError:
            value = -1.0
        if not name or not 0 < value < float("inf"):
            raise InputError(f"{flag} {text}: {part.strip()!r} is no NAME or NAME:WEIGHT with a weight above 0")
        if name in weights:
            raise InputError(f"{flag} {text}: {name} is named twice")
        weights[name] = value
    return weights


def read_policies(text: str) -> dict[str, float]:
    """`champion:2,my_module:MyPolicy` -> names and weights; names may have colons of their own."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().rpartition(":")
        if not name or not re.fullmatch(r"[\d.e-]+", weight):
            name, weight = part.strip(), "1"
        weights |= {name: read_weights(f"policy:{weight}", "--blue")["policy"]}
    return weights


def rules_context(rules: str) -> tuple[int, ...]:
    """Bits that say which rule set is played: a property of the simulator, as its version is, not of the attacker."""
    return (int(rules == "leaderboard"),)


def cells_of(config: TrainConfig) -> list[Cell]:
    """The kinds of worlds that a run trains in: all combinations, each with the product of its weights."""
    is_red = config.side == "red"
    others = read_policies(config.blue) if is_red else read_weights(config.red, "--red-agent")
    horizons = read_weights(config.horizons or str(config.horizon), "--horizons")
    if not all(name.isdecimal() for name in horizons):
        raise InputError(f"--horizons {config.horizons}: take whole numbers of steps, for instance 30,50,100:2")
    cells = []
    both = RULES if config.rules == "both" else (config.rules,)
    told = {True: 1 - config.untold, False: config.untold} if config.untold else {config.belief_rules: 1.0}
    kinds = product(others.items(), horizons.items(), both, told.items())
    for (name, weight), (horizon, factor), rules, (knows_rules, share) in kinds:
        obs = with_rules(config.obs, rules) if knows_rules else config.obs
        world = WorldConfig("player" if is_red else name, int(horizon), rules, obs=obs, reward=config.reward)
        context = rules_context(rules) if config.context_rules else ()
        cells.append(Cell(world, weight * factor * share, context, name if is_red else ""))
    if config.backend != "native" and len(cells) > 1:
        raise InputError(f"several attackers, horizons or rule sets need --backend native, not {config.backend}")
    share_out(cells, config.n_envs // min(config.ppo.shards, config.n_envs))
    return cells


def share_out(cells: Sequence[Cell], n: int) -> list[int]:
    """How many of n environments each cell gets, as near to its weight as whole numbers are, and at least one."""
    if n < len(cells):
        raise InputError(f"{n} environments per shard are too few for {len(cells)} kinds of worlds; use a larger "
                         "--n-envs, or fewer attackers, horizons or rule sets")  # fmt: skip
    weights = [cell.weight for cell in cells]
    ends = np.rint(np.cumsum([0.0, *weights]) / sum(weights) * n).astype(int)
    counts = [int(end - begin) for begin, end in pairwise(ends)]
    while min(counts) < 1:
        counts[counts.index(max(counts))] -= 1
        counts[counts.index(min(counts))] += 1
    return counts


class MixedVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Several native vector environments as one, in their order."""

    def __init__(
        self, parts: Sequence[NativeVectorEnv], contexts: Sequence[tuple[int, ...]], with_truth: bool = False
    ) -> None:
        """`contexts`: of each part, bits that follow the observation and never change; all of one length. What is true
        follows them, `with_truth`."""
        counts = [part.num_envs for part in parts]
        self.parts, self.num_envs = list(parts), sum(counts)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._slices = [slice(*ends) for ends in pairwise(np.cumsum([0, *counts]).tolist())]
        seen: Any = parts[0].single_observation_space
        self._context = np.repeat(np.array(contexts, seen.dtype), counts, axis=0)
        self._context_there: Any = None  # on the device of `step_device`
        self._truth = np.zeros((self.num_envs, N_FEATURES if with_truth else 0), seen.dtype)
        size = spaces.flatdim(seen) + len(contexts[0]) + self._truth.shape[1]
        self.single_observation_space = spaces.Box(0, 1, (size,), seen.dtype)
        self.single_action_space = parts[0].single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        obs = []
        for part, where in zip(self.parts, self._slices, strict=True):
            own = seed[where] if isinstance(seed, list) else None if seed is None else seed + where.start
            obs.append(part.reset(seed=own, options=options)[0])
        return self._with_more(np.concatenate(obs)), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        steps = [part.step(actions[where])[:4] for part, where in zip(self.parts, self._slices, strict=True)]
        obs, rewards, terminated, truncated = map(np.concatenate, zip(*steps, strict=True))
        return self._with_more(obs), rewards, terminated, truncated, {}

    def _with_more(self, obs: np.ndarray) -> np.ndarray:
        """Observations, the context, the truth."""
        if self._truth.shape[1]:
            for part, where in zip(self.parts, self._slices, strict=True):
                part.describe_truth(self._truth[where])
        return np.hstack([obs, self._context, self._truth])

    def step_device(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        """As of `CudaVectorEnv`, which the parts must be: Torch tensors in and out, that stay on the GPU."""
        import torch

        steps = [part.step_device(actions[where]) for part, where in zip(self.parts, self._slices, strict=True)]  # type: ignore[attr-defined]
        obs, rewards, terminated, truncated = map(torch.cat, zip(*steps, strict=True))
        if self._context_there is None:
            self._context_there = torch.as_tensor(self._context, device=obs.device)
        return torch.hstack([obs, self._context_there]), rewards, terminated, truncated

    def save_worlds(self) -> dict[str, np.ndarray]:
        parts = enumerate(map(save_worlds, self.parts))
        return {f"part{k}.{name}": array for k, saved in parts for name, array in saved.items()}

    def restore_worlds(self, arrays: dict[str, np.ndarray]) -> None:
        for k, part in enumerate(self.parts):
            restore_worlds(part, with_prefix(f"part{k}.", arrays))

    def close(self, **kwargs: Any) -> None:
        for part in self.parts:
            part.close()


def make_mixture(
    cells: Sequence[Cell],
    n: int,
    defenders: Mapping[Cell, Any] | None = None,
    on_gpu: bool = False,
    with_truth: bool = False,
) -> NativeVectorEnv | MixedVectorEnv:
    """n environments on one thread or a GPU, shared out among the cells; `defenders` play where red learns."""
    kind: Any = partial(NativeVectorEnv, threads=1)
    if on_gpu:
        from stockade.vector.cuda import CudaVectorEnv as kind
    parts = [
        kind(count, copy=False, **vars(cell.world), **_seats(cell, defenders))
        for cell, count in zip(cells, share_out(cells, n), strict=True)
    ]
    if len(parts) == 1 and not with_truth:
        return parts[0]
    return MixedVectorEnv(parts, [cell.context for cell in cells], with_truth)


def _seats(cell: Cell, defenders: Mapping[Cell, Any] | None) -> dict[str, Any]:
    return {"side": "red", "blue": (defenders or {})[cell]} if cell.blue else {}


# ------------------------------------------------------------------------------------------------- state, for resume
_SAVED = "worlds", "ledgers", "memory", "red_memory", "particles"


def save_worlds(envs: Any) -> dict[str, np.ndarray]:
    """Arrays by name of native worlds, and of what says how to save itself; else nothing."""
    if hasattr(envs, "save_worlds"):
        return envs.save_worlds()
    saved = dict(zip(_SAVED, envs.snapshot().parts, strict=True)) if isinstance(envs, NativeVectorEnv) else {}
    return {name: array for name, array in saved.items() if array is not None}


def restore_worlds(envs: Any, arrays: dict[str, np.ndarray]) -> bool:
    """Put them back; whether there was anything to put back."""
    if hasattr(envs, "restore_worlds"):
        envs.restore_worlds(arrays)
        return True
    if not isinstance(envs, NativeVectorEnv):
        return False
    if "worlds" not in arrays:
        raise ValueError("the checkpoint does not hold these worlds; it is of another backend or mixture")
    parts: list[Any] = [arrays.get(name) for name in _SAVED]
    envs.restore(Snapshot(envs.config, *parts))
    return True


def with_prefix(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those whose names begin with it, by the rest of the name."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
