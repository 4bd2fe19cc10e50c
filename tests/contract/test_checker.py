"""The checker notices: each broken promise is found, and named."""

import functools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from stockade.vector import ContractViolation, SerialVectorEnv, SyntheticEnv, check_vector_env
from stockade.vector.outcome import RunConfig

SINGLE = functools.partial(SyntheticEnv, horizon=12, info_size=2)


class Broken(SerialVectorEnv):
    """Right until a subclass breaks one thing."""

    mode = AutoresetMode.NEXT_STEP

    def __init__(self):
        super().__init__(SINGLE, 3, RunConfig(self.mode))


class WrongSpace(Broken):
    def __init__(self):
        super().__init__()
        self.observation_space = self.single_observation_space


class NoMode(Broken):
    def __init__(self):
        super().__init__()
        del self.metadata["autoreset_mode"]


class NotACopy(Broken):
    def _observations(self):
        return self._buffers.observations


class Float32Rewards(Broken):
    def step(self, actions):
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, rewards.astype(int), terminated, truncated, infos


class NoMasks(Broken):
    def step(self, actions):
        *values, infos = super().step(actions)
        return (*values, {key: value for key, value in infos.items() if not key.startswith("_")})


class SameSeedForAll(Broken):
    def _command(self, kind, parts=(), common=()):
        if kind == "reset":
            seeds, *rest = parts
            parts = np.full_like(seeds, seeds[0]), *rest
        return super()._command(kind, parts, common)


class ForgetsSeeds(Broken):
    def _command(self, kind, parts=(), common=()):
        if kind == "reset":
            seeds, given, mask = parts
            parts = seeds, np.zeros_like(given), mask
        return super()._command(kind, parts, common)


class OffByABit(Broken):
    def step(self, actions):
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, np.nextafter(rewards, np.inf), terminated, truncated, infos


class RewardsResets(Broken):
    def step(self, actions):
        before = self._over.copy()
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, rewards - before, terminated, truncated, infos


class NoFinalObservation(Broken):
    mode = AutoresetMode.SAME_STEP

    def step(self, actions):
        *values, infos = super().step(actions)
        return (*values, {key: value for key, value in infos.items() if "final_obs" not in key})


class IgnoresMasks(Broken):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class TakesAnyAction(Broken):
    def step(self, actions):
        return super().step(np.clip(np.nan_to_num(np.resize(actions, 3)), 0, 144).astype(int))


class StepsBeforeReset(Broken):
    def step(self, actions):
        if self._needs_reset.all():
            self.reset()
        return super().step(actions)


class SnapshotsNothing(Broken):
    def restore(self, snapshot):
        pass


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (WrongSpace, "metadata"),
        (NoMode, "metadata"),
        (NotACopy, "copies"),
        (Float32Rewards, "shapes"),
        (NoMasks, "shapes"),
        (SameSeedForAll, "single_environments"),
        (ForgetsSeeds, "single_environments"),
        (OffByABit, "single_environments"),
        (RewardsResets, "single_environments"),
        (NoFinalObservation, "single_environments"),
        (IgnoresMasks, "reset_masks"),
        (StepsBeforeReset, "call_order"),
        (TakesAnyAction, "bad_actions"),
        (SnapshotsNothing, "snapshots"),
    ],
)
def test_with_a_reference(make, rule):
    with pytest.raises(ContractViolation) as caught:
        check_vector_env(make, single=SINGLE, strict=True)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("make", "rule"),
    [(ForgetsSeeds, "seeds"), (RewardsResets, "autoreset"), (NoFinalObservation, "autoreset")],
)
def test_without_a_reference(make, rule):
    with pytest.raises(ContractViolation) as caught:
        check_vector_env(make)
    assert caught.value.rule == rule


def test_the_unbroken_one_passes():
    report = check_vector_env(Broken, single=SINGLE, strict=True)
    assert "snapshots" in report.passed
    assert "send_and_recv   " in str(report)
