"""The examples that need no other library: they run as they are, and do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, *arguments: object) -> str:
    """What an example prints; warnings are errors."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.slow
def test_ppo_in_one_file_learns(tmp_path: Path) -> None:
    out = run("ppo_one_file.py", "--total-steps", 150_000, "--protocol", 5, "--save", tmp_path / "agent.pt")
    returns = {name: float(value) for name, value in re.findall(r"^(doing nothing|PPO) (-[\d.]+)$", out, re.MULTILINE)}
    assert returns["doing nothing"] < -180
    assert returns["PPO"] > -60  # -8 after 200,000 steps when this was written
    assert "Agent: rules current, its own choices, 5 episodes per cell" in out
    weights = torch.load(tmp_path / "agent.pt")
    assert weights["actor.0.weight"].shape == (64, 160)


def test_ppo_in_one_file_is_short_and_needs_nothing_of_our_learner() -> None:
    code = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import ppo_one_file; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "ppo_one_file" in loaded
    assert not [name for name in loaded if name.startswith("stockade.learn")]
    assert len((EXAMPLES / "ppo_one_file.py").read_text().splitlines()) < 250


def test_ppo_in_one_file_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    import ppo_one_file

    def weights(seed: int) -> list[float]:
        settings = ppo_one_file.Settings(total_steps=800, n_envs=20, n_steps=20, seed=seed)
        return [weight for tensor in ppo_one_file.train(settings).parameters() for weight in tensor.flatten().tolist()]

    first = weights(0)
    assert weights(0) == first
    assert weights(1) != first


def test_planning_defends() -> None:
    out = run("plan.py")
    assert float(re.findall(r"^return (-[\d.]+)$", out, re.MULTILINE)[0]) > -30  # doing nothing: -218
