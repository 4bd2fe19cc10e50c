"""Ctrl-C between any two operations of an exchange with a worker: the next call goes on, nothing waits for ever."""

import multiprocessing.forkserver
import os
import signal
from typing import Any

import numpy as np
import pytest

from stockade.vector import SyntheticEnv, make_vector
from stockade.vector.local import channel, shared
from tests.processes import PATIENCE

ACTIONS = np.zeros(4, np.int64)
EXCHANGES = {
    "pipes": [(channel.Channel, "receive", True), (channel.Channel, "send", True), (channel.Channel, "send", False)],
    "shared_memory": [(shared.Ring, "push", True), (shared.Ring, "announce", True), (shared.Ring, "wait", True)],
    "async": [(shared.Ring, "push", True), (shared.Ring, "announce", False), (shared.Ring, "pop", True)],
}


@pytest.mark.parametrize(
    ("backend", "kind", "name", "after"), [(backend, *each) for backend, found in EXCHANGES.items() for each in found]
)
def test_ctrl_c_in_the_middle_of_an_exchange(
    backend: str, kind: type, name: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent or read is lost `after` the operation, or it did not happen at all."""
    original = getattr(kind, name)

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(kind, name, original)
        if after:
            original(*arguments)
        raise KeyboardInterrupt

    with make_vector(backend, SyntheticEnv, 4, workers=2, timeout=PATIENCE) as envs:  # else a reply never comes
        expected = [envs.reset(seed=7)[0].copy(), envs.step(ACTIONS)[0].copy()]
        monkeypatch.setattr(kind, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            envs.step(ACTIONS)
        found = [envs.reset(seed=7)[0].copy(), envs.step(ACTIONS)[0].copy()]
        np.testing.assert_array_equal(found, expected)
        assert envs.restarts == 0
        assert not envs.step(ACTIONS)[4].get("worker_restarted", np.zeros(4)).any()


def test_a_fork_server_that_ended_and_was_waited_for_by_others_is_started_again() -> None:
    with make_vector("pipes", SyntheticEnv, 2, workers=1, start_method="forkserver"):
        server: Any = multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]
        os.kill(server._forkserver_pid, signal.SIGKILL)
        os.waitpid(server._forkserver_pid, 0)  # as a program does that waits for all its children
    with make_vector("pipes", SyntheticEnv, 2, workers=1, start_method="forkserver") as envs:
        assert envs.reset(seed=0)[0].shape[0] == 2
