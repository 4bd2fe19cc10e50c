"""What a figure was measured on: machine, versions, commit. Every result file carries it."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from stockade.cores import available_cores

_PACKAGES = ("stockade", "numpy", "numba", "gymnasium", "torch", "stable-baselines3", "ray", "pufferlib", "envpool",
             "CybORG")  # fmt: skip


def machine_stamp() -> dict[str, Any]:
    """Facts to print beside figures. The load tells whether the machine was busy with something else."""
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "cpu": _cpu_name(),
        "cores": available_cores(),
        "cache": _last_cache(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": packages,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _last_cache() -> str | None:
    """Size of the last cache: figures over many worlds change where these no longer fit into it."""
    try:
        caches = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
        return max(((c / "level").read_text(), (c / "size").read_text().strip()) for c in caches)[1]
    except (OSError, ValueError):
        return None


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None
