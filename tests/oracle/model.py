"""The reference model: CAGE Challenge 2 as a readable program, seed for seed what the reference simulator does.

    blue's action -> blue acts -> green acts -> red chooses (or is told) and acts -> reward -> monitor -> observation

It draws the random numbers of the reference in the reference's order, so that after `reset(seed)` every observation,
reward and hidden fact equals a recorded one; test_model_traces.py checks that. It exists to be compared with the
kernel and shares nothing with it. Hidden facts have the names and codes of `true_state()`.
"""

from .host import ESCALATION_FILE, SHELL_FILE, Event, HostFacts, HostState, OperationalService, Process
from .network import (
    ACTIVITY_BITS,
    ADDRESSES_DRAWN,
    BLUE_SESSIONS_ON,
    COMPROMISED_BITS,
    DECOYS,
    ENTERPRISE_HOSTS,
    FIRST_SESSIONS,
    GREEN_TARGETS,
    HOSTS,
    MONITOR,
    N_HOSTS,
    NO_TARGET,
    P_BEST_EXPLOIT,
    P_DETECTED,
    PORT_BIT,
    REVEALS,
    REVERSE_SHELL_PORT,
    SLEEP,
    Activity,
    BlueClass,
    Compromised,
    Exploit,
    ExploitType,
    Host,
    Outcome,
    RedAction,
    Service,
    SessionSeen,
    Subnet,
    ranked_options,
)
from .red import MOVES, RED_AGENTS, Knowledge, RedAgent
from .stream import Stream

RULES = ("current", "leaderboard")
GREEN = ("sleep", "active")
NO_DRAW = -1
_HOST_BITS = tuple(tuple(a + c for c in COMPROMISED_BITS) for a in ACTIVITY_BITS)


class ReferenceModel:
    """One world under `chance="cyborg"`.

    Args:
        red: `bline`, `meander` or `sleep`.
        green: `sleep` or `active`.
        rules: `current` or `leaderboard`.

    After each `step`, the attributes `blue_action`, `blue_success`, `green_target`, `red_type`, `red_target`,
    `red_success`, `exploit` and `detected` say what happened in it; `red_saw_ports` and `red_saw_session` what red's
    own observation showed of it, `red_invalid` and `red_reward` what it was worth to red. `host_facts()`, `red_ports`,
    `red_mask`, `service_down` and `random_peek()` say what is true now; the state itself is in `hosts`, `service`,
    `knowledge` and `stream`.
    """

    def __init__(self, red: str = "bline", green: str = "sleep", rules: str = "current") -> None:
        if rules not in RULES or green not in GREEN:
            raise ValueError(f"{rules=} must be one of {RULES} and {green=} one of {GREEN}")
        self._red_class = RED_AGENTS[red]
        self._green_active = green == "active"
        self._leaderboard = rules == "leaderboard"
        self.stream: Stream
        self.restarted_services = 0  # how often Remove hit a service; for tests that want to see that path taken

    # ------------------------------------------------------------------ episodes

    def reset(self, seed: int | None = None) -> list[int]:
        """Starts an episode; without a seed the stream of the last one goes on. Returns 52 observation bits."""
        if seed is not None:
            self.stream = Stream(seed)
        self._draw_addresses()
        self.hosts = [HostState.of(host) for host in HOSTS]
        for host in FIRST_SESSIONS:
            session = self.hosts[host].start(self.stream, Service.OTHER, (), root=False)
        session.root = True  # the last one is red's
        self.hosts[Host.USER0].sessions.append(session)
        for state in self.hosts:
            state.at_start = tuple(state.processes)
        self.service = OperationalService()
        self.knowledge = Knowledge()
        self.red: RedAgent = self._red_class()
        self.activity = [Activity.NONE] * N_HOSTS
        self.compromised = [Compromised.NO] * N_HOSTS
        self.blue_action, self.blue_success = SLEEP, Outcome.UNKNOWN
        self.green_target = NO_TARGET
        self.red_type, self.red_target, self.red_success = RedAction.SLEEP, NO_TARGET, Outcome.UNKNOWN
        self.exploit, self.detected = Exploit.NONE, NO_DRAW
        self.red_saw_ports, self.red_saw_session = 0, SessionSeen.NONE
        self.red_invalid, self.red_reward = False, 0.0
        return self.observation()

    def _draw_addresses(self) -> None:
        """Addresses decide nothing in the rules; only their draws matter."""
        self.stream.sample(4096, 3)
        for hosts in ADDRESSES_DRAWN:
            self.stream.below(1)
            self.stream.sample(14, hosts)

    def step(self, action: int, red_action: int | None = None) -> tuple[list[int], float]:
        """Plays one step. Returns the 52 observation bits and the reward.

        Args:
            action: blue's.
            red_action: index into `MOVES`, whatever the red agent would do; None leaves the choice to the agent.
        """
        self._events: dict[int, list[Event]] = {}
        self._decoy_placed_on = NO_TARGET
        self._files_found_on = NO_TARGET
        self._blue(action)
        self._green()
        self._red(red_action)
        reward = self._reward()
        self._monitor()
        return self.observation(), reward

    # ------------------------------------------------------------------ blue

    def _blue(self, action: int) -> None:
        self.blue_action = action
        self.blue_success = Outcome.UNKNOWN if action == SLEEP else Outcome.TRUE
        if action in (SLEEP, MONITOR):
            return
        blue_class, host = divmod(action - 2, N_HOSTS)
        self.stream.below(BLUE_SESSIONS_ON[host])
        if blue_class == BlueClass.ANALYSE:
            if self.hosts[host].files:
                self._files_found_on = host
        elif blue_class == BlueClass.REMOVE:
            self._remove(host)
        elif blue_class == BlueClass.RESTORE:
            self._restore(host)
        else:
            self._place_decoy(host, blue_class - BlueClass.DECOY_APACHE)

    def _remove(self, host: int) -> None:
        """Kills the processes whose connection blue has seen, unless they run as root."""
        state = self.hosts[host]
        for pid in state.suspicious:
            process = state.process(pid)
            if process is None or process.root:
                continue
            state.kill(process)
            if pid in state.decoy_services.values() or (host == Host.OP_SERVER0 and pid == self.service.pid):
                # A decoy that happens to have the id of a dead shell; services are started again.
                state.start(self.stream, process.service, process.ports, process.root, process.decoy)
                self.restarted_services += 1
        if self.compromised[host]:
            self.compromised[host] = Compromised.UNKNOWN

    def _restore(self, host: int) -> None:
        """Everything back to the start. Red's first session on User0 survives; suspicions and red's knowledge too."""
        self.hosts[host].restore(sessions_that_survive=host == Host.USER0)
        if host == Host.OP_SERVER0:
            self.service = OperationalService(pid=None)
        self.compromised[host] = Compromised.NO

    def _place_decoy(self, host: int, decoy: int) -> None:
        kind, state = DECOYS[decoy], self.hosts[host]
        if kind.system not in (None, HOSTS[host].system) or not state.is_free(kind.port_that_must_be_free):
            self.blue_success = Outcome.FALSE
            return
        self.stream.below(1)
        process = state.start(self.stream, kind.service, (kind.port,), kind.root, decoy)
        state.decoy_services.setdefault(decoy, process.pid)
        self._decoy_placed_on = host

    # ------------------------------------------------------------------ green

    def _green(self) -> None:
        self.green_target = NO_TARGET
        if self._green_active and self.stream.below(2) == 1:
            self.green_target = GREEN_TARGETS[self.stream.below(len(GREEN_TARGETS))]
            self._scan_ports(self.green_target)

    # ------------------------------------------------------------------ red

    def _red(self, given: int | None) -> None:
        if given is None:
            move = self.red.choose(self.knowledge, self.red_success, self.red_saw_ports, self.stream)
        else:
            move = MOVES[given]
        self.red_type, self.red_target = move
        self.exploit, self.detected = Exploit.NONE, NO_DRAW
        self.red_saw_ports, self.red_saw_session = 0, SessionSeen.NONE
        self.red_invalid = not self.knowledge.allows(move)
        # An invalid action does nothing and draws nothing.
        self.red_success = Outcome.FALSE if self.red_invalid else self._RED_ACTIONS[move[0]](self, move[1])

    def _sleep(self, _: int) -> Outcome:
        return Outcome.UNKNOWN

    def _discover_remote_systems(self, subnet: int) -> Outcome:
        if not self._reachable(subnet):
            return Outcome.FALSE
        self.knowledge.addresses.update(host for host in range(N_HOSTS) if HOSTS[host].subnet == subnet)
        self.knowledge.subnets.add(subnet)
        return Outcome.TRUE

    def _discover_network_services(self, host: int) -> Outcome:
        if self._reachable(HOSTS[host].subnet):
            self.red_saw_ports = self._scan_ports(host)
            remembered = self.knowledge.ports[host] if self._leaderboard else 0
            self.knowledge.ports[host] = self.red_saw_ports | remembered
        return Outcome.TRUE  # also where nothing could be reached

    def _exploit_remote_service(self, host: int) -> Outcome:
        chosen = self._choose_exploit(self.knowledge.ports[host])
        if chosen is None:
            return Outcome.FALSE
        self.exploit = chosen.exploit
        victim = self.hosts[host].listener(chosen.service, chosen.port)
        if victim is None or not self._reachable(HOSTS[host].subnet):
            return Outcome.FALSE
        self.red_saw_ports = PORT_BIT[chosen.port]  # something answered there
        if chosen.exploit == Exploit.SSH_BRUTE_FORCE:
            outcome = self._brute_force(host, victim)
        else:
            outcome = self._open_reverse_shell(host, victim, chosen)
        if outcome is Outcome.TRUE:
            self.knowledge.names.add(host)
        return outcome

    def _choose_exploit(self, known_ports: int) -> ExploitType | None:
        """The best one with probability 3/4, else any of the others; which other is drawn first."""
        best, *others = ranked_options(known_ports) or (None,)
        if not others:
            return best
        other = others[self.stream.one_of(len(others))]
        return best if self.stream.unit() < P_BEST_EXPLOIT else other

    def _brute_force(self, host: int, victim: Process) -> Outcome:
        """Ten attempts, whose source ports come out of User0's pool; the session is never among the suspicious."""
        for _ in range(10):
            self._note(host, Event(22, self.hosts[Host.USER0].ephemeral_port(self.stream)))
        if not HOSTS[host].weak_password or victim.is_decoy:
            return Outcome.FALSE
        state = self.hosts[host]
        state.sessions.append(state.start(self.stream, Service.SSH, (), root=False))
        self.red_saw_session = SessionSeen.SSH
        self._note(host, Event(22, state.ephemeral_port(self.stream)))
        return Outcome.TRUE

    def _open_reverse_shell(self, host: int, victim: Process, chosen: ExploitType) -> Outcome:
        """A shell with the rights of the attacked process, which connects back to port 4444 of red."""
        state = self.hosts[host]
        self._note(host, Event(chosen.port, state.ephemeral_port(self.stream)))
        if victim.is_decoy:
            self._note(host, Event(chosen.port))
            return Outcome.FALSE
        if self._leaderboard and state.restored and chosen.exploit == Exploit.HARAKA_RCE:
            return Outcome.FALSE  # a restored mail server has lost its version
        shell_port = state.ephemeral_port(self.stream)
        state.files |= SHELL_FILE
        shell = state.start(self.stream, Service.OTHER, (), victim.root)
        state.sessions.append(shell)
        self.red_saw_session = SessionSeen.SHELL
        self.detected = int(self.stream.unit() < P_DETECTED)
        if self.detected:
            self._note(host, Event(shell_port, REVERSE_SHELL_PORT, shell.pid))
        return Outcome.TRUE

    def _privilege_escalate(self, host: int) -> Outcome:
        state, knowledge = self.hosts[host], self.knowledge
        if not state.sessions:
            return Outcome.FALSE
        if not state.has_root:
            state.sessions[self.stream.below(len(state.sessions))].root = True
            state.files |= ESCALATION_FILE
        self.red_saw_session = SessionSeen.ROOT
        knowledge.addresses.add(host)
        knowledge.subnets.add(HOSTS[host].subnet)
        if host in REVEALS:
            knowledge.addresses.add(REVEALS[host])
        if host == Host.OP_SERVER0:
            knowledge.ot_service = True
        return Outcome.TRUE

    def _impact(self, host: int) -> Outcome:
        state = self.hosts[host]
        if not state.sessions:
            return Outcome.FALSE
        if not state.has_root:
            self.stream.below(len(state.sessions))
        if not self.knowledge.ot_service or host != Host.OP_SERVER0:
            return Outcome.FALSE
        service = self.service
        if service.active:
            service.active = False
            if service.pid is not None:
                state.processes = [p for p in state.processes if p.pid != service.pid]
                service.up = False
        return Outcome.TRUE

    _RED_ACTIONS = (
        _sleep,
        _discover_remote_systems,
        _discover_network_services,
        _exploit_remote_service,
        _privilege_escalate,
        _impact,
    )

    # ------------------------------------------------------------------ the network

    def _reachable(self, subnet: int) -> bool:
        """The Operational subnet is open only to sessions on the Enterprise hosts."""
        return subnet != Subnet.OPERATIONAL or any(self.hosts[host].sessions for host in ENTERPRISE_HOSTS)

    def _scan_ports(self, host: int) -> int:
        """Knocks at every listener of a host. Returns the mask of the ports found."""
        found, state = 0, self.hosts[host]
        for process in state.processes:
            for port in process.ports:
                self._note(host, Event(port, state.ephemeral_port(self.stream)))
                found |= PORT_BIT[port]
        return found

    def _note(self, host: int, event: Event) -> None:
        self._events.setdefault(host, []).append(event)

    # ------------------------------------------------------------------ reward and observation

    def _reward(self) -> float:
        tenths = 0 if self.service.up else 100
        for state, host in zip(self.hosts, HOSTS, strict=True):
            if state.sessions and state.has_root:
                tenths += host.value
        self.red_reward = (tenths - self.red_invalid) / 10  # the price of a Restore is blue's alone
        if self.blue_action >= BlueClass.RESTORE.on(0):
            tenths += 10
        return -tenths / 10

    def _monitor(self) -> None:
        """Blue's automatic look at the events of the step. What an Analyse found comes after it."""
        self.activity = [Activity.NONE] * N_HOSTS
        for host, events in self._events.items():
            self.hosts[host].suspicious.extend(e.pid for e in events if e.pid is not None)
            self.activity[host] = self._judge(events, host == self._decoy_placed_on)
            if self.activity[host] is Activity.EXPLOIT:
                self.compromised[host] = Compromised.USER
        if self._files_found_on != NO_TARGET:
            self.compromised[self._files_found_on] = Compromised.PRIVILEGED

    def _judge(self, events: list[Event], own_decoy: bool) -> Activity:
        """A decoy that blue placed there in this step counts as one more item without a port."""
        items = len(events) + own_decoy
        ports = len({event.port for event in events})
        if items >= 3 and ports >= 3:
            return Activity.SCAN
        if any(event.source_port == REVERSE_SHELL_PORT for event in events) or (items >= 3 and ports == 1):
            return Activity.EXPLOIT
        return Activity.NONE if own_decoy else Activity.SCAN

    def observation(self) -> list[int]:
        """52 bits: activity and belief, two bits each, host by host."""
        bits: list[int] = []
        for activity, compromised in zip(self.activity, self.compromised, strict=True):
            bits += _HOST_BITS[activity][compromised]
        return bits

    # ------------------------------------------------------------------ hidden facts

    def host_facts(self) -> list[HostFacts]:
        """What is true of each host."""
        return [host.facts() for host in self.hosts]

    @property
    def red_mask(self) -> int:
        """What red may try now: bit i for `MOVES[i]`."""
        return self.knowledge.move_mask

    @property
    def red_ports(self) -> list[int]:
        """For each host the mask of ports that red remembers."""
        return self.knowledge.ports

    @property
    def service_down(self) -> int:
        return int(not self.service.up)

    def random_peek(self) -> int:
        """The next 32 bits of the stream, left in it."""
        return self.stream.peek()
