"""The policies of a search at play: they see their order and, if it is a rule, are kept to it.

search folder (summary.json) or file of a policy -> OrderAgent -> `allowed`: what of its actions is carried out
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stockade.errors import InputError, did_you_mean, missing_package
from stockade.learn.agents import Agent, agent_of
from stockade.learn.files import is_search
from stockade.workflow.orders import UNITS, Judge, Ranking, Units, as_ranking, compromised
from stockade.workflow.strict import allowed_actions

if TYPE_CHECKING:  # what needs the extra `train` is imported when there is a policy to load
    from stockade.learn.checkpoint import Checkpoint
    from stockade.learn.policy import Policy


class OrderAgent(Agent):
    """A policy that is told an order and whose fixes that an order forbids are not carried out.

    Both are the same order unless it keeps `order` better when `told` another. The judge says what is held.
    """

    def __init__(
        self, policy: Policy, card: dict[str, Any], name: str, greedy: bool, units: Units, order: Ranking,
        judge: Judge, told: Ranking | None = None,
    ) -> None:  # fmt: skip
        context = units.context(order if told is None else told)
        super().__init__(policy, card["obs"], greedy, context, card, name, card.get("reward_scale", 0.1))
        self.units, self.order, self.judge = units, order, judge
        self._places = units.places(order)

    def allowed(self, actions: np.ndarray, observations: np.ndarray, env: Any) -> np.ndarray:
        """(n,) what is carried out of (n,) actions, chosen for (n, size) observations: a fix that the order forbids
        becomes Sleep. `env`, an environment with `true_state()`, is only asked if the truth judges."""
        if self.judge == "observed":
            held = compromised(observations)
        else:
            ask = env.get_wrapper_attr("true_state") if hasattr(env, "get_wrapper_attr") else env.true_state
            held = np.asarray(ask().red_access).reshape(len(actions), -1)
        return allowed_actions(held, np.asarray(actions, np.int64), self._places)


def find_search(name: str | Path, runs: Path) -> Path | None:
    """Folder of a search, by its name or path; None if there is none. A search that is not finished has no result."""
    for folder in (runs / str(name), Path(name)):
        if (folder / "config.json").is_file():
            with contextlib.suppress(InputError):  # a damaged config.json: a run whose checkpoints can be played
                if (folder / "summary.json").is_file() or is_search(folder):
                    return folder
    return None


def find_policy(
    name: str | Path, runs: Path, *, greedy: bool = True, last: bool = False, rules: str = "current"
) -> Agent | None:
    """The policy of a search or of a file, by name or path; None if it is neither."""
    folder, path = find_search(name, runs), Path(name)
    if folder is None and (path.suffix != ".json" or not path.is_file()):
        return None
    if last:
        raise InputError(f"--last is for runs: {str(name)!r} has no checkpoints")
    if folder is not None:
        return load_search(folder, greedy=greedy)
    checkpoint = _load_checkpoint(path)
    if "constraint" not in checkpoint.rest:
        return agent_of(checkpoint, str(name), greedy, rules)
    if "order" not in checkpoint.rest:
        raise InputError(f"{path} is the policy for all orders of a search: name the search, {path.parent.parent}")
    order = as_ranking(checkpoint.rest["order"])
    return _agent(checkpoint, order, order, greedy, path.stem)


def load_search(folder: Path, *, order: str | None = None, greedy: bool = True) -> Agent:
    """The policy of a search for its best order, or for another that it judged; InputError if there is none."""
    from stockade.workflow.store import SearchFolder

    if not (folder / "summary.json").is_file():
        raise InputError(f"{folder} has no summary.json: the search is not finished; to continue it: stockade search "
                         f"--resume {folder}")  # fmt: skip
    with SearchFolder(folder).reading("summary.json") as summary:
        classes = {entry["order"]: entry for entry in summary["classes"]} if summary.get("format") == 2 else {}
        wanted = order or (summary["best"][0] if classes else "")
        trained = summary.get("trainings", [])
        if not classes:
            raise InputError(f"it is of version 0.1.0: name one of its policies in {folder / 'policies'}")
        if order is None and trained and not any(training["feasible"] for training in trained):
            raise InputError("no workflow of this search complied with its order: none is its best")
        if wanted not in classes:
            raise InputError(f"it has no order {wanted!r}.{did_you_mean(wanted, classes)} It has: {'; '.join(classes)}")
        found = classes[wanted]
        kept, told = as_ranking(found["ranking"]), as_ranking(found.get("told", found["ranking"]))
        return _agent(_load_checkpoint(folder / found["policy"]), kept, told, greedy, folder.name)


def _load_checkpoint(path: Path) -> Checkpoint:
    try:
        from stockade.learn.checkpoint import load
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    return load(path.with_suffix(""))


def _agent(checkpoint: Checkpoint, order: Ranking, told: Ranking, greedy: bool, name: str) -> Agent:
    """A policy of a search, kept to an order and told one."""
    agent, rule = agent_of(checkpoint, name, greedy, "current"), checkpoint.rest.get("constraint")
    if rule is None:  # trained for compliance, free to violate
        return agent
    return OrderAgent(agent.policy, agent.card, name, greedy, UNITS[rule["units"]], order, rule["judge"], told)
