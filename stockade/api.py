"""The functions for notebooks and scripts: `stockade.train`, `evaluate`, `search`, `replay`, `load`, `parallel_env`.

They take the settings of the commands as keywords, show progress, and return objects. What they need (Torch, for one)
is imported when they are called, so that `import stockade` stays light.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import stockade.replay  # noqa: F401  # loaded before its name in `stockade` becomes the function's
from stockade.errors import InputError, did_you_mean, flag_of

if TYPE_CHECKING:
    from stockade.baselines import Defender
    from stockade.integrations.pettingzoo import StockadeParallelEnv
    from stockade.learn.evaluate import EvaluateResult
    from stockade.learn.train import TrainResult
    from stockade.replay.result import Replay
    from stockade.workflow.search import SearchResult

T = TypeVar("T")


def load(
    name: str | Path, runs: Path | str = "runs", *, greedy: bool = True, last: bool = False, rules: str = "current"
) -> Defender:
    """A policy by name: an agent with `predict`, `act`, `probabilities` and `value`.

    Args:
        name: a baseline (`sleep`, `random`, `react-remove`, `react-restore`, `greedy`), the shipped `champion`, a
            run's or search's name or folder, or the file of a policy. `builtin:NAME` is never a run.
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
        from stockade.workflow.policies import find_policy

        if (agent := find_policy(name, Path(runs), greedy=greedy, last=last, rules=rules)) is not None:
            return agent
    return load(name, runs, greedy=greedy, last=last, rules=rules)


def parallel_env(**options: Any) -> StockadeParallelEnv:
    """The world for two players as a PettingZoo `ParallelEnv`: agents `blue` and `red`.

    Options are `horizon`, `rules`, `chance`, `green`, `obs` (blue's), `reward`, `render_mode`, as in `stockade.make`.
    """
    from stockade.integrations.pettingzoo import StockadeParallelEnv

    return StockadeParallelEnv(**options)


def train(
    *, preset: str | None = None, resume: str | Path | None = None, progress: bool = True, **settings: Any
) -> TrainResult:
    """Train a PPO agent; everything about the run goes to a folder.

    An interrupt (Ctrl-C, or a notebook's stop button) ends the training after the present update, with a checkpoint;
    the result then says `interrupted`, and `train(resume=result.folder)` continues. A second interrupt stops at once.

    Args:
        preset: start from the settings of this name instead of the defaults; `champion` is the shipped policy's recipe.
        resume: continue this run, a name or folder, with its own settings; only `runs` may be given beside.
        settings: fields of `stockade.learn.config.TrainConfig` and `PPOConfig`, for instance red="meander",
            horizon=50, total_episodes=20_000, obs="bits", reward=RewardWeights(service=2), learning_rate=1e-3.
    """
    from stockade.learn.config import TrainConfig
    from stockade.learn.train import train

    if resume is None:
        base = TrainConfig.of_preset(preset) if preset else TrainConfig()
        return train(_configure(base, settings, "train", inner="ppo"), progress=progress)
    if others := {*settings, *(["preset"] if preset else [])} - {"runs"}:
        raise InputError(f"resume= continues a run with its own settings; leave out {', '.join(sorted(others))}")
    return train(TrainConfig.resumed(str(resume), Path(settings.get("runs", "runs"))), progress=progress)


def evaluate(policy: Any, *, progress: bool = True, **settings: Any) -> EvaluateResult:
    """Play the challenge's protocol: B_line, Meander and Sleep, each for 30, 50 and 100 steps.

    With suite="robustness", `result.robustness` has attackers and staff that a policy has not met, too.

    Args:
        policy: a name as for `load`, "my_module:MyPolicy", the path of a model saved by Stable-Baselines3 (.zip), or
            an object or class: one with `act(observations)`, one with the challenge's `get_action(observation,
            action_space)`, or one with `predict(observations)`; see docs/guides/own-policy.md. A result of
            `train` or `search` plays its agent.
        settings: fields of `stockade.learn.evaluate.EvaluateConfig`, for instance episodes=100, greedy=False.

    Example:
        >>> stockade.evaluate("sleep", episodes=2, progress=False).cells[0].red
        'bline'
    """
    from stockade.learn.evaluate import EvaluateConfig
    from stockade.workflow.evaluation import evaluate

    name, policy = (str(policy), None) if isinstance(policy, str | Path) else ("", policy)
    return evaluate(_configure(EvaluateConfig(name), settings, "evaluate"), policy, progress=progress)


def replay(policy: Any, *, progress: bool = True, **settings: Any) -> Replay:
    """Record an episode and judge every move; the result shows itself in a notebook, and saves a page for the browser.

    Args:
        policy: as for `evaluate`, or the path of a trace of CybORG (.npz).
        settings: fields of `stockade.replay.command.ReplayConfig`, for instance red="meander", seed=7, analyse=False.

    Example:
        >>> stockade.replay("sleep", red="bline", horizon=30, analyse=False)
        <Replay of sleep against bline, seed 0: return -223.8>
    """
    from stockade.replay.command import ReplayConfig, replay

    name, policy = (str(policy), None) if isinstance(policy, str | Path) else ("", policy)
    return replay(_configure(ReplayConfig(name), settings, "replay"), policy, progress=progress)


def search(*, resume: str | Path | None = None, progress: bool = True, **settings: Any) -> SearchResult:
    """Find the repair order that defends best; everything about the search goes to a folder.

    Args:
        resume: continue this search, a name or folder; a larger `total_episodes` extends one that is finished.
        progress: print how far it is, and the verdict; without, only warnings are printed.
        settings: fields of `stockade.workflow.config.SearchConfig`, for instance red="bline,meander", horizon=30,
            total_episodes=50_000, judge="observed", units="hosts", seed=1, plots=False.
    """
    from stockade.workflow.config import SearchConfig
    from stockade.workflow.search import search

    base = SearchConfig() if resume is None else SearchConfig.resumed(str(resume), Path(settings.get("runs", "runs")))
    config = _configure(base, settings, "search", inner="first_version")
    with contextlib.nullcontext() if progress else contextlib.redirect_stdout(io.StringIO()):
        return search(config)


# ------------------------------------------------------------------------------------------- settings from keywords
def _configure(base: T, settings: dict[str, Any], function: str, inner: str = "") -> T:
    """A copy of a frozen dataclass with some settings changed: its own, or those of the dataclass in field `inner`."""
    from stockade.learn.config import checked

    own = vars(base).keys()
    known = sorted({*own, *(vars(getattr(base, inner)) if inner else ())})
    for name in settings:
        if name not in known:
            by_flag = {flag_of(each)[2:].replace("-", "_"): each for each in known}  # `max_steps` is `horizon` here
            near = did_you_mean(by_flag.get(name, name), known) or f" It knows {', '.join(known)}."
            raise InputError(f"{function}() has no setting {name!r}.{near}")
    changes = checked(type(base), {name: value for name, value in settings.items() if name in own})
    if inner:
        part, others = changes.get(inner, getattr(base, inner)), {n: v for n, v in settings.items() if n not in own}
        changes[inner] = replace(part, **checked(type(part), others))
    return replace(base, **changes)  # type: ignore[type-var]
