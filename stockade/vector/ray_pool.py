"""Backend `ray`: actions -> one call to each actor of a cluster -> slices of environments -> one reply each -> results.

The asynchronous way: send(actions, env_id) -> one call to each actor concerned -> recv() takes the first `batch_size`
environments whose calls are done, in the order in which they were sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from stockade.vector.async_books import SENT, AsyncBooks
from stockade.vector.description import SliceConfig
from stockade.vector.layout import tree_map
from stockade.vector.outcome import Outcome
from stockade.vector.ray_base import Call, RayBase
from stockade.vector.ray_cluster import RayConfig, seconds_until


class RayVectorEnv(AsyncBooks, RayBase):
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
        self._open_books(n_envs, batch_size)
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
        ids = self._put_actions(actions, env_id)
        for index, chosen in self._by_worker(ids.tolist()):
            own = self._actions_of(chosen)
            places = [i - self._specs[index].first for i in chosen]
            self._submit(Call(index, "step_some", (places, own), tuple(chosen)))
        self._status[ids] = SENT

    def _await_ready(self, size: int) -> None:
        deadline = self._deadline()
        self._land(0.0)
        while len(self._ready) < size:
            self._report_failures()
            if self._land(seconds_until(deadline)):
                deadline = self._deadline()
            elif deadline is not None and time.monotonic() >= deadline:
                self._give_up_waiting()
                deadline = self._deadline()

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
            self._arrived(env_id, env_id in failed)

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

    def _forget_all(self) -> None:
        """Drop what is under way: actors serve calls in order, so what is asked next comes after it."""
        self._flying.clear()
        super()._forget_all()
