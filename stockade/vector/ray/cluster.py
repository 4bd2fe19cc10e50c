"""Ray and its actors, seen from the driver: connect, or start Ray here -> start actors -> call them -> kill them.

Ray is one thing for the whole process. If the user has started it, it is left as it was; if we have, it ends with the
last vector environment that uses it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from stockade.cores import available_cores
from stockade.errors import InputError, WorkerDiedError, WorkerTimeoutError
from stockade.vector.host import SliceSpec
from stockade.vector.local.channel import from_peer, quickly_pickled, to_worker
from stockade.vector.outcome import Description
from stockade.vector.ray.actor import Greeting, SliceActor
from stockade.vector.workers import env_ids, overdue, raise_if_failed, span

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
    """How actors are run.

    Attributes:
        workers: number of actors; None for the CPUs that the cluster has free.
        start_timeout: seconds until actors must be there: they may have to wait for CPUs, or for a cluster to grow.
        address: of a cluster, if Ray is not running in this process yet; "auto" for the one that runs on this machine;
            None for that of the variable RAY_ADDRESS, or else a new one on this machine.
        actor_options: for `ray.remote`, such as `{"num_cpus": 0.5, "scheduling_strategy": "SPREAD"}`.
    """

    workers: int | None = None
    start_timeout: float | None = 300.0
    address: str | None = None
    actor_options: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """All options of an actor. Ray must not repeat calls: an environment would be stepped twice."""
        return {**self.actor_options, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1}


class _Started:
    """The Ray that was started by us: its address, whether it runs on this machine alone, how many use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.address: str | None = None
        self.here = False
        self.users = 0


_started = _Started()


class Connection:
    """The use of Ray by one vector environment.

    Attributes:
        ray: the module.
        config: what was asked for, completed for this Ray.
        workers: number of actors to start: what was asked for, or fits the cluster.
    """

    def __init__(self, config: RayConfig, n_envs: int) -> None:
        self.ray = load_ray()
        self._open = False
        with _started.lock:
            if not self.ray.is_initialized():
                _started.here = self._start(config)
                _started.address, _started.users = self._address(), 0
            elif config.address not in (None, "auto"):
                self._check_address(str(config.address))
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
        with _set_in_environment(_QUIET):
            try:
                self.ray.init(address, **options)
            except ConnectionError as error:
                raise InputError(f"there is no Ray cluster at address={address!r}: {error}") from error
        return address == "local"

    def _address(self) -> str:
        """Of the Ray that this process uses; no two have the same."""
        address: str = self.ray.get_runtime_context().gcs_address
        return address

    def _check_address(self, address: str) -> None:
        """An address that is not used must not pass in silence."""
        here = self._address()
        if address != here:
            raise InputError(
                f"address={address!r}, but this process already uses the Ray at {here}: leave address= out, "
                f"or call ray.shutdown() first"
            )

    def close(self) -> None:
        """End Ray, if we have started it and no other vector environment uses it."""
        with _started.lock:
            last = self._open and self._ours and _started.users == 1
            if self._open and self._ours:
                _started.users -= 1
            self._open = False
            if last and self.ray.is_initialized() and self._address() == _started.address:
                self.ray.shutdown()


class RemoteWorker:
    """One actor, seen from the driver.

    Attributes:
        index: its number.
        spec: its environments.
        greeting: what it sent when its environments were built; None before.
    """

    def __init__(self, ray: Any, index: int, spec: SliceSpec, config: RayConfig) -> None:
        self.index = index
        self.spec = spec
        self.greeting: Greeting | None = None
        self._ray = ray
        self._config = config
        self._actor = ray.remote(SliceActor).options(**config.options).remote()
        self._building = self._actor.build.remote(to_worker(spec))

    def is_built(self, seconds: float | None) -> bool:
        """Whether the actor has built its environments, or died of it, within so many seconds."""
        return bool(self._ray.wait([self._building], timeout=seconds)[0])

    def greet(self) -> Description:
        """Wait until the actor has built its environments."""
        errors = self._ray.exceptions
        limit = self._config.start_timeout
        try:
            answer = from_peer(self._ray.get(self._building, timeout=limit))
        except errors.GetTimeoutError:
            raise WorkerTimeoutError(
                f"{self.name} was not ready within start_timeout={limit} s and was killed: it was waiting for CPUs, "
                f"or building its environments. {free_cpus(self._ray)}",
                self.index,
                env_ids(self.spec),
            ) from None
        except errors.RayError as error:
            raise self.death(error, "It ended while it was building its environments.") from error
        raise_if_failed(answer, self.index, self.spec)
        self.greeting = answer
        description: Description = answer.description
        return description

    def call(self, kind: str, arguments: tuple[Any, ...]) -> Any:
        """Give a command; returns Ray's reference to the reply."""
        pickled = quickly_pickled if kind in ("step", "step_some") else to_worker
        return self._actor.serve.remote(pickled((kind, arguments)))

    def close(self) -> Any:
        """Let the actor close its environments; returns Ray's reference to the end of that."""
        return self._actor.close.remote()

    def kill(self) -> None:
        """End the actor, whatever it does."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._actor)

    def obituary(self) -> Any:
        """A reference that becomes ready when Ray knows that the actor has ended."""
        return self._actor.serve.remote(b"")

    def death(self, error: Exception, note: str = "") -> WorkerDiedError:
        """The error for an actor that was lost."""
        reason = " ".join(str(error).split())
        return WorkerDiedError(f"{self.name} was lost: {reason} {note}", self.index, env_ids(self.spec), None)

    def overdue(self) -> WorkerTimeoutError:
        """The error for an actor that did not answer."""
        return overdue(self.name, self.index, self.spec, self.spec.config.timeout)

    @property
    def name(self) -> str:
        """For messages: its number, where it is, and what it has."""
        place = "" if self.greeting is None else f"process {self.greeting.pid} on {self.greeting.host}, "
        return f"worker {self.index} ({place}environments {span(self.spec)})"


def free_cpus(ray: Any) -> str:
    """For messages."""
    free, there = ray.available_resources().get("CPU", 0.0), ray.cluster_resources().get("CPU", 0.0)
    return f"{free:g} of the Ray cluster's {there:g} CPUs are free."


def warn_if_waiting(ray: Any, workers: list[RemoteWorker], config: RayConfig) -> None:
    """Tell the user why nothing happens, if actors wait for CPUs: others may free some, or a cluster may grow."""
    soon = time.monotonic() + _PATIENCE
    waiting = [worker for worker in workers if not worker.is_built(seconds_until(soon))]
    share = config.actor_options["num_cpus"] or 0
    if waiting and ray.available_resources().get("CPU", 0.0) < share:
        warnings.warn(
            f"{len(waiting)} of {len(workers)} workers wait for {share:g} CPUs each. {free_cpus(ray)} "
            f"Take fewer workers=, or let them share with actor_options={{'num_cpus': 0.1}}",
            stacklevel=6,
        )


def end_all(ray: Any, workers: list[RemoteWorker], timeout: float) -> None:
    """Let actors close their environments, for `timeout` seconds at most, then kill them and see that they are dead."""
    greeted = [worker for worker in workers if worker.greeting is not None]
    if timeout > 0 and greeted:
        ray.wait([worker.close() for worker in greeted], num_returns=len(greeted), timeout=timeout)
    for worker in workers:
        worker.kill()
    if workers:
        ray.wait([worker.obituary() for worker in workers], num_returns=len(workers), timeout=max(timeout, 1.0))


def seconds_until(deadline: float | None) -> float | None:
    """For Ray's `timeout`: None waits for ever."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


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


@contextlib.contextmanager
def _set_in_environment(values: dict[str, str]) -> Iterator[None]:
    """Variables for processes started inside, unless the user says otherwise."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
