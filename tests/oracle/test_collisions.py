"""Process ids that meet by chance, once in 32,768 draws: kernel and model agree there too.

Blue's list of suspicious ids outlives the processes. A later process that gets such an id is taken for the old one:
Remove then kills a decoy (which is started again if it is the first of its kind) or a session that it could not kill
otherwise. The cases below were found by playing scripts with the model until it happened; each test first makes sure
that it does happen in the step named.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice

import pytest

from .differential import Config, Duel
from .network import PROCESS_IDS, BlueClass, Host, Service
from .stream import Stream

_STEPS_AFTERWARDS = 60


@dataclass(frozen=True)
class Script:
    """Actions on one host, over and over, and the step in which the collision happens."""

    red: str
    seed: int
    host: Host
    classes: tuple[BlueClass, ...]
    step: int

    def actions(self) -> Iterator[int]:
        return cycle(blue_class.on(self.host) for blue_class in self.classes)


_VSFTPD_STACK = (*(BlueClass.DECOY_VSFTPD,) * 3, BlueClass.REMOVE, BlueClass.RESTORE)
_USER3_CYCLE = (BlueClass.DECOY_SSHD, BlueClass.DECOY_VSFTPD, BlueClass.REMOVE, BlueClass.RESTORE)


def _play_up_to(script: Script) -> Duel:
    """Everything before the collision."""
    duel = Duel(Config(script.red), script.seed)
    assert duel.reset() is None
    for action in islice(script.actions(), script.step):
        _agree(duel, action)
    return duel


def _collide(duel: Duel, script: Script) -> None:
    """The step of the collision."""
    _agree(duel, next(islice(script.actions(), script.step, None)))


def _play_on(duel: Duel, script: Script) -> None:
    for action in islice(script.actions(), script.step + 1, script.step + 1 + _STEPS_AFTERWARDS):
        _agree(duel, action)


def _agree(duel: Duel, action: int) -> None:
    mismatch = duel.step(action)
    assert mismatch is None, str(mismatch)


def _collide_recording_ids(script: Script, monkeypatch: pytest.MonkeyPatch) -> tuple[Duel, list[int]]:
    """Plays up to and including the collision. Returns also the process ids drawn in that step."""
    duel = _play_up_to(script)
    drawn: list[int] = []
    below = Stream.below

    def recording_below(stream: Stream, n: int) -> int:
        value = below(stream, n)
        if n == PROCESS_IDS:
            drawn.append(value)
        return value

    monkeypatch.setattr(Stream, "below", recording_below)
    _collide(duel, script)
    return duel, drawn


def test_an_id_in_use_is_drawn_again(monkeypatch):
    script = Script("bline", 39, Host.USER4, _VSFTPD_STACK, step=9)
    duel, drawn = _collide_recording_ids(script, monkeypatch)
    assert len(drawn) == 2
    assert drawn[0] in [process.pid for process in duel.model.hosts[duel.model.red_target].processes]
    _play_on(duel, script)


def test_the_id_0_is_drawn_again(monkeypatch):
    script = Script("meander", 148, Host.USER3, _USER3_CYCLE, step=56)
    duel, drawn = _collide_recording_ids(script, monkeypatch)
    assert drawn[0] == 0
    assert len(drawn) == 2
    _play_on(duel, script)


def test_remove_restarts_a_decoy_with_the_id_of_a_dead_shell():
    script = Script("meander", 83, Host.USER3, _USER3_CYCLE, step=138)
    duel = _play_up_to(script)
    assert duel.model.restarted_services == 0
    before = duel.model.hosts[Host.USER3].facts()
    _collide(duel, script)
    assert duel.model.restarted_services == 1
    assert duel.model.hosts[Host.USER3].facts().n_decoys == before.n_decoys
    _play_on(duel, script)


def test_remove_kills_a_stacked_decoy_with_the_id_of_a_dead_shell():
    """Only the first Vsftpd is a service that is started again."""
    script = Script("bline", 76, Host.USER4, _VSFTPD_STACK, step=158)
    duel = _play_up_to(script)
    before = duel.model.hosts[Host.USER4].facts()
    _collide(duel, script)
    assert duel.model.hosts[Host.USER4].facts().n_decoys == before.n_decoys - 1
    _play_on(duel, script)


@pytest.mark.parametrize(
    ("seed", "step", "service"), [(120, 281, Service.SSH), (146, 35, Service.OTHER)], ids=["ssh", "shell"]
)
def test_a_session_with_the_id_of_a_dead_shell(seed: int, step: int, service: Service):
    """By such an id even an SSH session, whose connection blue never sees, can be removed."""
    script = Script("bline", seed, Host.ENTERPRISE1, (BlueClass.RESTORE,), step)
    duel = _play_up_to(script)
    suspicious = list(duel.model.hosts[Host.ENTERPRISE1].suspicious)
    _collide(duel, script)
    session = duel.model.hosts[Host.ENTERPRISE1].sessions[-1]
    assert session.pid in suspicious
    assert session.service is service
    _agree(duel, BlueClass.REMOVE.on(Host.ENTERPRISE1))
    assert session.root or session not in duel.model.hosts[Host.ENTERPRISE1].sessions
    _play_on(duel, script)
