"""What passes between a vector environment and its slices of environments.

factory -> environments -> `Description` -> the parent, which sets up arrays for them;
command -> slice -> `Outcome`: infos, failures, true states, values -> the user.

A failure crosses the process border as plain data and becomes, on the user's side, the original exception again.
Infos: one dictionary each <-> Gymnasium's one dictionary of arrays with `_key` masks.
"""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn, Self

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from stockade.errors import EnvironmentFailure, UnsupportedFeatureError
from stockade.vector.spaces import Layout

TruthRule = Literal["every_step", "episode_end"] | int | None
"""When the cached true state of an environment is refreshed; None: only when asked for."""
Factory = Callable[[], gymnasium.Env[Any, Any]]
"""Makes one environment."""
_MODES = {name: mode for mode in AutoresetMode for name in (mode, mode.value, mode.name.lower())}


def autoreset_mode_of(mode: AutoresetMode | str) -> AutoresetMode:
    """`next_step`, `same_step`, `disabled`, or Gymnasium's own names."""
    if not isinstance(mode, str | AutoresetMode) or mode not in _MODES:
        raise ValueError(f"autoreset_mode={mode!r} is unknown; take 'next_step', 'same_step' or 'disabled'")
    return _MODES[mode]


@dataclass(frozen=True)
class RunConfig:
    """How environments are run, whatever the backend; see `BackendOptions` for what each means to a user."""

    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    check_finite: bool = True
    true_states: TruthRule = None
    copy: bool = True
    restart: int = 0
    timeout: float | None = 300.0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "autoreset_mode", autoreset_mode_of(self.autoreset_mode))
        rule = self.true_states
        is_count = isinstance(rule, int) and not isinstance(rule, bool) and rule >= 1
        if not (is_count or rule is None or rule in ("every_step", "episode_end")):
            raise ValueError(f"true_states={rule!r} must be 'every_step', 'episode_end', a number of steps, or None")


@dataclass(frozen=True)
class Inheritance:
    """What the slice of a replaced worker takes over, one entry per environment."""

    owed: Sequence[bool]  # whether the lost environment was about to be reset anyway
    seeds: Sequence[int | None]  # for the first reset
    results: tuple[Any, ...]  # the last whole rows, see `Buffers.results`


class Saved(NamedTuple):
    """One environment at one moment, as a slice saves it.

    `row` is its row of the arrays (see `Buffers.results`): observation, flags, true state and age of that moment; None
    for an environment's own snapshot, whose `restore` has to return the observation.
    """

    state: Any  # what its method `snapshot()` gave
    steps: int  # of its episode so far
    autoreset: int  # see slice.py
    seed: int | None  # of its last seeded reset
    row: tuple[Any, ...] | None


@dataclass(frozen=True)
class Description:
    """What the parent has to know about the environments."""

    layout: Layout
    metadata: dict[str, Any]
    render_mode: str | None
    has_true_state: bool
    true_state_view: Callable[[np.ndarray], Any] | None

    @classmethod
    def of(cls, environment: gymnasium.Env[Any, Any]) -> Self:
        """Describe one environment, on behalf of all that its factory makes."""
        world: Any = environment.unwrapped
        writes = hasattr(world, "write_true_state")
        dtype = getattr(world, "true_state_dtype", None) if writes else None
        typed = None if dtype is None else np.dtype(dtype)
        layout = Layout(environment.observation_space, environment.action_space, typed)
        has_truth, view = writes or hasattr(world, "true_state"), getattr(world, "true_state_view", None)
        return cls(layout, dict(environment.metadata), environment.render_mode, has_truth, view)

    def check(self, config: RunConfig) -> None:
        """Refuse a configuration that the environments cannot serve."""
        rule = config.true_states
        if rule is not None and not self.has_true_state:
            raise UnsupportedFeatureError(f"true_states={rule!r} needs environments with a method true_state()")


@dataclass
class Failure:
    """An exception inside one environment, ready to cross a process border."""

    env_id: int
    during: str
    action: Any
    seed: int | None
    step: int
    text: str
    pickled: bytes

    @classmethod
    def of(cls, exception: Exception, env_id: int, during: str, action: Any, seed: int | None, step: int) -> Self:
        """Describe an exception that is being handled."""
        try:
            pickled = cloudpickle.dumps(exception)
        except Exception:  # an exception may hold anything; its text still goes out
            pickled = b""
        text = "".join(traceback.format_exception(exception))
        return cls(env_id, during, action, seed, step, text, pickled)

    def error(self) -> EnvironmentFailure:
        return EnvironmentFailure(self.env_id, self.during, self.action, self.seed, self.step, self.text)


@dataclass
class Outcome:
    """What a call to a slice yields besides the arrays: infos and true states (if objects) with the environments' ids.

    `values` has one per environment, of commands that return something; `gathered` the infos of all as Gymnasium's
    vector environments give them, from slices that make them so.
    """

    infos: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    truths: list[tuple[int, Any]] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    gathered: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.infos or self.failures or self.truths or self.values)

    def extend(self, other: "Outcome") -> None:
        self.infos += other.infos
        self.failures += other.failures
        self.truths += other.truths
        self.values += other.values


NOTHING = Outcome()
"""Of most steps, not to be changed: making a new one would cost a tenth of a step of a few worlds."""


def raise_failure(failures: list[Failure], results: tuple[Any, ...] | None = None) -> NoReturn:
    """Raise the first failure as its original exception, caused by an `EnvironmentFailure` with the details."""
    cause = failures[0].error()
    cause.results = results
    cause.others = tuple(failure.error() for failure in failures[1:])
    raise_original(failures[0], cause)


def raise_original(failure: Failure, cause: Exception) -> NoReturn:
    """Raise what happened, as far as it could be unpickled, with `cause` as its cause and note; else the cause."""
    try:
        original = cloudpickle.loads(failure.pickled)
    except Exception:  # constructors with arguments of their own do not unpickle; the text is still there
        original = None
    if not isinstance(original, Exception):
        raise cause
    original.add_note(str(cause))
    raise original from cause


def gather_infos(infos: list[tuple[int, dict[str, Any]]], size: int) -> dict[str, Any]:
    """Infos by place -> one dictionary of arrays of that size with masks, as the installed Gymnasium makes them."""
    gathered: dict[str, Any] = {}
    shaper: VectorEnv[Any, Any, Any] = VectorEnv()
    shaper.num_envs = size
    shaper.closed = True
    for place, info in infos:
        gathered = shaper._add_info(gathered, info, place)
    return gathered


def scatter_infos(info: dict[str, Any], infos: list[dict[str, Any]]) -> None:
    """The other way: put arrays with masks into the dictionaries of each."""
    for key, value in info.items():
        if key.startswith("_") and key[1:] in info:
            continue
        mask = info.get(f"_{key}")
        places = range(len(infos)) if mask is None else np.flatnonzero(mask).tolist()
        if isinstance(value, dict):
            parts: list[dict[str, Any]] = [{} for _ in infos]
            scatter_infos(value, parts)
            for i in places:
                infos[i][key] = parts[i]
        elif np.ndim(value) > 1:
            for i in places:
                infos[i][key] = value[i].copy()  # a view would keep the arrays of all alive
        else:
            values = np.asarray(value).tolist()  # Python's own numbers, as an environment gives them
            for i in places:
                infos[i][key] = values[i]
