"""Backend `pipes`: actions -> pickled message a worker -> slice of environments -> pickled arrays -> results.

The plain one, and the baseline: no shared memory, runs wherever `multiprocessing` does.
"""

from __future__ import annotations

from stockade.vector.layout import tree_map
from stockade.vector.outcome import Outcome
from stockade.vector.process import Worker
from stockade.vector.process_base import Command, ProcessVectorEnv


class PipesVectorEnv(ProcessVectorEnv):
    """Environments in worker processes; everything travels as messages, each worker has a connection of its own."""

    def _step_all(self) -> Outcome:
        sequence = self._next_sequence()
        actions = self._buffers.actions

        def post(worker: Worker) -> None:
            own = tree_map(lambda array: array[worker.first : worker.stop], actions)
            worker.post_message(sequence, "step", own, self._deadline())

        return self._exchange(Command("step", sequence, post))
