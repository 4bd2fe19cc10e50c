"""The two tables that people of the challenge know: what blue believes, and what is true."""

from __future__ import annotations

import numpy as np

from stockade.cage2.scenario import HOSTS, SUBNET_OF, SUBNETS
from stockade.cage2.truth import TrueState
from stockade.text import Table

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
