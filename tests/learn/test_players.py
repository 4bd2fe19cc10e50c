"""Policies of one's own, in every form: what they are asked and when, what they get wrong, the same score for all."""

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import stockade
from stockade.cli import main
from stockade.errors import InputError

EPISODES = 4
#: Restore of the first host that seems compromised, but not User0; else Sleep.
RESTORE = 132


def restore_first(observations: np.ndarray) -> np.ndarray:
    seems = observations.reshape(-1, 13, 4)[:, :, 3] == 1
    seems[:, 8] = False
    return np.where(seems.any(axis=1), RESTORE + seems.argmax(axis=1), 0)


class Own:
    """Counts its own steps: state of each of the parallel episodes."""

    def __init__(self) -> None:
        self.resets: list[int] = []

    def reset(self, n: int) -> None:
        self.resets.append(n)
        self.steps = np.zeros(n, int)
        self.before: list[np.ndarray] = []

    def act(self, observations: np.ndarray) -> np.ndarray:
        assert observations.dtype == np.uint8
        assert observations.shape == (len(self.steps), 52)
        self.steps += 1
        self.before.append(observations)
        actions = restore_first(observations)
        observations[:] = 0  # it is ours: nobody else may notice
        return actions


class OfTheChallenge:
    """As the challenge's script calls it."""

    def __init__(self) -> None:
        self.ended = self.steps = 0
        self.lengths: list[int] = []

    def get_action(self, observation: np.ndarray, action_space: int) -> int:
        assert observation.shape == (52,)
        assert action_space == 145
        self.steps += 1
        return int(restore_first(observation[None])[0])

    def end_episode(self) -> None:
        self.lengths.append(self.steps)
        self.steps = 0


class Model:
    """As Stable-Baselines3 calls it."""

    def predict(self, observation: np.ndarray, state: object, episode_start: np.ndarray, deterministic: bool) -> tuple:
        assert deterministic
        assert (state is None) == bool(episode_start.all())
        return restore_first(observation), "state"


def scores(policy: object, **settings: object) -> list[tuple[float, ...]]:
    return [cell.returns for cell in stockade.evaluate(policy, episodes=EPISODES, progress=False, **settings).cells]


def test_every_form_plays_the_same_episodes() -> None:
    own, challenge = Own(), OfTheChallenge()
    expected = scores(own)
    assert own.resets == [EPISODES] * 9  # once at the start of each cell
    assert len(own.before) == 100
    assert scores(challenge) == expected
    assert challenge.lengths == [n for n in (30, 50, 100) for _ in range(3 * EPISODES)]
    assert scores(Model()) == expected
    assert scores(Own) == expected  # the class itself


def test_on_one_stream_a_policy_is_reset_before_every_single_episode() -> None:
    own = Own()
    one_by_one = scores(own, chance="cyborg", official_order=True)
    assert own.resets == [1] * 9 * EPISODES
    assert scores(OfTheChallenge, chance="cyborg", official_order=True) == one_by_one


def test_a_policy_that_wants_a_generator_gets_a_seeded_one() -> None:
    class Chancy:
        obs = "memory"

        def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
            assert observations.shape[1] == 160
            return generator.integers(145, size=len(observations))

    assert scores(Chancy()) == scores(Chancy()) != scores(Chancy(), seed=7)


def failing(actions: object) -> object:
    class Wrong:
        def act(self, observations: np.ndarray) -> object:
            return actions(observations) if callable(actions) else actions

    return Wrong()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (3, r"act\(\) of the policy Wrong must give 4 whole numbers, shape \(4,\); it gave int64 of shape \(\)"),
        ([0, 1, 2], r"it gave int64 of shape \(3,\)"),
        (np.zeros(4), "it gave float64"),
        ([0, 145, 0, 0], "policy Wrong chose action 145 in episode 1; actions are 0 to 144"),
        ([0, 0, 0, -1], "chose action -1 in episode 3"),
        (lambda obs: obs @ np.ones(7), r"policy Wrong failed: ValueError: .*test_players.py, line \d+"),
    ],
)
def test_what_a_policy_gets_wrong_is_said_with_its_name(actions: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scores(failing(actions))


def test_what_is_no_policy_is_said() -> None:
    with pytest.raises(InputError, match="object is no policy: it needs a method act"):
        scores(object())
    with pytest.raises(InputError, match="obs='pixels'"):
        scores(type("Odd", (), {"obs": "pixels", "act": lambda self, obs: obs})())


# ---------------------------------------------------------------------------------------------------- module:attribute
@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the user's module in it."""
    (tmp_path / "my_policies.py").write_text(
        "import numpy as np\n\n"
        "class Sleeper:\n"
        "    def act(self, observations):\n        return np.zeros(len(observations), int)\n\n"
        "ready = Sleeper()\n\n"
        "def make():\n    return Sleeper()\n\n"
        "def broken():\n    raise RuntimeError('no weights')\n\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "my_policies", raising=False)
    return tmp_path


@pytest.mark.parametrize("attribute", ["Sleeper", "ready", "make"])
def test_a_class_an_object_or_a_function_of_a_module_here(here: Path, attribute: str) -> None:
    assert scores(f"my_policies:{attribute}") == scores("sleep")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_policies:Sleepr", "Did you mean 'Sleeper'"),
        ("my_policy:Sleeper", "there is no module my_policy in"),
        ("my_policies:broken", "RuntimeError: no weights"),
        ("my_policies:number", "is no policy"),
    ],
)
def test_from_the_command_line_errors_are_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", name, "--episodes", "1"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


def test_from_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "my_policies:make", "--episodes", "2"])
    assert ended.value.code == 0
    assert "my_policies:make: rules current, its own choices, 2 episodes per cell" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------- Stable-Baselines3
@pytest.mark.parametrize(("algorithm", "obs"), [("PPO", "bits"), ("A2C", "memory"), ("DQN", "bits")])
def test_a_model_of_stable_baselines3_is_evaluated_as_an_object_and_as_a_file(
    tmp_path: Path, algorithm: str, obs: str
) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = getattr(sb3, algorithm)("MlpPolicy", stockade.make(obs=obs), seed=1, device="cpu")
    model.save(tmp_path / "model")
    result = stockade.evaluate(model, episodes=EPISODES, progress=False)
    assert result.style == "greedy"
    assert scores(str(tmp_path / "model.zip")) == [cell.returns for cell in result.cells]
    if algorithm == "PPO":
        assert scores(model, greedy=False) != scores(model)


def test_a_model_for_other_observations_or_another_file_is_refused(tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    with pytest.raises(InputError, match=r"shape \(4,\)"):
        scores(sb3.PPO("MlpPolicy", "CartPole-v1", device="cpu"))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("something", "else")
    with pytest.raises(InputError, match="no saved model"):
        scores(str(tmp_path / "x.zip"))
    with pytest.raises(InputError, match="there is no file"):
        scores(str(tmp_path / "nothing.zip"))


def test_our_agents_play_in_stable_baselines3s_own_evaluation() -> None:
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    agent = stockade.load("champion")
    env = stockade.make(red="bline", horizon=30, obs=agent.obs)
    mean, _ = evaluation.evaluate_policy(agent, env, n_eval_episodes=3, warn=False)
    assert -15 < mean < 0
