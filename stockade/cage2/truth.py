"""The true state of worlds as named arrays: views of the worlds' own memory, so asking for them costs nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from stockade.cage2.actions import ACTION_NAMES, red_action_name
from stockade.cage2.scenario import DECOYS, EXPLOITS, FACTS, HOSTS, N_HOSTS, N_SUBNETS, NOBODY, PORTS, SUBNETS
from stockade.cage2.state import BLINE, MEANDER, SLEEPING

ACCESS_NAMES = ("none", "user", "root")
SUCCESS_NAMES = ("FALSE", "TRUE", "UNKNOWN")
RED_NAMES = {SLEEPING: "sleep", BLINE: "bline", MEANDER: "meander"}


@dataclass(frozen=True)
class TrueState:
    """The true state, with shapes for n worlds (a single environment's has no leading n).

    On the native backend the arrays are live and read-only: they follow the worlds as these are stepped; `copy()`
    keeps a moment.
    """

    red_access: np.ndarray  #: (n, 13) uint8, red's highest access: 0 none, 1 user, 2 root
    red_sessions: np.ndarray  #: (n, 13) uint16, number of red's sessions
    red_root_sessions: np.ndarray  #: (n, 13) uint16, of those with root
    red_removable: np.ndarray  #: (n, 13) uint16, of those that a Remove would end now
    decoys: np.ndarray  #: (n, 13) uint8, bit d: decoy d of scenario.DECOYS is up
    n_decoys: np.ndarray  #: (n, 13) uint16, number of decoy processes
    files: np.ndarray  #: (n, 13) uint8, 1 a shell's file, 2 an escalation's: what Analyse finds
    red_ports: np.ndarray  #: (n, 13) int16, bit p: red remembers port p of scenario.PORTS as open
    service_down: np.ndarray  #: (n,) uint8, the operational service is stopped
    red_knows_service: np.ndarray  #: (n,) uint8, red could stop it
    known_addresses: np.ndarray  #: (n,) int32, bit h: red knows the address of host h
    known_names: np.ndarray  #: (n,) int32, bit h: red has been on host h
    known_subnets: np.ndarray  #: (n,) int32, bit s: red knows subnet s
    red: np.ndarray  #: (n,) uint8, who attacks: 0 sleep, 1 bline, 2 meander
    red_type: np.ndarray  #: (n,) int8, red's last action (actions.RED_TYPES)
    red_target: np.ndarray  #: (n,) int8, its target (actions.RED_TARGETS), or -1
    red_success: np.ndarray  #: (n,) int8, 0 false, 1 true, 2 unknown
    exploit: np.ndarray  #: (n,) int8, the exploit that it used (scenario.EXPLOITS)
    detected: np.ndarray  #: (n,) int8, 1 blue saw the shell, 0 it did not, -1 no shell
    blue_action: np.ndarray  #: (n,) int16, blue's last action
    blue_success: np.ndarray  #: (n,) int8, as red_success
    green_target: np.ndarray  #: (n,) int8, the host that green scanned, or -1
    time: np.ndarray  #: (n,) int32, steps of this episode so far

    @classmethod
    def of(cls, worlds: np.ndarray) -> TrueState:
        """Views of a structured array of worlds; of one world if it is `worlds[i, ...]`."""
        views = {}
        for field in fields(cls):
            view = worlds[field.name].view()
            view.flags.writeable = False
            views[field.name] = view
        return cls(**views)

    def copy(self) -> TrueState:
        """The same, no longer live."""
        return TrueState(**{field.name: getattr(self, field.name).copy() for field in fields(self)})

    @property
    def red_knows_address(self) -> np.ndarray:
        """(n, 13) bool."""
        return _bits(self.known_addresses, N_HOSTS)

    @property
    def red_knows_name(self) -> np.ndarray:
        """(n, 13) bool: red has been on the host."""
        return _bits(self.known_names, N_HOSTS)

    @property
    def red_knows_subnet(self) -> np.ndarray:
        """(n, 3) bool."""
        return _bits(self.known_subnets, N_SUBNETS)

    @property
    def red_scanned(self) -> np.ndarray:
        """(n, 13) bool: red remembers ports of the host."""
        return self.red_ports != 0

    def to_dict(self, i: int | None = None) -> dict[str, Any]:
        """World i for a person: who is where, what stands and lies on each host, what happened last."""
        if i is not None:
            return TrueState(**{field.name: getattr(self, field.name)[i, ...] for field in fields(self)}).to_dict()
        hosts = {}
        for h, name in enumerate(HOSTS):
            ending = ".exe" if FACTS[name].os == "W" else ".sh"
            known = {"address": self.red_knows_address[h], "name": self.red_knows_name[h]}
            hosts[name] = {
                "red_access": ACCESS_NAMES[self.red_access[h]],
                "red_sessions": int(self.red_sessions[h]),
                "red_root_sessions": int(self.red_root_sessions[h]),
                "red_removable": int(self.red_removable[h]),
                "decoys": [decoy.name for d, decoy in enumerate(DECOYS) if self.decoys[h] >> d & 1],
                "files": [file + ending for mask, file in ((1, "cmd"), (2, "escalate")) if self.files[h] & mask],
                "red_knows": [fact for fact, is_known in known.items() if is_known],
                "ports_red_remembers": [port for p, port in enumerate(PORTS) if self.red_ports[h] >> p & 1],
            }
        green = int(self.green_target)
        return {
            "time": int(self.time),
            "red_agent": RED_NAMES[int(self.red)],
            "operational_service": "down" if self.service_down else "up",
            "subnets_known_to_red": [net for s, net in enumerate(SUBNETS) if self.red_knows_subnet[s]],
            "blue_action": ACTION_NAMES[int(self.blue_action)],
            "blue_success": SUCCESS_NAMES[int(self.blue_success)],
            "green_scans": None if green == NOBODY else HOSTS[green],
            "red_action": red_action_name(int(self.red_type), int(self.red_target)),
            "red_success": SUCCESS_NAMES[int(self.red_success)],
            "exploit": EXPLOITS[int(self.exploit)].name,
            "hosts": hosts,
        }


def _bits(masks: np.ndarray, count: int) -> np.ndarray:
    return (np.asarray(masks)[..., None] >> np.arange(count) & 1).astype(np.bool_)
