"""What is compared after every step: one row of integers, from the model and from the kernel.

A row holds the observation, the facts of each host, the next random word, the reward and what happened in the step.
`explain` turns two unequal rows back into words.
"""

from typing import Any

import numpy as np

from .host import HostFacts
from .model import ReferenceModel
from .network import N_HOSTS, Host

N_OBSERVATION_BITS = 4 * N_HOSTS
STEP_FIELDS = (  # what happened in the last step; without a meaning after a reset
    "red_type",
    "red_target",
    "red_success",
    "exploit",
    "detected",
    "blue_action",
    "blue_success",
    "green_target",
)
# Names of the parts of a row, and how many integers each takes. `hosts` holds HostFacts host after host.
LAYOUT = {
    "observation": N_OBSERVATION_BITS,
    "hosts": N_HOSTS * len(HostFacts._fields),
    "red_ports": N_HOSTS,
    "service_down": 1,
    "random_peek": 1,
    "reward_in_tenths": 1,
    **dict.fromkeys(STEP_FIELDS, 1),
}
ROW = sum(LAYOUT.values())
ROW_AFTER_RESET = ROW - len(STEP_FIELDS) - 1  # the leading part that has a meaning before the first step


def model_row(model: ReferenceModel, observation: list[int], reward: float) -> list[int]:
    """The model's row: ROW integers."""
    row = observation.copy()
    for facts in model.host_facts():
        row += facts
    row += model.red_ports
    row += (
        model.service_down,
        model.random_peek(),
        round(10 * reward),
        model.red_type,
        model.red_target,
        model.red_success,
        model.exploit,
        model.detected,
        model.blue_action,
        model.blue_success,
        model.green_target,
    )
    return row


def kernel_rows(envs: Any, observation: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """The rows of all worlds of a vector environment: (n, ROW) int64. Rewards must be whole tenths, exactly."""
    truth, n = envs.true_state(), len(observation)
    tenths = np.rint(10 * reward)
    if not np.array_equal(tenths / 10, reward):
        raise AssertionError(f"a reward is not rounded to one decimal: {reward[tenths / 10 != reward][:5]}")
    hosts = np.stack([getattr(truth, name) for name in HostFacts._fields], axis=-1)
    parts = [observation, hosts.reshape(n, -1), truth.red_ports, truth.service_down, envs.random_peek(), tenths]
    parts += [getattr(truth, name) for name in STEP_FIELDS]
    return np.column_stack([np.asarray(part).astype(np.int64) for part in parts])


def explain(expected: np.ndarray, got: np.ndarray) -> str:
    """Names the facts in which two rows (or their parts after a reset) differ, the model's value first."""
    names = [f"observation[{i}]" for i in range(N_OBSERVATION_BITS)]
    names += [f"{name} of {host.name}" for host in Host for name in HostFacts._fields]
    names += [f"red_ports of {host.name}" for host in Host]
    names += list(LAYOUT)[3:]
    return "\n".join(
        f"{name}: expected {want}, got {have}"
        for name, want, have in zip(names, expected.tolist(), got.tolist(), strict=False)
        if want != have
    )
