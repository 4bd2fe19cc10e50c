"""The functions for notebooks and scripts: `stockade.train`, `stockade.evaluate`, `stockade.search`, `stockade.load`.

They take the settings of the commands as keywords, show progress, and return objects. What they need (Torch, for one)
is imported when they are called, so that `import stockade` stays light.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stockade.errors import InputError

if TYPE_CHECKING:
    from stockade.baselines import Defender
    from stockade.learn.results import EvaluateResult, TrainResult
    from stockade.workflow.search import SearchResult


def load(
    name: str | Path, runs: Path | str = "runs", *, greedy: bool = True, last: bool = False, rules: str = "current"
) -> Defender:
    """A policy by name: an agent with `predict`, `act`, `probabilities` and `value`.

    Args:
        name: a baseline (`sleep`, `random`, `react-remove`, `react-restore`, `greedy`), the shipped `champion`, a
            run's or search's name or folder, or the file of a policy. `builtin:NAME` is never a run.
        runs: folder of all runs.
        greedy: `act` takes the likeliest action; otherwise it samples. For trained policies only.
        last: use a run's last checkpoint instead of its best.
        rules: rule set that it will play by: `champion` has one policy for each, others may get it as context.

    Example:
        >>> agent = stockade.load("sleep")
        >>> envs = stockade.make_vec(3, obs=agent.obs)
        >>> agent.predict(envs.reset(seed=0)[0])
        (array([0, 0, 0]), None)
    """
    from stockade.learn.agents import BUILTIN, load
    from stockade.learn.files import builtin_names

    if str(name).removeprefix(BUILTIN) not in builtin_names():
        from stockade.workflow.policies import find_search, load_search

        if (folder := find_search(name, Path(runs))) is not None:
            return load_search(folder, greedy=greedy)
    return load(name, runs, greedy=greedy, last=last, rules=rules)


def train(
    *, preset: str | None = None, resume: str | Path | None = None, progress: bool = True, **settings: Any
) -> TrainResult:
    """Train a PPO agent; everything about the run goes to a folder.

    An interrupt (Ctrl-C, or a notebook's stop button) ends the training after the present update, with a checkpoint;
    the result then says `interrupted`, and `train(resume=result.folder)` continues. A second interrupt stops at once.

    Args:
        preset: start from the settings of this name instead of the defaults; `champion` is the shipped policy's recipe.
        resume: continue this run, a name or folder, with its own settings; only `runs` may be given beside.
        progress: show progress; False prints nothing.
        settings: fields of `stockade.learn.config.TrainConfig` and `PPOConfig`, for instance red="meander",
            horizon=50, total_episodes=20_000, obs="bits", reward=RewardWeights(service=2), learning_rate=1e-3.

    Example:
        >>> result = stockade.train(red="bline", horizon=30, total_episodes=2_000)  # doctest: +SKIP
        >>> result.metrics["return_mean"][-1], result.agent  # doctest: +SKIP
    """
    from stockade.learn.config import preset_named
    from stockade.learn.train import train
    from stockade.settings import configure

    if resume is not None and set(settings) - {"runs"}:
        raise InputError(f"resume= continues a run with its own settings; leave out {', '.join(sorted(settings))}")
    if resume is not None:
        settings["resume"] = str(resume)
    return train(configure(preset_named(preset), settings, "train", inner=["ppo"]), progress=progress)


def evaluate(policy: Any, *, progress: bool = True, **settings: Any) -> EvaluateResult:
    """Play the challenge's protocol: B_line, Meander and Sleep, each for 30, 50 and 100 steps.

    Args:
        policy: a name as for `load`, "my_module:MyPolicy", the path of a model saved by Stable-Baselines3 (.zip), or
            an object or class: one with `act(observations)`, one with the challenge's `get_action(observation,
            action_space)`, or one with `predict(observations)`; see docs/training.md, "Your own policy".
        progress: show a progress bar.
        settings: fields of `stockade.learn.evaluate.EvaluateConfig`: episodes=1000, rules="current", greedy=True,
            chance="fast", seed=153, official_order=False, simulator="stockade", last=False, runs="runs".

    Example:
        >>> stockade.evaluate("sleep", episodes=2, progress=False).cells[0].red
        'bline'
    """
    from stockade.learn.evaluate import EvaluateConfig
    from stockade.settings import configure
    from stockade.workflow.evaluation import evaluate

    by_name = isinstance(policy, str | Path)
    config = configure(EvaluateConfig(str(policy) if by_name else ""), settings, "evaluate")
    return evaluate(config, None if by_name else policy, progress=progress)


def search(*, resume: str | Path | None = None, **settings: Any) -> SearchResult:
    """Find the repair order that defends best; everything about the search goes to a folder.

    Args:
        resume: continue this search, a name or folder; a larger `total_episodes` extends one that is finished.
        settings: fields of `stockade.workflow.config.SearchConfig`, for instance red="bline,meander", horizon=30,
            total_episodes=50_000, judge="observed", units="hosts", seed=1, plots=False.

    Example:
        >>> result = stockade.search(red="bline", horizon=30, total_episodes=20_000)  # doctest: +SKIP
        >>> print(result.verdict)  # doctest: +SKIP
    """
    from stockade.settings import configure
    from stockade.workflow.config import SearchConfig
    from stockade.workflow.search import search

    if resume is not None:
        settings["resume"] = str(resume)
    return search(configure(SearchConfig(), settings, "search", inner=["first_version"]))
