"""`obs="memory"`: the 160 bits are what blue can know from its own observations and actions, by each bit's name."""

import gymnasium
import numpy as np
import pytest

import stockade
from stockade.cage2 import ACTION_NAMES, HOSTS
from stockade.cage2.history import FEATURE_NAMES, MEMORY_SIZE, MemoryObservation

from .play import CHANCES, REDS, play, random_actions


class Diary:
    """Blue's memory as a person would keep it: sets of sentences. Knows nothing of the module under test."""

    def __init__(self, horizon: int) -> None:
        self.horizon, self.time, self.sentences, self.last = horizon, 0, set(), set()

    def note(self, action: int, success: bool, bits: list[int]) -> None:
        """A step."""
        self.time += 1
        kind, _, host = ACTION_NAMES[action].partition(" ")
        self.last = set() if success else {"last action failed"}
        if host:
            self.last |= {f"last action {'decoy' if kind.startswith('Decoy') else kind}", f"last action on {host}"}
        if kind == "Restore":
            self.sentences = {s for s in self.sentences if not s.endswith(f"stands on {host}")} | {
                f"ever restored {host}"
            }
        elif kind.startswith("Decoy") and success:
            self.sentences.add(f"{kind} stands on {host}")
        for h, name in enumerate(HOSTS):
            if bits[4 * h]:
                self.sentences.add(f"ever {'exploited' if bits[4 * h + 1] else 'scanned'} {name}")

    def expected(self, bits: list[int]) -> list[int]:
        """The bits of all names."""
        left = self.horizon - self.time
        known = self.sentences | self.last
        return [*bits, *(int(name in known or _clock(name) <= left) for name in FEATURE_NAMES[52:])]


def _clock(name: str) -> float:
    number, _, rest = name.partition(" ")
    return int(number) if rest == "steps left or more" else np.inf


def test_every_bit_has_a_name_of_its_own():
    assert len(FEATURE_NAMES) == len(set(FEATURE_NAMES)) == MEMORY_SIZE == 160
    for env in (stockade.make(obs="memory"), stockade.make_vec(2, obs="memory")):
        assert env.observation_space.shape[-1] == 160
    assert sum("stands on" in name for name in FEATURE_NAMES) == 41, "the decoys that can stand at all"


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("red", REDS)
def test_the_bits_are_what_a_diary_says(red, chance):
    """Three episodes, the same world beside it with plain observations."""
    options = {"red": red, "chance": chance, "green": "active", "horizon": 45}
    env, plain = stockade.make(obs="memory", **options), stockade.make(**options)
    for episode in range(3):
        seed = 5 if episode == 0 else None
        obs, bits = env.reset(seed=seed)[0], plain.reset(seed=seed)[0]
        diary = Diary(45)
        assert obs.tolist() == diary.expected(bits.tolist())
        for action in random_actions(episode, 45, 1)[:, 0].tolist():
            obs, reward, *_, info = env.step(action)
            bits, same_reward, *_, _ = plain.step(action)
            diary.note(action, info["blue_success"], bits.tolist())
            assert obs.tolist() == diary.expected(bits.tolist())
            assert reward == same_reward


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_vector_of_worlds_remembers_as_single_ones_do(mode):
    """Over resets of every kind, and as any other vector environment over single worlds."""
    options = {"red": "mix", "horizon": 13, "obs": "memory"}
    envs = stockade.make_vec(3, autoreset_mode=mode, **options)
    modes = {m.name.lower(): m for m in gymnasium.vector.AutoresetMode}
    sync = gymnasium.vector.SyncVectorEnv([lambda: stockade.make(**options)] * 3, autoreset_mode=modes[mode])
    assert np.array_equal(envs.reset(seed=2)[0], sync.reset(seed=2)[0])
    for t, actions in enumerate(random_actions(1, 50, 3)):
        got, want = envs.step(actions), sync.step(actions)
        assert np.array_equal(got[0], want[0])
        if "final_obs" in want[4]:
            assert all(np.array_equal(a, b) for a, b in zip(got[4]["final_obs"], want[4]["final_obs"], strict=True))
        ended = want[3] if mode == "disabled" else np.array([False, t == 6, False])
        if ended.any():
            resets = [e.reset(options={"reset_mask": ended.copy()})[0] for e in (envs, sync)]
            assert np.array_equal(*resets)


@pytest.mark.parametrize("chance", CHANCES)
def test_memory_is_part_of_snapshots(chance):
    envs = stockade.make_vec(3, red="meander", chance=chance, obs="memory")
    envs.reset(seed=0)
    obs = play(envs, random_actions(0, 30, 3)).obs[-1]
    snapshot, one, actions = envs.snapshot(), envs.snapshot(1), random_actions(1, 40, 3)
    future = play(envs, actions)
    assert np.array_equal(envs.restore(snapshot), obs)
    assert play(envs, actions) == future
    single = stockade.make(red="meander", chance=chance, obs="memory")
    assert np.array_equal(single.restore(one), obs[1])
    assert np.array_equal(play(single, actions[:, 1]).obs, np.array(future.obs)[:, 1])
    plain = stockade.make_vec(3, red="meander", chance=chance)
    plain.reset(seed=0)
    with pytest.raises(ValueError, match="obs='memory'"):
        plain.restore(snapshot)


def test_the_wrapper_gives_the_same_bits_for_any_simulator():
    options = {"red": "bline", "chance": "cyborg", "horizon": 40}
    wrapped, built_in = MemoryObservation(stockade.make(**options), 40), stockade.make(obs="memory", **options)
    actions = random_actions(2, 40, 1)[:, 0]
    for seed in (3, 4):
        assert np.array_equal(wrapped.reset(seed=seed)[0], built_in.reset(seed=seed)[0])
        assert play(wrapped, actions) == play(built_in, actions)
    assert wrapped.observation_space == built_in.observation_space
    with pytest.raises(ValueError, match=r"expected observations of shape \(52,\), not \(160,\)"):
        MemoryObservation(built_in, 40)


def test_an_unknown_kind_of_observation_is_named():
    with pytest.raises(ValueError, match="obs='pixels' is unknown; take one of 'bits', 'memory'"):
        stockade.make(obs="pixels")
