"""Any Gymnasium environment, many times at once.

`make_vector(backend, factory, n_envs)` gives a Gymnasium `VectorEnv` that runs the environments in this process
(`serial`), in worker processes over messages (`pipes`) or shared memory (`shared_memory`), or returns them as they
become ready (`async`, `ray`). `NativeVectorEnv` runs the built-in world, compiled. All keep one contract (base.py),
which `check_vector_env` verifies on any vector environment; docs/guides/backends.md says which to take when.

The contract: base, spaces, slice, outcome; native with native_slice. Backends with workers: workers,
asynchronous (parent), host (worker), local/, ray/. Tools: make, tune, check/ (the public checker), testing (synthetic
environments).

Example:
    >>> from stockade.vector import SyntheticEnv, make_vector
    >>> with make_vector("serial", SyntheticEnv, 4) as envs:
    ...     observations, infos = envs.reset(seed=0)
    ...     observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
    >>> observations.shape, rewards.shape
    ((4, 52), (4,))
"""

from stockade.cores import available_cores
from stockade.errors import (
    ContractViolation,
    EnvironmentFailure,
    InvalidActionError,
    NonFiniteError,
    ResetNeededError,
    SharedMemoryError,
    UnsupportedFeatureError,
    UnsupportedSpaceError,
    VectorError,
    WorkerDiedError,
    WorkerError,
    WorkerStartError,
    WorkerTimeoutError,
)
from stockade.vector.asynchronous import AsyncVectorEnv
from stockade.vector.base import BaseVectorEnv, TrueStates, VectorSnapshot
from stockade.vector.check import CheckReport, check_vector_env
from stockade.vector.local.async_ import AsyncPoolVectorEnv
from stockade.vector.local.env import PipesVectorEnv, SharedMemoryVectorEnv
from stockade.vector.local.serial import SerialVectorEnv
from stockade.vector.make import BACKENDS, LOCAL_BACKENDS, BackendOptions, make_vector
from stockade.vector.native import NativeVectorEnv
from stockade.vector.testing import Fault, SyntheticEnv
from stockade.vector.tune import Tuning, autotune

__all__ = [
    "BACKENDS",
    "LOCAL_BACKENDS",
    "AsyncPoolVectorEnv",
    "AsyncVectorEnv",
    "BackendOptions",
    "BaseVectorEnv",
    "CheckReport",
    "ContractViolation",
    "EnvironmentFailure",
    "Fault",
    "InvalidActionError",
    "NativeVectorEnv",
    "NonFiniteError",
    "PipesVectorEnv",
    "ResetNeededError",
    "SerialVectorEnv",
    "SharedMemoryError",
    "SharedMemoryVectorEnv",
    "SyntheticEnv",
    "TrueStates",
    "Tuning",
    "UnsupportedFeatureError",
    "UnsupportedSpaceError",
    "VectorError",
    "VectorSnapshot",
    "WorkerDiedError",
    "WorkerError",
    "WorkerStartError",
    "WorkerTimeoutError",
    "autotune",
    "available_cores",
    "check_vector_env",
    "make_vector",
]
