"""Orders, whom to repair first, of the five unit types or of single hosts: names, distances, which are equal in effect.

order (units in sequence) -> places (13,) of the hosts: a fix is allowed where no host with a lower place is held
                          -> context: one bit per ordered pair of units, "a stands before b"

Hosts of one unit have the same place. The free agent, who may repair anything at any time, is the order in which all
hosts have the same place: its context is all zeros.

An order of types is a permutation of range(5); its first element is the type (of UNIT_TYPES) that is repaired first. A
type that red never holds is never the one to repair, so that orders which differ only in where they put it are equal in
effect. `matters`, (5,) bool, says which types red can hold; it splits the 120 orders into classes (3 types: 6 classes).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, FIRST_DECOY, N_ACTIONS, REMOVE, RESTORE, SLEEP
from stockade.cage2.scenario import FOOTHOLD, HOSTS, N_HOSTS
from stockade.errors import InputError
from stockade.vector.native import NativeVectorEnv

Order = tuple[int, ...]
UNIT_TYPES = ("defender", "enterprise", "op_server", "op_host", "user")
N_TYPES = len(UNIT_TYPES)
DEFENDER, ENTERPRISE, OP_SERVER, OP_HOST, USER = range(N_TYPES)
#: Lexicographically; the number of an order is its place here.
ORDERS: tuple[Order, ...] = tuple(itertools.permutations(range(N_TYPES)))
_NUMBERS = {order: number for number, order in enumerate(ORDERS)}

#: Of the first version's canonical orders we know the names; the orders are ours. They put enterprise, op_server and
#: user in all six ways, so that no two are equal in effect against an attacker who holds these three.
CANONICAL: dict[str, Order] = {
    # what costs most first
    "critical_first": (DEFENDER, OP_SERVER, ENTERPRISE, OP_HOST, USER),
    # the way to the operational subnet first
    "enterprise_focus": (ENTERPRISE, OP_SERVER, OP_HOST, DEFENDER, USER),
    # where red comes in first
    "user_priority": (USER, DEFENDER, OP_SERVER, ENTERPRISE, OP_HOST),
    # the operational subnet first
    "operational_focus": (OP_SERVER, OP_HOST, DEFENDER, USER, ENTERPRISE),
    # half-way: as far from critical_first as from reverse
    "balanced": (ENTERPRISE, DEFENDER, USER, OP_HOST, OP_SERVER),
    "reverse": (USER, OP_HOST, ENTERPRISE, OP_SERVER, DEFENDER),
}
_CANONICAL_NAMES = {order: name for name, order in CANONICAL.items()}

#: (13,) int8, the unit type of each host: its name without the number.
HOST_TYPES = np.array([UNIT_TYPES.index(name.rstrip("0123456789").lower()) for name in HOSTS], np.int8)
HOST_TYPES.setflags(write=False)
NOT_A_FIX = -1
#: (145,) host that an action repairs, or NOT_A_FIX.
FIXED_HOST = np.where(np.isin(ACTION_KIND, (REMOVE, RESTORE)), ACTION_HOST, NOT_A_FIX).astype(np.int8)
ALL_MATTER = np.ones(N_TYPES, np.bool_)
ALL_MATTER.setflags(write=False)
UnitKind = Literal["types", "hosts"]
Judge = Literal["truth", "observed"]  #: of what is held: what red really holds, or what blue's observation says
#: Units in sequence; a tuple in the place of a unit is a group of units that stand side by side.
Ranking = tuple[int | tuple[int, ...], ...]
#: Single hosts in orders: the letter of their type, and their digit.
HOST_LETTERS = {"defender": "D", "enterprise": "E", "op_server": "S", "op_host": "O", "user": "U"}
_HOSTS_OF_TYPE: list[Any] = [tuple(h for h in range(N_HOSTS) if HOST_TYPES[h] == t) for t in range(len(UNIT_TYPES))]
#: Stands for no order at all: everything may be repaired at any time.
FREE: Order = ()


# ------------------------------------------------------------------------------------------------- names and numbers
def index_of(order: Sequence[int]) -> int:
    """Number of an order, 0 to 119."""
    number = _NUMBERS.get(tuple(order))
    if number is None:
        raise InputError(f"{tuple(order)} is no order; it must hold each of 0 to {N_TYPES - 1} once")
    return number


def name_of(order: Sequence[int]) -> str | None:
    """Canonical name, if it has one."""
    return _CANONICAL_NAMES.get(tuple(order))


def one_hot(order: Sequence[int]) -> np.ndarray:
    """(25,) uint8, an agent's context: five bits per place, first place first; bit t: type t stands there."""
    return np.eye(N_TYPES, dtype=np.uint8)[list(ORDERS[index_of(order)])].ravel()


# ---------------------------------------------------------------------------------------------------------- distances
def distances(kind: Literal["kendall", "spearman"], matters: np.ndarray = ALL_MATTER) -> np.ndarray:
    """(120, 120) float64, between all orders; 0 between those that are equal in effect.

    Both are squared Euclidean distances, Kendall's (up to a factor) of the signs of all pairs, Spearman's of the ranks;
    so exp(-theta x distance) is a Gaussian kernel in either case, and positive definite for every theta > 0.
    """
    places = np.argsort(ORDERS, axis=1)[:, np.asarray(matters, np.bool_)]  # (120, types that matter)
    if kind == "kendall":
        return kendall(places)
    ranks = places.argsort(axis=1).argsort(axis=1).astype(np.float64)
    return ((ranks[:, None] - ranks[None]) ** 2).sum(axis=2)


def kendall(places: np.ndarray) -> np.ndarray:
    """(n, n) float64, pairs of units that two orders put the other way round; (n, units) places of these."""
    first, second = np.triu_indices(places.shape[1], 1)
    before = places[:, first] < places[:, second]
    return (before[:, None] != before[None]).sum(axis=2, dtype=np.float64)


# --------------------------------------------------------------------------------------------- orders equal in effect
def restricted(order: Sequence[int], matters: np.ndarray) -> Order:
    """What is left of an order: the types that matter, in its sequence."""
    return tuple(unit for unit in order if matters[unit])


def classes_of(matters: np.ndarray) -> np.ndarray:
    """(120,) int64, the class of each order; orders of one class are equal in effect. Numbered as they first occur."""
    numbers: dict[Order, int] = {}
    return np.array([numbers.setdefault(restricted(order, matters), len(numbers)) for order in ORDERS])


def members_of(order: Sequence[int], matters: np.ndarray) -> tuple[Order, ...]:
    """All orders that are equal to it in effect, itself included, lexicographically."""
    kept = restricted(order, matters)
    return tuple(other for other in ORDERS if restricted(other, matters) == kept)


def preference(order: Sequence[int]) -> tuple[int, int]:
    """Sort key among orders that are equally good choices: canonical ones first, as listed, then by number."""
    names = [*CANONICAL, None]
    return names.index(name_of(order)), index_of(order)


def representative(order: Sequence[int], matters: np.ndarray) -> Order:
    """The member of its class that stands for all: a canonical one if there is any, else the first."""
    return min(members_of(order, matters), key=preference)


# ------------------------------------------------------------------------------------- units: types or single hosts
@dataclass(frozen=True)
class Units:
    """The things that an order, a permutation of their indices, puts in sequence."""

    kind: UnitKind
    names: tuple[str, ...]
    of_host: tuple[int, ...]  #: (13,) unit of each host

    def ranks(self, order: Ranking) -> np.ndarray:
        """(units,) int8, place of each unit, 0 the first; units of a group share theirs; all 0 for FREE."""
        ranks = np.zeros(len(self.names), np.int8)
        for place, element in enumerate(order):
            ranks[list(element) if isinstance(element, tuple) else element] = place
        return ranks

    def places(self, order: Ranking) -> np.ndarray:
        """(13,) int8, place of each host in the order, 0 the first."""
        return self.ranks(order)[list(self.of_host)]

    def context(self, order: Ranking) -> np.ndarray:
        """(pairs,) uint8, what the policy sees of it: for each ordered pair, whether the first stands before."""
        first, second = np.array(list(itertools.permutations(self.ranks(order), 2))).T
        return (first < second).astype(np.uint8)

    def matters(self, hosts: np.ndarray) -> np.ndarray:
        """(units,) bool: units of which red can hold a host, given (13,) bool of the hosts that it can hold."""
        return np.isin(np.arange(len(self.names)), np.array(self.of_host)[hosts])

    def describe(self, order: Ranking, matters: np.ndarray | None = None) -> str:
        """For people: `enterprise > op_server > user`; only the units that matter, if any do. Groups: `a = b > c`.

        Single hosts are `E0 > S0 > U1`, by HOST_LETTERS; all hosts of a type side by side are that type.
        """
        if not len(order):
            return "no order"
        kept = matters if matters is not None and matters.any() else np.ones(len(self.names), np.bool_)
        named = []
        for element in order:
            group = [u for u in (element if isinstance(element, tuple) else (element,)) if kept[u]]
            if group and element in _HOSTS_OF_TYPE:
                named.append(UNIT_TYPES[_HOSTS_OF_TYPE.index(element)])
            elif group:
                named.append(" = ".join(self._short(u) for u in group))
        return " > ".join(named)

    def _short(self, unit: int) -> str:
        name = self.names[unit]
        return name if self.kind == "types" else HOST_LETTERS[UNIT_TYPES[HOST_TYPES[unit]]] + name[-1]


def as_ranking(content: list[Any]) -> Ranking:
    """Back from JSON, which knows lists only."""
    return tuple(tuple(element) if isinstance(element, list) else element for element in content)


TYPES = Units("types", UNIT_TYPES, tuple(int(t) for t in HOST_TYPES))
HOST_UNITS = Units("hosts", tuple(HOSTS), tuple(range(N_HOSTS)))
UNITS: dict[UnitKind, Units] = {"types": TYPES, "hosts": HOST_UNITS}


# ------------------------------------------------------------------------------------------------- what red can hold
_REMOVES, _RESTORES = (np.flatnonzero(kind == ACTION_KIND) for kind in (REMOVE, RESTORE))
_FIXES = np.flatnonzero(FIXED_HOST != NOT_A_FIX)
_DECOYS = np.flatnonzero((ACTION_KIND >= FIRST_DECOY) & (ACTION_KIND < RESTORE))
_N_BEHAVIOURS, _STEPS = 8, 1_000_000


def _various_actions(rng: np.random.Generator, own: np.ndarray) -> np.ndarray:
    """(8 n,) one step of blues that let red go different ways; `own`, (n,), is the one action of the last two.

    Nothing; anything; fixes; every other step on average a fix, a Remove, a decoy; always the same Restore, which keeps
    red out there and so drives it elsewhere; the same every other step.
    """
    n = len(own)
    sometimes = [rng.choice(kind, n) for kind in (_FIXES, _REMOVES, _DECOYS)] + [own]
    always = [np.full(n, SLEEP), rng.integers(N_ACTIONS, size=n), rng.choice(_FIXES, n)]
    return np.concatenate([*always, *(np.where(rng.random(n) < 0.5, kind, SLEEP) for kind in sometimes), own])


def compromised(observations: np.ndarray) -> np.ndarray:
    """(n, 13), above 0 for hosts that blue's observations (n, 52 or more) call compromised: user or privileged."""
    return observations[:, 3:52:4]


def hosts_red_can_hold(
    red: str, rules: str = "current", horizon: int = 100, judge: Judge = "truth", seed: int = 0
) -> np.ndarray:
    """(13,) bool, hosts that count as held at times in play against various blues, red's foothold apart.

    With `truth` those that red holds, with `observed` those that blue's observation calls compromised, rightly or not.
    Found by looking: a host that needs more luck or a cleverer blue would be missed. The same arguments give the same
    answer.
    """
    rng = np.random.default_rng(seed)
    own = rng.choice(_RESTORES, min(max(10, _STEPS // (_N_BEHAVIOURS * horizon)), 5000))
    held = np.zeros(len(HOSTS), np.bool_)
    with NativeVectorEnv(_N_BEHAVIOURS * len(own), red, horizon, rules, copy=False, threads=1) as envs:
        envs.reset(seed=seed)
        access = envs.true_state().red_access if judge == "truth" else None
        for _ in range(horizon):
            obs = envs.step(_various_actions(rng, own))[0]
            held |= (compromised(obs) if access is None else access).any(axis=0)
    held[FOOTHOLD] = False
    return held


def types_red_can_hold(
    red: str, rules: str = "current", horizon: int = 100, judge: Judge = "truth", seed: int = 0
) -> np.ndarray:
    """(5,) bool, types of which a host counts as held at times, red's foothold apart; see `hosts_red_can_hold`."""
    return TYPES.matters(hosts_red_can_hold(red, rules, horizon, judge, seed))
