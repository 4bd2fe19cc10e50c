"""Any Gymnasium environment, many times at once.

`make_vector(backend, factory, n_envs)` gives a Gymnasium `VectorEnv` that runs the environments in this process
(`serial`), in worker processes over messages (`pipes`) or shared memory (`shared_memory`), or returns them as they
become ready (`async`). All backends keep one contract, which `check_vector_env` verifies on any vector environment;
docs/backends.md says which to take when.

Example:
    >>> from stockade.vector import SyntheticEnv, make_vector
    >>> with make_vector("serial", SyntheticEnv, 4) as envs:
    ...     observations, infos = envs.reset(seed=0)
    ...     observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
    >>> observations.shape, rewards.shape
    ((4, 52), (4,))
"""

from stockade.cores import available_cores
from stockade.vector.async_pool import AsyncPoolVectorEnv
from stockade.vector.base import BaseVectorEnv, VectorSnapshot
from stockade.vector.check import CheckReport, check_vector_env
from stockade.vector.errors import (
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
from stockade.vector.make import BACKENDS, make_vector
from stockade.vector.pipes import PipesVectorEnv
from stockade.vector.serial import SerialVectorEnv
from stockade.vector.shared_memory import SharedMemoryVectorEnv
from stockade.vector.synthetic import Fault, SyntheticEnv
from stockade.vector.truth import TrueStates
from stockade.vector.tune import Tuning, autotune

__all__ = [
    "BACKENDS",
    "AsyncPoolVectorEnv",
    "BaseVectorEnv",
    "CheckReport",
    "ContractViolation",
    "EnvironmentFailure",
    "Fault",
    "InvalidActionError",
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
