"""The oracle model replays recorded episodes of the reference simulator without a difference.

Every file is replayed, the first episodes of each: all red agents and a red that is played freely, blue policies, both
rule sets, green asleep and active. `python -m tests.oracle.test_model_traces` replays all episodes.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from .host import HostFacts
from .model import ReferenceModel
from .network import Host

_TRACES = Path(__file__).parents[1] / "data" / "traces"
_FILES = sorted(_TRACES.glob("*.npz"))
_EPISODES = 4
_RED = {"B_lineAgent": "bline", "RedMeanderAgent": "meander", "SleepAgent": "sleep", "player": "sleep"}
_GREEN = {"SleepAgent": "sleep", "GreenAgent": "active"}
# Arrays of a trace that tell what happened in step t, and how the model calls it.
_STEP = {
    "red_type": "red_type",
    "red_target": "red_target",
    "red_success": "red_success",
    "exploit": "exploit",
    "detect": "detected",
    "blue_action": "blue_action",
    "blue_success": "blue_success",
    "red_invalid": "red_invalid",
}
# More of that where red was told what to do.
_FREE_STEP = {name: name for name in ("red_saw_ports", "red_saw_session", "red_reward")}
# Facts of a host, and the arrays of a trace that tell them after step t.
_HOSTS = {name: name for name in HostFacts._fields} | {"red_access": "red_priv"}


def _model_of(trace: dict[str, np.ndarray]) -> ReferenceModel:
    meta = json.loads(str(trace["meta"]))
    return ReferenceModel(_RED[meta["red"]], _GREEN[meta["green"]], meta.get("rules", "current"))


def _state(model: ReferenceModel, observation: list[int]) -> dict[str, object]:
    """The model's state in the words of a trace, including what no environment shows."""
    service, knowledge = model.service, model.knowledge
    known = [
        1 * (host in knowledge.addresses) | 2 * (knowledge.ports[host] > 0) | 4 * (host in knowledge.names)
        for host in Host
    ]
    by_host = zip(*model.host_facts(), strict=True)
    return {_HOSTS[name]: list(values) for name, values in zip(HostFacts._fields, by_host, strict=True)} | {
        "red_ports": model.red_ports,
        "obs": observation,
        "rng_peek": model.random_peek(),
        "sus_pids": [len(host.suspicious) for host in model.hosts],
        "n_processes": [len(host.processes) for host in model.hosts],
        "red_know": known,
        "red_subnets": knowledge.subnet_mask,
        "ot": model.service_down | 2 * service.active | 4 * (service.pid is not None) | 8 * knowledge.ot_service,
    }


def _recorded_state(trace: dict[str, np.ndarray], episode: int, t: int) -> dict[str, object]:
    names = (*_HOSTS.values(), "red_ports", "obs", "rng_peek", "sus_pids", "n_processes")
    recorded = {name: trace[name][episode, t].tolist() for name in names}
    return recorded | {
        "red_know": (trace["red_know"][episode, t] & 7).tolist(),
        "red_subnets": int(trace["red_subnets"][episode, t]),
        "ot": int(trace["ot"][episode, t]),
    }


def _replay(trace: dict[str, np.ndarray], episode: int) -> int:
    """Replays one episode; fails at the first difference. Returns the number of steps."""
    model = _model_of(trace)
    observation = model.reset(int(trace["seed"][episode]))
    words = model.stream.words_taken
    assert words == trace["rng_words"][episode, 0]
    assert _state(model, observation) == _recorded_state(trace, episode, 0), f"{episode=} after reset"
    steps = int(trace["valid_steps"][episode])
    free = "red_action" in trace
    facts = _STEP | _FREE_STEP if free else _STEP
    for t in range(steps):
        given = int(trace["red_action"][episode, t]) if free else None
        observation, reward = model.step(int(trace["blue_action"][episode, t]), given)
        where = f"{episode=} step={t}"
        expected = {name: trace[name][episode, t].item() for name in facts}
        assert {name: getattr(model, fact) for name, fact in facts.items()} == expected, where
        assert not free or model.red_mask == trace["red_mask"][episode, t + 1], where
        assert reward == trace["reward"][episode, t], where
        assert _green(model) == (trace["green_type"][episode, t], trace["green_target"][episode, t]), where
        assert _state(model, observation) == _recorded_state(trace, episode, t + 1), where
        assert model.stream.words_taken - words == trace["rng_words"][episode, t + 1], where
        words = model.stream.words_taken
    return steps


def _green(model: ReferenceModel) -> tuple[int, int]:
    """Kind and target of green's action: 0 Sleep, 1 port scan."""
    return int(model.green_target >= 0), model.green_target


def _load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_traces_are_there():
    free = [path for path in _FILES if path.stem.startswith("free_")]
    assert (len(_FILES) - len(free), len(free)) == (35, 32)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_model_replays_recorded_episodes(path):
    trace = _load(path)
    for episode in range(min(_EPISODES, len(trace["seed"]))):
        assert _replay(trace, episode) == 100


def test_reset_without_a_seed_goes_on_with_the_stream():
    """As in the reference, where one global `random` serves episode after episode."""
    model, source = ReferenceModel("bline"), random.Random(11)
    model.reset(seed=11)
    for _ in range(50):
        model.step(0)
    model.reset()
    for _ in range(model.stream.words_taken):
        source.getrandbits(32)
    assert model.random_peek() == source.getrandbits(32)


if __name__ == "__main__":
    for file in _FILES if len(sys.argv) < 2 else map(Path, sys.argv[1:]):
        whole = _load(file)
        print(file.name, sum(_replay(whole, i) for i in range(len(whole["seed"]))), "steps equal", flush=True)
