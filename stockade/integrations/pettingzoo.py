"""The built-in world for two players as a PettingZoo `ParallelEnv`: {"blue": action, "red": action} -> both views.

Blue acts first, then green, then red, as in every step of the world; neither player sees the other's action.
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from stockade.cage2.batch import Snapshot
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights
from stockade.cage2.env import CAGE2Env
from stockade.cage2.truth import TrueState

try:
    from pettingzoo import ParallelEnv
except ModuleNotFoundError as error:
    needs = f"this needs PettingZoo ({error}); install it with: pip install 'stockade[pettingzoo]'"
    raise ModuleNotFoundError(needs, name=error.name) from error

BLUE, RED = "blue", "red"
Views = dict[str, np.ndarray]
Infos = dict[str, dict[str, Any]]


class StockadeParallelEnv(ParallelEnv[str, np.ndarray, int]):
    """Attack and defend the network of CAGE Challenge 2: one world, the agents `blue` and `red`.

    Observations: blue's are those of `stockade.make`, Box(0, 1, (52,), uint8), or (160,) with `obs="memory"`. Red's are
        Box(0, 1, (264,), uint8), `red_view.RED_FEATURE_NAMES`: what it knows from the results of its own actions.
    Actions: blue Discrete(145), red Discrete(56): Sleep, DiscoverRemoteSystems of three subnets, then
        DiscoverNetworkServices, ExploitRemoteService, PrivilegeEscalate and Impact on each of 13 hosts.
    Rewards: blue's is that of `stockade.make`; red's is the same with the opposite sign.
    Termination: never. Truncation: of both after `horizon` steps.
    Infos: `action_mask` (int8) of each side. Blue's never changes and marks what can succeed at all; red's marks what
        it can try now. An action of red outside its mask is allowed, does nothing and fails, as in the reference.

    Example:
        >>> import stockade
        >>> env = stockade.parallel_env(horizon=30)
        >>> observations, infos = env.reset(seed=0)
        >>> actions = {agent: env.action_space(agent).sample(infos[agent]["action_mask"]) for agent in env.agents}
        >>> observations, rewards, terminations, truncations, infos = env.step(actions)
        >>> sorted(rewards)
        ['blue', 'red']
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "stockade_cage2_v0", "render_modes": ["ansi"], "render_fps": 4}

    def __init__(
        self,
        horizon: int = 100,
        rules: str = "current",
        chance: str = "fast",
        green: str | float = "sleep",
        *,
        obs: str = "bits",
        reward: RewardWeights = CHALLENGE_REWARD,
        render_mode: str | None = None,
    ) -> None:
        """Make a world; see WorldConfig for all but the last. `obs` is blue's."""
        shown: dict[str, Any] = {
            "obs": obs,
            "reward": reward,
            "info": False,
            "action_mask": True,
            "render_mode": render_mode,
        }
        self._world = CAGE2Env("player", horizon, rules, chance, green, side="both", **shown)
        self.config, self.render_mode = self._world.config, render_mode
        self.possible_agents = [BLUE, RED]
        self.agents: list[str] = []
        views: Any = self._world.observation_space
        choices: Any = self._world.action_space
        self.observation_spaces, self.action_spaces = dict(views.spaces), dict(choices.spaces)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Views, Infos]:
        """Begin an episode. Without a seed the stream of chance continues; options change nothing."""
        observations, info = self._world.reset(seed=seed)
        self.agents = self.possible_agents.copy()
        return observations, self._infos(info)

    def step(self, actions: dict[str, int]) -> tuple[Views, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """One step of both sides. Nothing happens if one of the actions is not valid."""
        if not self.agents:
            raise ResetNeeded(f"call reset() first, and when the episode is over after {self.config.horizon} steps")
        observations, reward, _, over, info = self._world.step(actions)
        agents = self.agents
        if over:
            self.agents = []
        rewards = {BLUE: reward, RED: 0.0 - reward}  # no minus zero
        return observations, rewards, dict.fromkeys(agents, False), dict.fromkeys(agents, over), self._infos(info)

    def _infos(self, info: dict[str, Any]) -> Infos:
        return {agent: {"action_mask": mask} for agent, mask in info["action_mask"].items()}

    def true_state(self) -> TrueState:
        """What is really the case now, of which each side sees a part; arrays without the leading n."""
        return self._world.true_state()

    def snapshot(self) -> Snapshot:
        """This moment, chance included."""
        return self._world.snapshot()

    def restore(self, snapshot: Snapshot, seed: int | None = None) -> Views:
        """Go back to a snapshot, with a new stream of chance if a seed is given; returns what both sides see there."""
        observations = self._world.restore(snapshot, seed)
        over = self._world.true_state().time >= self.config.horizon
        self.agents = [] if over else self.possible_agents.copy()
        return observations

    def render(self) -> str | None:
        """With `render_mode="ansi"` two tables as text: the network as it is, and as blue sees it."""
        return self._world.render()

    def close(self) -> None:
        """End it; a second call does nothing."""
        self.agents = []
        self._world.close()
