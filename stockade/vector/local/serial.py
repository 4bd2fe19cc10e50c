"""Backend `serial`: actions -> one slice of all environments in this process, one after the other -> results."""

from stockade.vector.base import BaseVectorEnv
from stockade.vector.outcome import Description, Factory, RunConfig
from stockade.vector.slice import EnvSlice, build_environments
from stockade.vector.spaces import Buffers


class SerialVectorEnv(BaseVectorEnv):
    """All environments in this process. Nothing is faster for environments that take a few microseconds per step."""

    def __init__(self, factory: Factory, n_envs: int, config: RunConfig) -> None:
        self.closed = True
        self.envs = build_environments(factory, n_envs)
        description = Description.of(self.envs[0])
        description.check(config)
        buffers = Buffers.allocate(description.layout, n_envs)
        self._slice = EnvSlice(self.envs, 0, buffers, config)
        super().__init__(description, n_envs, buffers, config)
