"""What is true of worlds: named arrays (views of their own memory), the info of a step, two tables for people."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from stockade.cage2 import scenario
from stockade.cage2.actions import ACTION_KIND, ACTION_NAMES, FALSE, RED_TARGETS, RED_TYPES, RESTORE, red_action_name
from stockade.cage2.scenario import HOSTS, N_HOSTS, N_SUBNETS, NOBODY, SUBNET_OF, SUBNETS
from stockade.cage2.state import BLINE, MEANDER, PLAYER, SLEEPING
from stockade.text import Table

ACCESS_NAMES = ("none", "user", "root")
SUCCESS_NAMES = ("FALSE", "TRUE", "UNKNOWN")
RED_NAMES = {SLEEPING: "sleep", BLINE: "bline", MEANDER: "meander", PLAYER: "player"}


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
    red: np.ndarray  #: (n,) uint8, who attacks: 0 sleep, 1 bline, 2 meander, 4 a player
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
        frozen = worlds.view()
        frozen.flags.writeable = False
        return cls(**{field.name: frozen[field.name] for field in fields(cls)})

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
            ending = ".exe" if scenario.FACTS[name].os == "W" else ".sh"
            known = {"address": self.red_knows_address[h], "name": self.red_knows_name[h]}
            hosts[name] = {
                "red_access": ACCESS_NAMES[self.red_access[h]],
                "red_sessions": int(self.red_sessions[h]),
                "red_root_sessions": int(self.red_root_sessions[h]),
                "red_removable": int(self.red_removable[h]),
                "decoys": [decoy.name for d, decoy in enumerate(scenario.DECOYS) if self.decoys[h] >> d & 1],
                "files": [file + ending for mask, file in ((1, "cmd"), (2, "escalate")) if self.files[h] & mask],
                "red_knows": [fact for fact, is_known in known.items() if is_known],
                "ports_red_remembers": [port for p, port in enumerate(scenario.PORTS) if self.red_ports[h] >> p & 1],
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
            "exploit": scenario.EXPLOITS[int(self.exploit)].name,
            "hosts": hosts,
        }


def _bits(masks: np.ndarray, count: int) -> np.ndarray:
    return (np.asarray(masks)[..., None] >> np.arange(count) & 1).astype(np.bool_)


# --------------------------------------------------------------------------------------------------- the info of a step
# Lists are quicker for one world, arrays for many. In the last column are red's actions without a target, NOBODY.
_IS_RESTORE = (ACTION_KIND == RESTORE).tolist()
_RED_NAMES = [[red_action_name(k, t) for t in (*range(len(RED_TARGETS)), NOBODY)] for k in range(len(RED_TYPES))]
_ARE_RESTORES = np.array(_IS_RESTORE)
_ALL_RED_NAMES, _ALL_BLUE_NAMES = np.array(_RED_NAMES, object), np.array(ACTION_NAMES, object)
_SERVICE, _RESTORE = -scenario.SERVICE_DOWN_COST / 10, -scenario.RESTORE_COST / 10


class WorldInfo:
    """Reads the info of a single world in a microsecond or two, through views of its fields made once."""

    def __init__(self, worlds: np.ndarray) -> None:
        names = ("red_type", "red_target", "red_success", "blue_action", "blue_success", "root_cost", "service_down")
        self._readers = tuple(worlds[name].item for name in names)

    def read(self) -> dict[str, Any]:
        """Of the last step. `*_success` is False only for an action that failed."""
        red_type, red_target, red_success, blue, blue_success, root_cost, down = [read() for read in self._readers]
        return {
            "red_action": _RED_NAMES[red_type][red_target],
            "red_success": red_success != FALSE,
            "blue_action": ACTION_NAMES[blue],
            "blue_success": blue_success != FALSE,
            "reward_hosts": root_cost / -10 if root_cost else 0.0,
            "reward_service": _SERVICE if down else 0.0,
            "reward_restore": _RESTORE if _IS_RESTORE[blue] else 0.0,
        }


def worlds_info(worlds: np.ndarray, stepped: np.ndarray) -> dict[str, Any]:
    """Of many, as arrays; `_key` masks are `stepped`, since a world that was just reset has no last step."""
    blue = worlds["blue_action"]
    values = {
        "red_action": np.where(stepped, _ALL_RED_NAMES[worlds["red_type"], worlds["red_target"]], None),
        "red_success": (worlds["red_success"] != FALSE) & stepped,
        "blue_action": np.where(stepped, _ALL_BLUE_NAMES[blue], None),
        "blue_success": (worlds["blue_success"] != FALSE) & stepped,
        "reward_hosts": np.where(stepped, worlds["root_cost"] / -10, 0.0) + 0.0,  # no minus zero
        "reward_service": _SERVICE * (worlds["service_down"] * stepped) + 0.0,
        "reward_restore": _RESTORE * (_ARE_RESTORES[blue] * stepped) + 0.0,
    }
    return {k: v for name, value in values.items() for k, v in ((name, value), (f"_{name}", stepped.copy()))}


# ----------------------------------------------------------------------------------------------------------- two tables
_ACTIVITY = {(0, 0): "None", (1, 0): "Scan", (1, 1): "Exploit"}
_COMPROMISED = {(0, 0): "No", (1, 0): "Unknown", (0, 1): "User", (1, 1): "Privileged"}
_ACCESS = {"none": "None", "user": "User", "root": "Privileged"}


def render_world(world: np.ndarray, ledger: np.void | None) -> str:
    """Both tables as text; only the reference's stream draws addresses."""
    truth = TrueState.of(world).to_dict()
    believed, true = [], []
    for h, host in enumerate(HOSTS):
        facts, bits = truth["hosts"][host], world["obs"].view(np.uint8).tolist()[4 * h :]
        place = [SUBNETS[SUBNET_OF[h]], "-" if ledger is None else _address(ledger, h), host]
        believed.append([*place, _ACTIVITY[bits[0], bits[1]], _COMPROMISED[bits[2], bits[3]]])
        decoys = " ".join(name.removeprefix("Decoy") for name in facts["decoys"])
        known, scanned = str("address" in facts["red_knows"]), str(bool(facts["ports_red_remembers"]))
        true.append([*place, known, scanned, _ACCESS[facts["red_access"]], decoys, " ".join(facts["files"])])
    happened = (
        f"step {truth['time']}: blue {truth['blue_action']} ({truth['blue_success']}), "
        f"red {truth['red_action']} ({truth['red_success']}), service {truth['operational_service']}, "
        f"reward {world['reward'] / 10:.1f}"
    )
    where = ["Subnet", "IP Address", "Hostname"]
    first = Table([*where, "Activity", "Compromised"], believed).markdown()
    second = Table([*where, "Known", "Scanned", "Access", "Decoys", "Files"], true).markdown()
    return "\n".join([happened, "What blue believes", first, "What is true", second])


def _address(ledger: np.void, host: int) -> str:
    number = 10 << 24 | 16 * int(ledger["subnet_number"][SUBNET_OF[host]]) + int(ledger["host_number"][host])
    return ".".join(str(byte) for byte in number.to_bytes(4, "big"))
