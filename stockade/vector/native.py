"""Backend `native`: the built-in world in this process. actions (n,) -> one compiled batch -> rows of arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from stockade.cage2 import kernel
from stockade.cage2.actions import ACTION_MASK
from stockade.cage2.batch import Batch, Snapshot
from stockade.cage2.belief import Belief
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights
from stockade.cage2.env import CAGE2Env
from stockade.cage2.sides import DEFAULT_RED, SidedBatch
from stockade.cage2.truth import TrueState
from stockade.vector.base import BaseVectorEnv, TrueStates
from stockade.vector.native_slice import NativeSlice
from stockade.vector.outcome import Description, Outcome, RunConfig, autoreset_mode_of
from stockade.vector.spaces import ActionGate, Buffers, Tree, tree_map


class NativeVectorEnv(BaseVectorEnv):
    """`num_envs` worlds behind one step; observation, action and reward of each as in CAGE2Env.

    Args:
        num_envs: number of worlds; a million is fine.
        red, horizon, rules, chance, green, obs, reward: as in WorldConfig.
        autoreset_mode: `next_step` (the step after the last one resets and ignores the action), `same_step` (the last
            step returns the new episode's observation and `final_obs`, `final_info`), `disabled` (call
            `reset(options={"reset_mask": mask})`).
        obs_dtype: uint8 or float32; default the first, for `obs="belief"` the second.
        copy: give fresh arrays; with False the next step overwrites what this one gave.
        info: fill infos as CAGE2Env does; off by default because names for thousands of worlds cost more than a step.
        action_mask: give the (n, 145) `action_mask` in infos; red's is (n, 56).
        threads: threads over slices of the worlds; None chooses. Results do not depend on it.
        render_mode: None or `ansi`.
        side: who plays: `blue`, `red` or `both`; `blue` is then the policy that defends, and `red` may be one that
            attacks: see CAGE2Env.
    """

    _may_terminate = False

    def __init__(
        self,
        num_envs: int,
        red: Any = DEFAULT_RED, horizon: int = 100, rules: str = "current", chance: str = "fast",
        green: str | float = "sleep",
        *,
        obs: str = "bits", reward: RewardWeights = CHALLENGE_REWARD, obs_dtype: Any = None, info: bool = False,
        action_mask: bool = False,
        render_mode: str | None = None, side: str = "blue", blue: Any = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, copy: bool = True, threads: int | None = None,
    ) -> None:  # fmt: skip
        self.closed = True
        mode = autoreset_mode_of(autoreset_mode)
        world = CAGE2Env(
            red, horizon, rules, chance, green, obs=obs, reward=reward, obs_dtype=obs_dtype, info=info,
            action_mask=action_mask, render_mode=render_mode, side=side, blue=blue,
        )  # fmt: skip
        description = Description.of(world)
        batch = self._make_batch(world, num_envs, threads)
        buffers = Buffers.allocate(description.layout, batch.n)
        config = RunConfig(mode, check_finite=False, true_states="every_step", copy=copy)
        self._slice = NativeSlice(world, batch, 0, buffers, config)
        self._batch, self.config = batch, world.config
        self._truth: TrueStates | None = None
        super().__init__(description, batch.n, buffers, config)
        if isinstance(self.single_action_space, spaces.Discrete):
            self._gate = _CompiledGate(self.single_action_space)

    def _make_batch(self, world: CAGE2Env, n: int, threads: int | None) -> Batch:
        return world.make_batch(n, threads)

    def true_state(self) -> TrueStates:
        """What is really the case now: live views of the worlds' memory, nothing is copied."""
        self._require_begun()
        if self._truth is None:
            worlds = self._batch.worlds.view()
            worlds.flags.writeable = False
            self._truth = TrueStates(worlds, self._buffers.age, self._batch.truth, TrueState.of)
        return self._truth

    def describe_truth(self, out: np.ndarray) -> None:
        """Write what is true of all worlds, as 0 and 1 in the place of a belief's probabilities."""
        self._batch.describe_truth(out)

    def belief(self) -> Belief:
        """What red probably holds and knows, from what blue has seen and done: with `obs="belief"`."""
        self._require_begun()
        return self._batch.belief()

    def snapshot(self, index: int | None = None) -> Snapshot:
        """This moment of all worlds, or of one, chance included."""
        self._require_begun()
        return self._batch.snapshot(index)

    def restore(self, snapshot: Snapshot, index: int | None = None, seed: int | None = None) -> Any:
        """Put all worlds back, or one; returns what is seen in all of them.

        A snapshot of one world may be put into all, for instance to try many actions from it. With a seed, world i
        continues with new chance from seed + i.
        """
        self._require_open()
        if index is not None:
            self._require_begun()
        self._slice.put_back(snapshot, index, seed, self.copy)
        self._over = self._batch.worlds["over"] != 0
        stuck = self._over if self.autoreset_mode is not AutoresetMode.NEXT_STEP else np.zeros_like(self._over)
        self._needs_reset, self._steppable, self._never_reset = stuck, not stuck.any(), False
        return self._observations()

    def action_masks(self) -> Any:
        """(n, 145) or (n, 56) bool, or a dictionary of both: what can ever succeed for blue, what red can try now."""
        if not isinstance(self._batch, SidedBatch):
            return np.tile(ACTION_MASK != 0, (self.num_envs, 1))
        self._require_begun()
        return tree_map(lambda mask: mask != 0, self._batch.masks())

    def random_peek(self) -> np.ndarray:
        """(n,) uint32, the next 32 bits of each reference stream, not drawn; only under `chance="cyborg"`."""
        self._require_begun()
        return self._batch.peek()[0]

    def __getstate__(self) -> dict[str, Any]:  # live views are made anew
        return {**self.__dict__, "_truth": None}

    def _step_all(self) -> Outcome:
        if self.copy:
            self._slice.use_new_arrays()
        return self._slice.step(self._buffers.actions)

    def _command(self, kind: str, parts: Sequence[Any] = (), common: Sequence[Any] = ()) -> Outcome:
        if self.copy and kind == "reset":
            self._slice.use_new_arrays()
        return super()._command(kind, parts, common)

    def _results(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        buffers = self._buffers  # new ones in every step
        return buffers.observations, buffers.rewards, buffers.terminated, buffers.truncated

    def _observations(self) -> Any:
        return self._buffers.observations

    def _split_mask(self, options: dict[str, Any] | None) -> tuple[np.ndarray, dict[str, Any] | None]:
        mask, rest = super()._split_mask(options)
        if rest:
            raise ValueError(f"unknown options {sorted(rest)}; the built-in world takes none but 'reset_mask'")
        return mask, rest


class _CompiledGate(ActionGate):
    """The same checks; for arrays as policies give them in one compiled pass, which saves a third of a small step."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__(space)
        self._count = int(space.n)

    def put(self, target: Tree, actions: Any, count: int, rows: Any = slice(None), env_ids: Any = None) -> None:
        if type(actions) is np.ndarray and actions.dtype == np.int64 and actions.shape == (count,):
            target[...] = actions
            if kernel.are_valid(target, self._count):
                return
        super().put(target, actions, count, rows, env_ids)
