"""What backends have in common whose workers can be lost: whether one is replaced, and how its environments go on."""

from __future__ import annotations

import numpy as np
from gymnasium.vector import AutoresetMode

from stockade.vector.base import BaseVectorEnv
from stockade.vector.errors import WorkerDiedError, WorkerTimeoutError


class ReplacingVectorEnv(BaseVectorEnv):
    """Environments in workers, of which `restart` may be replaced in the life of the vector environment.

    Attributes:
        restart: how many may be. restarts: how many were.
    """

    restart: int
    restarts: int

    def _count_restart(
        self, kind: str, replaceable: tuple[str, ...], error: WorkerDiedError | WorkerTimeoutError
    ) -> None:
        """A worker that served a command of this kind is replaced, or the error is raised and says why not."""
        if self.restarts >= self.restart or kind not in replaceable:
            why = f"restart={self.restart} is used up" if self.restart else "pass restart=N to have N workers replaced"
            if kind not in replaceable:
                why = f"it was serving {kind}, which is not given to a new worker"
            error.args = (f"{error.args[0].rstrip()} Not replaced: {why}.",)
            raise error
        self.restarts += 1

    def _was_over(self, i: int) -> bool:
        """Whether environment i was about to be reset by autoreset, so that nothing of it is lost."""
        return self.autoreset_mode is AutoresetMode.NEXT_STEP and bool(self._over[i])

    def _new_seed(self, i: int) -> int | None:
        """A seed for an environment that starts anew: its past is not repeated, a repeated run still is."""
        seed = self._seeds[i]
        if seed is None:
            return None
        return int(np.random.SeedSequence([seed, self.restarts]).generate_state(1)[0])
