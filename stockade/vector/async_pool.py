"""Backend `async`: send(actions, env_id) -> ring of the env's worker -> one environment at a time -> ring back -> recv.

recv() returns the first `batch_size` environments that are ready, in the order in which they became ready: a slow one
delays only its worker's queue and nobody starves. An environment lives in one process and stays there; a worker without
work takes no other's, which is why `batch_size` should leave every worker something to do: with batch_size <= n/2 and
two or more workers none runs dry while the parent chooses actions.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from stockade.vector.async_books import IDLE, SENT, AsyncBooks
from stockade.vector.description import SliceConfig
from stockade.vector.errors import WorkerDiedError, WorkerTimeoutError
from stockade.vector.outcome import Outcome
from stockade.vector.process import PoolConfig, Worker, pollable
from stockade.vector.process_base import Command, ProcessVectorEnv
from stockade.vector.rings import STEP_ALL

_SHORTEST_NAP, _LONGEST_NAP = 0.0003, 0.02
"""Seconds. Shorter ones cost what they save; longer ones would keep a death unnoticed."""


class AsyncPoolVectorEnv(AsyncBooks, ProcessVectorEnv):
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
        self._open_books(n_envs, batch_size)
        super().__init__(factory, n_envs, pool, config, copy, restart)
        self._expected = [0] * n_envs
        self._worker_of = [worker.index for worker in self._pool.workers for _ in worker.env_ids]
        self._pace = 0.0  # seconds between two results, of late
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
        ids = self._put_actions(actions, env_id)
        touched: dict[int, int] = {}
        sequence = self._next_sequence()
        workers = self._pool.workers
        for place in ids.tolist():
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

    # The synchronous interface on top of it: see the base class

    def _step_all(self) -> Outcome:
        sequence = self._next_sequence()
        return self._exchange(Command("step", sequence, lambda worker: worker.post(sequence, STEP_ALL)))

    # Waiting

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
                self._failures += outcome.failures
            self._arrived(env_id, outcome is not None and bool(outcome.failures))

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

    def _forget_all(self) -> None:
        """Wait for what is under way and drop it: everything begins again."""
        if (self._status != IDLE).any():
            self._settle()
        super()._forget_all()
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
