"""Orders of the five unit types, whom to repair first: names, numbers, codes, distances, and which are equal in effect.

An order is a permutation of range(5); its first element is the type (of UNIT_TYPES) that is repaired first. A type that
red never holds is never the one to repair, so that orders which differ only in where they put it are equal in effect.
`matters`, (5,) bool, says which types red can hold; it splits the 120 orders into classes (3 types: 6 classes).
"""

import itertools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, FIRST_DECOY, N_ACTIONS, REMOVE, RESTORE, SLEEP
from stockade.cage2.scenario import FOOTHOLD, HOSTS
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
FIXED_HOST = np.where(np.isin(ACTION_KIND, (REMOVE, RESTORE)), ACTION_HOST, NOT_A_FIX).astype(np.int8)
"""(145,) host that an action repairs, or NOT_A_FIX."""
ALL_MATTER = np.ones(N_TYPES, np.bool_)
ALL_MATTER.setflags(write=False)


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
        first, second = np.triu_indices(places.shape[1], 1)
        features = (places[:, first] < places[:, second]).astype(np.float64)
    else:
        features = places.argsort(axis=1).argsort(axis=1).astype(np.float64)
    return ((features[:, None] - features[None]) ** 2).sum(axis=2)


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


def hosts_red_can_hold(red: str, rules: str = "current", horizon: int = 100, seed: int = 0) -> np.ndarray:
    """(13,) bool, hosts that red was seen to hold in play against various blues, its foothold included.

    Found by looking: a host that needs more luck or a cleverer blue would be missed. The same arguments give the same
    answer.
    """
    rng = np.random.default_rng(seed)
    own = rng.choice(_RESTORES, min(max(10, _STEPS // (_N_BEHAVIOURS * horizon)), 5000))
    held = np.zeros(len(HOSTS), np.bool_)
    with NativeVectorEnv(_N_BEHAVIOURS * len(own), red, horizon, rules, copy=False, threads=1) as envs:
        envs.reset(seed=seed)
        access = envs.true_state().red_access
        for _ in range(horizon):
            envs.step(_various_actions(rng, own))
            held |= access.any(axis=0)
    return held


def types_red_can_hold(red: str, rules: str = "current", horizon: int = 100, seed: int = 0) -> np.ndarray:
    """(5,) bool, types of which red was seen to hold a host, its foothold apart; see `hosts_red_can_hold`."""
    return types_of(hosts_red_can_hold(red, rules, horizon, seed))


def types_of(hosts: np.ndarray) -> np.ndarray:
    """(5,) bool, types of which there is a host in (13,) bool, red's foothold apart."""
    return np.isin(np.arange(N_TYPES), HOST_TYPES[hosts & (np.arange(len(HOSTS)) != FOOTHOLD)])
