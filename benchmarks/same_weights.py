"""Do two versions of the package train the same agent, bit for bit? Trains with both and compares all arrays.

    python benchmarks/same_weights.py CHECKOUT_A CHECKOUT_B [FLAGS OF stockade train ...]

Exit code 0 if every array of the last checkpoints is equal (weights, Adam, observations, random streams), else 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stockade.learn.checkpoint import Checkpoint, CheckpointFolder

DEFAULT = ["--preset", "champion", "--total-episodes", "3000", "--no-tensorboard"]


def train(checkout: Path, runs: Path, flags: list[str]) -> Checkpoint:
    """The last checkpoint of a run that the package in `checkout` trains."""
    command = [sys.executable, "-m", "stockade.cli", "train", *flags, "--runs", str(runs), "--name", "x"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(checkout.resolve())}, cwd=checkout)
    return CheckpointFolder(runs / "x" / "checkpoints").load_last()


def main() -> int:
    """Train twice, compare, say what differs."""
    first, second = map(Path, sys.argv[1:3])
    flags = sys.argv[3:] or DEFAULT
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        old, new = train(first, Path(a), flags), train(second, Path(b), flags)
    # worlds are bytes, whose unused parts may differ; if their content did, observations and weights would
    names = sorted(name for name in set(old.arrays) | set(new.arrays) if not name.endswith("worlds"))
    differ = [
        name for name in names
        if name not in old.arrays or name not in new.arrays or old.arrays[name].tobytes() != new.arrays[name].tobytes()
    ]  # fmt: skip
    if old.rest["streams"] != new.rest["streams"]:
        differ.append("streams")
    print(f"{len(names)} arrays: " + (f"these differ: {', '.join(differ)}" if differ else "all equal"))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
