"""What a figure was measured on: machine, versions, commit. Every result file carries it."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from stockade.cores import available_cores

_PACKAGES = (
    "stockade",
    "numpy",
    "numba",
    "gymnasium",
    "torch",
    "stable-baselines3",
    "ray",
    "pufferlib",
    "envpool",
    "CybORG",
)
_CPUS = Path("/sys/devices/system/cpu")


def machine_stamp() -> dict[str, Any]:
    """Facts to print beside figures. The load tells whether the machine was busy with something else."""
    return {
        "cpu": _cpu_name(),
        "cores": available_cores(),
        "physical_cores": _physical_cores(),
        "megahertz": _megahertz(),
        "cache": _last_cache(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load": round(os.getloadavg()[0], 2),
    }


def describe(stamp: dict[str, Any]) -> str:
    """One line of it."""
    versions = ", ".join(f"{name} {version}" for name, version in stamp["packages"].items())
    return f"{stamp['cores']} cores of {stamp['cpu']}, Python {stamp['python']}, {versions}; load {stamp['load']}"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _physical_cores() -> int | None:
    """Of the whole machine, where two hardware threads of one core count once."""
    cores = set()
    for entry in _CPUS.glob("cpu[0-9]*/topology"):
        package, core = _read(entry / "physical_package_id"), _read(entry / "core_id")
        if core is not None:
            cores.add((package, core))
    return len(cores) or None


def _megahertz() -> int | None:
    """The highest that the processor may run at, or, where that is not told, what it runs at now."""
    limit = _read(_CPUS / "cpu0/cpufreq/cpuinfo_max_freq")
    if limit is not None:
        return round(int(limit) / 1000)
    info = Path("/proc/cpuinfo")
    if info.exists():
        speeds = [line.split(":")[1] for line in info.read_text().splitlines() if line.startswith("cpu MHz")]
        return round(max(map(float, speeds))) if speeds else None
    return None


def _last_cache() -> str | None:
    """Size of the last cache, for figures over many worlds change where they no longer fit into it."""
    sizes = [(_read(entry / "level"), _read(entry / "size")) for entry in _CPUS.glob("cpu0/cache/index*")]
    return max((level, size) for level, size in [("", None), *sizes] if level is not None)[1]


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
