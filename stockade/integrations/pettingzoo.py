"""The built-in world for two players as a PettingZoo `ParallelEnv`: {"blue": action, "red": action} -> both views.

Blue acts first, then green, then red, as in every step of the world; neither player sees the other's action.
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from stockade.cage2.actions import ACTION_MASK, N_ACTIONS, N_RED_ACTIONS, check_action
from stockade.cage2.batch import Batch, Snapshot
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights, WorldConfig
from stockade.cage2.red_view import RED_OBS_SIZE
from stockade.cage2.seeds import read_seeds
from stockade.cage2.truth import TrueState, render_world
from stockade.errors import InputError

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
        green: str = "sleep",
        *,
        obs: str = "bits",
        reward: RewardWeights = CHALLENGE_REWARD,
        render_mode: str | None = None,
    ) -> None:
        """Make a world; see WorldConfig for all but the last. `obs` is blue's."""
        if render_mode not in (None, "ansi"):
            raise InputError(f"render_mode={render_mode!r} is unknown; take None or 'ansi'")
        self.config = WorldConfig("player", horizon, rules, chance, green, obs, reward)
        self.render_mode = render_mode
        self._batch = Batch(self.config, 1, threads=1)
        sizes = {BLUE: self._batch.obs_size, RED: RED_OBS_SIZE}
        self.possible_agents = [BLUE, RED]
        self.agents: list[str] = []
        self.observation_spaces = {agent: spaces.Box(0, 1, (size,), np.uint8) for agent, size in sizes.items()}
        self.action_spaces = {BLUE: spaces.Discrete(N_ACTIONS), RED: spaces.Discrete(N_RED_ACTIONS)}
        self._views = {agent: np.zeros((1, size), np.uint8) for agent, size in sizes.items()}
        self._actions = {agent: np.zeros(1, np.int64) for agent in sizes}
        self._reward, self._over = np.zeros(1), np.zeros(1, np.bool_)
        self._is_reset = self._closed = False

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Views, Infos]:
        """Begin an episode. Without a seed the stream of chance continues; options change nothing."""
        self._check_open()
        seeds = read_seeds(seed, 1)
        self._batch.reset(self._views[BLUE], seeds if self._is_reset else seeds.or_fresh())
        self._batch.observe_red(self._views[RED], False)
        self._is_reset = True
        self.agents = self.possible_agents.copy()
        return self._observations(), self._infos()

    def step(self, actions: dict[str, int]) -> tuple[Views, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """One step of both sides. Nothing happens if one of the actions is not valid."""
        self._check_open()
        if not self.agents:
            raise ResetNeeded(f"call reset() first, and when the episode is over after {self.config.horizon} steps")
        if missing := [agent for agent in self.agents if agent not in actions]:
            raise InputError(f"no action for {' and '.join(missing)}; give one for each of {self.agents}")
        chosen = {
            BLUE: check_action(actions[BLUE]),
            RED: check_action(actions[RED], N_RED_ACTIONS, "red"),
        }
        for agent, action in chosen.items():
            self._actions[agent][0] = action
        given = self._actions[BLUE], self._views[BLUE], self._reward, self._over, False
        self._batch.step(*given, red_actions=self._actions[RED])
        self._batch.observe_red(self._views[RED], True)
        agents, reward, over = self.agents, self._reward.item(), self._over.item()
        if over:
            self.agents = []
        rewards = {BLUE: reward, RED: 0.0 - reward}  # no minus zero
        return (
            self._observations(),
            rewards,
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            self._infos(),
        )

    def _observations(self) -> Views:
        return {agent: view[0].copy() for agent, view in self._views.items()}

    def _infos(self) -> Infos:
        return {BLUE: {"action_mask": ACTION_MASK.copy()}, RED: {"action_mask": self._batch.red_mask()[0]}}

    def true_state(self) -> TrueState:
        """What is really the case now, of which each side sees a part; arrays without the leading n."""
        self._check_running()
        return TrueState.of(self._batch.worlds[0, ...])

    def snapshot(self) -> Snapshot:
        """This moment, chance included."""
        self._check_running()
        return self._batch.snapshot()

    def restore(self, snapshot: Snapshot, seed: int | None = None) -> Views:
        """Go back to a snapshot, with a new stream of chance if a seed is given; returns what both sides see there."""
        self._check_open()
        self._batch.restore(snapshot, seed=seed)
        self._batch.observe(self._views[BLUE])
        self._batch.observe_red(self._views[RED], False)
        self._is_reset = True
        self.agents = [] if self._batch.worlds["over"][0] else self.possible_agents.copy()
        return self._observations()

    def render(self) -> str | None:
        """With `render_mode="ansi"` two tables as text: the network as it is, and as blue sees it."""
        self._check_running()
        if self.render_mode is None:
            return None
        ledgers = self._batch.ledgers
        return render_world(self._batch.worlds[0, ...], None if ledgers is None else ledgers[0])

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._closed = True
        self.agents = []
        self._batch.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedEnvironmentError("the environment is closed; make a new one")

    def _check_running(self) -> None:
        self._check_open()
        if not self._is_reset:
            raise ResetNeeded("call reset() before anything else")
