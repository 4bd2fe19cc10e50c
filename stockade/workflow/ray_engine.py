"""Who trains on a Ray cluster, or on a Ray of this machine: one Ray task per training.

submit(task) -> a streaming task in the cluster -> UpdateRow, Saved ... WorkflowResult -> next_event() on the driver

Workers get everything with the call and send everything back: they need the package and nothing else, no shared files.
Ray repeats nothing by itself; a training whose worker or node is lost is handed out again here, a few times, from its
last checkpoint.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import stockade
from stockade.vector.local.channel import from_peer, quickly_pickled, to_worker
from stockade.vector.ray.cluster import Connection, RayConfig
from stockade.workflow.engine import Engine, Event, Failed, Trainer, failure, trained
from stockade.workflow.records import Task, WorkflowResult

_END_SECONDS = 10.0


class RayEngine(Engine):
    """Several trainings at once, each as a Ray task with CPUs of its own; more than there is room for wait.

    Args:
        parallel: tasks that may be in flight at once.
        train: what trains an order.
        address: of the cluster; None starts a Ray on this machine, unless one is running in this process or the
            variable RAY_ADDRESS names one.
        num_cpus: of each training; it works with as many threads.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, parallel: int, train: Trainer, *, address: str | None = None, num_cpus: float = 1.0) -> None:
        super().__init__(parallel, threads=max(1, int(num_cpus)))
        self._train = train
        self._streams: dict[int, Any] = {}  # by number of the training: Ray's generator of references to pickled events
        options = {"num_cpus": num_cpus}
        self._connection = Connection(RayConfig(workers=parallel, address=address, actor_options=options), parallel)
        self._ray = self._connection.ray
        self._remote = self._ray.remote(_work).options(
            **options, num_returns="streaming", max_retries=0, scheduling_strategy="SPREAD", name="stockade-workflow"
        )
        try:
            self._warn_of_little_room(num_cpus)
        except BaseException:
            self.close()
            raise

    def _warn_of_little_room(self, num_cpus: float) -> None:
        """Tell the user why nothing will happen, or less at once than was asked for; a cluster may still grow."""
        nodes = [node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]]
        room = sum(int(cpus / num_cpus) for cpus in nodes)
        if room < self.capacity:
            warnings.warn(
                f"the Ray cluster has room for {room} trainings of {num_cpus:g} CPUs at once (CPUs of its nodes: "
                f"{', '.join(f'{cpus:g}' for cpus in nodes)}), the others of --parallel {self.capacity} wait; change "
                "--num-cpus-per-workflow or --parallel, or add nodes",
                stacklevel=3,
            )

    def _start(self, task: Task) -> None:
        pickled = to_worker((self._train, task))
        self._streams[task.number] = self._remote.remote(stockade.__version__, task.number, pickled)

    def _collect(self, timeout: float | None) -> bool:
        streams = list(self._streams.values())
        if not streams or not self._ray.wait(streams, timeout=timeout)[0]:
            return False
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)  # whatever is there by now
        for number in [n for n, mine in self._streams.items() if any(mine is stream for stream in ready)]:
            self._take(number)
        return True

    def _take(self, number: int) -> None:
        """One event of a training, or the news that there will be none."""
        errors = self._ray.exceptions
        try:
            self._receive(from_peer(self._ray.get(next(self._streams[number]))))
        except errors.RayTaskError as error:  # not of the training, which reports its own failures
            hint = f"are stockade[train,ray] {stockade.__version__} and the same Python installed on every node?"
            self._receive(failure(number, f"{error}\n{hint}"))
        except errors.RayError as error:  # of the worker or its node: whatever Ray says of it, the training is gone
            self._lose(number, f"was lost: {' '.join(str(error).split()).rstrip('.')}")
        if number not in self._tasks:
            del self._streams[number]

    def close(self) -> None:
        """End all trainings in flight, and Ray if it was started here."""
        streams, self._streams = list(self._streams.values()), {}
        if streams and self._ray.is_initialized():
            with contextlib.suppress(self._ray.exceptions.RayError):
                for stream in streams:
                    self._ray.cancel(stream, force=True)
                ends = [stream.completed() for stream in streams]
                self._ray.wait(ends, num_returns=len(ends), timeout=_END_SECONDS)
        self._connection.close()


def _work(version: str, number: int, pickled: bytes) -> Iterator[bytes]:
    """The Ray task, somewhere in the cluster: trains in a thread and hands the events on as they come."""
    if version != stockade.__version__:
        text = f"this node has stockade {stockade.__version__}, the search is of {version}: install the same on all"
        yield quickly_pickled(failure(number, text))
        return
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def run() -> None:
        events.put(trained(number, lambda: from_peer(pickled), events.put))

    threading.Thread(target=run, name=f"training-{number}", daemon=True).start()
    event: Event | None = None
    while not isinstance(event, WorkflowResult | Failed):
        event = events.get()
        yield quickly_pickled(event)
