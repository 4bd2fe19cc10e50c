"""Ray and its actors: connect, or start Ray here -> start actors -> call them -> kill them.

Ray is one thing for the whole process. If the user has started it, it is left as it was; if we have, it ends with the
last vector environment that uses it.
"""

import contextlib
import logging
import os
import socket
import threading
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

from stockade.cores import available_cores
from stockade.errors import InputError, WorkerDiedError, WorkerTimeoutError
from stockade.vector.host import SliceHost, SliceSpec
from stockade.vector.local.channel import from_peer, quickly_pickled, to_parent, to_worker
from stockade.vector.local.machine import use_one_thread, variables_set
from stockade.vector.outcome import Failure
from stockade.vector.workers import Worker

_PATIENCE = 10.0
"""Seconds until the user is told that actors wait for CPUs, or that nobody listens at an address."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Nothing is reported to anybody, and no tip about graphics cards is printed."""


def load_ray() -> Any:
    """The module, imported when it is needed and not before."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise InputError("this needs Ray, which is not installed: pip install 'stockade[ray]'") from None
    return ray


@dataclass(frozen=True)
class RayConfig:
    """How actors are run, see `BackendOptions`.

    `address` "auto" is the cluster that runs on this machine; None that of RAY_ADDRESS, or else a new one here.
    """

    workers: int | None = None
    start_timeout: float | None = 300.0
    address: str | None = None
    actor_options: dict[str, Any] = field(default_factory=dict)


class _Started:
    """The Ray that was started by us: its address, whether it runs on this machine alone, how many use it."""

    lock = threading.Lock()
    address: str | None = None
    here = False
    users = 0


_started = _Started()


class Connection:
    """The use of the module `ray` by one vector environment, with the config and number of workers that fit it."""

    def __init__(self, config: RayConfig, n_envs: int) -> None:
        self.ray = load_ray()
        self._open = False
        with _started.lock:
            if not self.ray.is_initialized():
                _started.here = self._start(config)
                _started.address, _started.users = self._address(), 0
            elif config.address not in (None, "auto", self._address()):  # must not pass in silence
                raise InputError(
                    f"address={config.address!r}, but this process already uses the Ray at {self._address()}: "
                    f"leave address= out, or call ray.shutdown() first"
                )
            self._ours = self._address() == _started.address
            _started.users += self._ours
            self._open = True
        # On one's own machine more workers than cores are allowed, so nobody counts CPUs on a Ray that we have started.
        share = 0 if self._ours and _started.here else 1
        self.config = replace(config, actor_options={"num_cpus": share, **config.actor_options})
        workers = config.workers or int(self.ray.available_resources().get("CPU", 1))
        self.workers = min(n_envs, max(1, workers))

    def _start(self, config: RayConfig) -> bool:
        """Start Ray, or connect to a cluster. True if it runs on this machine alone."""
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        address = config.address or os.environ.get("RAY_ADDRESS") or "local"
        if address == "local":
            options |= {"num_cpus": available_cores(), "include_dashboard": False}
        require_listener(address)
        with variables_set(_QUIET):
            try:
                self.ray.init(address, **options)
            except ConnectionError as error:
                raise InputError(f"there is no Ray cluster at address={address!r}: {error}") from error
        return address == "local"

    def _address(self) -> str:
        """Of the Ray that this process uses; no two have the same."""
        address: str = self.ray.get_runtime_context().gcs_address
        return address

    def close(self) -> None:
        """End Ray, if we have started it and no other vector environment uses it."""
        with _started.lock:
            last = self._open and self._ours and _started.users == 1
            if self._open and self._ours:
                _started.users -= 1
            self._open = False
            if last and self.ray.is_initialized() and self._address() == _started.address:
                self.ray.shutdown()


class SliceActor:
    """The actor, as it runs somewhere in the cluster: message -> slice of environments -> message.

    Messages are pickled here and not by Ray, which is faster for several small arrays, and tells a value that cannot be
    pickled from a bug. Small ones travel with the call and its reply, large ones through Ray's object store.
    """

    _host: SliceHost

    def build(self, pickled: bytes) -> bytes:
        """Make the environments of a `SliceSpec`: (description, process id, host), or the `Failure` that stopped it."""
        try:
            use_one_thread()
            self._host = SliceHost(from_peer(pickled))
            self._host.open()
        except Exception as exception:
            return to_parent(Failure.of(exception, -1, "construction", None, None, 0))
        return to_parent((self._host.description, os.getpid(), socket.gethostname()))

    def serve(self, pickled: bytes) -> bytes:
        """(command, arguments) -> (sequence, outcome or None, arrays or None), as `SliceHost.serve`."""
        kind, arguments = from_peer(pickled)
        return self._host.serve(kind, 0, arguments)

    def close(self) -> None:
        self._host.close()


class RemoteWorker(Worker):
    """One actor, seen from the driver; `pid` is None before its environments are built."""

    def __init__(self, connection: Connection, spec: SliceSpec) -> None:
        self.spec = spec
        self.pid: int | None = None
        self._ray = connection.ray
        self._reason = ""  # why it was lost, as Ray says
        self._start_timeout = connection.config.start_timeout
        # Ray must not repeat calls: an environment would be stepped twice.
        options = {**connection.config.actor_options, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1}
        self.actor = self._ray.remote(SliceActor).options(**options).remote()
        self.building = self.actor.build.remote(to_worker(spec))

    def _answer(self) -> Any:
        errors, limit = self._ray.exceptions, self._start_timeout
        try:
            answer = from_peer(self._ray.get(self.building, timeout=limit))
        except errors.GetTimeoutError:
            raise WorkerTimeoutError(
                f"{self.name} was not ready within start_timeout={limit} s and was killed: it was waiting for CPUs, "
                f"or building its environments. {free_cpus(self._ray)}",
                self.spec.index,
                self.spec.env_ids,
            ) from None
        except errors.RayError as error:
            self.note_loss(error)
            raise self.death("It ended while it was building its environments.") from error
        if isinstance(answer, Failure):
            return answer
        description, self.pid, host = answer
        self.where = f"process {self.pid} on {host}, "
        return description

    def call(self, kind: str, arguments: tuple[Any, ...]) -> Any:
        """Give a command; returns Ray's reference to the reply."""
        pickled = quickly_pickled if kind in ("step", "step_some") else to_worker
        return self.actor.serve.remote(pickled((kind, arguments)))

    def kill(self) -> None:
        """For good: Ray may think of an actor as out of reach only, and it must not come back."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self.actor)

    def note_loss(self, error: Exception) -> None:
        self.alive, self._reason = False, " ".join(str(error).split())

    def death(self, note: str = "") -> WorkerDiedError:
        return WorkerDiedError(f"{self.name} was lost: {self._reason} {note}", self.spec.index, self.spec.env_ids)


def free_cpus(ray: Any) -> str:
    free, there = ray.available_resources().get("CPU", 0.0), ray.cluster_resources().get("CPU", 0.0)
    return f"{free:g} of the Ray cluster's {there:g} CPUs are free."


def warn_if_waiting(connection: Connection, workers: list[RemoteWorker]) -> None:
    """Tell the user why nothing happens, if actors wait for CPUs: others may free some, or a cluster may grow."""
    ray, building = connection.ray, [worker.building for worker in workers]
    waiting = ray.wait(building, num_returns=len(building), timeout=_PATIENCE)[1]
    share = connection.config.actor_options["num_cpus"] or 0
    if waiting and ray.available_resources().get("CPU", 0.0) < share:
        warnings.warn(
            f"{len(waiting)} of {len(workers)} workers wait for {share:g} CPUs each. {free_cpus(ray)} "
            f"Take fewer workers=, or let them share with actor_options={{'num_cpus': 0.1}}",
            stacklevel=8,
        )


def end_all(ray: Any, workers: list[RemoteWorker], timeout: float) -> None:
    """Let actors close their environments, for `timeout` seconds at most, then kill them and see that they are dead."""
    closing = [worker.actor.close.remote() for worker in workers if worker.pid is not None and timeout > 0]
    if closing:
        ray.wait(closing, num_returns=len(closing), timeout=timeout)
    for worker in workers:
        worker.kill()
    if workers:  # calls to actors are done when Ray knows that these have ended
        calls = [worker.actor.serve.remote(b"") for worker in workers]
        ray.wait(calls, num_returns=len(calls), timeout=max(timeout, 1.0))


def require_listener(address: str) -> None:
    """Refuse host:port where nobody listens, which Ray would try for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator:
        return  # "auto", "local" and the like
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, ValueError, OverflowError) as error:  # the last two: no number, or none of a port
        raise InputError(
            f"there is no Ray cluster at address={address!r}: {error}; `ray start --head` prints the address of one"
        ) from error
