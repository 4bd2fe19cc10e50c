"""`stockade.integrations.rllib`: the world as RLlib asks for it, and the examples as the documentation has them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import stockade
from stockade.integrations.rllib import make_env, register
from stockade.vector import SyntheticEnv
from stockade.vector.check.trial import actions_for, rollout

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "guides" / "rllib.md").read_text()
COMMANDS = re.findall(r"^python (examples/\S+)$", DOCUMENT, re.MULTILINE)
HORIZON = 30


# ------------------------------------------------------------------------------------------------- what RLlib asks for
@pytest.mark.essential
def test_one_world() -> None:
    env = make_env({"red": "meander", "horizon": 5})
    assert isinstance(env, gymnasium.Env)
    check_env(env, skip_render_check=True)
    assert env.observation_space.dtype == np.float32
    env.reset(seed=0)
    assert env.step(0)[4] == {}


@pytest.mark.essential
def test_a_vector_environment_gives_the_bits_of_make_vec() -> None:
    world = {"red": "mix", "horizon": 9, "obs_dtype": np.float32}
    with stockade.make_vec(4, **world) as expected, make_env({"num_envs": 4, **world}) as envs:
        assert isinstance(envs, gymnasium.vector.VectorEnv)
        actions = actions_for(expected, 20, 1)
        assert rollout(envs, 7, actions, infos=False) == rollout(expected, 7, actions, infos=False)


def test_another_backend_and_other_environments() -> None:
    assert isinstance(make_env({"env": SyntheticEnv}), SyntheticEnv)
    with make_env({"env": SyntheticEnv, "num_envs": 3, "backend": "serial"}) as envs:
        assert isinstance(envs, gymnasium.vector.VectorEnv)
        assert envs.num_envs == 3
        assert isinstance(envs.call("unwrapped")[0], SyntheticEnv)


@pytest.mark.essential
@pytest.mark.filterwarnings("ignore:.*Overriding environment rllib")  # RLlib's own, of the test before
@pytest.mark.parametrize("mode", [gymnasium.VectorizeMode.SYNC, gymnasium.VectorizeMode.VECTOR_ENTRY_POINT])
def test_an_env_runner_plays_whole_episodes(ray_module: Any, mode: gymnasium.VectorizeMode) -> None:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = (
        PPOConfig()
        .environment(register(), env_config={"red": "meander", "horizon": 6})
        .env_runners(num_envs_per_env_runner=3, gym_env_vectorize_mode=mode)
        .debugging(seed=0, log_level="ERROR")
    )
    runner = SingleAgentEnvRunner(config=config)
    try:
        native = isinstance(runner.env.unwrapped, type(stockade.make_vec(1).unwrapped))
        assert native == (mode is gymnasium.VectorizeMode.VECTOR_ENTRY_POINT)
        episodes = runner.sample(num_episodes=6, random_actions=True)
    finally:
        runner.stop()
    assert len(episodes) == 6
    assert [len(episode) for episode in episodes] == [6] * 6
    assert all(episode.is_truncated and not episode.is_terminated for episode in episodes)
    assert all(episode.get_return() <= 0 for episode in episodes)


# ----------------------------------------------------------------------------------------- what the documentation says
def test_the_documentation_shows_every_example() -> None:
    assert set(COMMANDS) == {str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("rllib_*.py")}


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("command", COMMANDS)
def test_examples_run_and_beat_random_actions(command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    answer = subprocess.run(
        [sys.executable, *shlex.split(command)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    returns = {name: float(value) for name, value in re.findall(r"^([\w ]+) (-?[\d.]+)$", answer.stdout, re.MULTILINE)}
    if "rllib_red" in command:  # what it earns, blue loses
        assert returns["PPO"] > returns["random actions"] + 2 > 2 - 1e-9
        return
    learned = returns["PPO" if "rllib_ppo" in command else "APPO"]
    assert learned > returns["random actions"] / 1.5
    envs = stockade.make_vec(500, red="bline", horizon=HORIZON)
    envs.reset(seed=1)
    chance = np.random.default_rng(1)
    by_chance = np.mean(sum(envs.step(chance.integers(145, size=500))[1] for _ in range(HORIZON)))
    assert returns["random actions"] == pytest.approx(by_chance, rel=0.2)
