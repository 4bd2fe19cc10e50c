"""Plays the built-in world on a backend and says what came out. test_cuda.py runs it on `cuda` in Numba's simulator.

arguments: what to do -> standard output: JSON
"""

import hashlib
import json
import sys

import numpy as np

import stockade
from stockade.vector import check_vector_env

N, STEPS, HORIZON = 6, 48, 9
MODES = ("next_step", "same_step", "disabled")
#: Every red, both rule sets, green, observations, weights, and each autoreset mode several times.
CASES = {
    "bline": {"red": "bline", "autoreset_mode": "next_step"},
    "bline leaderboard": {"red": "bline", "rules": "leaderboard", "autoreset_mode": "same_step"},
    "meander": {"red": "meander", "autoreset_mode": "disabled", "green": "active"},
    "meander memory": {"red": "meander", "rules": "leaderboard", "obs": "memory", "autoreset_mode": "same_step"},
    "sleep": {"red": "sleep", "green": 0.3, "autoreset_mode": "next_step", "obs_dtype": "float32"},
    "mix": {"red": "mix", "obs": "memory", "green": "active", "autoreset_mode": "next_step", "info": True},
    "weights": {"red": "bline", "reward": {"hosts": 0.3, "service": 2.0, "restore": 0.7}, "autoreset_mode": "disabled"},
    "plan": {"red": "meander>bline@3", "autoreset_mode": "same_step", "info": True},
    "variant": {"red": "bline-detour+idle:0.2+green:0.4", "obs": "memory", "autoreset_mode": "disabled"},
    "variants": {"red": "meander-aggressive|meander-stealthy+noise:0.2", "autoreset_mode": "next_step", "copy": False},
}


def digests(backend: str) -> dict[str, str]:
    """Of all that a run gives, through resets, snapshots and a new stream of chance, for each case."""
    return {name: digest(backend, options) for name, options in CASES.items()}


def digest(backend: str, options: dict) -> str:
    found = hashlib.sha256()

    def note(*values) -> None:
        for value in values:
            if isinstance(value, dict):
                note(*(part for item in sorted(value.items()) for part in item))
            elif isinstance(value, np.ndarray) and value.dtype != object:
                found.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
            elif isinstance(value, (np.ndarray, tuple)):
                note(*value)
            else:
                found.update(repr(value).encode())

    def play(envs, run) -> None:
        for actions in run:
            results = envs.step(actions)
            note(results)
            if options["autoreset_mode"] == "disabled" and results[3].any():
                note(envs.reset(options={"reset_mask": results[3].copy()}))

    run = np.random.default_rng(5).integers(145, size=(STEPS, N))
    with stockade.make_vec(N, backend, horizon=HORIZON, **options) as envs:
        note(envs.reset(seed=2**63 + 3))
        play(envs, run[:16])
        before = envs.snapshot()
        play(envs, run[16:32])
        truth = envs.true_state()
        note(truth.red_access, truth.time, truth.age, truth.red_type)
        note(envs.restore(before, seed=7))
        play(envs, run[32:])
        note(envs.restore(envs.snapshot(2), index=0))
        play(envs, run[:6])
        note(envs.reset(seed=[None, 4, None, None, 9, None]), envs.get_attr("config")[0].red)
        note(*envs.apply(lambda env: env.reset(seed=9)[0], [1]))  # a single environment changes its world
        play(envs, run[6:10])
        after = envs.snapshot()
        note(after.worlds, after.memory)
    return found.hexdigest()


def contract(mode: str) -> dict[str, list[str]]:
    """The rules that `check_vector_env` verified."""
    report = check_vector_env(
        lambda: stockade.make_vec(2, "cuda", horizon=5, autoreset_mode=mode),
        single=lambda: stockade.make(horizon=5, info=False),
        strict=True,
        steps=12,
    )
    return {"passed": list(report.passed), "skipped": list(report.skipped)}


def device() -> dict[str, object]:
    """Results that stay on the device, as arrays and as Torch tensors, beside those of `native`."""
    import torch

    facts: dict[str, object] = {}
    run = np.random.default_rng(6).integers(145, size=(14, N))
    for mode, obs in zip(MODES, ("bits", "memory", "bits"), strict=True):
        options = {"red": "mix", "horizon": 6, "autoreset_mode": mode, "obs": obs}
        with stockade.make_vec(N, "native", **options) as native, stockade.make_vec(N, "cuda", **options) as envs:
            native.reset(seed=1)
            envs.reset(seed=1)
            equal, places = True, set()
            for step, actions in enumerate(run):
                expected = native.step(actions)
                given = [torch.as_tensor(actions), actions.astype(np.int32)][step % 2]
                results = envs.step_device(given)
                if step % 2 == 0:
                    assert all(isinstance(tensor, torch.Tensor) for tensor in results)
                    places.add(tuple(tensor.data_ptr() for tensor in results))
                equal &= all(np.array_equal(expected[k], np.asarray(results[k])) for k in range(4))
                if mode == "same_step" and expected[3].any():
                    final = envs.tensors().final_observations.numpy()
                    equal &= all(
                        np.array_equal(final[i], expected[4]["final_obs"][i]) for i in np.flatnonzero(expected[3])
                    )
                if mode == "disabled" and expected[3].any():
                    obs_after, _ = native.reset(options={"reset_mask": expected[3].copy()})
                    envs.reset(options={"reset_mask": expected[3].copy()})
                    equal &= np.array_equal(np.asarray(envs.device_arrays().observations), obs_after)
                if mode != "disabled" and step == 6:  # host and device take turns
                    equal &= np.array_equal(native.step(actions)[0], envs.step(actions)[0])
            envs.check_actions()
            facts[mode] = {"equal": bool(equal), "places": len(places)}
            if mode == "next_step":
                envs.step_device(np.array([0, 145, *[0] * (N - 2)]))
                try:
                    envs.check_actions()
                except stockade.vector.InvalidActionError as error:
                    facts["refused"] = error.index
                facts["sleeps"] = int(envs.true_state().blue_action[1])
    return facts


def learner() -> dict[str, bool]:
    """Does `--device cuda` give the weights of `--device cpu`, also for a mixture, and after it was put back?"""
    import torch

    from stockade.learn.config import PPOConfig, TrainConfig
    from stockade.learn.train import make_learner

    def weights(device: str, returned: bool, changes: dict) -> torch.Tensor:
        ppo = PPOConfig(update_steps=7, minibatch_size=16, hidden=(8,))
        config = TrainConfig(device=device, n_envs=8, horizon=5, action_mask=True, ppo=ppo, **changes)
        learner = make_learner(config)
        for k in range(3):
            learner.iterate(k / 3)
            if returned and k == 0:
                saved = learner.state()
                learner.iterate(0.9)
                learner.restore(*saved)
        learner.close()
        return learner.policy.flat

    cases = {"one attacker": {"red": "meander>bline@3"}, "mixture": {"red": "bline,meander", "rules": "both"}}
    expected = {name: weights("cpu", False, changes) for name, changes in cases.items()}
    return {name: torch.equal(weights("cuda", True, cases[name]), given) for name, given in expected.items()}


def launched() -> dict[str, list[str]]:
    """The types of the arguments with which every kernel is launched."""
    import numba

    from stockade.cage2.cuda import CudaBatch

    launch, found = CudaBatch._launch, {}

    def noting(self, kernel, *args, ranges=None):
        arrays = [arg.copy_to_host() if hasattr(arg, "copy_to_host") else arg for arg in (*args, 0, 1)]
        found[kernel.py_func.__name__] = [str(numba.typeof(array)) for array in arrays]
        launch(self, kernel, *args, ranges=ranges)

    CudaBatch._launch = noting
    for red in ("bline", "meander>bline@3"):
        with stockade.make_vec(2, "cuda", red=red, obs="memory") as envs:
            envs.reset(seed=0)
            envs.step_device(np.zeros(2, np.int64))
    return found


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    print(
        json.dumps({each.__name__: each for each in (digests, contract, device, launched, learner)}[what](*arguments))
    )
