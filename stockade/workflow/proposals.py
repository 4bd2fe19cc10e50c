"""Which order to train next, given what others were worth: GP-UCB, and three strategies to compare it with.

    tell(result) ... -> value model, feasibility model -> propose(pending) -> Candidate

All strategies work on classes of orders that are equal in effect (every order is a class of its own with --no-classes),
propose the representative of a class, never a class that is pending, and never one that has once failed to comply. A
proposal depends on the configuration, on the results and on what is pending, and on nothing else: a search that is
resumed tells the same results again and continues as it would have. docs/concepts/workflows.md has the rules and
their reasons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stockade.workflow.config import SearchConfig
from stockade.workflow.gaussian_process import GaussianProcess, Observations
from stockade.workflow.orders import ALL_MATTER, CANONICAL, ORDERS, Order, classes_of, distances, index_of, preference
from stockade.workflow.store import WorkflowResult

MIN_FEASIBILITY = 0.25  #: least probability of complying with which GP-UCB tries an order for its value
PRESUMED_MARGIN = 0.5  #: mean of the feasibility model; before anything is known it gives a probability of 0.69
NEAR_MISS = -0.3  #: what a training counts for feasibility that fell short of the threshold by next to nothing
SETTLED = 0.3  #: share of the sd among orders to which that of one must have shrunk for no repeat to be needed
N_TOP = 5  #: candidates that a proposal shows
FIRST_GAIN = 0.2  #: share of its value that the first training of an order may still gain, until one was continued
_DIGITS = 9  #: differences of scores beyond are rounding, not preference


@dataclass(frozen=True)
class Candidate:
    """A class of orders and what is thought of it."""

    order: Order  #: its representative
    ucb: float  #: of its value, as `mean` and `sd`, with what is pending or has failed as if seen at its mean; NaN as
    mean: float  #: long as nothing feasible is known
    sd: float
    feasibility: float  #: probability that a training complies
    top: tuple["Candidate", ...] = ()  #: of the one that is proposed: what GP-UCB likes best, whatever the strategy


class Strategy:
    """Remembers results and chooses as `config.search` says; `matters`, (5,) bool: types that red can hold."""

    def __init__(self, config: SearchConfig, matters: np.ndarray) -> None:
        self._config, self._strict = config, config.constraint == "strict"
        self._results: list[WorkflowResult] = []
        self.matters = ~ALL_MATTER if config.classes else ALL_MATTER
        self.set_matters(matters)

    # ------------------------------------------------------------------------------------------------ what is known
    def set_matters(self, matters: np.ndarray) -> None:
        """Red was seen to hold these types; they count from now on beside those that counted before."""
        self.matters = self.matters | np.asarray(matters, np.bool_)
        self._distance = distances("kendall" if self._config.kernel == "mallows" else "spearman", self.matters)
        self._class_of = classes_of(self.matters)
        classes = [np.flatnonzero(self._class_of == c) for c in range(self._class_of.max() + 1)]
        #: (classes,) the number of the representative of each class
        self._representatives = np.array([min(c, key=lambda number: preference(ORDERS[number])) for c in classes])

    def tell(self, result: WorkflowResult) -> None:
        """A training has ended."""
        index_of(result.order)
        if result.feasible and not math.isfinite(result.value):
            raise ValueError(f"the value of a feasible workflow must be finite, not {result.value}")
        self._results.append(result)

    @property
    def n_classes(self) -> int:
        return len(self._representatives)

    def _class(self, order: Order) -> int:
        return int(self._class_of[index_of(order)])

    # ------------------------------------------------------------------------------------------------------- models
    def _seen(self) -> list[WorkflowResult]:
        """Results that the value model sees: the feasible ones; with strict the latest of each class."""
        if self._strict:
            return list({self._class(r.order): r for r in self._results}.values())
        return [r for r in self._results if r.feasible]

    def value_model(self) -> GaussianProcess:
        """Of the value of all 120 orders."""
        seen = self._seen()
        errors = np.array([r.value_error for r in seen], np.float64)
        errors = np.where(np.isfinite(errors), errors, 0.0)  # unknown: all noise is for the model to learn
        variances = errors**2 + self._gains_to_come(seen) ** 2
        data = Observations([index_of(r.order) for r in seen], [r.value for r in seen], variances)
        return GaussianProcess.fit(self._distance, data)

    def _gains_to_come(self, results: Sequence[WorkflowResult]) -> np.ndarray:
        """(n,) what more training may still add to each value; 0 with reward, where nothing is trained further."""
        gains = np.array([r.gain for r in results], np.float64)
        if not self._strict or not len(gains):
            return np.zeros(len(gains))
        known = [r.gain for r in self._results if math.isfinite(r.gain)]
        first = max(0.0, float(np.mean(known))) if known else FIRST_GAIN * np.abs([r.value for r in results])
        return np.where(np.isfinite(gains), np.maximum(gains, 0.0), first)

    def noise_sd(self) -> float:
        """Standard deviation between two trainings of the same order, as the value model sees it; 0 if it saw none."""
        return math.sqrt(self.value_model().hyper.noise_variance) if self._seen() else 0.0

    def feasibility(self) -> np.ndarray:
        """(120,) probability that a training complies."""
        if self._strict:
            return np.ones(len(ORDERS))
        margins = [margin(r, self._config.protocol.compliance_threshold) for r in self._results]
        data = Observations([index_of(r.order) for r in self._results], margins, np.zeros(len(margins)))
        model = GaussianProcess.fit(self._distance, data, PRESUMED_MARGIN, scale=1.0)
        mean, sd = model.posterior()
        z = mean / np.sqrt(sd**2 + model.hyper.noise_variance)
        return np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])

    # ----------------------------------------------------------------------------------------------------- choosing
    def propose(self, pending: Sequence[Order] = ()) -> Candidate | None:
        """The next one, while `pending` are being trained. None if nothing sensible is left: every class is pending or
        has failed, or a single one has not and is known. The result of what is pending may change that."""
        under_way = np.array([index_of(order) for order in pending], np.int64)
        attempts = np.bincount([self._class(r.order) for r in self._results], minlength=self.n_classes)
        closed = {self._class(r.order) for r in self._results if not r.feasible}
        remaining = [c for c in self._domain() if c not in closed]
        if len(remaining) == 1 and attempts[remaining[0]] > 0:
            return None  # nothing to compare it with
        waiting = [c for c in remaining if c not in self._class_of[under_way]]
        if not waiting:
            return None
        candidates, liked = self._judge(waiting, attempts, under_way)
        chosen = self._choose(liked, attempts, len(self._results) + len(pending))
        return None if chosen is None else replace(candidates[chosen], top=tuple(candidates[c] for c in liked[:N_TOP]))

    def _domain(self) -> Sequence[int]:
        """Classes that the strategy considers."""
        if self._config.search == "round-robin":
            return list(dict.fromkeys(self._class(order) for order in CANONICAL.values()))
        return range(self.n_classes)

    def _choose(self, liked: list[int], attempts: np.ndarray, number: int) -> int | None:
        """One of the classes that are neither pending nor closed, `liked` from best to worst by GP-UCB.

        attempts: (classes,) trainings of each so far. number: of this proposal in the search.
        """
        fewest = [c for c in sorted(liked) if attempts[c] == attempts[liked].min()]
        match self._config.search:
            case "gp-ucb":
                return liked[0]
            case "random":  # none again before all had their turn
                return fewest[int(np.random.default_rng([self._config.seed, number]).integers(len(fewest)))]
            case "round-robin":  # the canonical orders in turn, over and over
                return min(fewest, key=self._domain().index)
            case "all":  # each once, in the order of their representatives
                return min((c for c in liked if attempts[c] == 0), key=self._representatives.__getitem__, default=None)

    def _judge(
        self, classes: list[int], attempts: np.ndarray, pending: np.ndarray
    ) -> tuple[dict[int, Candidate], list[int]]:
        """What is thought of the classes, and these sorted as GP-UCB likes them.

        Equal ones: the class with fewer attempts, then canonical orders, then by number. Of the distances between
        orders no order is the centre, so that this alone decides on the first proposal.
        """
        feasibility, value = self.feasibility(), self.value_model()
        seen = [self._class(r.order) for r in self._results if r.feasible]
        feasible, repeats = set(seen), len(seen) - len(set(seen))
        failed = np.array([index_of(r.order) for r in self._results if not r.feasible], np.int64)
        mean, sd = value.expecting(np.concatenate([pending, failed]))
        ucb = mean + self._config.gp_beta * sd
        unit = float(np.sqrt(value.hyper.signal_variance))

        def dislike(c: int) -> tuple[float, ...]:
            arm = self._representatives[c]
            by_value = -round(float(ucb[arm] / unit), _DIGITS)
            by_feasibility = -round(float(feasibility[arm]), _DIGITS)
            probable = feasibility[arm] >= MIN_FEASIBILITY / (1 + repeats)
            hopeful = c in feasible or (bool(feasible) and probable)
            settled = not self._strict and c in feasible and sd[arm] <= SETTLED * unit
            scores = (by_value, by_feasibility) if hopeful else (by_feasibility, by_value)
            return (not hopeful, settled, *scores, int(attempts[c]), *preference(ORDERS[arm]))

        # What a model thinks that has seen nothing helps to choose, but says nothing.
        shown = np.stack([ucb, mean, sd]) if feasible else np.full((3, len(ORDERS)), np.nan)
        candidates = {}
        for c in classes:
            arm = self._representatives[c]
            high, middle, spread = shown[:, arm].tolist()
            candidates[c] = Candidate(ORDERS[arm], high, middle, spread, float(feasibility[arm]))
        return candidates, sorted(classes, key=dislike)


def margin(result: WorkflowResult, threshold: float) -> float:
    """1 for a feasible result, else from NEAR_MISS down to -1: by how much of the threshold it fell short."""
    if result.feasible:
        return 1.0
    if not result.compliance < threshold:  # NaN: nothing was fixed; more: too little was to judge by
        return -1.0
    return -1.0 + (1.0 + NEAR_MISS) * result.compliance / threshold
