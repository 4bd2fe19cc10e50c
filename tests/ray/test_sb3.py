"""`stockade.integrations.sb3` over backend `ray`: what it is over the others (tests/integrations/test_sb3.py)."""

import functools

import numpy as np
import pytest

import stockade
from stockade.cage2 import ACTION_MASK
from stockade.vector import Fault, SyntheticEnv

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed: pip install 'stockade[sb3]'")

from stockade.integrations.sb3 import make_sb3
from tests.integrations.test_sb3 import assert_same_steps, theirs

pytestmark = pytest.mark.usefixtures("local_ray")


@pytest.mark.essential
@pytest.mark.parametrize("mode", ["same_step", pytest.param("next_step", marks=pytest.mark.slow)])
def test_episodes_are_those_of_their_own_vector_environment(mode):
    world = {"red": "meander", "horizon": 7, "chance": "cyborg", "info": True, "action_mask": True}
    ours = make_sb3(5, "ray", workers=2, autoreset_mode=mode, **world)
    try:
        assert assert_same_steps(ours, theirs(lambda: stockade.make(**world), 5), 30, seed=3) == 20
        masks = np.stack(ours.env_method("action_masks"))
        assert masks.tolist() == [ACTION_MASK.astype(bool).tolist()] * 5
        assert len(ours.env_method("action_masks", indices=[4, 1])) == 2
    finally:
        ours.close()


def test_a_lost_actor_is_a_truncated_episode():
    factory = functools.partial(SyntheticEnv, horizon=40, fixed_length=True, faults=(Fault("kill", 3, seed=0),))
    env = make_sb3(2, "ray", env=factory, workers=2, restart=1)
    try:
        env.seed(0)
        env.reset()
        for _ in range(2):
            last, *_ = env.step([1, 1])
        _, _, dones, infos = env.step([1, 1])
        assert dones.tolist() == [True, False]
        assert infos[0]["TimeLimit.truncated"] is True
        assert infos[0]["terminal_observation"].tolist() == last[0].tolist()
    finally:
        env.close()
