"""One host of the reference model: its processes, red's sessions on it, its decoys, files and ports."""

from dataclasses import dataclass, field
from typing import NamedTuple

from .network import EPHEMERAL_PORTS, OT_SERVICE_PID, PROCESS_IDS, HostType, Service
from .stream import Stream

SHELL_FILE, ESCALATION_FILE = 1, 2
NO_DECOY = -1


@dataclass(slots=True, eq=False)
class Process:
    """A process; a red session is the process that carries it."""

    pid: int
    service: Service
    ports: tuple[int, ...]
    root: bool
    decoy: int = NO_DECOY  # index into DECOYS

    @property
    def is_decoy(self) -> bool:
        return self.decoy != NO_DECOY


class Event(NamedTuple):
    """A connection that blue's monitoring noted on a host."""

    port: int
    source_port: int | None = None
    pid: int | None = None


class HostFacts(NamedTuple):
    """The facts of one host under the names and in the codes of `true_state()`."""

    red_access: int = 0  # 0 none, 1 user, 2 root
    red_sessions: int = 0
    red_root_sessions: int = 0
    red_removable: int = 0  # sessions that a Remove would kill now
    decoys: int = 0  # mask of kinds
    n_decoys: int = 0
    files: int = 0


_NOBODY_HERE = tuple(HostFacts(files=files) for files in range(4))


@dataclass(slots=True)
class HostState:
    """What is true of one host. Lists are in the order of creation."""

    processes: list[Process]
    at_start: tuple[Process, ...] = ()  # what Restore brings back
    sessions: list[Process] = field(default_factory=list)  # red's
    decoys: list[Process] = field(default_factory=list)
    decoy_services: dict[int, int] = field(default_factory=dict)  # kind of decoy -> id of its first process
    files: int = 0
    used_ports: set[int] = field(default_factory=set)
    suspicious: list[int] = field(default_factory=list)  # process ids that blue saw connect; never shrinks
    restored: bool = False

    @classmethod
    def of(cls, host: HostType) -> "HostState":
        """The host before anybody's sessions."""
        return cls([Process(start.pid, start.service, start.ports, start.root) for start in host.processes])

    def start(
        self, stream: Stream, service: Service, ports: tuple[int, ...], root: bool, decoy: int = NO_DECOY
    ) -> Process:
        """Adds a process with a drawn id, drawn again while it is 0 or in use."""
        in_use = {0, *(p.pid for p in self.processes)}
        pid = 0
        while pid in in_use:
            pid = stream.below(PROCESS_IDS)
        process = Process(pid, service, ports, root, decoy)
        self.processes.append(process)
        if process.is_decoy:
            self.decoys.append(process)
        return process

    def kill(self, process: Process) -> None:
        """Ends a process, and the red session or decoy that it is."""
        self.processes.remove(process)
        self.sessions = [session for session in self.sessions if session is not process]
        self.decoys = [decoy for decoy in self.decoys if decoy is not process]

    def restore(self, sessions_that_survive: int) -> None:
        """Everything back to the start, but for blue's suspicions."""
        self.processes = list(self.at_start)
        self.sessions = self.sessions[:sessions_that_survive]
        self.decoys = []
        self.decoy_services = {}
        self.files = 0
        self.used_ports = set()
        self.restored = True

    def ephemeral_port(self, stream: Stream) -> int:
        """A source port out of the host's pool; drawn a second time, and no more, if it was used before."""
        port = EPHEMERAL_PORTS[stream.below(len(EPHEMERAL_PORTS))]
        if port in self.used_ports:
            port = EPHEMERAL_PORTS[stream.below(len(EPHEMERAL_PORTS))]
        self.used_ports.add(port)
        return port

    def process(self, pid: int) -> Process | None:
        """The process with this id."""
        return next((p for p in self.processes if p.pid == pid), None)

    def listener(self, service: Service, port: int) -> Process | None:
        """The process that answers first for a service on a port."""
        return next((p for p in self.processes if p.service is service and port in p.ports), None)

    def is_free(self, port: int) -> bool:
        return not any(port in p.ports for p in self.processes)

    @property
    def has_root(self) -> bool:
        return any(session.root for session in self.sessions)

    def facts(self) -> HostFacts:
        """What `true_state()` tells of the host."""
        if not self.sessions and not self.decoys:
            return _NOBODY_HERE[self.files]
        roots = removable = mask = 0
        for session in self.sessions:
            if session.root:
                roots += 1
            elif session.pid in self.suspicious:
                removable += 1
        for process in self.decoys:
            mask |= 1 << process.decoy
        access = 2 if roots else 1 if self.sessions else 0
        return HostFacts(access, len(self.sessions), roots, removable, mask, len(self.decoys), self.files)


@dataclass(slots=True)
class OperationalService:
    """The service on Op_Server0 that red wants to stop."""

    up: bool = True
    active: bool = True  # what Impact looks at
    pid: int | None = OT_SERVICE_PID  # lost by the first Restore: from then on Impact stops nothing
