"""`champion.py page`: docs/champion.md from the results; nothing in it is written by hand twice.

benchmarks/results/champion/*.json, the preset -> recipe, cost, results, curves, ablations, behaviour, CybORG
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from champion_page_ablations import ablations
from champion_page_behaviour import behaviour
from champion_page_cyborg import cyborg
from champion_page_results import MISSING, Files, cost, losses, main_run, results
from champion_protocol import RESULTS, ROOT, RULE_SETS, TEST_SEED, check_out, winner

from stockade.bench.report_tables import markdown
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.evaluate import SEEDS_PER_CELL
from stockade.learn.files import write_durably
from stockade.learn.presets import CHAMPION

_HEAD = """\
<!-- Made by `python benchmarks/champion.py page` of benchmarks/results/champion/*.json. Do not edit: measure again. -->
# The champion

One defender for CAGE Challenge 2: against every attacker and over every horizon. It is not told whom it faces; it sees
what blue sees, and remembers what blue has seen and done. It ships with the package, trained once for each of the two
rule sets (`load` and `evaluate` take the one that fits), and is made by one command."""

_RUN = """\
## Run it

```sh
pip install 'stockade[train]'
stockade evaluate champion                        # the shipped policy by the challenge's protocol, rules current
stockade evaluate champion --rules leaderboard    # by the rules that the leader board was computed with
stockade train --preset champion --seed 0         # train it anew; the same seed gives the same weights
stockade train --preset champion --rules leaderboard --seed 0
stockade export champion-memory-seed0 mine        # mine.json and its weights: stockade evaluate mine.json
```

```python
import numpy as np
import stockade
from stockade.learn import load

champion = load("champion")  # rules="leaderboard" for the other one
envs = stockade.make_vec(100, red="meander", obs=champion.obs)
obs, info = envs.reset(seed=0)
obs, reward, terminated, truncated, info = envs.step(champion.act(obs, np.random.default_rng(0)))
```"""

_RECIPE = """\
## The recipe

Plain PPO on one mixture of worlds; each update sees all of them in fixed shares. There are no rules of defence in the
policy, no specialists, no guess at the attacker: two small networks from 160 bits to an action and a value. What
differs from the defaults of `stockade train`, and sizes worth knowing:"""

#: Why a setting is in the recipe; others are shown without a reason.
_WHY = {
    "red": "shares of the environments; against Sleep there is one thing to learn, so little of it is enough",
    "horizons": "shares of the environments; what is worth doing depends on the steps that are left",
    "horizon": "of every episode",
    "rules": "or `leaderboard`, where a restored User3 or User4 is safe from one exploit for good, which is worth a "
    "Restore; with an earlier recipe an agent that was trained for both at once did not find it",
    "obs": "the challenge's 52 bits, and 108 of blue's own history ([training.md](training.md#what-the-agent-sees))",
    "action_mask": "63 decoys that can never succeed are left out; the mask never changes, so it tells nothing",
    "total_episodes": "of training",
    "n_envs": "environments at once",
    "checkpoint_episodes": "from one checkpoint to the next",
    "keep_checkpoints": "beside the best",
    "validation_episodes": "of each kind of world at a checkpoint, on seeds of their own; the highest sum is kept",
    "update_steps": "of every environment, from one update to the next",
    "minibatch_size": "steps of one gradient",
    "epochs": "times that an update goes over its steps",
    "learning_rate": "of Adam, at the start",
    "final_learning_rate": "at the end; linear in between",
    "entropy_weight": "at the start",
    "final_entropy_weight": "at the end; linear in between",
    "gamma": "discount a step, at the start: without it some seeds stay on a plateau",
    "final_gamma": "at the end, linear in between: the score isn't discounted, and the agent sees the steps left",
    "gae_lambda": "weight of longer advantage estimates",
    "hidden": "sizes of the hidden layers, of actor and critic each",
    "reward_scale": "rewards are multiplied by it before they are learned from",
    "time_limit": "what a truncated episode goes on with",
}
_ALWAYS = {"red", "horizons", "rules", "obs", "action_mask", "total_episodes", "n_envs", "hidden",
           "learning_rate", "final_learning_rate", "gamma", "validation_episodes"}  # fmt: skip
_NEVER = {"preset", "name", "runs", "resume", "seed", "tensorboard", "ppo", "threads", "backend"}

_WIDTH = 120

_SEEDS = """\
## Seeds

- **Training** takes its streams from `--seed`.
- **Validation**, which chooses the checkpoint, plays seeds from 2,000,000,000 on.
- **Development:** `stockade evaluate` begins at 153 unless told otherwise; those seeds, 153 and on, 1,000,000 apart,
  and those from 300,000,000 on were seen while the recipe was found. Ablations play seeds from 900,000,000 on, the
  counts of behaviour from 700,000,000 on. Those from 500,000,000 on tested an earlier recipe, with a constant discount,
  and made us look for this one.
- **Test:** {test}. `champion.py evaluate` refuses all seeds named above."""


@dataclass(frozen=True)
class Page:
    """Write docs/champion.md from the results that are there."""

    out: Path = ROOT / "docs" / "champion.md"
    """The page."""
    results: Path = RESULTS
    """Folder of the results."""

    def run(self) -> int:
        """Write it and say what is missing."""
        check_out(self.out)
        text = make_page(Files.read(self.results))
        write_durably(self.out.absolute(), text.encode())
        missing = text.count(MISSING)
        print(f"wrote {self.out}" + (f"; {missing} results are not measured yet" if missing else ""))
        return 0


def make_page(files: Files) -> str:
    """The whole page as text."""
    sections = (
        head(files), [_RUN], recipe(CHAMPION), results(files), cost(files), curves(files), ablations(files),
        behaviour(files), losses(files), cyborg(files), seeds(files),
    )  # fmt: skip
    lines = "\n\n".join("\n".join(section) for section in sections).split("\n")
    return "\n".join(wrapped(lines)) + "\n"


def wrapped(lines: list[str]) -> Iterator[str]:
    """Prose in lines of a readable length; tables, code and commands as they are."""
    inside_code = False
    for line in lines:
        inside_code ^= line.startswith("```")
        if inside_code or len(line) <= _WIDTH or line.startswith(("|", "#", "<!--", "`", MISSING)):
            yield line
        else:
            indent = "  " if line.startswith("- ") else ""
            yield from textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False,
                                     break_on_hyphens=False)  # fmt: skip


def head(files: Files) -> Iterator[str]:
    """What it is and, in two lines, how good."""
    yield _HEAD
    if files.evaluation is None:
        return
    yield ""
    yield "Total of the challenge's nine cells by the official protocol, with its 95% interval:"
    yield ""
    run = main_run(files.evaluation)
    for rules in RULE_SETS:
        result = run["rules"][rules]
        total = f"{result['total']:.2f} ± {result['total_interval']:.2f}"
        yield f"- rules `{rules}`: **{total}**; the winner of the challenge, replayed, {winner(rules).total:.2f}"


def recipe(preset: TrainConfig) -> Iterator[str]:
    """The preset as a table."""
    yield _RECIPE
    yield ""
    rows = [*_settings(preset, TrainConfig()), *_settings(preset.ppo, PPOConfig())]
    yield from markdown(["setting", "value", ""], rows, left=3)


def _settings(chosen: Any, default: Any) -> Iterator[list[str]]:
    for field in fields(chosen):
        value = getattr(chosen, field.name)
        if field.name in _NEVER or (field.name not in _ALWAYS and value == getattr(default, field.name)):
            continue
        flag = f"`--{field.name.replace('_', '-')}`"
        if isinstance(value, bool):
            yield [flag, "yes" if value else "no", _WHY.get(field.name, "")]
        elif isinstance(value, tuple):
            yield [flag, " ".join(map(str, value)), _WHY.get(field.name, "")]
        elif value != "":
            text = f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
            yield [flag, text, _WHY.get(field.name, "")]


def curves(files: Files) -> Iterator[str]:
    """The picture and how far each seed came."""
    yield "## Learning curves"
    yield ""
    if files.curves is None:
        yield f"{MISSING}: run `python benchmarks/champion.py curves RUN...`."
        return
    yield "![Learning curves of the champion, a line a seed](images/champion-curves.svg)"
    yield ""
    rows = []
    for run in files.curves["runs"]:
        last, best = run["training"][-1], max(run["validation"], key=lambda point: point[2], default=None)
        chosen = [f"{best[2]:.2f}", f"{best[0]:,}"] if best else ["", ""]
        rows.append(
            [f"`{run['rules']}`", str(run["seed"]), f"{last[0]:,}", f"{last[1]:.1f}", f"{last[2]:.2f}", *chosen]
        )
    window = files.curves["window"]
    yield from markdown(["rules", "seed", "episodes", "minutes", f"last {window:,} of training", "best validation",
                         "after episodes"], rows)  # fmt: skip
    yield ""
    yield (
        "The validation score is the sum of the mean returns over all kinds of worlds that it trains in, by the "
        "likeliest actions; training draws its actions and meets the worlds in the shares of the recipe."
    )


def seeds(files: Files) -> Iterator[str]:
    """Which seeds were used for what."""
    found = files.evaluation
    if found is None:
        test = f"{TEST_SEED:,} and on, {SEEDS_PER_CELL:,} apart from cell to cell, the same under both rule sets"
    else:
        test = (
            f"{found['seed']:,} and on, {found['seeds_per_cell']:,} apart from cell to cell, "
            f"{found['episodes']:,} episodes each, the same under both rule sets"
        )
    yield _SEEDS.format(test=test)
