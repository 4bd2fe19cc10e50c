"""Plays and replays in a process of its own, compiled or not; test_without_jit.py runs it with `NUMBA_DISABLE_JIT=1`.

argument: a folder with traces -> standard output: JSON of what came out
"""

import hashlib
import inspect
import json
import sys
from pathlib import Path

import stockade
from stockade.cage2 import kernel
from stockade.cage2.verify import verify_file

from .play import CHANCES, REDS, play, random_actions

STEPS, N = 40, 2
CASES = [(red, chance, rules) for red in (*REDS, "mix") for chance in CHANCES for rules in ("current", "leaderboard")]


def digests(obs: str) -> dict[str, str]:
    """Of observations, rewards, and the whole state after two short episodes, for each kind of world."""
    found = {}
    for red, chance, rules in CASES:
        envs = stockade.make_vec(
            N, red=red, chance=chance, rules=rules, green="active", horizon=STEPS // 2, obs=obs, threads=1
        )
        first, _ = envs.reset(seed=2**63 + 11)
        record = play(envs, random_actions(8, STEPS, N))
        snapshot = envs.snapshot()
        digest = hashlib.sha256(first.tobytes())
        for array in (*record.obs, *record.rewards, *record.truncated, snapshot.worlds):
            digest.update(array.tobytes())
        if chance == "cyborg":
            digest.update(envs.random_peek().tobytes())
        found[f"{red} {chance} {rules}"] = digest.hexdigest()
    return found


def phases_of_a_step() -> list[str]:
    """Names of the functions that a debugger would enter, called by `kernel.step` itself."""
    env = stockade.make(red="bline", green="active")
    env.reset(seed=0)
    calls = []

    def trace(frame, event, argument):
        if frame.f_back is not None and frame.f_back.f_code.co_name == "step":
            file = Path(frame.f_back.f_code.co_filename).name
            if file == "kernel.py":
                calls.append(frame.f_code.co_name)

    sys.settrace(trace)
    env.step(0)
    sys.settrace(None)
    return calls


if __name__ == "__main__":
    reports = [verify_file(path) for path in sorted(Path(sys.argv[1]).glob("*.npz"))]
    result = {
        "is_plain_python": inspect.isfunction(kernel.step_batch),
        "bits": digests("bits"),
        "memory": digests("memory"),
        "verified": {report.file: [report.steps, report.mismatches, str(report.first)] for report in reports},
        "phases": phases_of_a_step(),
    }
    print(json.dumps(result))
