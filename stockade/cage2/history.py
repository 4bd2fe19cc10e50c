"""`obs="memory"`: the 52 bits and what a defender knows from its own history, as 160 bits.

(memory, blue's action, its success, the 52 bits) -> memory; (memory, the 52 bits, steps left) -> 160 bits

Nothing here looks at the true state, so the same functions serve the built-in world (batch.py calls them after a step)
and any other simulator of the challenge: `MemoryObservation` wraps a real CybORG.
"""

import itertools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, ACTION_MASK, FALSE, FIRST_DECOY, MONITOR, NO_KIND, RESTORE
from stockade.cage2.jit import KERNEL_SOURCES, as_records, cached, compiled
from stockade.cage2.scenario import DECOYS, HOSTS, N_HOSTS
from stockade.cage2.state import OBS_SIZE, bit

#: What blue remembers of an episode.
MEMORY = np.dtype(
    [
        ("decoys", np.uint8, N_HOSTS),  # bit d: blue placed decoy d there, and has not restored the host since
        ("scanned", np.int32),  # mask of hosts on which a scan was ever seen
        ("exploited", np.int32),  # mask of hosts on which an exploit was ever seen
        ("restored", np.int32),  # mask of hosts that blue has restored
        ("action", np.int16),  # blue's last action
        ("failed", np.uint8),  # and whether it failed
    ],
    align=True,
)

#: (41, 2) host and decoy of each decoy that can stand at all.
_PLACES = np.argwhere(ACTION_MASK[2:].reshape(-1, N_HOSTS)[FIRST_DECOY:RESTORE].T)
#: Bit k of the clock: at least so many steps are left.
CLOCK = np.array([2, 3, 5, 8, 12, 18, 25, 35, 50, 75])
#: Steps after which the challenge ends its episodes. Who is not told which it will be counts down to each of them in
#: turn, and after the last begins again; the last bits of the clock then tell which it is.
ENDS = np.array([30, 50, 100])
N_COUNTED = len(CLOCK) - len(ENDS) + 1  #: bits of the clock that count
_KINDS = ("Analyse", "Remove", "decoy", "Restore")
_KIND_GROUP = np.array([0, 1, *[2] * len(DECOYS), 3])  #: place of an action's kind among these

_SIZES = (OBS_SIZE, len(_PLACES), N_HOSTS, N_HOSTS, N_HOSTS, len(_KINDS), N_HOSTS, 1, len(CLOCK))
(_DECOY_BITS, _SCANNED_BITS, _EXPLOITED_BITS, _RESTORED_BITS, _KIND_BITS, _TARGET_BITS, _FAILED_BIT, _CLOCK_BITS,
 MEMORY_SIZE) = itertools.accumulate(_SIZES)  # fmt: skip

#: What each of the 160 bits says.
FEATURE_NAMES: tuple[str, ...] = (
    *(f"{bit} {host}" for host in HOSTS for bit in ("active", "exploit", "unsure or privileged", "user or privileged")),
    *(f"{DECOYS[decoy].name} stands on {HOSTS[host]}" for host, decoy in _PLACES),
    *(f"{what} {host}" for what in ("ever scanned", "ever exploited", "ever restored") for host in HOSTS),
    *(f"last action {kind}" for kind in _KINDS),
    *(f"last action on {host}" for host in HOSTS),
    "last action failed",
    *(f"{steps} steps left or more" for steps in CLOCK),
)


@compiled
def _forget(memory: Any) -> None:
    """An episode begins."""
    memory.decoys[:] = 0
    memory.scanned = memory.exploited = memory.restored = 0
    memory.action = MONITOR
    memory.failed = 0


@compiled
def _remember(memory: Any, action: Any, failed: Any, bits: Any) -> None:
    """Blue acted and then saw the bits."""
    kind, host = ACTION_KIND[action], ACTION_HOST[action]
    memory.action = action
    memory.failed = failed
    if kind == RESTORE:
        memory.decoys[host] = 0
        memory.restored |= bit(host)
    elif kind >= FIRST_DECOY and not failed:
        memory.decoys[host] |= bit(kind - FIRST_DECOY)
    for h in range(N_HOSTS):
        if bits[4 * h]:
            if bits[4 * h + 1]:
                memory.exploited |= 1 << h
            else:
                memory.scanned |= 1 << h


@compiled
def _write(memory: Any, bits: Any, time: Any, horizon: Any, out: Any) -> None:
    """The 160 bits after `time` steps; without a horizon (0) the clock counts down to where the episode may end."""
    for i in range(OBS_SIZE):
        out[i] = bits[i]
    for i in range(len(_PLACES)):
        out[_DECOY_BITS + i] = memory.decoys[_PLACES[i, 0]] >> _PLACES[i, 1] & 1
    for h in range(N_HOSTS):
        out[_SCANNED_BITS + h] = memory.scanned >> h & 1
        out[_EXPLOITED_BITS + h] = memory.exploited >> h & 1
        out[_RESTORED_BITS + h] = memory.restored >> h & 1
    for i in range(_KIND_BITS, _FAILED_BIT):
        out[i] = 0
    kind = ACTION_KIND[memory.action]
    if kind != NO_KIND:
        out[_KIND_BITS + _KIND_GROUP[kind]] = 1
        out[_TARGET_BITS + np.int64(ACTION_HOST[memory.action])] = 1
    out[_FAILED_BIT] = memory.failed
    left, counted = horizon - time, len(CLOCK)
    if not horizon:
        played, following = time % ENDS[-1], 0
        for i in range(len(ENDS) - 1):
            over = played >= ENDS[i]
            following += over
            out[_CLOCK_BITS + N_COUNTED + i] = over
        left, counted = ENDS[following] - played, N_COUNTED
    for i in range(counted):
        out[_CLOCK_BITS + i] = left >= CLOCK[i]


@cached(*KERNEL_SOURCES, "cage2/history.py")
def remember_batch(memory, actions, success, times, horizon, bits, out, begin, end):  # type: ignore[no-untyped-def]
    """After a step of worlds [begin, end), or without one if `actions` is None; `times` are the steps of each episode,
    and at time 0 one has just begun. The last ten values tell the steps left: without a horizon (0), those until the
    challenge may end the episode, which whoever counts its own steps knows."""
    for i in range(begin, end):
        if times[i] == 0:
            _forget(memory[i])
        elif actions is not None:
            _remember(memory[i], actions[i], success[i] == FALSE, bits[i])
        _write(memory[i], bits[i], times[i], horizon, out[i])


class MemoryObservation(gymnasium.Wrapper[np.ndarray, Any, np.ndarray, Any]):
    """`obs="memory"` for another simulator of the challenge, with episodes of `horizon` steps.

    `env` gives the 52 bits as (52,) uint8, and `info["blue_success"]` in every step, as
    `stockade.integrations.cyborg.CybORGEnv` does.
    """

    def __init__(self, env: gymnasium.Env[np.ndarray, Any], horizon: int) -> None:
        if env.observation_space.shape != (OBS_SIZE,):
            raise ValueError(f"expected observations of shape ({OBS_SIZE},), not {env.observation_space.shape}")
        super().__init__(env)
        self.observation_space = spaces.Box(0, 1, (MEMORY_SIZE,), np.uint8)
        self._horizon = horizon
        self._memory = np.zeros(1, MEMORY)
        self._time = np.zeros(1, np.int32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode and forget the last."""
        bits, info = self.env.reset(seed=seed, options=options)
        self._time[0] = 0
        return self._observe(None, True, bits), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Act, and remember it."""
        bits, reward, terminated, truncated, info = self.env.step(action)
        self._time[0] += 1
        obs = self._observe(np.array([action], np.int64), bool(info["blue_success"]), bits)
        return obs, reward, terminated, truncated, info

    def _observe(self, actions: np.ndarray | None, success: bool, bits: np.ndarray) -> np.ndarray:
        out = np.empty((1, MEMORY_SIZE), np.uint8)
        lived = actions, np.array([success], np.int8), self._time, self._horizon
        row = np.ascontiguousarray(bits, np.uint8).reshape(1, OBS_SIZE)
        remember_batch(as_records(self._memory), *lived, row, out, 0, 1)
        return out[0]
