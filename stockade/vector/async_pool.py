"""Backend `async`: send(actions, env_id) -> ring of the env's worker -> one environment at a time -> ring back -> recv.

recv() returns the first `batch_size` environments that are ready, in the order in which they became ready: a slow one
delays only its worker's queue and nobody starves. An environment lives in one process and stays there; a worker without
work takes no other's, which is why `batch_size` should leave every worker something to do: with batch_size <= n/2 and
two or more workers none runs dry while the parent chooses actions.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from stockade.vector.description import SliceConfig
from stockade.vector.errors import WorkerDiedError, WorkerTimeoutError
from stockade.vector.layout import tree_map
from stockade.vector.outcome import Failure, Outcome
from stockade.vector.process import PoolConfig, Worker, pollable
from stockade.vector.process_base import Command, ProcessVectorEnv
from stockade.vector.rings import STEP_ALL

IDLE, SENT, READY = range(3)

_SHORTEST_NAP, _LONGEST_NAP = 0.0003, 0.02
"""Seconds. Shorter ones cost what they save; longer ones would keep a death unnoticed."""


class AsyncPoolVectorEnv(ProcessVectorEnv):
    """Environments in worker processes, returned as they become ready.

    Either the asynchronous way: `async_reset()`, then `recv()` and `send(actions, env_id)` in turn; or `reset()` and
    `step()` as with every other backend.

    Args:
        factory: makes one environment.
        n_envs: how many environments.
        pool: how the workers are run.
        config: how the environments are stepped.
        copy: whether observations are copies (those of `recv` always are).
        restart: how many workers may be replaced.
        batch_size: how many environments a `recv` returns; default half of them.
    """

    def __init__(
        self,
        factory: Callable[[], gymnasium.Env[Any, Any]],
        n_envs: int,
        pool: PoolConfig,
        config: SliceConfig | None = None,
        copy: bool = True,
        restart: int = 0,
        batch_size: int | None = None,
    ) -> None:
        self.closed = True
        self.batch_size = max(1, n_envs // 2) if batch_size is None else batch_size
        if not 1 <= self.batch_size <= n_envs:
            raise ValueError(f"batch_size={batch_size} must be between 1 and n_envs={n_envs}")
        super().__init__(factory, n_envs, pool, config, copy, restart)
        self._status = np.full(n_envs, IDLE, np.int8)
        self._expected = [0] * n_envs
        self._worker_of = [worker.index for worker in self._pool.workers for _ in worker.env_ids]
        self._ready: deque[int] = deque()
        self._pace = 0.0  # seconds between two results, of late
        self._infos: dict[int, dict[str, Any]] = {}
        self._failures: list[Failure] = []
        self._pending_resets: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(pollable(self._pool.deaths), selectors.EVENT_READ, None)
        for worker in self._pool.workers:
            self._watch(worker)

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
        for env_id in chosen:
            self._pending_resets[env_id] = (seeds[env_id], rest)
            self._dispatch(env_id)

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
        places = ids.tolist()
        self._require_in_hand(places)
        if not self._steppable and self._needs_reset[ids].any():
            self._require_reset()
        self._gate.put(actions, len(places), ids, ids)
        touched: dict[int, int] = {}
        sequence = self._next_sequence()
        workers = self._pool.workers
        for place in places:
            index = self._worker_of[place]
            worker = workers[index]
            if worker.commands is None or not worker.alive:
                self._expected[place] = sequence
                continue
            worker.commands.push(sequence, place - worker.first)
            worker.outstanding += 1
            touched[index] = touched.get(index, 0) + 1
            self._expected[place] = sequence
        for index, count in touched.items():
            commands = workers[index].commands
            if commands is not None:
                commands.announce(count)
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
        ids = self._take_ready(size)
        rows = np.array(ids, np.int64)
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

    # The synchronous interface on top of it: see the base class

    def _step_all(self) -> Outcome:
        sequence = self._next_sequence()
        return self._exchange(Command("step", sequence, lambda worker: worker.post(sequence, STEP_ALL)))

    def _require_idle(self, purpose: str) -> None:
        if purpose == "reset":
            self._forget_all()
        elif (self._status != IDLE).any():
            waiting = int(np.count_nonzero(self._status))
            raise AlreadyPendingCallError(
                f"{waiting} environments are under way: recv() them before {purpose}, or begin again with reset()",
                purpose,
            )

    # Waiting

    def _take_ready(self, size: int) -> list[int]:
        deadline = self._deadline()
        self._drain(0.0)
        begin, ready = time.perf_counter(), len(self._ready)
        while (missing := size - len(self._ready)) > 0:
            self._report_failures()
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                self._give_up_waiting()
                deadline = self._deadline()
            elif self._nap(missing, remaining) or self._drain(remaining):
                deadline = self._deadline()
        if arrived := len(self._ready) - ready:
            self._pace += 0.2 * ((time.perf_counter() - begin) / arrived - self._pace)
        self._report_failures()
        ids = [self._ready.popleft() for _ in range(size)]
        self._status[ids] = IDLE
        return ids

    def _nap(self, missing: int, remaining: float | None) -> bool:
        """Sleep for half the time that the missing results will take: being woken by each would cost a worker's core.

        True if anything came meanwhile.
        """
        seconds = min(missing * self._pace / 2, _LONGEST_NAP)
        if seconds < _SHORTEST_NAP or (remaining is not None and seconds > remaining):
            return False
        time.sleep(seconds)
        return self._drain(0.0)

    def _drain(self, seconds: float | None) -> bool:
        """Take what has arrived, sleeping at most so long for something to do. True if anything happened."""
        for worker in self._pool.workers:
            if not worker.alive and self._under_way(worker):
                self._bury(worker, worker.death())
        events = self._selector.select(seconds)
        for key, _ in events:
            worker = key.data
            if worker is None:
                for dead in self._pool.died():
                    self._last_results(dead)
            elif worker.alive:
                try:
                    self._accept(worker, self._deadline())
                except (EOFError, TimeoutError):
                    self._pool.kill(worker)
        return bool(events)

    def _accept(self, worker: Worker, deadline: float | None) -> None:
        for sequence, code, outcome in worker.collect(self._pool.buffers, deadline):
            env_id = worker.first + code
            if code >= STEP_ALL or self._expected[env_id] != sequence:
                continue  # late reply to a call that was given up
            self._expected[env_id] = 0
            self._pending_resets.pop(env_id, None)
            if outcome is not None:
                self._absorb_truths(outcome)
                self._infos.update(outcome.infos)
                if outcome.failures:
                    self._failures += outcome.failures
                    self._status[env_id] = IDLE
                    self._needs_reset[env_id] = True
                    self._steppable = False
                    continue
            self._status[env_id] = READY
            self._ready.append(env_id)

    def _report_failures(self) -> None:
        """Failures are raised once; what the others have ready stays for the next `recv`."""
        if self._failures:
            failures, self._failures = self._failures, []
            self._fail(failures, None)

    def _last_results(self, dead: Worker) -> None:
        try:
            self._accept(dead, time.monotonic() + 0.1)
        except (EOFError, TimeoutError):
            return

    def _give_up_waiting(self) -> None:
        """The deadline has passed: the workers that owe something hang."""
        for worker in list(self._pool.workers):
            if self._under_way(worker):
                self._pool.kill(worker)
                self._bury(worker, worker.overdue(self._timeout))

    def _bury(self, dead: Worker, error: WorkerDiedError | WorkerTimeoutError) -> None:
        """Replace a dead worker and give the new one what the old one owed."""
        owed = self._under_way(dead)

        def post(worker: Worker) -> None:
            for env_id in owed:
                self._dispatch(env_id)

        self._replace(Command("step", 0, post), dead, error)

    def _replace(self, command: Command, dead: Worker, error: WorkerDiedError | WorkerTimeoutError) -> None:
        if dead.replies is not None:
            self._unwatch(dead)
        super()._replace(command, dead, error)

    def _replaced(self, worker: Worker) -> None:
        self._watch(worker)

    # Books

    def _was_over(self, i: int) -> bool:
        if self._status[i] == READY:  # its last result has not been handed out yet
            over = bool(self._buffers.terminated[i] or self._buffers.truncated[i])
            return over and self.autoreset_mode is AutoresetMode.NEXT_STEP
        return super()._was_over(i)

    def _dispatch(self, env_id: int) -> None:
        """Give one environment's command, a reset or a step, to its worker."""
        worker = self._pool.workers[self._worker_of[env_id]]
        sequence = self._next_sequence()
        self._expected[env_id] = sequence
        self._status[env_id] = SENT
        if not worker.alive:
            return  # found and replaced by the next recv
        if env_id in self._pending_resets:
            seed, options = self._pending_resets[env_id]
            try:
                worker.post_message(sequence, "reset_one", (env_id - worker.first, seed, options), self._deadline())
            except (EOFError, TimeoutError):
                self._pool.kill(worker)
        else:
            worker.post(sequence, env_id - worker.first)

    def _under_way(self, worker: Worker) -> list[int]:
        return [env_id for env_id in worker.env_ids if self._status[env_id] == SENT]

    def _require_in_hand(self, env_ids: list[int]) -> None:
        busy = [env_id for env_id in env_ids if self._status[env_id] != IDLE]
        if busy:
            raise AlreadyPendingCallError(f"environments {busy[:8]} are under way: recv() them first", "send")

    def _forget_all(self) -> None:
        """Wait for what is under way and drop it: everything begins again."""
        if (self._status != IDLE).any():
            self._settle()
        self._status[:] = IDLE
        self._ready.clear()
        self._infos.clear()
        self._failures.clear()
        self._pending_resets.clear()
        self._expected = [0] * self.num_envs

    def _watch(self, worker: Worker) -> None:
        self._selector.register(worker.reply_fd, selectors.EVENT_READ, worker)

    def _unwatch(self, worker: Worker) -> None:
        if worker.reply_fd in self._selector.get_map():
            self._selector.unregister(worker.reply_fd)

    def _shut_down(self, timeout: float) -> None:
        self._selector.close()
        super()._shut_down(timeout)
