"""PPO on a GPU: worlds, agent, rollout and update stay there. All but the step is that of ppo_one_file.py.

    python examples/ppo_cuda.py --n-envs 16384 --minibatch-size 65536 --total-steps 100_000_000

Needs `pip install '.[cuda,train]'`, a CUDA build of PyTorch and an NVIDIA GPU. In Numba's simulator it gives the
weights that ppo_one_file.py gives; on a GPU it has not been run yet.
"""

import torch
import tyro
from ppo_one_file import ACTIONS, Agent, Collector, Settings, mean_return, train
from torch import Tensor

from stockade.cage2.cuda import SIMULATED
from stockade.vector.cuda import CudaVectorEnv


class DeviceCollector(Collector):
    """Steps with tensors of the device; nothing is copied to the host but the returns of episodes that ended."""

    envs: CudaVectorEnv

    def __init__(self, envs: CudaVectorEnv, s: Settings) -> None:
        super().__init__(envs, s)
        self.obs = envs.tensors().observations  # live: each step overwrites it, after the rollout has its copy
        self.actions = torch.as_tensor(ACTIONS)

    def play(self, choices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of all environments: observations, rewards, and where an episode ended."""
        obs, reward, terminated, truncated = self.envs.step_device(self.actions[choices])
        return obs, reward, terminated | truncated


def train_on_device(s: Settings) -> Agent:
    """The agent, back on the host."""
    with torch.device("cpu" if SIMULATED else "cuda"):  # where new tensors are made
        return train(s, "cuda", DeviceCollector).cpu()


if __name__ == "__main__":
    settings = tyro.cli(Settings, description=__doc__)
    agent = train_on_device(settings)
    print(f"doing nothing {mean_return(None, settings):.1f}")
    print(f"PPO {mean_return(agent, settings):.1f}")
