"""One public checker of the contract: a way to make vector environments -> every rule -> a report, or the broken rule.

Run it on any backend, or on a vector environment of your own, as scikit-learn's `check_estimator` is run on estimators.
The rules themselves are in rules.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from stockade.vector.check.rules import RULES
from stockade.vector.check.trial import NotApplicable, Trial


@dataclass
class CheckReport:
    """What `check_vector_env` found: rules that hold, and those that do not apply with the reason."""

    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name:<24} holds" for name in self.passed]
        return "\n".join(lines + [f"{name:<24} skipped: {reason}" for name, reason in self.skipped.items()])


def check_vector_env(
    make: Callable[[], VectorEnv[Any, Any, Any]],
    *,
    single: Callable[[], gymnasium.Env[Any, Any]] | None = None,
    strict: bool = False,
    steps: int = 60,
    seed: int = 1234,
) -> CheckReport:
    """Verify that a vector environment keeps the contract.

    Args:
        make: makes a new vector environment each time it is called; the autoreset mode that its metadata names is the
            one that is checked. Give it environments whose episodes end within `steps`, or those rules see little.
        single: makes one of its environments. If given, every number is compared with that of single environments
            stepped one after the other. Needs infos that are the same in every run.
        strict: demand also what Gymnasium leaves open: errors for wrong call order, use after close and bad actions.
        steps: length of the runs.
        seed: for environments and actions.

    Returns:
        Which rules hold and which do not apply.

    Raises:
        ContractViolation: names the first broken rule.

    Example:
        >>> from stockade.vector import SyntheticEnv, check_vector_env, make_vector
        >>> report = check_vector_env(lambda: make_vector("serial", SyntheticEnv, 2), single=SyntheticEnv, steps=120)
        >>> "seeds" in report.passed
        True
    """
    report = CheckReport()
    spare: list[VectorEnv[Any, Any, Any]] = []
    try:
        for rule in RULES:
            trial = Trial(rule.__name__, make, single, strict, steps, seed, spare)
            try:
                rule(trial)
            except NotApplicable as reason:
                report.skipped[rule.__name__] = str(reason)
            else:
                report.passed.append(rule.__name__)
            finally:
                trial.finish()
    finally:
        for envs in spare:
            envs.close()
    return report
