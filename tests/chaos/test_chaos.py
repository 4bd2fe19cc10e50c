"""The chaos run itself: it finds what is planted, cleans up when interrupted, finds nothing in two minutes."""

import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.chaos import planted
from tests.processes import gone

CHAOS = [sys.executable, "-m", "tests.chaos"]


@pytest.mark.slow
def test_every_planted_violation_is_found_and_nothing_else():
    done = subprocess.run([*CHAOS, "--planted", "--seed", "7"], capture_output=True, text=True, timeout=300)
    found = re.findall(r"^VIOLATION in (\w+): (.+)\n  again: make chaos MINUTES=1 SEED=7 ONLY=\w+:0", done.stdout, re.M)
    assert [name for name, _ in found] == [function.__name__ for function in planted.SCENARIOS[1:]], done.stdout
    words = ("left processes", "descriptors left", "left shared memory", "Traceback", "ended with 2, not (0,)", "hangs",
             "1 numbers", "147 numbers", "without a reason", "gone on for two results", "arrays is")  # fmt: skip
    assert all(expected in text for expected, (_, text) in zip(words, found, strict=True)), done.stdout
    assert done.returncode == 1


@pytest.mark.slow
def test_ctrl_c_ends_a_run_with_its_counts_and_leaves_nothing():
    chaos = subprocess.Popen([*CHAOS, "--minutes", "5", "--seed", "7"], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (started := psutil.Process(chaos.pid).children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(5)  # a few scenarios
    started += psutil.Process(chaos.pid).children(recursive=True)
    chaos.send_signal(signal.SIGINT)
    said, _ = chaos.communicate(timeout=120)
    assert started
    assert gone(process.pid for process in started)
    assert chaos.returncode == 130, said
    assert re.search(r"\d+ scenarios with \d+ faults in .*, 0 violations", said), said


@pytest.mark.slow
def test_two_minutes_without_a_violation():
    done = subprocess.run([*CHAOS, "--minutes", "2"], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
