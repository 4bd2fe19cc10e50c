"""Backend `cuda`: the built-in world on a GPU. actions (n,) -> kernels, one thread a world -> arrays on the device.

`step` and all other methods of the contract take and give arrays of the host, so every wrapper works. `step_device`
leaves results where they are, for a learner on the same GPU. Both step the same worlds and may take turns.
"""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.cuda import SIMULATED, CudaBatch, require_device
from stockade.cage2.env import CAGE2Env
from stockade.errors import InvalidActionError
from stockade.vector.base import TrueStates
from stockade.vector.native import NativeVectorEnv
from stockade.vector.outcome import Outcome


class DeviceArrays(NamedTuple):
    """Results on the device, live: every step overwrites them, every reset the observations."""

    observations: Any  #: (n, 52 or 160) uint8
    rewards: Any  #: (n,) float64
    terminated: Any  #: (n,) bool, never
    truncated: Any  #: (n,) bool
    final_observations: Any  #: (n, 52 or 160) uint8: after `step_device` in mode `same_step`, before new episodes began


class CudaVectorEnv(NativeVectorEnv):
    """As `NativeVectorEnv`, with the worlds in the memory of a GPU: the same seeds and actions give the same bits.

    It has `chance="fast"` only, and scripted attackers. `true_state()` is fetched when it is asked for. Rewards with
    weights (`reward=`) may differ in the last bit: a GPU multiplies and adds with one rounding.
    """

    _batch: CudaBatch

    def __init__(self, num_envs: int, **options: Any) -> None:
        """Options as of `NativeVectorEnv`, but for `threads`, `side` and `blue`."""
        self.closed = True
        require_device()
        self._tensors: DeviceArrays | None = None
        super().__init__(num_envs, **options)

    def _make_batch(self, world: CAGE2Env, n: int, threads: int | None) -> CudaBatch:
        return CudaBatch(world.config, n)

    def step_device(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        """Step with actions on the device, and leave the results there; nothing waits for the GPU.

        Args:
            actions: (n,) integers: a Torch tensor, or anything with `__cuda_array_interface__`. An action that does
                not exist is not carried out, blue sleeps; `check_actions` tells.

        Returns:
            Observations, rewards, terminated, truncated, as `DeviceArrays` describes them: Torch tensors for a Torch
            tensor, computed on Torch's current stream; else arrays of Numba, which have `__cuda_array_interface__`.
            In mode `disabled`, reset the environments that are truncated before going on.
        """
        self._require_idle("step")
        if not self._steppable:
            self._require_reset()
        batch = self._batch
        torch: Any = sys.modules.get("torch")  # if nobody imported it, there are no tensors
        in_torch = torch is not None and isinstance(actions, torch.Tensor)
        batch.use_stream(torch.cuda.current_stream().cuda_stream if in_torch and not SIMULATED else 0)
        batch.take(actions)
        batch.advance(self.autoreset_mode is AutoresetMode.NEXT_STEP)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            batch.begin_where_over()
        return (self.tensors() if in_torch else self.device_arrays())[:4]

    def device_arrays(self) -> DeviceArrays:
        """Results on the device, as arrays of Numba."""
        batch = self._batch
        return DeviceArrays(batch.obs, batch.rewards, batch.terminated, batch.over, batch.final_obs)

    def tensors(self) -> DeviceArrays:
        """The same memory as Torch tensors: nothing is copied."""
        if self._tensors is None:
            import torch

            if SIMULATED:
                self._tensors = DeviceArrays(*(torch.as_tensor(np.asarray(array)) for array in self.device_arrays()))
            else:
                self._tensors = DeviceArrays(*(torch.as_tensor(array, device="cuda") for array in self.device_arrays()))
        return self._tensors

    def check_actions(self) -> None:
        """Wait for the device; an error if `step_device` was ever given an action that does not exist."""
        place = self._batch.refused_world()
        if place is not None:
            raise InvalidActionError(f"an action of environment {place} was not one of 0 to {N_ACTIONS - 1}", place)

    def true_state(self) -> TrueStates:
        """What is really the case now, copied from the device; a later call overwrites it."""
        self._batch.fetch()
        return super().true_state()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_tensors": None}

    def _command(self, kind: str, parts: Sequence[Any] = (), common: Sequence[Any] = ()) -> Outcome:
        outcome = super()._command(kind, parts, common)
        if kind != "reset":  # single environments that stand for the worlds may have changed the host's copy
            self._batch.push()
        return outcome
