"""What is compared after every step: one row of integers, from the model and from the kernel.

A row holds the observation, the facts of each host, the next random word, the reward and what happened in the step; of
a red that is played also what it may try and what it sees.
`explain` turns two unequal rows back into words.
"""

from typing import Any

import numpy as np

from .host import HostFacts
from .model import ReferenceModel
from .network import N_HOSTS, Host
from .played import RED_WORDS, PlayedKernel, PlayedModel

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
STATE_FIELDS = ("service_down", "red_knows_service", "known_addresses", "known_names", "known_subnets")
RED_FIELDS = ("red_mask", *(f"red_observation[{i}]" for i in range(RED_WORDS)))  # all 0 unless red is played
# A row: 52 bits, HostFacts host after host, red's ports host after host, and WORLD_FIELDS.
WORLD_FIELDS = (*STATE_FIELDS, *RED_FIELDS, "random_peek", "reward_in_tenths", *STEP_FIELDS)
_HOSTS = N_OBSERVATION_BITS  # where the parts of a row begin
_PORTS = _HOSTS + N_HOSTS * len(HostFacts._fields)
_WORLD = _PORTS + N_HOSTS
ROW = _WORLD + len(WORLD_FIELDS)
_RED = _WORLD + len(STATE_FIELDS)
_PEEK = _RED + len(RED_FIELDS)
_NO_PLAYER = (0,) * len(RED_FIELDS)
ROW_AFTER_RESET = _PEEK + 1  # the leading part that has a meaning before the first step


def model_row(model: ReferenceModel, observation: list[int], reward: float) -> list[int]:
    """The model's row: ROW integers."""
    row = observation.copy()
    for facts in model.host_facts():
        row += facts
    row += model.red_ports
    row += (
        model.service_down,
        model.knowledge.ot_service,
        model.knowledge.address_mask,
        model.knowledge.name_mask,
        model.knowledge.subnet_mask,
        *(model.red_facts() if isinstance(model, PlayedModel) else _NO_PLAYER),
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
    if (tenths / 10 != reward).any():
        raise AssertionError(f"a reward is not rounded to one decimal: {reward[tenths / 10 != reward][:5]}")
    rows = np.empty((n, ROW), np.int64)
    rows[:, :_HOSTS] = observation
    hosts = rows[:, _HOSTS:_PORTS].reshape(n, N_HOSTS, -1)  # a view
    for i, name in enumerate(HostFacts._fields):
        hosts[:, :, i] = getattr(truth, name)
    rows[:, _PORTS:_WORLD] = truth.red_ports
    for i, name in enumerate(STATE_FIELDS):
        rows[:, _WORLD + i] = getattr(truth, name)
    rows[:, _RED:_PEEK] = envs.red_facts() if isinstance(envs, PlayedKernel) else 0
    rows[:, _PEEK] = envs.random_peek()
    rows[:, _PEEK + 1] = tenths
    for i, name in enumerate(STEP_FIELDS):
        rows[:, _PEEK + 2 + i] = getattr(truth, name)
    return rows


def explain(expected: list[int], got: list[int]) -> str:
    """Names the facts in which two rows (or their parts after a reset) differ, the model's value first."""
    names = [f"observation[{i}]" for i in range(N_OBSERVATION_BITS)]
    names += [f"{name} of {host.name}" for host in Host for name in HostFacts._fields]
    names += [f"red_ports of {host.name}" for host in Host]
    names += WORLD_FIELDS
    return "\n".join(
        f"{name}: expected {want}, got {have}"
        for name, want, have in zip(names, expected, got, strict=False)
        if want != have
    )
