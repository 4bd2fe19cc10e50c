"""What each precedence (unit a is repaired before unit b) is worth: an additive model, fitted to every posterior draw.

value(order) = constant + sum over pairs of effect x (+1/2 if a stands before b, else -1/2) + lack of fit
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np


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
    """Fit the additive model to each draw by generalised least squares.

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
