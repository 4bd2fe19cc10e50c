"""`fast` and `cyborg` draw from the same distributions, and both from those of the reference simulator.

Error probability. Each p-value below must exceed ALPHA = 1e-6 / 250, and fewer than 250 are computed (198). So if all
distributions are equal, the probability that unlucky seeds make any test of this file fail is below 1e-6 (Bonferroni).
The seeds are fixed: a test that passes goes on passing until the code changes.

Power. A deviation of the size named here is found with a probability of 0.999; smaller ones may pass.
    B_line's entry          a host with the probability 0.25 off by 0.02
    Meander's scans         one of the 60 orders half as likely as it should be
    pairs of entries        neighbouring seeds or two episodes of one stream: one of 16 pairs off by 0.3 of its share
    red's actions           an action with a share of 0.05 at its step off by 0.03
    exploit choice          0.75 for the best exploit off by 0.025
    detection               0.95 off by 0.007
    mix, green              a pair of agents off by 0.15 of its share, a host that green scans by 0.1
    returns                 the mean against the 451 recorded ones off by 0.45 standard deviations, the distribution
                            function by 0.24; `fast` against `cyborg`: 0.12 and 0.065
What differs by construction stays far below that: under `fast` no process ids meet by chance (1 in 32,768).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import stockade

from .network import P_BEST_EXPLOIT, P_DETECTED, Exploit, Host, RedAction, exploit_options
from .policies import Policy, react_restore, sleep, uniform

ALPHA = 1e-6 / 250
_BLOCK = 4_000  # worlds at once: under `cyborg` each takes 33 KB
CHANCES = ("fast", "cyborg")
HORIZONS = (30, 50, 100)
# Blue policies of the recorded returns. `random` and `react_restore` drew from private streams, so only their
# distribution can be compared; what they do was read off the recorded traces (see policies.py).
RECORDED = {"sleep": sleep, "random": uniform, "react_restore": react_restore}
RED_NAMES = {"bline": "B_lineAgent", "meander": "RedMeanderAgent", "sleep": "SleepAgent"}
CELLS = [(red, policy) for red in RED_NAMES for policy in RECORDED]  # in the order of the recording


def _blocks(red: str, chance: str, n: int, horizon: int, seed: int, **world: str) -> Iterator[Any]:
    """Vector environments of together n worlds, with consecutive seeds, after `reset`: (envs, observation)."""
    size = min(n, _BLOCK)
    assert n % size == 0, "blocks must be full"
    settings = {"red": red, "chance": chance, "horizon": horizon, "autoreset_mode": "disabled", **world}
    envs = stockade.make_vec(size, backend="native", **settings)
    for start in range(0, n, size):
        observation, _ = envs.reset(seed=seed + start)
        yield envs, observation
    envs.close()


def _steps(red: str, chance: str, policy: Policy, n: int, horizon: int, seed: int, **world: str) -> Iterator[Any]:
    """Plays an episode in n worlds, block by block; yields (t, true state, reward) after every step, t = 0, 1, ..."""
    generator = np.random.default_rng(seed)
    for envs, observation in _blocks(red, chance, n, horizon, seed, **world):
        for t in range(horizon):
            observation, reward, _, _, _ = envs.step(policy(generator, observation, t))
            yield t, envs.true_state(), reward


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
    """Neighbouring seeds (worlds 2i and 2i + 1) are independent, too: 16 equally likely pairs."""
    steps = _steps("bline", chance, sleep, 40_000, 2, seed=10)
    entry = np.concatenate([truth.red_target.astype(int) - Host.USER1 for t, truth, _ in steps if t == 1])
    _expect_counts(np.bincount(entry), np.full(4, 1 / 4), "entry host")
    _expect_counts(np.bincount(4 * entry[0::2] + entry[1::2]), np.full(16, 1 / 16), "entry hosts of neighbours")


@pytest.mark.parametrize("chance", CHANCES)
def test_bline_enters_anew_in_each_episode(chance: str):
    """Two episodes of one stream: 16 equally likely pairs."""
    counts = np.zeros(16, int)
    for envs, _ in _blocks("bline", chance, 40_000, 2, seed=11):
        entries = []
        for _ in range(2):
            envs.step(np.zeros(envs.num_envs, int))
            envs.step(np.zeros(envs.num_envs, int))
            entries.append(envs.true_state().red_target.astype(int) - Host.USER1)
            envs.reset()
        counts += np.bincount(4 * entries[0] + entries[1], minlength=16)
    _expect_counts(counts, np.full(16, 1 / 16), "entry hosts of two episodes")


@pytest.mark.parametrize("chance", CHANCES)
def test_meander_scans_in_any_order(chance: str):
    """After the subnet, three of five user hosts one after another: 60 equally likely orders."""
    counts, order = np.zeros(125, int), np.zeros(_BLOCK, int)
    for t, truth, _ in _steps("meander", chance, sleep, 40_000, 4, seed=12):
        if t > 0:
            assert (truth.red_type == RedAction.DISCOVER_NETWORK_SERVICES).all()
            order = 5 * order + truth.red_target - Host.USER0  # as digits of base 5
        if t == 3:
            counts += np.bincount(order, minlength=125)
            order = np.zeros(_BLOCK, int)
    a, b, c = np.indices((5, 5, 5)).reshape(3, -1)
    _expect_counts(counts, ((a != b) & (b != c) & (a != c)) / 60, "orders of scanning")


@pytest.mark.parametrize("policy", [sleep, pytest.param(uniform, marks=pytest.mark.slow), react_restore])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_red_does_the_same_things_at_the_same_times(red: str, policy: Policy):
    """Kind and target of red's action after 5, 10, 15, 20, 30, 40, 60 and 90 steps, `fast` against `cyborg`."""
    n, times = 8_000, (5, 10, 15, 20, 30, 40, 60, 90)
    counts = np.zeros((len(CHANCES), 91, 6 * 17 * 3), int)
    for i, chance in enumerate(CHANCES):
        for t, truth, _ in _steps(red, chance, policy, n, 91, seed=100_000 * (1 + i)):
            if t in times:
                move = 17 * truth.red_type.astype(int) + truth.red_target + 1
                counts[i, t] += np.bincount(3 * move + truth.red_success, minlength=6 * 17 * 3)
    for t in times:
        _expect_same_counts(*counts[:, t], f"{red} against {policy.__name__} at step {t}")


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_red_prefers_its_best_exploit(red: str, chance: str):
    """Given what red knows of a host's ports: the best exploit with 0.75, the others alike. One test for all masks."""
    counts: dict[int, np.ndarray] = {}
    known = np.zeros((_BLOCK, 13), int)
    for _, truth, _ in _steps(red, chance, uniform, 12_000, 100, seed=14):
        acted = np.flatnonzero((truth.red_type == RedAction.EXPLOIT_REMOTE_SERVICE) & (truth.exploit > 0))
        masks = known[acted, truth.red_target[acted]]
        for mask in np.unique(masks).tolist():
            chosen = np.bincount(truth.exploit[acted[masks == mask]], minlength=len(Exploit))
            counts[mask] = counts.get(mask, 0) + chosen
        known = truth.red_ports.astype(int)
    statistic, freedom, choices = 0.0, 0, 0
    for mask, chosen in counts.items():
        expected = chosen.sum() * _exploit_probabilities(mask)
        assert not chosen[expected == 0].any(), f"an exploit without its port: ports {mask:b}, chosen {chosen}"
        if (expected[expected > 0] > 50).all():
            statistic += (np.square(chosen - expected)[expected > 0] / expected[expected > 0]).sum()
            freedom += (expected > 0).sum() - 1
            choices += chosen.sum() if (expected > 0).sum() > 1 else 0
    assert freedom >= 10
    assert choices >= 40_000
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
    for _, truth, _ in _steps("meander", chance, uniform, 12_000, 100, seed=15):
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
    counts = np.zeros(9, int)
    for envs, _ in _blocks("mix", chance, 40_000, 2, seed=17):
        first = envs.true_state().red.astype(int)
        envs.reset()
        counts += np.bincount(3 * first + envs.true_state().red, minlength=9)
    _expect_counts(counts, np.full(9, 1 / 9), "agents of two episodes")


# ---------------------------------------------------------------------- returns


def _returns(red: str, chance: str, policy: Policy, n: int, seed: int, rules: str = "current") -> np.ndarray:
    """Returns in tenths after 30, 50 and 100 steps: (n, 3) int."""
    found: dict[int, list[np.ndarray]] = {horizon: [] for horizon in HORIZONS}
    total = np.zeros(n, int)
    for t, _, reward in _steps(red, chance, policy, n, 100, seed, rules=rules):
        tenths = np.rint(10 * reward).astype(int)
        total = tenths if t == 0 else total + tenths
        if t + 1 in HORIZONS:
            found[t + 1].append(total)
    return np.column_stack([np.concatenate(found[horizon]) for horizon in HORIZONS])


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


@pytest.mark.parametrize("rules", [pytest.param("current", marks=pytest.mark.slow), "leaderboard"])  # one was recorded
@pytest.mark.parametrize("policy", [uniform, react_restore])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_fast_and_cyborg_have_the_same_returns(red: str, policy: Policy, rules: str):
    n = 12_000
    fast, cyborg = (_returns(red, chance, policy, n, 100_000 * (1 + i), rules) for i, chance in enumerate(CHANCES))
    _expect_same_returns(fast, cyborg, f"{red} against {policy.__name__}, {rules}, fast and cyborg")
