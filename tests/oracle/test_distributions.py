"""`fast` and `cyborg` draw from the same distributions, and both from those of the reference simulator.

Error probability. Each p-value below must exceed ALPHA = 1e-6 / 200; fewer than 200 are computed. So if all
distributions are equal, the chance that the choice of seeds makes any test of this file fail is below 1e-6 (Bonferroni).
The seeds are fixed: a test that passes keeps passing until the code changes.

Power. A deviation of the size named is found with a probability above 0.999; smaller ones may pass.
    red's choices     one of k equally likely choices (k = 3 to 60) off by a tenth of its probability
    exploit choice    0.75 for the best exploit off by 0.01
    detection         0.95 off by 0.004
    returns           against the 451 recorded episodes of a cell: a shift of the mean by half a standard deviation, or
                      of the distribution function by 0.25; `fast` against `cyborg`: 0.09 and 0.05
What differs by construction stays far below that: `fast` has no process ids that meet by chance (1 in 32,768).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import stockade

from .network import P_BEST_EXPLOIT, P_DETECTED, Exploit, RedAction, exploit_options
from .policies import Policy, react_restore, sleep, uniform

ALPHA = 1e-6 / 200
CHANCES = ("fast", "cyborg")
HORIZONS = (30, 50, 100)
# Blue policies of the recorded returns. `random` and `react_restore` drew from private streams, so only their
# distribution can be compared; what they do was read off the recorded traces (see policies.py).
RECORDED = {"sleep": sleep, "random": uniform, "react_restore": react_restore}
RED_NAMES = {"bline": "B_lineAgent", "meander": "RedMeanderAgent", "sleep": "SleepAgent"}
CELLS = [(red, policy) for red in RED_NAMES for policy in RECORDED]  # in the order of the recording


def _steps(red: str, chance: str, policy: Policy, n: int, horizon: int, seed: int, **world: str) -> Iterator[Any]:
    """Plays one episode in n worlds; yields (t, true state, reward) after every step, t = 0, 1, ..."""
    envs = stockade.make_vec(n, backend="native", red=red, horizon=horizon, chance=chance, **world)
    generator = np.random.default_rng(seed)
    observation, _ = envs.reset(seed=seed)
    for t in range(horizon):
        observation, reward, _, _, _ = envs.step(policy(generator, observation, t))
        yield t, envs.true_state(), reward
    envs.close()


def _plausible(p: float, what: str) -> None:
    assert p > ALPHA, f"{what}: p = {p:.1e}, which chance alone gives in fewer than one of {1 / ALPHA:.0e} cases"


def _expect_counts(counts: np.ndarray, probabilities: np.ndarray, what: str) -> None:
    """Chi-square test of counts against probabilities; a count where none can be fails at once."""
    assert not counts[probabilities == 0].any(), f"{what}: impossible outcome, counts {counts.tolist()}"
    possible = probabilities > 0
    expected = counts.sum() * probabilities[possible]
    assert expected.min() > 100, f"{what}: too few for a test, {expected.min():.0f}"
    _plausible(stats.chisquare(counts[possible], expected).pvalue, f"{what}, counts {counts.tolist()}")


def _expect_same_counts(first: np.ndarray, second: np.ndarray, what: str) -> None:
    """Chi-square test of homogeneity, rare categories in one."""
    table = np.stack([first, second])
    common = table.sum(axis=0) >= 400
    table = np.column_stack([table[:, common], table[:, ~common].sum(axis=1)])
    table = table[:, table.sum(axis=0) >= 50]
    if table.shape[1] > 1:
        _plausible(stats.chi2_contingency(table).pvalue, f"{what}, counts {table.tolist()}")


# ---------------------------------------------------------------------- red's choices


@pytest.mark.parametrize("chance", CHANCES)
def test_bline_enters_by_any_of_four_hosts(chance: str):
    """Neighbouring seeds (worlds i and i + 1) are independent, too: 16 equally likely pairs."""
    n = 60_000
    for t, truth, _ in _steps("bline", chance, sleep, n, 2, seed=10):
        if t == 1:
            entry = truth.red_target - 9
            _expect_counts(np.bincount(entry, minlength=4), np.full(4, 1 / 4), "entry host")
            pairs = 4 * entry[0::2].astype(int) + entry[1::2]
            _expect_counts(np.bincount(pairs, minlength=16), np.full(16, 1 / 16), "entry hosts of neighbours")


@pytest.mark.parametrize("chance", CHANCES)
def test_bline_enters_anew_in_each_episode(chance: str):
    """Two episodes of one stream: 16 equally likely pairs."""
    n = 60_000
    envs = stockade.make_vec(n, backend="native", red="bline", horizon=2, chance=chance, autoreset_mode="disabled")
    entries = []
    envs.reset(seed=11)
    for _ in range(2):
        envs.step(np.zeros(n, int))
        envs.step(np.zeros(n, int))
        entries.append(envs.true_state().red_target.astype(int) - 9)
        envs.reset()
    envs.close()
    pairs = 4 * entries[0] + entries[1]
    _expect_counts(np.bincount(pairs, minlength=16), np.full(16, 1 / 16), "entry hosts of two episodes")


@pytest.mark.parametrize("chance", CHANCES)
def test_meander_scans_in_any_order(chance: str):
    """After the subnet, three of five user hosts one after another: 60 equally likely orders."""
    n, targets = 60_000, []
    for t, truth, _ in _steps("meander", chance, sleep, n, 4, seed=12):
        if t > 0:
            assert (truth.red_type == RedAction.DISCOVER_NETWORK_SERVICES).all()
            targets.append(truth.red_target.astype(int) - 8)
    orders = 25 * targets[0] + 5 * targets[1] + targets[2]
    a, b, c = np.indices((5, 5, 5)).reshape(3, -1)
    possible = (a != b) & (b != c) & (a != c)
    _expect_counts(np.bincount(orders, minlength=125), possible / 60, "orders of scanning")


@pytest.mark.parametrize("policy", [sleep, uniform, react_restore])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_red_does_the_same_things_at_the_same_times(red: str, policy: Policy):
    """Kind and target of red's action after 5, 10, 15, 20, 30, 40, 60 and 90 steps, `fast` against `cyborg`."""
    n, times = 20_000, (5, 10, 15, 20, 30, 40, 60, 90)
    counts: dict[str, list[np.ndarray]] = {chance: [] for chance in CHANCES}
    for chance in CHANCES:
        for t, truth, _ in _steps(red, chance, policy, n, 91, seed=13 + CHANCES.index(chance)):
            if t in times:
                move = 17 * truth.red_type.astype(int) + truth.red_target + 1
                counts[chance].append(np.bincount(3 * move + truth.red_success, minlength=3 * 17 * 6))
    for t, first, second in zip(times, *counts.values(), strict=True):
        _expect_same_counts(first, second, f"{red} against {policy.__name__} at step {t}")


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_red_prefers_its_best_exploit(red: str, chance: str):
    """Given what red knows of a host's ports: the best exploit with 0.75, the others alike. One test for all masks."""
    n, counts = 4_000, {}
    known = np.zeros((n, 13), int)
    for _, truth, _ in _steps(red, chance, uniform, n, 100, seed=14):
        acted = np.flatnonzero((truth.red_type == RedAction.EXPLOIT_REMOTE_SERVICE) & (truth.exploit > 0))
        masks = known[acted, truth.red_target[acted]]
        for mask in np.unique(masks):
            chosen = np.bincount(truth.exploit[acted[masks == mask]], minlength=len(Exploit))
            counts[mask] = counts.get(mask, 0) + chosen
        known = truth.red_ports.astype(int)
    statistic, freedom = 0.0, 0
    for mask, chosen in counts.items():
        expected = chosen.sum() * _exploit_probabilities(int(mask))
        assert not chosen[expected == 0].any(), f"an exploit without its port: ports {mask:b}, chosen {chosen}"
        if (expected[expected > 0] > 50).all():
            statistic += (np.square(chosen - expected)[expected > 0] / expected[expected > 0]).sum()
            freedom += (expected > 0).sum() - 1
    assert freedom >= 10, "too few hosts with several exploits to say anything"
    _plausible(stats.chi2.sf(statistic, freedom), f"exploits of {red} by ports {counts}")


def _exploit_probabilities(known_ports: int) -> np.ndarray:
    options = exploit_options(known_ports)
    best = max(options, key=lambda option: option.weight)
    others = len(options) - 1
    probabilities = np.zeros(len(Exploit))
    for option in options:
        probabilities[option.exploit] = (1 - P_BEST_EXPLOIT) / max(others, 1)
    probabilities[best.exploit] = P_BEST_EXPLOIT if others else 1.0
    return probabilities


@pytest.mark.parametrize("chance", CHANCES)
def test_blue_notices_19_of_20_shells(chance: str):
    seen = np.zeros(2, int)
    for _, truth, _ in _steps("meander", chance, uniform, 10_000, 100, seed=15):
        seen += np.bincount(truth.detected[truth.detected >= 0], minlength=2)
    assert seen.sum() > 80_000
    _plausible(stats.binomtest(int(seen[1]), int(seen.sum()), P_DETECTED).pvalue, f"unseen and seen shells {seen}")


# ---------------------------------------------------------------------- green, and the mix of red agents


@pytest.mark.parametrize("chance", CHANCES)
def test_green_scans_every_other_step(chance: str):
    """Nothing with 1/2, else any of its eight hosts."""
    counts = np.zeros(14, int)
    for _, truth, _ in _steps("sleep", chance, sleep, 4_000, 50, seed=16, green="active"):
        counts += np.bincount(truth.green_target.astype(int) + 1, minlength=14)
    probabilities = np.zeros(14)
    probabilities[0] = 1 / 2
    probabilities[1 + np.array([1, 2, 3, 8, 9, 10, 11, 12])] = 1 / 16
    _expect_counts(counts, probabilities, "green's targets")


@pytest.mark.parametrize("chance", CHANCES)
def test_mix_draws_any_agent_in_each_episode(chance: str):
    """Two episodes: nine equally likely pairs of agents."""
    n = 40_000
    envs = stockade.make_vec(n, backend="native", red="mix", horizon=2, chance=chance, autoreset_mode="disabled")
    envs.reset(seed=17)
    first = envs.true_state().red.astype(int).copy()
    envs.reset()
    pairs = 3 * first + envs.true_state().red
    envs.close()
    _expect_counts(np.bincount(pairs, minlength=9), np.full(9, 1 / 9), "agents of two episodes")


# ---------------------------------------------------------------------- returns


def _returns(red: str, chance: str, policy: Policy, n: int, seed: int, rules: str = "current") -> np.ndarray:
    """Returns in tenths after 30, 50 and 100 steps: (n, 3) int."""
    total, found = np.zeros(n, int), []
    for t, _, reward in _steps(red, chance, policy, n, 100, seed, rules=rules):
        total += np.rint(10 * reward).astype(int)
        if t + 1 in HORIZONS:
            found.append(total.copy())
    return np.stack(found, axis=1)


@pytest.fixture(scope="module")
def recorded(data_dir) -> dict[tuple[str, str], np.ndarray]:
    """Recorded returns of the reference in tenths, by cell: (episodes, 3) int."""
    with np.load(data_dir / "reference_returns.npz") as file:
        return {(red, policy): np.rint(10 * file[f"{RED_NAMES[red]}__{policy}"]).astype(int) for red, policy in CELLS}


def _expect_same_returns(first: np.ndarray, second: np.ndarray, what: str) -> None:
    """Kolmogorov-Smirnov test and Welch's test of the means, for each of the three horizons."""
    for i, horizon in enumerate(HORIZONS):
        a, b = first[:, i], second[:, i]
        if a.min() == a.max() == b.min() == b.max():
            continue
        where = f"{what} after {horizon} steps, means {a.mean() / 10:.2f} and {b.mean() / 10:.2f}"
        _plausible(stats.ks_2samp(a, b, method="asymp").pvalue, f"returns of {where}")
        _plausible(stats.ttest_ind(a, b, equal_var=False).pvalue, f"mean return of {where}")


@pytest.mark.parametrize("red", RED_NAMES)
def test_cyborg_gives_the_recorded_returns_episode_for_episode(red: str, recorded):
    """With a sleeping blue nothing but the seed decides; episode i of cell k had the seed 5,000,000 + 10,000 k + i."""
    expected = recorded[red, "sleep"]
    seed = 5_000_000 + 10_000 * CELLS.index((red, "sleep"))
    assert np.array_equal(_returns(red, "cyborg", sleep, len(expected), seed), expected)


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize(("red", "policy"), CELLS)
def test_returns_are_distributed_like_the_recorded_ones(red: str, policy: str, chance: str, recorded):
    played = _returns(red, chance, RECORDED[policy], 4_000, seed=18)
    _expect_same_returns(played, recorded[red, policy], f"{red} against {policy}, {chance} and recorded")


@pytest.mark.parametrize("rules", ["current", "leaderboard"])
@pytest.mark.parametrize("policy", [uniform, react_restore])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_fast_and_cyborg_have_the_same_returns(red: str, policy: Policy, rules: str):
    n = 20_000
    fast, cyborg = (_returns(red, chance, policy, n, 19 + i, rules) for i, chance in enumerate(CHANCES))
    _expect_same_returns(fast, cyborg, f"{red} against {policy.__name__}, {rules}, fast and cyborg")
