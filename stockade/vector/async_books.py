"""What every asynchronous backend keeps books on: which environments are under way, which are ready, what failed.

IDLE -> async_reset or send -> SENT -> its reply -> READY -> recv -> IDLE; how commands and replies travel is the
backend's own affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from stockade.vector.layout import tree_map
from stockade.vector.outcome import Failure
from stockade.vector.replacing import ReplacingVectorEnv

IDLE, SENT, READY = range(3)


class AsyncBooks(ReplacingVectorEnv):
    """The part of `recv` and `send` that does not depend on where the environments are."""

    def _open_books(self, n_envs: int, batch_size: int | None) -> None:
        """Nothing is under way; to be called before the environments are made."""
        self.closed = True
        self.batch_size = max(1, n_envs // 2) if batch_size is None else batch_size
        if not 1 <= self.batch_size <= n_envs:
            raise ValueError(f"batch_size={batch_size} must be between 1 and n_envs={n_envs}")
        self._status = np.full(n_envs, IDLE, np.int8)
        self._ready: deque[int] = deque()
        self._infos: dict[int, dict[str, Any]] = {}
        self._failures: list[Failure] = []

    def recv(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The first `batch_size` environments that are ready (fewer, if fewer are under way).

        Returns:
            Observations, rewards, terminations, truncations and infos with one row an environment, in the order of
            `info["env_id"]`, int64 (batch_size,).
        """
        self._require_open()
        size = min(self.batch_size, int(np.count_nonzero(self._status)))
        if not size:
            raise NoAsyncCallError("nothing is under way: call async_reset() or send() before recv()", "recv")
        self._await_ready(size)
        self._report_failures()
        ids = [self._ready.popleft() for _ in range(size)]
        rows = np.array(ids, np.int64)
        self._status[rows] = IDLE
        buffers = self._buffers
        terminated, truncated = buffers.terminated[rows], buffers.truncated[rows]
        self._over[rows] = over = terminated | truncated
        if self.autoreset_mode is AutoresetMode.DISABLED and over.any():
            self._needs_reset[rows] = over
            self._steppable = False
        found = [(place, self._infos.pop(env_id)) for place, env_id in enumerate(ids) if env_id in self._infos]
        infos = self.gather_infos(found, size) if found else {}
        infos["env_id"] = rows
        observations = tree_map(lambda array: array[rows], buffers.observations)
        return observations, buffers.rewards[rows], terminated, truncated, infos

    def _await_ready(self, size: int) -> None:
        """Wait until so many are ready, reporting failures meanwhile."""
        raise NotImplementedError

    def _put_actions(self, actions: Any, env_id: Sequence[int] | np.ndarray) -> np.ndarray:
        """Check what `send` was given and put the actions where the environments find them; `env_id` as an array."""
        self._require_open()
        ids = np.asarray(env_id)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(np.unique(ids)) != len(ids):
            raise ValueError(f"env_id must be a list of different environment numbers, got {env_id!r}")
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.num_envs):
            raise ValueError(f"env_id must be between 0 and {self.num_envs - 1}, got {env_id!r}")
        self._require_in_hand(ids.tolist())
        if not self._steppable and self._needs_reset[ids].any():
            self._require_reset()
        self._gate.put(actions, len(ids), ids, ids)
        return ids

    def _arrived(self, env_id: int, failed: bool) -> None:
        """The reply of an environment is here: it is ready, or must be reset."""
        if failed:
            self._status[env_id] = IDLE
            self._needs_reset[env_id] = True
            self._steppable = False
        else:
            self._status[env_id] = READY
            self._ready.append(env_id)

    def _report_failures(self) -> None:
        """Failures are raised once; what the others have ready stays for the next `recv`."""
        if self._failures:
            failures, self._failures = self._failures, []
            self._fail(failures, None)

    def _was_over(self, i: int) -> bool:
        if self._status[i] == READY:  # its last result has not been handed out yet
            over = bool(self._buffers.terminated[i] or self._buffers.truncated[i])
            return over and self.autoreset_mode is AutoresetMode.NEXT_STEP
        return super()._was_over(i)

    def _require_idle(self, purpose: str) -> None:
        if purpose == "reset":
            self._forget_all()
        elif (self._status != IDLE).any():
            waiting = int(np.count_nonzero(self._status))
            raise AlreadyPendingCallError(
                f"{waiting} environments are under way: recv() them before {purpose}, or begin again with reset()",
                purpose,
            )

    def _require_in_hand(self, env_ids: list[int]) -> None:
        busy = [env_id for env_id in env_ids if self._status[env_id] != IDLE]
        if busy:
            raise AlreadyPendingCallError(f"environments {busy[:8]} are under way: recv() them first", "send")

    def _forget_all(self) -> None:
        """Everything begins again."""
        self._status[:] = IDLE
        self._ready.clear()
        self._infos.clear()
        self._failures.clear()
