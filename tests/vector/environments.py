"""Awkward environments for tests. In a module of their own, so that worker processes can import them."""

import itertools
import os
import threading
import time

import gymnasium
import numpy as np
from gymnasium import spaces

from stockade.vector import SyntheticEnv
from tests.processes import wait_until


class Awkward(Exception):
    """An exception that does not unpickle: its constructor wants more than its message."""

    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")


class AwkwardEnv(SyntheticEnv):
    def step(self, action):
        raise Awkward(7, "no")


class FailsInReset(SyntheticEnv):
    def reset(self, *, seed=None, options=None):
        if options and options.get("fail") and seed == 11:
            raise LookupError("not this seed")
        return super().reset(seed=seed)


def next_number(counter):
    """The first number that is free, taken by making a file that no other process can make too: several environments
    may be built in the same instant."""
    for number in itertools.count(1):
        try:
            os.close(os.open(f"{counter}-{number}", os.O_CREAT | os.O_EXCL))
            return number
        except FileExistsError:
            continue


class OneFails(SyntheticEnv):
    """The third of all that are built fails."""

    def __init__(self, counter):
        if next_number(counter) == 3:
            raise ConnectionError("the third one cannot be built")
        super().__init__()


class DiesAtBirth(SyntheticEnv):
    """Those of all that are built whose number is in `doomed` end their process."""

    def __init__(self, counter, doomed):
        if next_number(counter) in doomed:
            os._exit(5)
        super().__init__()


class GivesAListAsInfo(SyntheticEnv):
    def step(self, action):
        *values, _ = super().step(action)
        return *values, [1, 2]


class GivesAListAsInfoOfReset(SyntheticEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], [3]


class GivesAnInfoThatCannotBeUnpickled(SyntheticEnv):
    def step(self, action):
        *values, info = super().step(action)
        return *values, {"why": Awkward(7, "no")} if self.np_random_seed == 1 else info


class TellsWhatCannotBeUnpickled(SyntheticEnv):
    def __init__(self):
        super().__init__(true_state="object")
        self.true_state = lambda: Awkward(7, "no")


class FailsToTell(SyntheticEnv):
    """The environment seeded with 5 cannot tell its true state."""

    def __init__(self):
        super().__init__(true_state="object")
        tell = self.true_state
        self.true_state = lambda: 1 / 0 if self.np_random_seed == 5 else tell()


class GivesALockAsInfo(SyntheticEnv):
    def step(self, action):
        *values, info = super().step(action)
        return *values, {"lock": threading.Lock()} if self.np_random_seed == 1 else info


class ObservesInAnotherShape(SyntheticEnv):
    """In steps, not in resets."""

    def __init__(self, change):
        super().__init__()
        self._change = change

    def step(self, action):
        observation, *values = super().step(action)
        return self._change(observation), *values


class Refuses(SyntheticEnv):
    def restore(self, state, seed=None):
        if self.np_random_seed == 2 and state["numbers"][1] == 3:
            raise LookupError("not this moment")
        return super().restore(state, seed)


class TextEnv(SyntheticEnv):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Text(5)


class AlwaysDifferent(SyntheticEnv):
    def __init__(self):
        super().__init__(observation_size=3 + os.getpid() % 1000 + np.random.default_rng().integers(1000))


class EverySpace(gymnasium.Env):
    """Nested observations and actions of all supported kinds."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {
                "box": spaces.Box(-1, 1, (2, 3), np.float32),
                "nested": spaces.Dict({"bits": spaces.MultiBinary(4)}),
                "pair": spaces.Tuple((spaces.Discrete(5, start=2), spaces.MultiDiscrete([3, 4]))),
            }
        )
        self.action_space = spaces.Dict({"move": spaces.Discrete(3), "force": spaces.Box(-1, 1, (2,), np.float32)})

    def _observe(self):
        self.observation_space.seed(int(self.np_random.integers(1 << 30)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        reward = float(action["force"].sum()) + float(action["move"])
        return self._observe(), reward, bool(self.np_random.random() < 0.1), False, {}


class OneSlow(SyntheticEnv):
    """Steps of environments that were seeded with 0 take until a file is there."""

    def __init__(self, file):
        super().__init__()
        self._file = file

    def step(self, action):
        while self._seed == 0 and not os.path.exists(self._file):
            time.sleep(0.002)
        return super().step(action)


class KeepsStateInPlace(SyntheticEnv):
    """Its true state lives where it is told to, and is written there by every step."""

    def __init__(self):
        super().__init__(true_state="typed")
        self.writes = 0
        self.write_true_state = self._count_writes

    def _count_writes(self, record):
        self.writes += 1

    def place_true_state(self, memory):
        self._place = memory

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed)
        self._place["time"] = 0
        return result

    def step(self, action):
        result = super().step(action)
        self._place["time"] = self._time
        return result


class StepsTogether(SyntheticEnv):
    """Writes a byte per step into a file of its own, and ends a step only when so many environments have begun it."""

    def __init__(self, folder, together):
        super().__init__(fixed_length=True)
        self._folder, self._together = folder, together

    def step(self, action):
        own = self._folder / str(self._seed)
        with own.open("ab", buffering=0) as file:
            file.write(b".")
        mine = own.stat().st_size
        wait_until(lambda: sum(steps >= mine for steps in steps_in(self._folder)) >= self._together, "alone in a step")
        return super().step(action)


def steps_in(folder):
    """By environment."""
    return [path.stat().st_size for path in folder.iterdir()]
