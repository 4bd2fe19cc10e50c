"""Backend `async`: send(actions, env_id) -> ring of the env's worker -> one environment at a time -> ring back -> recv.

recv() returns the first `batch_size` environments that are ready, in the order in which they became ready: a slow one
delays only its worker's queue and nobody starves. An environment lives in one process and stays there; a worker without
work takes no other's, which is why `batch_size` should leave every worker something to do: with batch_size <= n/2 and
two or more workers none runs dry while the parent chooses actions.
"""

import selectors
import time

from stockade.vector.asynchronous import AsyncVectorEnv
from stockade.vector.host import SliceSpec
from stockade.vector.local.channel import seconds_to_sleep
from stockade.vector.local.env import PoolConfig, ProcessVectorEnv, ProcessWorker, pollable

_SHORTEST_NAP, _LONGEST_NAP = 0.0003, 0.02
"""Seconds. Shorter ones cost what they save; longer ones would keep a death unnoticed."""


class AsyncPoolVectorEnv(AsyncVectorEnv, ProcessVectorEnv):
    """Environments in worker processes, returned as they become ready."""

    def _connect(self, how: PoolConfig, n_envs: int) -> int:
        workers = super()._connect(how, n_envs)
        self._selector = selectors.DefaultSelector()
        self._selector.register(pollable(self._deaths), selectors.EVENT_READ, None)
        return workers

    def _place(self, worker: ProcessWorker) -> None:
        super()._place(worker)
        self._selector.register(worker.reply_fd, selectors.EVENT_READ, worker)

    def _start_again(self, spec: SliceSpec) -> None:
        dead = self._workers[spec.index]
        if dead.reply_fd in self._selector.get_map():
            self._selector.unregister(dead.reply_fd)
        super()._start_again(spec)

    def _batches(self, env_ids: list[int], kind: str) -> list[list[int]]:
        return [[env_id] for env_id in env_ids]

    def _send_steps(self, env_ids: list[int]) -> None:
        places: dict[int, list[tuple[int, int]]] = {}
        for env_id in env_ids:
            call = self._step_of[env_id]
            sequence = self._next_sequence()
            self._flying[sequence] = call
            worker = self._workers[call.worker]
            if worker.alive:  # otherwise found and replaced by the next recv
                places.setdefault(call.worker, []).append((sequence, env_id - worker.spec.first))
        for index, entries in places.items():
            self._workers[index].post_all(entries)

    def _land(self, seconds: float | None, missing: int = 0) -> bool:
        """Where many are missing, sleep first for half the time that they will take.

        Being woken by each would cost a worker's core.
        """
        nap = min(missing * self._pace / 2, _LONGEST_NAP)
        if nap >= _SHORTEST_NAP and (seconds is None or nap <= seconds):
            time.sleep(nap)
            if self._land(0.0):
                return True
        events = self._selector.select(seconds_to_sleep(seconds))
        for key, _ in events:
            worker = key.data
            if worker is None:
                for dead in self._died():
                    self._accept(self._take_last(dead))
            elif worker.alive:
                self._accept(self._take(worker, self._deadline()))
        return bool(events)

    def _shut_down(self, timeout: float) -> None:
        self._selector.close()
        super()._shut_down(timeout)
