"""What an attacker does, counted: a defender and an attacker at play -> sums over the episodes -> a table and words."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, EXPLOIT, FALSE, IMPACT, RED_TYPES, RESTORE
from stockade.cage2.scenario import HOSTS, N_HOSTS, RESTORE_COST, SERVICE_DOWN_COST
from stockade.learn.agents import as_player
from stockade.learn.evaluate import mean_interval
from stockade.text import Table, fixed, interval
from stockade.vector.native import NativeVectorEnv

_MOST_HOSTS = 4  #: that a sentence names
_RARE = 0.05  #: what is rarer per episode is not told


class Costs(NamedTuple):
    """Points that blue loses in an episode, by cause."""

    hosts: float  #: red's root on hosts
    service: float  #: the stopped service
    restores: float


@dataclass(frozen=True)
class Behaviour:
    """What happened in episodes of one defender against one attacker; counts are per episode."""

    red: str
    horizon: int
    returns: np.ndarray  #: (episodes,) blue's
    costs: Costs
    actions: dict[str, float]  #: red's, by kind
    exploits: dict[str, float]  #: by host, those that failed too
    exploits_that_succeed: float
    impacts: float  #: that succeed
    impact_share: float  #: of episodes with at least one
    first_impact: float  #: median step of the first, where there is one; NaN if there is none
    restores: dict[str, float]  #: blue's, by host

    @property
    def mean(self) -> tuple[float, float]:
        """Blue's mean return, and half width of its 95% interval."""
        return mean_interval(self.returns)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, every single return included."""
        mean, half_width = self.mean
        figures = {"episodes": len(self.returns), "mean": mean, "interval": half_width}
        quantile = {"q05": float(np.quantile(self.returns, 0.05)), "worst": float(self.returns.min())}
        return {
            **asdict(self),
            "costs": self.costs._asdict(),
            "returns": np.round(self.returns, 1),
            **figures,
            **quantile,
        }

    def words(self, defender: str) -> list[str]:
        """What it does, in a few sentences."""
        c, done = self.costs, self.actions
        parts = {"for hosts where red has root": c.hosts, "for the stopped service": c.service,
                 "for the defender's own Restores": c.restores}  # fmt: skip
        told = ", ".join(f"{value:.1f} {what}" for what, value in sorted(parts.items(), key=lambda p: -p[1]))
        lines = [f"It costs {defender} {abs(self.mean[0]):.1f} points in {self.horizon} steps: {told}."]
        if self.impact_share:
            lines.append(f"It stops the service in {self.impact_share:.0%} of the episodes, there first in step "
                         f"{self.first_impact:.0f} (median), and {self.impacts:.1f} times per episode.")  # fmt: skip
        else:
            lines.append("It never stops the service.")
        kinds = [f"{name} {count:.1f}" for name, count in sorted(done.items(), key=lambda p: -p[1]) if count >= _RARE]
        lines.append(f"Its actions per episode: {', '.join(kinds)}.")
        if done[RED_TYPES[EXPLOIT]] >= _RARE:
            lines.append(f"{self.exploits_that_succeed / done[RED_TYPES[EXPLOIT]]:.0%} of its exploits succeed; it "
                         f"aims them at {_most(self.exploits)}.")  # fmt: skip
        total = sum(self.restores.values())
        lines.append(f"The defender restores {total:.1f} times: {_most(self.restores)}." if total >= _RARE else
                     "The defender restores nothing.")  # fmt: skip
        return lines


def _most(counts: dict[str, float]) -> str:
    """The most frequent hosts: `User2 (31.2), Op_Server0 (3.1)`."""
    ranked = sorted(((count, host) for host, count in counts.items() if count >= _RARE), reverse=True)
    others = f" and {len(ranked) - _MOST_HOSTS} others" if len(ranked) > _MOST_HOSTS else ""
    return ", ".join(f"{host} ({count:.1f})" for count, host in ranked[:_MOST_HOSTS]) + others


def watch(
    defender: Any, red: Any, horizon: int, episodes: int, seed: int, rules: str = "current", chance: str = "fast"
) -> Behaviour:
    """Play episodes with the seeds seed, seed + 1, ..., all at once, and count; `red` is a name or a policy."""
    player = as_player(defender)
    returns, service, first = np.zeros(episodes), 0, np.full(episodes, horizon)
    kinds, tried, restores = np.zeros(len(RED_TYPES)), np.zeros(N_HOSTS), np.zeros(N_HOSTS)
    succeeded, impacts = 0, np.zeros(episodes)
    generator = np.random.default_rng([seed, 1])
    options: dict[str, Any] = {"autoreset_mode": "disabled", "copy": False}
    with NativeVectorEnv(episodes, red, horizon, rules, chance, obs=player.obs, **options) as envs:
        obs, _ = envs.reset(seed=seed)
        player.begin(episodes)
        truth = envs.true_state()
        for step in range(horizon):
            obs, rewards, *_ = envs.step(player.act(obs, generator))
            returns += rewards
            service += int(truth.service_down.sum())
            works, kind = truth.red_success != FALSE, truth.red_type
            kinds += np.bincount(kind, minlength=len(kinds))
            exploits, stops = kind == EXPLOIT, (kind == IMPACT) & works
            tried += np.bincount(truth.red_target[exploits], minlength=N_HOSTS)
            succeeded += int((exploits & works).sum())
            impacts += stops
            first = np.minimum(first, np.where(stops, step + 1, horizon))
            blue = np.asarray(truth.blue_action)
            restores += np.bincount(ACTION_HOST[blue[ACTION_KIND[blue] == RESTORE]], minlength=N_HOSTS)
        player.end()
    down, repairs = SERVICE_DOWN_COST / 10 * service / episodes, RESTORE_COST / 10 * restores.sum() / episodes
    return Behaviour(
        str(red) if isinstance(red, str) else str(getattr(red, "name", "policy")), horizon, returns,
        Costs(max(0.0, float(-returns.mean() - down - repairs)), float(down), float(repairs)),
        dict(zip(RED_TYPES, (kinds / episodes).tolist(), strict=True)),
        dict(zip(HOSTS, (tried / episodes).tolist(), strict=True)), succeeded / episodes, float(impacts.mean()),
        float((impacts > 0).mean()), float(np.median(first[impacts > 0])) if impacts.any() else float("nan"),
        dict(zip(HOSTS, (restores / episodes).tolist(), strict=True)),
    )  # fmt: skip


def behaviour_table(watched: list[Behaviour], title: str) -> Table:
    """Attackers side by side."""
    rows = [
        ["return of the defender, ± 95%", *(interval(*b.mean) for b in watched)],
        ["5% quantile", *(fixed(float(np.quantile(b.returns, 0.05))) for b in watched)],
        ["lost for hosts with root", *(fixed(b.costs.hosts) for b in watched)],
        ["lost for the stopped service", *(fixed(b.costs.service) for b in watched)],
        ["lost for Restores", *(fixed(b.costs.restores) for b in watched)],
        ["episodes with an Impact", *(f"{b.impact_share:.0%}" for b in watched)],
        ["its step, median", *(fixed(b.first_impact, 0) for b in watched)],
        *([f"{name} per episode", *(fixed(b.actions[name], 1) for b in watched)] for name in RED_TYPES),
    ]
    return Table(["", *(b.red for b in watched)], rows, title)
