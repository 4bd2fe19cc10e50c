"""A first look: the same seeded episodes that the reference gives, and how fast they are here.

Plays three simple defenders against the three attackers, and prints what an episode of each costs.
"""

import time

import numpy as np

import stockade
from stockade.cage2 import HOSTS, action_index

EPISODES, HORIZON = 1000, 100
CHANCE = np.random.default_rng(0)
RESTORES = np.array([action_index("Restore", host) for host in HOSTS])


def sleep(obs: np.ndarray) -> np.ndarray:
    """Do nothing."""
    return np.zeros(len(obs), np.int64)


def random(obs: np.ndarray) -> np.ndarray:
    """Do anything."""
    return CHANCE.integers(0, 145, len(obs))


def restore(obs: np.ndarray) -> np.ndarray:
    """Restore the first host that looks compromised."""
    compromised = obs.reshape(len(obs), len(HOSTS), 4)[:, :, 2:].any(axis=2)
    return np.where(compromised.any(axis=1), RESTORES[compromised.argmax(axis=1)], 0)


def mean_return(red: str, policy) -> tuple[float, float]:
    """Mean and standard error of the return of one episode in each of many worlds."""
    with stockade.make_vec(EPISODES, red=red, horizon=HORIZON, chance="cyborg") as envs:
        obs, _ = envs.reset(seed=0)
        returns = np.zeros(EPISODES)
        for _ in range(HORIZON):
            obs, reward, *_ = envs.step(policy(obs))
            returns += reward
    return returns.mean(), returns.std() / np.sqrt(EPISODES)


def steps_a_second(n_envs: int = 4096, steps: int = 500) -> float:
    """Of a vector environment with random actions."""
    envs = stockade.make_vec(n_envs, red="bline")
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 145, (steps, n_envs))
    envs.step(actions[0])
    begin = time.perf_counter()
    for t in range(steps):
        envs.step(actions[t])
    return n_envs * steps / (time.perf_counter() - begin)


def main() -> None:
    """Print the table and the speed."""
    print(f"Mean return of {EPISODES} episodes of {HORIZON} steps, seeds 0 to {EPISODES - 1} of the reference's stream")
    print("(the first run compiles the simulator, which takes about a minute)\n")
    print(f"{'blue':<10}" + "".join(f"{'red ' + red:>20}" for red in ("bline", "meander", "sleep")))
    for policy in (sleep, random, restore):
        cells = [mean_return(red, policy) for red in ("bline", "meander", "sleep")]
        print(f"{policy.__name__:<10}" + "".join(f"{mean:>12.1f} ± {1.96 * error:<5.1f}" for mean, error in cells))
    print(f"\n{steps_a_second() / 1e6:.1f} million steps a second through the vector environment on this machine")


if __name__ == "__main__":
    main()
