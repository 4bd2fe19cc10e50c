"""`stockade train --league`: a defender that learns against a growing pool of attackers that learned against it.

round k: the defender as it is -> an attacker that learns against it -> the pool -> shares by how much each hurts ->
the defender learns on. Exploitability at a moment: its return against the worst of all attackers that learned so far.

runs/NAME/  defender0.json, ...  red0/, red1/, ... (training runs of red)  league.json (the rounds)  league.svg
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from stockade.errors import InputError
from stockade.files import json_ready, write_durably
from stockade.learn.agents import Agent
from stockade.learn.checkpoint import Checkpoint, CheckpointFolder, save
from stockade.learn.config import NEMESIS, TrainConfig
from stockade.learn.evaluate import mean_interval, play
from stockade.learn.mixture import Cell, cells_of
from stockade.learn.policy import Policy
from stockade.text import Table, interval

LEARNED_SHARE = 0.5  #: of the environments have learned attackers; in the others the given ones attack
MEASURE_SEED = 2_200_000_000  #: the pool is measured on these seeds and on
_MEASURED = 500  #: episodes against each attacker


def worst_of(row: dict[str, Any]) -> list[float]:
    """Of a round, the lowest mean return of the defender against an attacker that learned, with its interval."""
    values: list[list[float]] = [list(value) for value in row["learned"].values()]
    return min(values)


class League:
    """The rounds of a run. `round` counts the attackers that have learned so far."""

    def __init__(self, config: TrainConfig, run: Path) -> None:
        self.config, self.run, self._base = config, run, cells_of(config)
        self._path, self.rounds = run / "league.json", []
        self._horizon = max(cell.world.horizon for cell in self._base)
        if self._path.exists():
            try:
                self.rounds = json.loads(self._path.read_text())["rounds"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{self._path} cannot be used: {error!r}") from error
        checkpoints = CheckpointFolder(run / "checkpoints")
        self.round = int(checkpoints.load_last().rest.get("round", 0)) if checkpoints.numbers() else 0

    def is_due(self, episodes: int) -> bool:
        """Is it time for the next attacker? The first comes after a round, or at once to a defender that can play."""
        k = self.round if self.config.start else self.round + 1
        return k <= self.config.league_rounds and episodes >= self.config.total_episodes * k / self.config.league_rounds

    def cells(self) -> list[Cell]:
        """The worlds that the defender learns in now: those of its settings, and those of the pool."""
        if not self.round:
            return self._base
        hurt = {name: max(0.1, -value[0]) for name, value in self.rounds[self.round - 1]["learned"].items()}
        base, first = sum(cell.weight for cell in self._base), self._base[0]
        cells = [replace(cell, weight=cell.weight / base * (1 - LEARNED_SHARE)) for cell in self._base]
        for name, loss in hurt.items():
            world = replace(first.world, red=f"{self.run}/{name}", horizon=self._horizon)
            cells.append(Cell(world, LEARNED_SHARE * loss / sum(hurt.values()), first.context))
        return cells

    def respond(self, policy: Policy, episodes: int, progress: bool) -> int | None:
        """Train the next attacker and measure the pool; the number of the signal that ended the training, if one did.
        Done again after an interruption, it gives the same."""
        from stockade.learn.train import train  # which makes leagues

        c, k = self.config, self.round
        agent = Agent(policy, c.obs, True, self._base[0].context, name=f"defender{k}")
        card = {"obs": c.obs, "architecture": policy.architecture.to_json(), "reward_scale": c.ppo.reward_scale}
        weights = {f"policy.{name}": weight for name, weight in policy.save_weights().items()}
        save(self.run / agent.name, Checkpoint(weights, card))
        settings = replace(
            NEMESIS, preset=None, blue=f"{(self.run / agent.name).absolute()}.json", total_episodes=c.league_episodes,
            horizon=self._horizon, rules=c.rules, n_envs=c.n_envs, seed=c.seed + k, name=f"red{k}", runs=self.run,
            checkpoint_episodes=max(1, c.league_episodes // 10),
        )  # fmt: skip
        again = (self.run / f"red{k}" / "config.json").exists()
        result = train(TrainConfig.resumed(f"red{k}", self.run) if again else settings, progress=progress)
        if result.stopped is not None:
            return result.stopped
        given = dict.fromkeys(cell.world.red for cell in self._base)
        row = {
            "round": k, "episodes": episodes,
            "given": {name: self._value(agent, name) for name in given},
            "learned": {f"red{j}": self._value(agent, f"{self.run}/red{j}") for j in range(k + 1)},
        }  # fmt: skip
        self.rounds = [*self.rounds[:k], row]
        content = json_ready({"settings": c.to_json(), "rounds": self.rounds})
        write_durably(self._path, (json.dumps(content, indent=1) + "\n").encode())
        self.round = k + 1
        return None

    def _value(self, agent: Agent, red: str) -> tuple[float, float]:
        """The defender's mean return against an attacker, and half width of its 95% interval."""
        return mean_interval(play(agent, red, self._horizon, _MEASURED, MEASURE_SEED, self.config.rules))

    def table(self) -> Table:
        """Exploitability over the rounds."""
        names = list(self.rounds[0]["given"]) if self.rounds else []
        rows = []
        for row in self.rounds:
            values = [worst_of(row), list(row["learned"].values())[-1], *(row["given"][name] for name in names)]
            rows.append([f"{row['episodes']:,}", *(interval(*value) for value in values)])
        head = ["episodes", "worst learned attacker", "newest", *names]
        return Table(head, rows, f"Mean return of the defender, {self._horizon} steps, ± 95%")

    def draw(self) -> None:
        """league.svg: the defender's return over its training, against the worst attacker so far and the given ones."""
        from stockade.figures import legend_below, new_figure, paper_style, rendered

        with paper_style():
            figure = new_figure(3.2)
            axes = figure.subplots()
            x = [row["episodes"] for row in self.rounds]
            series = {"worst attacker that has learned so far": [worst_of(row) for row in self.rounds]}
            series |= {name: [row["given"][name] for row in self.rounds] for name in self.rounds[0]["given"]}
            for name, values in series.items():
                axes.errorbar(x, [v[0] for v in values], [v[1] or 0 for v in values], label=name, marker="o", ms=3)
            axes.set_xlabel("episodes of the defender")
            axes.set_ylabel("mean return of the defender")
            legend_below(figure, axes)
        write_durably(self.run / "league.svg", rendered(figure, "svg"))
