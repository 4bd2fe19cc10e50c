"""Look ahead with snapshots: try all 145 actions from one moment, many futures each, and take the best.

The reference cannot copy itself; here one world is put into thousands in a call. A short-sighted planner like this one
already defends better than reacting does.
"""

import numpy as np

import stockade
from stockade.cage2 import ACTION_MASK, ACTION_NAMES

FUTURES, DEPTH = 64, 8
CANDIDATES = np.flatnonzero(ACTION_MASK)  # decoys that can never start are left out


def best_action(env, planner, seed: int) -> int:
    """The action whose futures (then doing nothing) cost least. The planner knows the true state, as a bound would."""
    planner.restore(env.snapshot(), seed=seed)
    actions = np.repeat(CANDIDATES, FUTURES)
    total = np.zeros(len(actions))
    for _ in range(DEPTH):
        _, reward, *_ = planner.step(actions)
        total += reward
        actions = np.zeros_like(actions)
    return int(CANDIDATES[total.reshape(len(CANDIDATES), FUTURES).mean(axis=1).argmax()])


def main() -> None:
    """Play one episode."""
    env = stockade.make(red="bline", horizon=30)
    planner = stockade.make_vec(len(CANDIDATES) * FUTURES, red="bline", horizon=30)
    env.reset(seed=0)
    total = 0.0
    for t in range(30):
        action = best_action(env, planner, seed=1000 * t)
        _, reward, _, _, info = env.step(action)
        total += reward
        print(f"{t:>2}  blue {ACTION_NAMES[action]:<26} red {info['red_action']:<34} reward {reward:6.1f}")
    print(f"return {total:.1f}")


if __name__ == "__main__":
    main()
