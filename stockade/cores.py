"""How many cores there are to use: what every layer that starts threads or processes asks."""

from __future__ import annotations

import os
from pathlib import Path

_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """The cores this process may use: CPU affinity and the cgroup's quota respected, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CPU_QUOTA.read_text().split()
        if quota != "max":
            cores = min(cores, round(int(quota) / int(period)))
    except (OSError, ValueError):
        return cores
    return max(cores, 1)
