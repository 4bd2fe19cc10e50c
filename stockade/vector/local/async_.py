"""Backend `async`: send(actions, env_id) -> ring of the env's worker -> one environment at a time -> ring back -> recv.

recv() returns the first `batch_size` environments that are ready, in the order in which they became ready: a slow one
delays only its worker's queue and nobody starves. An environment lives in one process and stays there; a worker without
work takes no other's, which is why `batch_size` should leave every worker something to do: with batch_size <= n/2 and
two or more workers none runs dry while the parent chooses actions.
"""

import selectors
import time
from typing import Any

import numpy as np

from stockade.errors import WorkerDiedError, WorkerTimeoutError
from stockade.vector.asynchronous import IDLE, SENT, AsyncVectorEnv
from stockade.vector.local.env import Command, ProcessVectorEnv, Replies
from stockade.vector.local.process import PoolConfig, Worker, pollable
from stockade.vector.local.shared import STEP_ALL
from stockade.vector.outcome import Factory, RunConfig

_SHORTEST_NAP, _LONGEST_NAP = 0.0003, 0.02
"""Seconds. Shorter ones cost what they save; longer ones would keep a death unnoticed."""


class AsyncPoolVectorEnv(AsyncVectorEnv, ProcessVectorEnv):
    """Environments in worker processes, returned as they become ready."""

    def __init__(self, factory: Factory, n_envs: int, pool: PoolConfig, config: RunConfig) -> None:
        self._open_bookkeeping(n_envs, config.batch_size)
        ProcessVectorEnv.__init__(self, factory, n_envs, pool, config)
        self._expected = [0] * n_envs
        self._worker_of = [worker.index for worker in self._pool.workers for _ in worker.spec.env_ids]
        self._pace = 0.0  # recent seconds between two results
        self._pending_resets: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(pollable(self._pool.deaths), selectors.EVENT_READ, None)
        for worker in self._pool.workers:
            self._watch(worker)

    def _send_resets(self, env_ids: list[int], seeds: list[int | None], options: dict[str, Any] | None) -> None:
        for env_id, seed in zip(env_ids, seeds, strict=True):
            self._pending_resets[env_id] = (seed, options)
            self._dispatch(env_id)

    def _send_steps(self, env_ids: np.ndarray) -> None:
        touched: dict[int, int] = {}
        sequence = self._next_sequence()
        workers = self._pool.workers
        for env_id in env_ids.tolist():
            self._expected[env_id] = sequence
            index = self._worker_of[env_id]
            worker = workers[index]
            if worker.commands is None or not worker.alive:
                continue  # found and replaced by the next recv
            worker.commands.push(sequence, env_id - worker.spec.first)
            worker.outstanding += 1
            touched[index] = touched.get(index, 0) + 1
        for index, count in touched.items():
            commands = workers[index].commands
            if commands is not None:
                commands.announce(count)

    def _await_ready(self, size: int) -> None:
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
            if not worker.alive and self._in_flight(worker):
                self._bury(worker, worker.death())
        events = self._selector.select(seconds)
        for key, _ in events:
            worker = key.data
            if worker is None:
                for dead in self._pool.died():
                    self._accept(dead, self._last_replies(dead))
            elif worker.alive:
                try:
                    self._accept(worker, worker.collect(self._pool.buffers, self._deadline()))
                except (EOFError, TimeoutError):
                    self._pool.kill(worker)
        return bool(events)

    def _accept(self, worker: Worker, replies: Replies) -> None:
        for sequence, code, outcome in replies:
            env_id = worker.spec.first + code
            if code >= STEP_ALL or self._expected[env_id] != sequence:
                continue  # late reply to a call that was given up
            self._expected[env_id] = 0
            self._pending_resets.pop(env_id, None)
            self._accept_replies((env_id,), outcome)

    def _give_up_waiting(self) -> None:
        """The deadline has passed: the workers that owe something hang."""
        for worker in list(self._pool.workers):
            if self._in_flight(worker):
                self._pool.kill(worker)
                self._bury(worker, worker.overdue())

    def _bury(self, dead: Worker, error: WorkerDiedError | WorkerTimeoutError) -> None:
        """Replace a dead worker and give the new one what the old one owed."""
        owed = self._in_flight(dead)

        def post(worker: Worker) -> None:
            for env_id in owed:
                self._dispatch(env_id)

        self._replace(Command("step", 0, post), dead, error)

    def _replace(self, command: Command, dead: Worker, error: WorkerDiedError | WorkerTimeoutError) -> None:
        if dead.replies is not None and dead.reply_fd in self._selector.get_map():
            self._selector.unregister(dead.reply_fd)
        super()._replace(command, dead, error)
        self._watch(self._pool.workers[dead.index])

    def _dispatch(self, env_id: int) -> None:
        """Give one environment's command, a reset or a step, to its worker."""
        worker = self._pool.workers[self._worker_of[env_id]]
        sequence = self._next_sequence()
        self._expected[env_id] = sequence
        if not worker.alive:
            return  # found and replaced by the next recv
        if env_id in self._pending_resets:
            seed, options = self._pending_resets[env_id]
            arguments = [env_id - worker.spec.first], [seed], options
            try:
                worker.post_message(sequence, "reset_some", arguments, self._deadline())
            except (EOFError, TimeoutError):
                self._pool.kill(worker)
        else:
            worker.post(sequence, env_id - worker.spec.first)

    def _in_flight(self, worker: Worker) -> list[int]:
        return [i for i in worker.spec.env_ids if self._status[i] == SENT]

    def _forget_all(self) -> None:
        """Wait for what is in flight and drop it: everything begins again."""
        if (self._status != IDLE).any():
            self._settle()
        super()._forget_all()
        self._pending_resets.clear()
        self._expected = [0] * self.num_envs

    def _watch(self, worker: Worker) -> None:
        self._selector.register(worker.reply_fd, selectors.EVENT_READ, worker)

    def _shut_down(self, timeout: float) -> None:
        self._selector.close()
        super()._shut_down(timeout)
