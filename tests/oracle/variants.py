"""Variants of the attackers as docs/guides/attackers.md defines them, stated a second time.

What the variants add is drawn from a stream of their own. The model does not draw it: it is told what the kernel's
worlds did (`Told`), raises `Forbidden` where the definition does not allow that, and counts how often what happened
(`Tally`). Everything else, the reference's stream included, it works out itself.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from .model import ReferenceModel
from .network import GREEN_TARGETS, HOSTS, NO_TARGET, OPERATIONAL_HOSTS, USER_HOSTS, Host, Outcome, RedAction, Subnet
from .red import MOVES, RED_AGENTS, BLine, Knowledge, Meander, Move
from .stream import Stream

SLEEPS: Move = (RedAction.SLEEP, NO_TARGET)
INSIDE_OUT = (Subnet.OPERATIONAL, Subnet.ENTERPRISE, Subnet.USER)


class Forbidden(AssertionError):
    """The kernel did what the definition does not allow."""


class Told(NamedTuple):
    """What chance has decided in a step of the kernel."""

    plan: int
    turn: int  # whose it is, from 0
    disturbed: bool  # the attacker pauses or errs
    move: Move
    green: bool  # active


class Tally:
    """How often something with a known probability happened."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, float], list[int]] = defaultdict(lambda: [0, 0])

    def note(self, name: str, probability: float, happened: bool) -> None:
        if 0 < probability < 1:
            entry = self.counts[name, probability]
            entry[0] += 1
            entry[1] += happened

    def choice(self, name: str, options: Collection[Any], chosen: Any) -> None:
        """One of several that are equally likely."""
        for option in sorted(options):
            self.note(f"{name}, each of {len(options)}", 1 / len(options), option == chosen)

    def unlikely(self, deviations: float = 5.0) -> list[str]:
        """What happened too often or too seldom."""
        return [
            f"{name}: {happened} of {n}, expected {p * n:.0f}"
            for (name, p), (n, happened) in self.counts.items()
            if abs(happened - p * n) > deviations * (n * p * (1 - p)) ** 0.5 + 1
        ]


class Variant:
    """An attacker of ours. `options` says what it may do now, `does` what it has done of it."""

    def options(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> list[Move]:
        raise NotImplementedError

    def does(self, move: Move) -> None:
        """Takes note of its choice."""


class Plain(Variant):
    """An attacker of the reference: it draws from the reference's stream, so there is one option."""

    def __init__(self, name: str) -> None:
        self._agent = RED_AGENTS[name]()

    def options(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> list[Move]:
        return [self._agent.choose(knowledge, last, last_scan, stream)]


class Detour(Variant):
    """B_line that takes another user host first. On that host the way is: scan, exploit, escalate."""

    _KINDS = (RedAction.DISCOVER_NETWORK_SERVICES, RedAction.EXPLOIT_REMOTE_SERVICE, RedAction.PRIVILEGE_ESCALATE)

    def __init__(self) -> None:
        self._rest = BLine()
        self._place: int | None = None  # on the first host; None: elsewhere
        self._first: int | None = None
        self._begun = False

    def options(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> list[Move]:
        worked = last is Outcome.TRUE
        if self._place is not None:
            if worked and self._place == 2:  # on with B_line, whose discovery of the subnet had gone well
                self._place = None
                return self._rest_options(knowledge, Outcome.TRUE, 0, stream)
            self._place = self._place + 1 if worked else min(self._place, 1)
        elif self._begun and self._rest.step == 0 and worked:
            self._place = 0
        else:
            self._begun = True
            step = self._rest.step
            moves = self._rest_options(knowledge, last, last_scan, stream)
            if not (step == 11 and self._rest.step == 1):
                return moves
            self._rest.step, self._place = 0, 0  # all over again
        kind = self._KINDS[self._place]
        if self._first is not None:
            return [(kind, self._first)]
        return [(kind, host) for host in USER_HOSTS[1:]]

    def _rest_options(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> list[Move]:
        if self._rest.entry is None and last is Outcome.TRUE:  # it is drawn now: by the kernel, of the three others
            moves = []
            step = self._rest.step
            for entry in USER_HOSTS[1:]:
                if entry != self._first:
                    self._rest.step, self._rest.entry = step, entry
                    moves += [self._rest.choose(knowledge, last, last_scan, stream)]
            return moves
        return [self._rest.choose(knowledge, last, last_scan, stream)]

    def does(self, move: Move) -> None:
        if self._place is not None:
            self._first = move[1]
        elif self._rest.step == 1:
            self._rest.entry = move[1]


class Hurrying(Meander, Variant):
    """Meander that goes inwards; if it is stealthy, with care."""

    def __init__(self, stealthy: bool) -> None:
        super().__init__()
        self._stealthy = stealthy
        self._failed: set[int] = set()  # hosts on which an exploit failed

    def options(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> list[Move]:
        tried = self._last_exploited
        self._learn_from(last)
        if tried is not None and last is not Outcome.TRUE:
            self._failed.add(tried)
            self.scanned.discard(tried)
        if Host.OP_SERVER0 in self.escalated:
            return [(RedAction.IMPACT, Host.OP_SERVER0)]
        for subnet in Subnet:
            if subnet in knowledge.subnets - self.scanned_subnets:
                return [(RedAction.DISCOVER_REMOTE_SYSTEMS, subnet)]
        lost = self._named - self.exploited
        if held := knowledge.names - self.escalated - lost - {Host.USER0}:
            return [(RedAction.PRIVILEGE_ESCALATE, host) for host in _inner(held)]
        targets = knowledge.addresses - self.exploited - {Host.USER0}
        if self._stealthy:
            targets = targets & _inner(knowledge.addresses - {Host.USER0}) or targets
            targets = targets - self._failed or targets
        if ready := targets & self.scanned:
            return [(RedAction.EXPLOIT_REMOTE_SERVICE, host) for host in _inner(ready)]
        return [(RedAction.DISCOVER_NETWORK_SERVICES, host) for host in _inner(targets)] or [SLEEPS]

    def does(self, move: Move) -> None:
        kind, target = move
        if kind is RedAction.DISCOVER_REMOTE_SYSTEMS:
            self.scanned_subnets.add(target)
        elif kind is RedAction.DISCOVER_NETWORK_SERVICES:
            self.scanned.add(target)
        elif kind is RedAction.EXPLOIT_REMOTE_SERVICE:
            self.exploited.add(target)
            self._last_exploited = target
        elif kind in (RedAction.PRIVILEGE_ESCALATE, RedAction.IMPACT):
            self.escalated.add(target)
            self._last_escalated = target


def _inner(hosts: set[int]) -> set[int]:
    """Those in the innermost subnet."""
    for subnet in INSIDE_OUT:
        if there := {host for host in hosts if HOSTS[host].subnet == subnet}:
            return there
    return set()


VARIANTS: dict[str, Callable[[], Variant]] = {
    **{name: lambda name=name: Plain(name) for name in RED_AGENTS},  # type: ignore[misc]
    "bline-detour": Detour,
    "meander-aggressive": lambda: Hurrying(stealthy=False),
    "meander-stealthy": lambda: Hurrying(stealthy=True),
}


@dataclass
class _Turn:
    """An attacker at play: since when, and how its last own action went."""

    settings: Any
    began: int

    def __post_init__(self) -> None:
        self.attacker = VARIANTS[self.settings.attacker]()
        self.result = Outcome.UNKNOWN, 0


class VariantModel(ReferenceModel):
    """The model with plans of attackers: `plans` as those of `stockade.cage2.variants.Red`, which is data alone."""

    def __init__(self, plans: Any, rules: str, tally: Tally) -> None:
        super().__init__("sleep", "sleep", rules)
        self._plans, self._tally = plans, tally

    def reset(self, seed: int | None = None) -> list[int]:
        self._time, self._plan = 0, None
        return super().reset(seed)

    def step_told(self, action: int, told: Told) -> tuple[list[int], float]:
        """Plays one step of which is told what chance decided."""
        if self._plan is None:
            self._plan, self._place = told.plan, 0
            self._turn = _Turn(self._plans[told.plan][0], 0)
            self._tally.choice("plan", range(len(self._plans)), told.plan)
        _require(told.plan == self._plan, "another plan in one episode")
        self._told = told
        result = self.step(action, 0)
        self._time += 1
        return result

    def _green(self) -> None:
        rate, active = self._turn.settings.green, self._told.green
        if rate == 0.5:  # the reference's
            self._green_active = True
            return super()._green()
        self._tally.note("green", rate, active)
        _require(rate > 0 if active else rate < 1, f"green={active} at the rate {rate}")
        self.green_target = NO_TARGET
        if active:
            self.green_target = GREEN_TARGETS[self.stream.below(len(GREEN_TARGETS))]
            self._scan_ports(self.green_target)
        return None

    def _red(self, given: int | None) -> None:
        told = self._told
        self._take_turns(told.turn)
        turn, settings = self._turn, self._turn.settings
        age = self._time - turn.began
        rests = age < settings.delay or (settings.attacker == "meander-stealthy" and age % 2 == 1)
        pauses = told.disturbed and told.move == SLEEPS
        if rests:
            _require(pauses, "no rest")
        else:
            self._tally.note("pause", settings.idle, pauses)
            _require(settings.idle > 0 if pauses else settings.idle < 1, f"pause: {pauses}")
            if not pauses:
                self._tally.note("error", settings.noise, told.disturbed)
                _require(settings.noise > 0 if told.disturbed else settings.noise < 1, f"error: {told.disturbed}")
        if not told.disturbed:
            options = turn.attacker.options(self.knowledge, *turn.result, self.stream)
            _require(told.move in options, f"{_name(told.move)}, not one of {', '.join(map(_name, options))}")
            self._tally.choice(f"{settings.attacker}, {told.move[0].name}", options, told.move)
            turn.attacker.does(told.move)
        elif not pauses:
            options = [move for move in MOVES[1:] if self.knowledge.allows(move)]
            _require(told.move in options, f"{_name(told.move)}, which red cannot try")
            self._tally.choice("error", options, told.move)
        super()._red(MOVES.index(told.move))
        if not told.disturbed:
            turn.result = self.red_success, self.red_saw_ports

    def _take_turns(self, told: int) -> None:
        assert self._plan is not None
        plan = self._plans[self._plan]
        if told == self._place + 1:
            settings = plan[told]
            _require(settings.first <= self._time <= settings.last, f"{settings.attacker} takes over")
            self._place, self._turn = told, _Turn(settings, self._time)
            self._tally.choice("takes over", range(settings.first, settings.last + 1), self._time)
        _require(told == self._place, f"turn {told}")
        is_last = self._place + 1 == len(plan)
        _require(is_last or self._time < plan[self._place + 1].last, "nobody takes over")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Forbidden(what)


def _name(move: Move) -> str:
    return f"{move[0].name}({move[1]})"


assert set(OPERATIONAL_HOSTS) == _inner(set(range(len(HOSTS))))
