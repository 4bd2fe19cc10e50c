"""Backend `shared_memory`: actions -> shared rows, one eventfd signal a worker -> slice of environments -> shared rows,
one signal back -> results. Infos, failures and untyped true states go over the socket, only when there are any.
"""

from __future__ import annotations

from stockade.vector.outcome import Outcome
from stockade.vector.process import Worker
from stockade.vector.process_base import Command, ProcessVectorEnv
from stockade.vector.rings import STEP_ALL


class SharedMemoryVectorEnv(ProcessVectorEnv):
    """Environments in worker processes; arrays in anonymous shared memory, one signal each way a worker and step."""

    def _step_all(self) -> Outcome:
        sequence = self._next_sequence()

        def post(worker: Worker) -> None:
            worker.post(sequence, STEP_ALL)

        return self._exchange(Command("step", sequence, post))
