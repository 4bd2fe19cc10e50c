"""How many cores there are to use: what every layer that starts threads or processes asks."""

import os
from pathlib import Path


def available_cores() -> int:
    """The cores this process may use: CPU affinity and the cgroup's quota respected, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores
