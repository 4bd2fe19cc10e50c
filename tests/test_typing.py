"""The types that `py.typed` promises: a user's file with the public interface passes the strict type checker."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # the checker reads every library that is imported

USER = """
import gymnasium
import numpy as np

import stockade
from stockade.vector import AsyncVectorEnv, BaseVectorEnv, TrueStates, check_vector_env, make_vector

env = stockade.make(red="bline", horizon=100, rules="current", chance="fast", green="sleep")
obs, info = env.reset(seed=0)
obs, reward, terminated, truncated, info = env.step(3)
access: np.ndarray = env.true_state().red_access

envs: BaseVectorEnv = stockade.make_vec(200, backend="native", red="bline", threads=2, autoreset_mode="same_step")
with envs:
    batch, infos = envs.reset(seed=0)
    batch, rewards, ended, cut, infos = envs.step(np.zeros(200, np.int64))
    states: TrueStates = envs.true_state()
    print(states.red_access[0], states.age[0], envs.get_attr("config"), envs.call("render"), envs.render())
    one = envs.snapshot(3)
    batch = envs.restore(envs.snapshot())
    batch = envs.restore(one, index=5, seed=7)


def make_one() -> gymnasium.Env[np.ndarray, np.int64]:
    return stockade.make(red="meander")


with stockade.make_vec(8, "async", env=make_one, workers=2, batch_size=4, true_states="every_step") as pool:
    flying: AsyncVectorEnv = pool
    flying.async_reset(seed=0)
    batch, rewards, ended, cut, infos = pool.recv()
    pool.send(np.zeros(4, np.int64), infos["env_id"])
serial = make_vector("serial", make_one, 2, copy=False)
print(check_vector_env(lambda: make_vector("serial", make_one, 2)).passed, serial.true_state().time)
"""
MISTAKES = {
    "stockade.make_vec(2, horizn=3)": "horizn",
    'stockade.make_vec(2, horizon="3")': "str",
    'stockade.make_vec(2, "serial").recv()': "recv",
    "stockade.make(threads=2)": "threads",
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("user")
    lines = [f"{mistake}" for mistake in MISTAKES]
    (folder / "user.py").write_text(USER)
    (folder / "wrong.py").write_text("import stockade\n\n" + "\n".join(lines) + "\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(folder),
        "user.py",
        "wrong.py",
    ]
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={"MYPYPATH": root, "PATH": "/usr/bin"}
    )
    return [line for line in done.stdout.splitlines() if not line.startswith(root)]


def test_a_users_file_passes(checked: list[str]) -> None:
    assert checked, "the type checker said nothing"
    assert not [line for line in checked if line.startswith("user.py")]


def test_mistakes_are_found(checked: list[str]) -> None:
    found = [line for line in checked if line.startswith("wrong.py") and ": error:" in line]
    for number, word in enumerate(MISTAKES.values(), start=3):
        assert any(line.startswith(f"wrong.py:{number}:") and word in line for line in found), (word, found)
