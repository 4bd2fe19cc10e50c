"""An exact Gaussian process over a finite set of arms of which only the distances are known.

    distance (a, a), observations (arm, value, variance) -> hyperparameters -> posterior mean (a,) and sd (a,)

Model: value = f(arm) + training noise + measurement noise. f is a constant plus a Gaussian process with covariance
signal_variance x exp(-theta x distance). The variance of the measurement is known for each observation (the squared
standard error of a mean over episodes); that of the training noise is learned, since two trainings on one arm differ by
more than their standard errors. The constant has a flat prior: its estimate is that of generalised least squares, its
uncertainty is part of the posterior's, and it is integrated out of the likelihood. It may be fixed instead.

Hyperparameters are those of the highest posterior density: marginal likelihood times weak priors, which are all that
speaks as long as there is one observation, and little once there are ten. See PRIORS.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike


class Prior(NamedTuple):
    """Log-normal; and the values, `points` equally spaced in their logarithm, at which the search begins."""

    median: float
    log_sd: float
    lowest: float
    highest: float
    points: int


#: Of theta x (largest distance), signal_variance / scale^2 and noise_variance / scale^2; the scale is the standard
#: deviation of the values. So nothing depends on the units of distances and values. The medians: opposite orders are
#: hardly related (exp(-3) = 0.05), orders differ about as much as the values seen, and a fifth as much (0.2^2 = 0.04)
#: comes from training. A log_sd of 1 allows a factor of 7 either way (two standard deviations), 1.5 a factor of 20.
PRIORS = (
    Prior(median=3.0, log_sd=1.0, lowest=0.1, highest=30.0, points=7),
    Prior(median=1.0, log_sd=1.0, lowest=0.1, highest=10.0, points=4),
    Prior(median=0.04, log_sd=1.5, lowest=1e-4, highest=3.0, points=5),
)
_CENTRES = np.log([prior.median for prior in PRIORS])
_LOG_SDS = np.array([prior.log_sd for prior in PRIORS])
_AXES = (np.linspace(np.log(prior.lowest), np.log(prior.highest), prior.points) for prior in PRIORS)
_GRID = np.stack(np.meshgrid(*_AXES, indexing="ij"), axis=-1).reshape(-1, len(PRIORS))
#: Neighbours that the refinement looks at: one step in each direction.
_MOVES = np.concatenate([np.eye(len(PRIORS)), -np.eye(len(PRIORS))])
_FIRST_STEP, _LAST_STEP = 0.4, 0.005  #: of the refinement, in logarithms
_FARTHEST = np.log(1e4)  #: from the medians that the refinement goes: bounds that no data should reach
_JITTER = 1e-10  #: of the signal variance; equal arms without noise would make a singular matrix
_CORNER = 1e100  #: larger than any sum of squares that is taken from it
_CHUNK = 100_000  #: numbers in a stack of matrices, which then stays in the cache


@dataclass(frozen=True)
class Hyperparameters:
    """theta: decay of the correlation with distance. signal_variance: of f. noise_variance: between trainings."""

    theta: float
    signal_variance: float
    noise_variance: float


class Observations:
    """What was seen: (n,) arms, values, and known variances of the measurement.

    Kept in an order of its own, so that results do not depend on the order of telling.
    """

    def __init__(self, arms: ArrayLike, values: ArrayLike, variances: ArrayLike) -> None:
        columns = np.asarray(arms, np.int64), np.asarray(values, np.float64), np.asarray(variances, np.float64)
        if len({column.shape for column in columns}) > 1:
            raise ValueError("{} arms, {} values, {} variances: must be as many".format(*map(len, columns)))
        if not np.isfinite(columns[1]).all():
            raise ValueError(f"values must be finite: {columns[1]}")
        if not (np.isfinite(columns[2]) & (columns[2] >= 0)).all():
            raise ValueError(f"variances must be finite and not negative: {columns[2]}")
        order = np.lexsort(columns[::-1])
        self.arms, self.values, self.variances = (column[order] for column in columns)

    def __len__(self) -> int:
        return len(self.arms)

    def also(self, *others: np.ndarray) -> "Observations":
        """These and others: arms, values, variances."""
        mine = self.arms, self.values, self.variances
        return Observations(*map(np.concatenate, zip(mine, others, strict=True)))


class Posterior(NamedTuple):
    """Of f on every arm, without noise: (a,) each."""

    mean: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A Gaussian process and what it has seen. `distance`: (a, a), 0 between equal arms; `mean`: None if unknown."""

    distance: np.ndarray
    data: Observations
    hyper: Hyperparameters
    mean: float | None = None

    @classmethod
    def fit(
        cls, distance: np.ndarray, data: Observations, mean: float | None = None, scale: float | None = None
    ) -> Self:
        """With the most plausible hyperparameters; `scale` (default: that of the values) is the unit of the priors."""
        return cls(distance, data, most_plausible(distance, data, mean, scale), mean)

    def posterior(self) -> Posterior:
        """What is known of every arm; equal arms have equal posteriors, to the last bit.

        Without any observation the mean is that given, or 0, and sd that of f about it.
        """
        n_arms, signal = len(self.distance), self.hyper.signal_variance
        if not len(self.data):
            return Posterior(np.full(n_arms, self.mean or 0.0), np.full(n_arms, np.sqrt(signal)))
        arms, values = self.data.arms, self.data.values
        similar = signal * np.exp(-self.hyper.theta * self.distance[arms])
        noise = self.data.variances + self.hyper.noise_variance + _JITTER * signal
        root = np.linalg.cholesky(similar[:, arms] + np.diag(noise))
        offset = values.mean() if self.mean is None else self.mean  # for precision
        ones = np.ones(len(arms))
        solved = np.linalg.solve(root, np.column_stack([ones, values - offset, similar]))
        one, value, similar = solved[:, 0], solved[:, 1], solved[:, 2:]
        variance = signal - (similar**2).sum(axis=0)
        constant = 0.0
        if self.mean is None:
            constant = one @ value / (one @ one)
            variance += (1 - one @ similar) ** 2 / (one @ one)
        mean = offset + constant + (value - constant * one) @ similar
        first = (self.distance == 0).argmax(axis=1)  # sums may be rounded differently from column to column
        return Posterior(mean[first], np.sqrt(np.maximum(variance, 0.0))[first])

    def expecting(self, pending: np.ndarray) -> Posterior:
        """The posterior with what is in flight (GP-BUCB): as if each pending arm had been seen at its own mean.

        Means stay as they are; standard deviations shrink around the pending arms, so that the next choice goes
        elsewhere.
        """
        now = self.posterior()
        if not len(pending):
            return now
        usual = float(np.median(self.data.variances)) if len(self.data) else 0.0
        imagined = self.data.also(pending, now.mean[pending], np.full(len(pending), usual))
        return Posterior(now.mean, GaussianProcess(self.distance, imagined, self.hyper, self.mean).posterior().sd)


# ---------------------------------------------------------------------------------------------------- hyperparameters
def scale_of(data: Observations) -> float:
    """The unit of the priors: standard deviation of the values, but no less than their standard errors.

    Where that says nothing, for a single value above all, arms are taken to differ by ten standard errors, as if it
    had been measured as well as is needed; and without those by the size of the value.
    """
    if not len(data):
        return 1.0
    spread, error = float(data.values.std(ddof=len(data) > 1)), float(np.sqrt(data.variances.mean()))
    if spread == 0.0:
        spread = 10 * error or float(np.abs(data.values).max()) or 1.0
    return max(spread, error)


def most_plausible(
    distance: np.ndarray, data: Observations, mean: float | None = None, scale: float | None = None
) -> Hyperparameters:
    """Hyperparameters of the highest posterior density: the best of a grid, then steps that get smaller."""
    unit = scale_of(data) if scale is None else scale
    largest = float(distance.max()) or 1.0
    between = distance[np.ix_(data.arms, data.arms)] / largest
    offset = (data.values.mean() if len(data) else 0.0) if mean is None else mean
    values, variances = (data.values - offset) / unit, data.variances / unit**2
    fixed = None if mean is None else 0.0

    def density(points: np.ndarray) -> np.ndarray:
        prior = -0.5 * (((points - _CENTRES) / _LOG_SDS) ** 2).sum(axis=1)
        return prior + log_likelihoods(between, values, variances, np.exp(points), fixed)

    best, highest, step = _CENTRES, -np.inf, _FIRST_STEP
    candidates = np.concatenate([_CENTRES[None], _GRID])
    while step > _LAST_STEP and len(data) > (fixed is None):  # a single value of unknown mean fits all equally
        densities = density(candidates)
        if densities.max() > highest:
            best, highest = candidates[densities.argmax()], densities.max()
        else:
            step /= 2
        candidates = np.clip(best + step * _MOVES, _CENTRES - _FARTHEST, _CENTRES + _FARTHEST)
    theta, signal, noise = np.exp(best)
    return Hyperparameters(float(theta / largest), float(signal * unit**2), float(noise * unit**2))


def log_likelihoods(
    between: np.ndarray, values: np.ndarray, variances: np.ndarray, hyper: np.ndarray, mean: float | None
) -> np.ndarray:
    """(g,) log densities of the values for g rows of hyperparameters (theta, signal, noise); without a `mean` the
    unknown constant is integrated out. `between` is (n, n), values and variances (n,)."""
    n = len(values)
    if n == 0:
        return np.zeros(len(hyper))
    chunk = max(1, _CHUNK // n**2)
    if len(hyper) > chunk:
        parts = np.split(hyper, range(chunk, len(hyper), chunk))
        return np.concatenate([log_likelihoods(between, values, variances, part, mean) for part in parts])
    theta, signal, noise = hyper.T
    thetas, which = np.unique(theta, return_inverse=True)  # few in a grid, and exp is what costs most
    diagonal = np.arange(n)
    # Bordered by the right-hand sides: the Cholesky factor then holds them, solved, in its last rows, whatever large
    # number stands in the corner. NumPy has no triangular solve.
    bordered = np.zeros((len(hyper), n + 2, n + 2))
    bordered[:, :n, :n] = signal[:, None, None] * np.exp(-thetas[:, None, None] * between)[which]
    bordered[:, diagonal, diagonal] += variances + (noise + _JITTER * signal)[:, None]
    bordered[:, n, :n] = 1.0
    bordered[:, n + 1, :n] = values - (values.mean() if mean is None else mean)
    bordered[:, [n, n + 1], [n, n + 1]] = _CORNER
    root = np.linalg.cholesky(bordered)
    one, value = root[:, n, :n], root[:, n + 1, :n]
    half_log_determinant = np.log(root[:, diagonal, diagonal]).sum(axis=1)
    result = -0.5 * (value**2).sum(axis=1) - half_log_determinant - n / 2 * np.log(2 * np.pi)
    if mean is None:  # the integral over the constant: a Gaussian of precision ones' K^-1 ones about its estimate
        precision, product = (one**2).sum(axis=1), (one * value).sum(axis=1)
        result += 0.5 * product**2 / precision - 0.5 * np.log(precision / (2 * np.pi))
    return result
