"""The asynchronous interface: `async_reset`, `recv`, `send`, and which environments are in flight or ready.

IDLE -> async_reset or send -> SENT -> its reply -> READY -> recv -> IDLE. How calls and replies travel is up to the
backend.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from stockade.cage2.seeds import SeedLike, read_seeds
from stockade.vector.base import StepResult
from stockade.vector.outcome import Factory, Failure, Outcome, RunConfig, gather_infos
from stockade.vector.spaces import rows_of
from stockade.vector.workers import Replies, WorkerVectorEnv

IDLE, SENT, READY = range(3)
_SHOWN = 8


class AsyncVectorEnv(WorkerVectorEnv):
    """Environments that are returned as they become ready.

    Either asynchronously: `async_reset()`, then `recv()` and `send(actions, env_id)` in turn; or with `reset()` and
    `step()` as with every other backend. `batch_size` is how many environments a `recv` returns.
    """

    def __init__(self, factory: Factory, n_envs: int, how: Any, config: RunConfig) -> None:
        self.closed = True
        self.batch_size = max(1, n_envs // 2) if config.batch_size is None else config.batch_size
        if not 1 <= self.batch_size <= n_envs:
            raise ValueError(f"batch_size={config.batch_size} must be between 1 and n_envs={n_envs}")
        self._status = np.full(n_envs, IDLE, np.int8)
        self._ready: deque[int] = deque()
        self._pending_infos: dict[int, dict[str, Any]] = {}
        self._failures: list[Failure] = []
        self._pace = 0.0  # recent seconds between two results
        super().__init__(factory, n_envs, how, config)
        self._step_of = [self._call_for("step_some", [i]) for i in range(n_envs)]

    # What a backend provides

    def _batches(self, env_ids: list[int], kind: str) -> Iterable[list[int]]:
        """Which of these environments, all of one worker, go together in a call of this kind."""
        raise NotImplementedError

    def _land(self, seconds: float | None, missing: int = 0) -> bool:
        """Accept the replies that are there, waiting at most so long for one. True if anything happened.

        `missing`: how many environments are waited for.
        """
        raise NotImplementedError

    def async_reset(self, *, seed: SeedLike = None, options: dict[str, Any] | None = None) -> None:
        """Begin new episodes; `recv` returns their first observations, with reward 0.

        With `options["reset_mask"]` only in the selected environments, none of which may be in flight.
        """
        self._require_open()
        seeds = read_seeds(seed, self.num_envs)
        mask, rest = self._split_mask(options)
        if options is None or "reset_mask" not in options:
            self._forget_all()
        chosen = np.flatnonzero(mask).tolist()
        self._require_idle_ones(chosen)
        self._note_reset(mask, seeds, Outcome())
        each = seeds.each()
        self._status[chosen] = SENT
        for ids in self._batches(chosen, "reset_some"):
            self._submit(self._call_for("reset_some", ids, [each[i] for i in ids], rest))

    def send(self, actions: Any, env_id: Sequence[int] | np.ndarray) -> None:
        """Continue with the environments `env_id`, which `recv` returned: `actions` has one row for each of them."""
        self._require_open()
        ids = np.asarray(env_id)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(np.unique(ids)) != len(ids):
            raise ValueError(f"env_id must be a list of different environment numbers, got {env_id!r}")
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.num_envs):
            raise ValueError(f"env_id must be between 0 and {self.num_envs - 1}, got {env_id!r}")
        self._require_idle_ones(ids.tolist())
        if not self._steppable and self._needs_reset[ids].any():
            self._require_reset()
        self._gate.put(self._buffers.actions, actions, len(ids), ids, ids)
        self._send_steps(ids.tolist())
        self._status[ids] = SENT

    def recv(self) -> StepResult:
        """The first `batch_size` environments that are ready (fewer, if fewer are in flight).

        All five values have one row per environment, in the order of `info["env_id"]`, int64 (batch_size,).
        """
        self._require_open()
        size = min(self.batch_size, int(np.count_nonzero(self._status)))
        if not size:
            raise NoAsyncCallError("nothing is in flight: call async_reset() or send() before recv()", "recv")
        self._await_ready(size)
        self._report_failures()
        ids = [self._ready.popleft() for _ in range(size)]
        rows = np.array(ids, np.int64)
        self._status[rows] = IDLE
        buffers = self._buffers
        terminated, truncated = buffers.terminated[rows], buffers.truncated[rows]
        self._over[rows] = over = terminated | truncated
        if self.autoreset_mode is AutoresetMode.DISABLED and over.any():
            self._mark_for_reset(rows[over])
        pending = self._pending_infos
        found = [(place, pending.pop(env_id)) for place, env_id in enumerate(ids) if env_id in pending]
        infos = gather_infos(found, size) if found else {}
        infos["env_id"] = rows
        return rows_of(buffers.observations, rows), buffers.rewards[rows], terminated, truncated, infos

    def _send_steps(self, env_ids: list[int]) -> None:
        """Step these environments with their rows of the action arrays."""
        for ids in self._batches(env_ids, "step_some"):
            self._submit(self._call_for("step_some", ids))

    def _await_ready(self, size: int) -> None:
        deadline = self._deadline()
        self._land(0.0)
        begin, ready = time.perf_counter(), len(self._ready)
        while (missing := size - len(self._ready)) > 0:
            self._report_failures()
            deadline = self._replace_lost(deadline)
            if self._land(None if deadline is None else max(0.0, deadline - time.monotonic()), missing):
                deadline = self._deadline()
        if arrived := len(self._ready) - ready:
            self._pace += 0.2 * ((time.perf_counter() - begin) / arrived - self._pace)

    def _accept(self, replies: Replies) -> None:
        """The environments of these calls are ready, or must be reset."""
        for call, outcome in replies:
            env_ids = call.env_ids or ()
            failed: set[int] = set()
            if outcome is not None:
                self._truths.update(outcome.truths)
                self._pending_infos.update(outcome.infos)
                self._failures += outcome.failures
                failed = {failure.env_id for failure in outcome.failures}
            for env_id in env_ids:
                if env_id in failed:
                    self._status[env_id] = IDLE
                    self._mark_for_reset(env_id)
                else:
                    self._status[env_id] = READY
                    self._ready.append(env_id)
            if self._whole is not None:
                self._keep_whole(list(env_ids))

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
        self._require_open()
        if purpose == "reset":
            self._forget_all()
        elif (self._status != IDLE).any():
            waiting = int(np.count_nonzero(self._status))
            raise AlreadyPendingCallError(
                f"{waiting} environments are in flight: recv() them before {purpose}, or begin again with reset()",
                purpose,
            )

    def _require_idle_ones(self, env_ids: list[int]) -> None:
        busy = [env_id for env_id in env_ids if self._status[env_id] != IDLE]
        if busy:
            raise AlreadyPendingCallError(f"environments {busy[:_SHOWN]} are in flight: recv() them first", "send")

    def _forget_all(self) -> None:
        """Everything begins again."""
        if self._flying:
            self._drop_calls()
        self._status[:] = IDLE
        self._ready.clear()
        self._pending_infos.clear()
        self._failures.clear()
