"""The two tables that people of the challenge know: what blue believes, and what is true."""

from __future__ import annotations

import numpy as np

from stockade.cage2.scenario import HOSTS, N_HOSTS, SUBNET_OF, SUBNETS
from stockade.cage2.truth import ACCESS_NAMES, TrueState
from stockade.text import Table

_ACTIVITY = {(0, 0): "None", (1, 0): "Scan", (1, 1): "Exploit"}
_COMPROMISED = {(0, 0): "No", (1, 0): "Unknown", (0, 1): "User", (1, 1): "Privileged"}


def addresses(ledger: np.void | None) -> list[str]:
    """Addresses of the hosts; only the reference's stream draws them."""
    if ledger is None:
        return ["-"] * N_HOSTS
    numbers = [10 << 24 | 16 * int(ledger["subnet_number"][SUBNET_OF[h]]) + int(ledger["host_number"][h])
               for h in range(N_HOSTS)]  # fmt: skip
    return [".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0)) for number in numbers]


def render_world(worlds: np.ndarray, ledgers: np.ndarray | None, i: int) -> str:
    """Both tables of world i as text."""
    world, ledger = worlds[i, ...], None if ledgers is None else ledgers[i]
    bits = world["obs"].view(np.uint8).tolist()
    truth = TrueState.of(world).to_dict()
    places = [[SUBNETS[SUBNET_OF[h]], address, HOSTS[h]] for h, address in enumerate(addresses(ledger))]
    believed = [
        [*places[h], _ACTIVITY[bits[4 * h], bits[4 * h + 1]], _COMPROMISED[bits[4 * h + 2], bits[4 * h + 3]]]
        for h in range(N_HOSTS)
    ]
    true = []
    for h, host in enumerate(HOSTS):
        facts = truth["hosts"][host]
        access = facts["red_access"].capitalize() if facts["red_access"] != ACCESS_NAMES[2] else "Privileged"
        decoys = " ".join(name.removeprefix("Decoy") for name in facts["decoys"])
        known, scanned = str("address" in facts["red_knows"]), str(bool(facts["ports_red_remembers"]))
        true.append([*places[h], known, scanned, access, decoys, " ".join(facts["files"])])
    happened = (
        f"step {truth['time']}: blue {truth['blue_action']} ({truth['blue_success']}), "
        f"red {truth['red_action']} ({truth['red_success']}), service {truth['operational_service']}, "
        f"reward {world['reward'] / 10:.1f}"
    )
    where = ["Subnet", "IP Address", "Hostname"]
    return "\n".join(
        [
            happened,
            "What blue believes",
            Table([*where, "Activity", "Compromised"], believed).markdown(),
            "What is true",
            Table([*where, "Known", "Scanned", "Access", "Decoys", "Files"], true).markdown(),
        ]
    )
