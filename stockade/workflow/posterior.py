"""From measured episodes of repair orders to draws of their true values, and to what each precedence is worth.

returns on common seeds -> means and the covariance of their noise -> draws (draws, attackers, orders) -> effects

The model: values of orders fall into a few groups (often exact ties: a precedence matters or it does not). Three groups
with unknown centres and one unknown spread within groups cover ties, separated groups and, as one wide group, values
that are normally distributed. A flat prior and one normal prior are overconfident where orders tie: in simulated
searches with ties, orders with P(best) from 0.5 to 0.7 were the best in 0.38 and 0.39 of the cases, with groups 0.49.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from stockade.errors import InputError

GROUPS = 3
CONCENTRATION = 2.0  # of the Dirichlet prior of the groups' shares
#: Grid of the spread within groups, from a thousandth of the measured range to all of it. The smallest, a tie, has the
#: prior probability 0.5, the others share the rest.
SPREADS = 8
LEVEL_VARIANCE = 10.0  # prior variance of what the centres have in common, in squares of the measured range
PARTICLES = 4000
PRIOR_EPISODES = 3.0  # that the pooled variance counts for beside an order's own
#: Standard deviations between trainings with different seeds. All orders that one network plays move together, by a
#: share of the best value; each moves by itself by shares of its value and of its gap to the best.
#: See docs/concepts/workflows.md.
LEVEL_SHARE, VALUE_SHARE, GAP_SHARE = 0.025, 0.01, 0.07
MOVING_ROUNDS, GAIN_ROUNDS = 3, 4  # the last ones that show how much values move, and what they gain
PRIOR_ROUNDS = 6.0  # that the pooled movement of values counts for beside an order's own


@dataclass(frozen=True)
class Measured:
    """What was measured of K orders against A attackers, E greedy episodes each.

    Episode e has the same seed for every order (and the free agent), so that differences are paired. Attackers are
    different games: their noise counts as independent.

    A standard deviation is that of the training noise in each value; None: 0 everywhere.
    """

    orders: tuple[str, ...]  #: K labels, for example `"enterprise > user"`
    attackers: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]  #: P pairs of unit names (a, b), each pair of units once
    returns: np.ndarray  #: (A, K, E) float64
    precedes: np.ndarray  #: (K, P), 1 if a stands before b, 0 if behind it, 0.5 if they stand side by side
    training_sd: np.ndarray | None = None  #: (A, K)
    free_returns: np.ndarray | None = None  #: (A, E) of the agent that may repair in any order
    free_training_sd: np.ndarray | None = None  #: (A,)
    level_sd: np.ndarray | None = None  #: (A,) of training noise that all values of one network have in common

    def __post_init__(self) -> None:
        a, k, episodes = len(self.attackers), len(self.orders), np.shape(self.returns)[-1]
        if not a or not k or episodes < 2:
            raise InputError(f"{a} attackers, {k} orders, {episodes} episodes: one, one and 2 episodes are the least")
        shapes = {"returns": (a, k, episodes), "precedes": (k, len(self.pairs)), "training_sd": (a, k),
                  "free_returns": (a, episodes), "free_training_sd": (a,), "level_sd": (a,)}  # fmt: skip
        for name, shape in shapes.items():
            if getattr(self, name) is None:
                continue
            array = np.asarray(getattr(self, name), np.float64)
            if array.shape != shape:
                raise InputError(f"{name}: shape {array.shape}, must be {shape}")
            least = 0 if name.endswith("_sd") else -np.inf
            fine = np.isin(array, (0, 0.5, 1)) if name == "precedes" else np.isfinite(array) & (array >= least)
            if not fine.all():
                where = tuple(np.argwhere(~fine)[0].tolist())
                raise InputError(f"{name}: the value at {where} is {array[where]}, which is not possible")
            object.__setattr__(self, name, array)


def sample_values(measured: Measured, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
    """True values given what was measured: (draws, A, K) of the orders, and (draws, A) of the free agent or None."""
    values, free = [], []
    for a, returns in enumerate(measured.returns):
        k = len(returns)
        training_sd = np.zeros(k) if measured.training_sd is None else measured.training_sd[a]
        if measured.free_returns is not None:
            returns = np.vstack([returns, measured.free_returns[a]])
            training_sd = np.append(
                training_sd, 0.0 if measured.free_training_sd is None else measured.free_training_sd[a]
            )
        level = 0.0 if measured.level_sd is None else measured.level_sd[a] ** 2
        means, noise = returns.mean(axis=1), noise_of_means(returns) + np.diag(training_sd**2) + level
        values.append(_sample_grouped(means[:k], noise[:k, :k], draws, rng))
        if measured.free_returns is not None:
            # The free agent's noise given the orders' noise in each draw: what common seeds have in common cancels.
            slope = np.linalg.pinv(noise[:k, :k], hermitian=True) @ noise[:k, k]
            sd = np.sqrt(max(0.0, noise[k, k] - slope @ noise[:k, k]))
            free.append(means[k] - (means[:k] - values[-1]) @ slope + sd * rng.standard_normal(draws))
    return np.stack(values, axis=1), np.stack(free, axis=1) if free else None


def noise_of_means(returns: np.ndarray) -> np.ndarray:
    """(R, R) covariance of the R rows' means over E common episodes; stable for few episodes too.

    Correlations shrink towards their mean, variances towards theirs, both with a weight of about R / E and 3 / E; and
    since they are estimated, the variances are those of Student's distribution.
    """
    rows, episodes = returns.shape
    seen = episodes - 1
    covariance = np.cov(returns).reshape(rows, rows)
    variances = covariance.diagonal()
    sd = np.sqrt(np.where(variances > 0, variances, 1.0))
    correlations = covariance / np.outer(sd, sd)
    common = (correlations.sum() - correlations.trace()) / max(1, rows * (rows - 1))
    correlations += (common - correlations) * rows / (rows + seen)
    np.fill_diagonal(correlations, 1.0)
    sd = np.sqrt((PRIOR_EPISODES * variances.mean() + seen * variances) / (PRIOR_EPISODES + seen - 2))
    return correlations * np.outer(sd, sd) / episodes


def training_noise(rounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sd of the training noise, from the values in each round (rounds, attackers, orders).

    Returns: (attackers, orders) of what each order has by itself, and (attackers,) of what moves all of them alike.

    Trainings with different seeds differ by shares of the values and of the gaps to the best order, which one training
    cannot see. What it sees adds to it: how much its values still move (a few rounds tell little of one order, so all
    orders share what they say), and their last gain, which stands for what more training may bring.
    """
    values, last, gains = rounds[-1], rounds[-MOVING_ROUNDS:], last_gains(rounds)
    best, freedom = values.max(axis=1, keepdims=True), len(last) - 1
    # Medians over the orders: what a few bad ones do in a round says nothing of the others.
    level, common_gain = np.median(last, axis=2, keepdims=True), np.median(gains, axis=1, keepdims=True)
    between = np.hypot(GAP_SHARE * (best - values), VALUE_SHARE * np.abs(values)) + 1e-9
    moved = ((last - level).std(axis=0, ddof=freedom > 0) / between) ** 2
    pooled = PRIOR_ROUNDS * np.median(moved, axis=1, keepdims=True) + freedom * moved
    own = between**2 * (1 + pooled / (PRIOR_ROUNDS + freedom - 2)) + np.maximum(gains - common_gain, 0.0) ** 2
    common = (LEVEL_SHARE * best) ** 2 + level.var(axis=0, ddof=freedom > 0) + np.maximum(common_gain, 0.0) ** 2
    return np.sqrt(own), np.sqrt(common[:, 0])


def last_gains(rounds: np.ndarray) -> np.ndarray:
    """(attackers, orders) highest value of the last few rounds minus that of as many before; 0 if there is one only.

    The highest, since a greedy policy may play badly for a round or three: that it recovers is no gain.
    """
    few = min(GAIN_ROUNDS, len(rounds) // 2)
    if not few:
        return np.zeros(rounds.shape[1:])
    return np.asarray(rounds[-few:].max(axis=0) - rounds[-2 * few : -few].max(axis=0))


def _sample_grouped(means: np.ndarray, noise: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, K) from the posterior of: value = centre of its group + N(0, spread^2), measured = value + N(0, noise).

    A particle filter over the orders. A particle has a spread and the groups of the orders so far, which give its
    centres a normal distribution; for the next order, each particle tries all groups, and the pairs (particle, group)
    are resampled by how well they predict its mean. Centres and values are integrated out, and sampled at the end.
    """
    k, n = len(means), min(PARTICLES, draws)
    eigenvalues, basis = np.linalg.eigh(noise)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    scale = np.ptp(means) + np.sqrt(eigenvalues.mean())
    if scale == 0:
        return np.tile(means, (draws, 1))
    spreads = np.geomspace(1e-3 * scale, scale, SPREADS)
    variances = eigenvalues + spreads[:, None] ** 2  # (spreads, K) of the measured around their centres, in the basis
    # Rows that make the noise of the measured means white: (spreads, K, K), lower triangular.
    whiten = np.linalg.inv(np.linalg.cholesky(np.einsum("ik,sk,jk->sij", basis, variances, basis)))

    rows, numbers = np.arange(n), np.arange(GROUPS)
    spread = np.maximum(0, 1 + (2 * rows - n) * (SPREADS - 1) // n)  # half of the particles have the smallest
    group = np.zeros((n, k), np.int8)
    counts = np.full((n, GROUPS), CONCENTRATION / GROUPS)
    centre = np.full((n, GROUPS), means.mean())
    covariance = np.tile(scale**2 * (np.eye(GROUPS) + LEVEL_VARIANCE), (n, 1, 1))  # of the centres
    for i in range(k):
        row = whiten[spread, i]
        earlier = np.einsum("nk,nkg->ng", row[:, :i], group[:, :i, None] == numbers)
        design = earlier[:, None, :] + row[:, i, None, None] * np.eye(GROUPS)  # (n, group of order i, centres)
        spanned = design @ covariance
        variance = 1 + (spanned * design).sum(axis=2)
        error = (row @ means)[:, None] - (design @ centre[:, :, None])[:, :, 0]
        score = np.log(counts * row[:, i, None]) - 0.5 * (error**2 / variance + np.log(variance))
        total = np.cumsum(np.exp(score - score.max()))
        chosen = np.searchsorted(total, (rows + rng.random()) / n * total[-1]).clip(0, total.size - 1)
        parent, new = np.divmod(chosen, GROUPS)
        spread, group, counts = spread[parent], group[parent], counts[parent]
        group[:, i] = new
        counts[rows, new] += 1
        spanned, gain = spanned[parent, new], spanned[parent, new] / variance[parent, new, None]
        centre = centre[parent] + gain * error[parent, new, None]
        covariance = covariance[parent] - gain[:, :, None] * spanned[:, None, :]

    each = np.arange(draws) % n
    spread, group, own = spread[each], group[each], np.linalg.cholesky(covariance + 1e-12 * scale**2 * np.eye(GROUPS))
    centre = centre[each] + (own[each] @ rng.standard_normal((draws, GROUPS, 1)))[:, :, 0]
    centre = np.take_along_axis(centre, group.astype(np.intp), axis=1)
    share = spreads[spread, None] ** 2 / variances[spread]
    values = (means - centre) @ basis * share + rng.standard_normal((draws, k)) * np.sqrt(eigenvalues * share)
    return centre + values @ basis.T


# ---------------------------------------------------------------------------------------------- what follows from draws
@dataclass(frozen=True)
class Estimate:
    """Posterior mean and 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: np.ndarray, **more: Any) -> Self:
        """Of draws, (n,); a subclass has more fields."""
        low, high = np.quantile(draws, (0.025, 0.975))
        return cls(float(draws.mean()), float(low), float(high), **more)


@dataclass(frozen=True)
class Effect(Estimate):
    """Points per episode that `before` before `after`, the better sequence, is worth.

    The interval includes what the additive model leaves unexplained.
    """

    before: str
    after: str
    swaps: int  #: pairs of measured orders that differ in this precedence only
    by_swaps: Estimate | None  #: mean difference of these pairs, without any model; None if there are none
    in_best: bool  #: whether all orders of the winning set have it


@dataclass(frozen=True)
class Precedences:
    """All precedences that the measured orders identify, the largest effect first."""

    effects: tuple[Effect, ...]
    #: Share of the variance between orders that single precedences explain; None if all values are equal.
    r_squared: float | None
    #: Of the orders' values around the model: interactions. None if there are no more orders than coefficients.
    residual_sd: float | None


def precedence_effects(
    values: np.ndarray, precedes: np.ndarray, pairs: Sequence[tuple[str, str]], best: np.ndarray,
    rng: np.random.Generator,
) -> Precedences:  # fmt: skip
    """What each precedence (unit a is repaired before unit b) is worth: an additive model, fitted to every draw.

    value(order) = constant + sum over pairs of effect x (+1/2 if a stands before b, else -1/2) + lack of fit

    Args:
        values: (draws, K) of the orders' true values. precedes: (K, P), see `Measured`. best: (K,) bool, winning set.
        rng: for the lack of fit, which is added to each draw with the residual variance (itself uncertain).
    """
    k = values.shape[1]
    design = np.column_stack([np.ones(k), precedes - 0.5])
    inverse = np.linalg.pinv(design)
    identified = np.abs(inverse @ design - np.eye(design.shape[1])).max(axis=1) < 1e-8
    means, covariance = values.mean(axis=0), np.cov(values, rowvar=False).reshape(k, k)
    unexplained = np.eye(k) - design @ inverse  # projection onto what no coefficients can reach
    freedom = round(unexplained.trace())
    total = float(((means - means.mean()) ** 2).sum())
    # Squares that are left of the means, without those that the uncertainty of the means brings.
    squares = max(0.0, float(means @ unexplained @ means - np.trace(unexplained @ covariance))) if freedom else 0.0
    variance = squares / freedom if freedom else 0.0
    noisy = values
    if variance > 0:
        sd = np.sqrt(variance * freedom / rng.chisquare(freedom, (len(values), 1)))
        noisy = values + sd * rng.standard_normal(values.shape)
    weights = np.linalg.inv(covariance + (variance + 1e-6 * total + 1e-12) * np.eye(k))
    fit = np.linalg.pinv(design.T @ weights @ design, rcond=1e-10, hermitian=True) @ design.T @ weights
    coefficients = noisy @ fit.T

    differ = precedes[:, None, :] != precedes[None, :, :]
    single = differ & (differ.sum(axis=2, keepdims=True) == 1)
    effects = []
    for p in np.flatnonzero(identified[1:]).tolist():
        sign = 1 if coefficients[:, p + 1].mean() >= 0 else -1
        better = sign * (precedes[:, p] - 0.5) > 0
        first, second = np.nonzero(single[:, :, p] & better[:, None])
        by_swaps = Estimate.of((values[:, first] - values[:, second]).mean(axis=1)) if len(first) else None
        effects.append(Effect.of(
            sign * coefficients[:, p + 1], before=pairs[p][::sign][0], after=pairs[p][::sign][1], swaps=len(first),
            by_swaps=by_swaps, in_best=bool(better[best].all()),
        ))  # fmt: skip
    return Precedences(
        tuple(sorted(effects, key=lambda effect: -effect.value)),
        1 - squares / total if total > 0 else None,
        math.sqrt(variance) if freedom else None,
    )
