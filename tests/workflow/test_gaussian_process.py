"""The Gaussian process: against formulas with explicit inverses, against scikit-learn, and properties of any data."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel

from stockade.workflow.gaussian_process import (
    PRIORS,
    GaussianProcess,
    Hyperparameters,
    Observations,
    log_likelihoods,
    most_plausible,
    scale_of,
)
from stockade.workflow.orders import classes_of, distances

BLINE = np.array([False, True, True, False, True])  # three types matter: six classes
MATRICES = {
    "kendall": distances("kendall"),
    "spearman": distances("spearman"),
    "classes": distances("kendall", BLINE),
}
distance_matrices = st.sampled_from(list(MATRICES.values()))
hyperparameters = st.builds(
    Hyperparameters, theta=st.floats(0.02, 2.0), signal_variance=st.floats(0.1, 50.0), noise_variance=st.floats(0.01, 5)
)


@st.composite
def observations(draw: st.DrawFn, least: int = 1, most: int = 12) -> Observations:
    n = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Observations(rng.integers(120, size=n), rng.normal(-30, 8, n), rng.uniform(0.0, 2.0, n))


def covariance(gp: GaussianProcess) -> tuple[np.ndarray, np.ndarray]:
    """(n, n) of the values, and (120, n) of the arms with them."""
    similar = gp.hyper.signal_variance * np.exp(-gp.hyper.theta * gp.distance)
    arms = gp.data.arms
    return similar[np.ix_(arms, arms)] + np.diag(gp.data.variances + gp.hyper.noise_variance), similar[:, arms]


def log_likelihood(gp: GaussianProcess) -> float:
    """Logarithm of the density of the values."""
    between = gp.distance[np.ix_(gp.data.arms, gp.data.arms)]
    hyper = np.array([[gp.hyper.theta, gp.hyper.signal_variance, gp.hyper.noise_variance]])
    return float(log_likelihoods(between, gp.data.values, gp.data.variances, hyper, gp.mean)[0])


# ------------------------------------------------------------------------------------------------------ direct formulas
@given(distance_matrices, observations(), hyperparameters)
def test_posterior_by_the_formulas_of_kriging(distance: np.ndarray, data: Observations, hyper: Hyperparameters) -> None:
    gp = GaussianProcess(distance, data, hyper)
    among, across = covariance(gp)
    inverse, ones = np.linalg.inv(among), np.ones(len(data))
    constant = ones @ inverse @ data.values / (ones @ inverse @ ones)
    mean = constant + across @ inverse @ (data.values - constant)
    variance = hyper.signal_variance - np.einsum("an,nm,am->a", across, inverse, across)
    variance += (1 - across @ inverse @ ones) ** 2 / (ones @ inverse @ ones)
    np.testing.assert_allclose(gp.posterior().mean, mean, rtol=1e-7)
    np.testing.assert_allclose(gp.posterior().sd, np.sqrt(variance), rtol=1e-6)


@given(distance_matrices, observations(), hyperparameters)
def test_an_unknown_constant_is_one_with_a_very_wide_prior(
    distance: np.ndarray, data: Observations, hyper: Hyperparameters
) -> None:
    """A constant of variance w is a process with w added to every covariance; ours is the limit."""
    wide = 1e7
    gp = GaussianProcess(distance, data, hyper)
    among, across = covariance(gp)
    among, across = among + wide, across + wide
    solved = linalg.solve(among, np.column_stack([data.values, across.T]), assume_a="pos")
    variance = hyper.signal_variance + wide - (across * solved[:, 1:].T).sum(axis=1)
    np.testing.assert_allclose(gp.posterior().mean, across @ solved[:, 0], rtol=1e-3)
    np.testing.assert_allclose(gp.posterior().sd ** 2, variance, rtol=1e-3, atol=1e-4)
    # its density, but for that of the wide prior itself
    density = stats.multivariate_normal(np.zeros(len(data)), among).logpdf(data.values)
    assert log_likelihood(gp) == pytest.approx(density + 0.5 * np.log(2 * np.pi * wide), abs=1e-3)


@given(distance_matrices, observations(least=2), hyperparameters)
def test_likelihood_with_unknown_constant_is_that_of_the_contrasts(
    distance: np.ndarray, data: Observations, hyper: Hyperparameters
) -> None:
    gp = GaussianProcess(distance, data, hyper)
    contrasts = linalg.null_space(np.ones((1, len(data)))).T  # n-1 combinations that do not see the constant
    density = stats.multivariate_normal(np.zeros(len(data) - 1), contrasts @ covariance(gp)[0] @ contrasts.T)
    expected = density.logpdf(contrasts @ data.values) - 0.5 * np.log(len(data))
    assert log_likelihood(gp) == pytest.approx(expected, rel=1e-7, abs=1e-7)


# --------------------------------------------------------------------------------------------------------- scikit-learn
class Given(Kernel):  # type: ignore[misc]
    """A kernel of scikit-learn that reads a matrix; its inputs are numbers of arms."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        rows, columns = X[:, 0].astype(int), (X if Y is None else Y)[:, 0].astype(int)
        matrix = self.matrix[np.ix_(rows, columns)]
        return (matrix, np.empty((len(rows), len(columns), 0))) if eval_gradient else matrix

    def diag(self, X: Any) -> np.ndarray:
        return np.diag(self.matrix)[X[:, 0].astype(int)]

    def is_stationary(self) -> bool:
        return False


@given(distance_matrices, observations(), hyperparameters, st.floats(-40, 10))
def test_posterior_and_likelihood_are_those_of_scikit_learn(
    distance: np.ndarray, data: Observations, hyper: Hyperparameters, constant: float
) -> None:
    matrix = hyper.signal_variance * np.exp(-hyper.theta * distance)
    other = GaussianProcessRegressor(Given(matrix), alpha=data.variances + hyper.noise_variance, optimizer=None)
    other.fit(data.arms[:, None].astype(float), data.values - constant)
    mean, sd = other.predict(np.arange(120.0)[:, None], return_std=True)
    gp = GaussianProcess(distance, data, hyper, mean=constant)
    np.testing.assert_allclose(gp.posterior().mean, mean + constant, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(gp.posterior().sd, sd, rtol=1e-6, atol=1e-9)
    assert log_likelihood(gp) == pytest.approx(other.log_marginal_likelihood_value_, rel=1e-8)


# ----------------------------------------------------------------------------------------------------------- properties
@given(distance_matrices, st.integers(0, 2**32 - 1), st.floats(0.05, 2.0), st.booleans())
def test_without_noise_it_goes_through_what_was_seen(
    distance: np.ndarray, seed: int, theta: float, constant_is_known: bool
) -> None:
    rng = np.random.default_rng(seed)
    different = np.unique((distance == 0).argmax(axis=1))
    arms = rng.choice(different, 5, replace=False)
    data = Observations(arms, rng.normal(-30, 8, 5), np.zeros(5))
    gp = GaussianProcess(distance, data, Hyperparameters(theta, 60.0, 0.0), -20.0 if constant_is_known else None)
    np.testing.assert_allclose(gp.posterior().mean[data.arms], data.values, atol=1e-5)
    np.testing.assert_allclose(gp.posterior().sd[data.arms], 0.0, atol=1e-3)


@given(distance_matrices, observations(least=2), hyperparameters, st.sampled_from([None, -25.0]), st.data())
def test_more_data_never_make_it_less_sure(
    distance: np.ndarray, data: Observations, hyper: Hyperparameters, mean: float | None, draw: st.DataObject
) -> None:
    kept = np.arange(len(data)) != draw.draw(st.integers(0, len(data) - 1))
    fewer = Observations(data.arms[kept], data.values[kept], data.variances[kept])
    before = GaussianProcess(distance, fewer, hyper, mean).posterior()
    after = GaussianProcess(distance, data, hyper, mean).posterior()
    assert (after.sd <= before.sd * (1 + 1e-7)).all()
    new = data.arms[~kept][0]
    assert after.sd[new] < before.sd[new]


@given(distance_matrices, observations(most=8), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_the_order_of_telling_changes_not_one_bit(distance: np.ndarray, data: Observations, random: Any) -> None:
    shuffled = random.sample(range(len(data)), len(data))
    other = Observations(data.arms[shuffled], data.values[shuffled], data.variances[shuffled])
    first, second = (GaussianProcess.fit(distance, seen) for seen in (data, other))
    assert first.hyper == second.hyper
    np.testing.assert_array_equal(first.posterior(), second.posterior())


@given(observations(most=8), hyperparameters)
def test_equal_orders_have_equal_posteriors_and_share_what_is_seen(data: Observations, hyper: Hyperparameters) -> None:
    gp = GaussianProcess(MATRICES["classes"], data, hyper)
    classes = classes_of(BLINE)
    for numbers in gp.posterior():
        assert len(set(zip(classes.tolist(), numbers.tolist(), strict=True))) == 6
    moved = np.array([np.flatnonzero(classes == classes[arm])[-1] for arm in data.arms])
    elsewhere = GaussianProcess(gp.distance, Observations(moved, data.values, data.variances), hyper)
    np.testing.assert_allclose(gp.posterior(), elsewhere.posterior(), rtol=1e-6)


@given(distance_matrices, observations(least=0, most=8), hyperparameters, st.lists(st.integers(0, 119), max_size=4))
def test_pending_arms_count_as_seen_at_their_mean(
    distance: np.ndarray, data: Observations, hyper: Hyperparameters, pending: list[int]
) -> None:
    for mean in (-25.0, None) if len(data) else (-25.0,):
        gp = GaussianProcess(distance, data, hyper, mean)
        now, expected = gp.posterior(), gp.expecting(np.array(pending, np.int64))
        np.testing.assert_array_equal(expected.mean, now.mean)
        assert (expected.sd <= now.sd * (1 + 1e-7)).all()
        assert (expected.sd[pending] < now.sd[pending]).all()
        usual = np.median(data.variances) if len(data) else 0.0
        imagined = data.also(np.array(pending, int), now.mean[pending], np.full(len(pending), usual))
        really = GaussianProcess(distance, imagined, hyper, mean).posterior()
        np.testing.assert_allclose(really.mean, now.mean, rtol=1e-7)  # seeing what one expects teaches nothing
        np.testing.assert_allclose(really.sd, expected.sd, rtol=1e-7)


def test_without_data_it_knows_the_prior() -> None:
    nothing = Observations(np.array([]), np.array([]), np.array([]))
    for mean in (None, 0.7):
        gp = GaussianProcess.fit(MATRICES["kendall"], nothing, mean)
        np.testing.assert_array_equal(gp.posterior().mean, np.full(120, mean or 0.0))
        np.testing.assert_array_equal(gp.posterior().sd, np.ones(120))
        assert log_likelihood(gp) == 0.0
    assert gp.expecting(np.array([3])).sd[3] < 0.5


def test_one_training_tells_the_level_and_little_else() -> None:
    gp = GaussianProcess.fit(MATRICES["kendall"], Observations([17], [-30.0], [0.25]))
    mean, sd = gp.posterior()
    np.testing.assert_allclose(mean, -30.0)
    assert sd[17] == sd.min()
    assert sd.max() > 5 * 0.5
    assert scale_of(Observations([17], [-30.0], [0.25])) == 5.0
    assert scale_of(Observations([17], [-30.0], [0.0])) == 30.0
    assert scale_of(Observations([17, 18], [0.0, 0.0], [0.0, 0.0])) == 1.0


# ------------------------------------------------------------------------------------------------------ hyperparameters
def plausibility(distance: np.ndarray, data: Observations, hyper: Hyperparameters) -> float:
    scale, largest = scale_of(data), distance.max()
    ratios = hyper.theta * largest, hyper.signal_variance / scale**2, hyper.noise_variance / scale**2
    prior = sum(stats.norm(np.log(p.median), p.log_sd).logpdf(np.log(x)) for p, x in zip(PRIORS, ratios, strict=True))
    return log_likelihood(GaussianProcess(distance, data, hyper)) + float(prior)


@given(distance_matrices, observations(most=10), st.data())
@settings(max_examples=25)
def test_no_other_hyperparameters_are_more_plausible(
    distance: np.ndarray, data: Observations, draw: st.DataObject
) -> None:
    best = most_plausible(distance, data)
    scale, largest = scale_of(data), distance.max()
    factors = st.floats(-8, 8).map(np.exp)
    for _ in range(10):
        near = [draw.draw(st.floats(0.8, 1.25)) for _ in PRIORS]
        far = [draw.draw(factors) for _ in PRIORS]
        others = (
            Hyperparameters(best.theta * near[0], best.signal_variance * near[1], best.noise_variance * near[2]),
            Hyperparameters(far[0] / largest, far[1] * scale**2, far[2] * scale**2),
        )
        for other in others:
            assert plausibility(distance, data, other) <= plausibility(distance, data, best) + 1e-3


@given(distance_matrices, observations(least=2, most=8), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
@settings(max_examples=30)
def test_units_do_not_matter(distance: np.ndarray, data: Observations, factor: float, shift: float) -> None:
    mean, sd = GaussianProcess.fit(distance, data).posterior()
    changed = Observations(data.arms, data.values * factor + shift, data.variances * factor**2)
    far = GaussianProcess.fit(distance * 7, changed).posterior()
    np.testing.assert_allclose((far.mean - shift) / factor, mean, rtol=0.02, atol=0.02 * sd.max())
    np.testing.assert_allclose(far.sd / factor, sd, rtol=0.02)


@given(distance_matrices, observations(most=5), st.floats(0, 1))
@settings(max_examples=50)
def test_few_data_give_no_absurd_hyperparameters(distance: np.ndarray, data: Observations, alike: float) -> None:
    """Also if the values are nearly or exactly the same."""
    values = alike * data.values.mean() + (1 - alike) * data.values
    data = Observations(data.arms, values, data.variances)
    hyper, scale = most_plausible(distance, data), scale_of(data)
    assert 0.2 < hyper.theta * distance.max() < 40
    assert 0.05 < hyper.signal_variance / scale**2 < 10
    assert 1e-3 < hyper.noise_variance / scale**2 < 2
    posterior = GaussianProcess(distance, data, hyper).posterior()
    assert np.isfinite(posterior.mean).all()
    assert (posterior.sd > 0).all()


def test_many_data_bring_the_true_hyperparameters_back() -> None:
    """Fifty orders, trained two times each: over ten draws the medians are right within a factor of two."""
    distance, true = MATRICES["kendall"], Hyperparameters(0.15, 9.0, 1.0)
    matrix = true.signal_variance * np.exp(-true.theta * distance)
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        arms = np.repeat(rng.choice(120, 50, replace=False), 2)
        f = rng.multivariate_normal(np.full(120, -30.0), matrix, method="cholesky")
        values = f[arms] + rng.normal(0, np.sqrt(true.noise_variance + 0.09), len(arms))
        hyper = most_plausible(distance, Observations(arms, values, np.full(len(arms), 0.09)))
        found.append((hyper.theta, hyper.signal_variance, hyper.noise_variance))
    ratios = np.median(found, axis=0) / (true.theta, true.signal_variance, true.noise_variance)
    assert (np.abs(np.log(ratios)) < np.log(2)).all(), ratios


def test_intervals_hold_what_they_promise() -> None:
    """Functions drawn from the model, hyperparameters learned from 15 values: 95% intervals hold 90% or more."""
    distance = MATRICES["kendall"]
    root = np.linalg.cholesky(9.0 * np.exp(-0.2 * distance) + 1e-9 * np.eye(120))
    inside = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        f, arms = -30 + root @ rng.standard_normal(120), rng.choice(120, 15, replace=False)
        data = Observations(arms, f[arms] + rng.normal(0, 0.7, 15), np.full(15, 0.3**2))
        mean, sd = GaussianProcess.fit(distance, data).posterior()
        inside.append(np.mean(np.abs(f - mean) < 1.96 * sd))
    assert 0.90 < np.mean(inside) < 0.99


# ---------------------------------------------------------------------------------------------------------------- input
@pytest.mark.parametrize(
    ("arms", "values", "variances", "says"),
    [
        ([0], [np.nan], [0.0], "values must be finite"),
        ([0], [1.0], [-1.0], "variances must be finite and not negative"),
        ([0], [1.0], [np.inf], "variances must be finite"),
        ([0, 1], [1.0], [1.0], "2 arms, 1 values, 1 variances"),
    ],
)
def test_bad_observations_are_refused(arms: list, values: list, variances: list, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Observations(arms, values, variances)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    data = Observations(rng.integers(120, size=9), rng.normal(size=9), np.zeros(9))
    whole = most_plausible(MATRICES["kendall"], data)
    monkeypatch.setattr("stockade.workflow.gaussian_process._CHUNK", 1000)
    assert most_plausible(MATRICES["kendall"], data) == whole
