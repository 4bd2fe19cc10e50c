"""Backend `ray`: actions -> one call to each actor of a cluster -> slices of environments -> one reply each -> results.

The asynchronous way: send(actions, env_id) -> one call to each actor concerned -> recv() takes the first `batch_size`
environments whose calls are done, in the order in which they were sent.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from stockade.vector.description import SliceConfig
from stockade.vector.layout import tree_map
from stockade.vector.outcome import Failure, Outcome
from stockade.vector.ray_base import Call, RayBase
from stockade.vector.ray_cluster import RayConfig, seconds_until

IDLE, SENT, READY = range(3)


class RayVectorEnv(RayBase):
    """Environments in actors of a Ray cluster, or of a Ray on this machine.

    Either `reset()` and `step()` as with every other backend, or the asynchronous way: `async_reset()`, then `recv()`
    and `send(actions, env_id)` in turn.

    Args:
        factory, n_envs, cluster, config, restart: as of `RayBase`.
        copy: whether observations are copies (those of `recv` always are).
        batch_size: how many environments a `recv` returns; default half of them.
    """

    def __init__(
        self,
        factory: Callable[[], gymnasium.Env[Any, Any]],
        n_envs: int,
        cluster: RayConfig,
        config: SliceConfig | None = None,
        copy: bool = True,
        restart: int = 0,
        batch_size: int | None = None,
    ) -> None:
        self.closed = True
        self.batch_size = max(1, n_envs // 2) if batch_size is None else batch_size
        if not 1 <= self.batch_size <= n_envs:
            raise ValueError(f"batch_size={batch_size} must be between 1 and n_envs={n_envs}")
        self._status = np.full(n_envs, IDLE, np.int8)
        self._ready: deque[int] = deque()
        self._infos: dict[int, dict[str, Any]] = {}
        self._failures: list[Failure] = []
        super().__init__(factory, n_envs, cluster, config, copy, restart)

    # The asynchronous interface

    def async_reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begin new episodes; `recv` returns their first observations, with reward 0.

        With `options["reset_mask"]` only in the selected environments, none of which may be under way.
        """
        self._require_open()
        seeds = self._one_seed_each(seed)
        mask, rest = self._split_mask(options)
        if options is None or "reset_mask" not in options:
            self._forget_all()
        chosen = np.flatnonzero(mask).tolist()
        self._require_in_hand(chosen)
        self._note_reset(mask, seeds, Outcome())
        by_worker = self._by_worker(chosen)
        # Two calls to each worker, so that it has one to work on while actions are chosen for the other's results.
        halves = [(index, ids[: -(-len(ids) // 2)]) for index, ids in by_worker]
        halves += [(index, ids[-(-len(ids) // 2) :]) for index, ids in by_worker]
        for index, ids in halves:
            if ids:
                places = [i - self._specs[index].first for i in ids]
                self._submit(Call(index, "reset_some", (places, [seeds[i] for i in ids], rest), tuple(ids)))
        self._status[chosen] = SENT

    def send(self, actions: Any, env_id: Sequence[int] | np.ndarray) -> None:
        """Go on with the environments `env_id`.

        Args:
            actions: batch of actions, one for each of `env_id`.
            env_id: environments that `recv` returned and that have not been sent since.
        """
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
        for index, chosen in self._by_worker(ids.tolist()):
            own = self._actions_of(chosen)
            places = [i - self._specs[index].first for i in chosen]
            self._submit(Call(index, "step_some", (places, own), tuple(chosen)))
        self._status[ids] = SENT

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
        rows = np.array(self._take_ready(size), np.int64)
        buffers = self._buffers
        terminated, truncated = buffers.terminated[rows], buffers.truncated[rows]
        self._over[rows] = over = terminated | truncated
        if self.autoreset_mode is AutoresetMode.DISABLED and over.any():
            self._needs_reset[rows] = over
            self._steppable = False
        found = [(place, self._infos.pop(i)) for place, i in enumerate(rows.tolist()) if i in self._infos]
        infos = self.gather_infos(found, size) if found else {}
        infos["env_id"] = rows
        observations = tree_map(lambda array: array[rows], buffers.observations)
        return observations, buffers.rewards[rows], terminated, truncated, infos

    def _take_ready(self, size: int) -> list[int]:
        deadline = self._deadline()
        self._land(0.0)
        while len(self._ready) < size:
            self._report_failures()
            if self._land(seconds_until(deadline)):
                deadline = self._deadline()
            elif deadline is not None and time.monotonic() >= deadline:
                self._give_up_waiting()
                deadline = self._deadline()
        self._report_failures()
        ids = [self._ready.popleft() for _ in range(size)]
        self._status[ids] = IDLE
        return ids

    def _land(self, seconds: float | None) -> bool:
        """Take the replies that are there, waiting at most so long for the first one. True if there were any.

        An actor serves calls in order, but a reply may overtake an earlier one on its way; it is then left until that
        one is here too, so that no environment comes twice before another of its worker comes once.
        """
        if not self._flying:
            return False
        oldest: dict[int, Any] = {}
        for reference, call in self._flying.items():
            oldest.setdefault(call.index, reference)
        if not self._ray.wait(list(oldest.values()), num_returns=1, timeout=seconds)[0]:
            return False
        flying = list(self._flying)
        there = set(self._ray.wait(flying, num_returns=len(flying), timeout=0)[0])
        landed, overtaken = [], set()
        for reference, call in self._flying.items():
            if reference not in there:
                overtaken.add(call.index)
            elif call.index not in overtaken:
                landed.append(reference)
        for call, outcome in self._replies(landed):
            self._accept(call, outcome)
        return True

    def _accept(self, call: Call, outcome: Outcome) -> None:
        self._absorb_truths(outcome)
        self._infos.update(outcome.infos)
        self._failures += outcome.failures
        failed = {failure.env_id for failure in outcome.failures}
        for env_id in call.env_ids or ():
            if env_id in failed:
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

    # Books

    def _actions_of(self, env_ids: list[int]) -> Any:
        return tree_map(lambda array: array[env_ids], self._buffers.actions)

    def _by_worker(self, env_ids: list[int]) -> list[tuple[int, list[int]]]:
        """Environments by the worker that has them, both in the order given."""
        found: dict[int, list[int]] = {}
        count, n = len(self._workers), self.num_envs
        for env_id in env_ids:
            found.setdefault(((env_id + 1) * count - 1) // n, []).append(env_id)
        return list(found.items())

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
        """Drop what is under way: actors serve calls in order, so what is asked next comes after it."""
        self._flying.clear()
        self._status[:] = IDLE
        self._ready.clear()
        self._infos.clear()
        self._failures.clear()
