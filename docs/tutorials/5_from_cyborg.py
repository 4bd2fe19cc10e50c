# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From CybORG to Stockade: port an existing agent
#
# You have an agent for CAGE Challenge 2, written for CybORG: a class with `get_action` and `end_episode`, and
# a training loop around `ChallengeWrapper`. This tutorial moves it over in three steps, and checks after each
# that it is still the same agent. CybORG does not have to be installed; where it is, the last part compares
# with it. It needs `pip install '.[train,plots]'`.

# %%
import time

import numpy as np

import stockade
from stockade.cage2 import ACTION_NAMES, HOSTS

# %% [markdown]
# ## The agent as it is
#
# Here is one in the form that the challenge's evaluation script wants. It sees one observation at a time,
# remembers things from step to step, and forgets them in `end_episode`. (In your file it derives from
# CybORG's `BaseAgent`; nothing here asks for that.)

# %%
MONITOR = ACTION_NAMES.index("Monitor")
FIRST_MOVES = "DecoyTomcat User2", "DecoyVsftpd Enterprise0", "DecoyFemitter Enterprise1"
DECOYS = [ACTION_NAMES.index(name) for name in FIRST_MOVES]
RESTORES = {host: ACTION_NAMES.index(f"Restore {host}") for host in HOSTS}


class MyChallengeAgent:
    """Three decoys first. Then it restores a server that has seemed compromised for two steps in a row."""

    def __init__(self):
        self.end_episode()

    def get_action(self, observation, action_space):
        seems = {host for k, host in enumerate(HOSTS) if observation[4 * k + 3] == 1 and not host.startswith("User")}
        fell, self.before = seems & self.before, seems
        if self.decoys:
            return self.decoys.pop(0)
        for host in HOSTS:
            if host in fell and host != "Defender":
                return RESTORES[host]
        return MONITOR

    def end_episode(self):
        self.before, self.decoys = set(), list(DECOYS)


# %% [markdown]
# ## Step 1: play it
#
# `stockade.evaluate` takes such an agent as it is: observations, actions and their numbers are those of
# `ChallengeWrapper`.

# %%
stockade.evaluate(MyChallengeAgent(), episodes=1, chance="cyborg", progress=False)  # loads the compiled simulator
begin = time.perf_counter()
score = stockade.evaluate(MyChallengeAgent(), episodes=20, chance="cyborg", progress=False)
slow = sum(cell.horizon * cell.episodes for cell in score.cells) / (time.perf_counter() - begin)
score

# %% [markdown]
# `chance="cyborg"` draws random numbers as CybORG does: `reset(seed=s)` gives the episode that
# `random.seed(s)` followed by CybORG's `reset()` gives, step for step. So these are not similar episodes, but
# the same ones.
#
# ## Step 2: move the training loop
#
# | with CybORG | with Stockade |
# |---|---|
# | `CybORG(path, "sim", agents={"Red": B_lineAgent})` | `stockade.make(red="bline")` |
# | `ChallengeWrapper(env=cyborg, agent_name="Blue")` | already in there |
# | `obs = env.reset()` | `obs, info = env.reset(seed=0)` |
# | `obs, reward, done, info = env.step(action)` | `obs, reward, terminated, truncated, info = env.step(action)` |
# | `cyborg.get_agent_state("True")` | `env.true_state()` |
# | `cyborg.get_last_action("Red")` | `info["red_action"]` |
# | `get_table()` | `print(env.render())` |
# | a counter of your own for 30, 50 or 100 steps | `horizon=30`; the last step says `truncated` |
#
# If the loop is long and you would rather leave it alone, give it the old interface in a few lines:


# %%
class OldInterface:
    """`reset()` and `step()` as `ChallengeWrapper` has them, around a world of Stockade."""

    def __init__(self, **world):
        self.env = stockade.make(**world)
        self.action_space, self.observation_space = self.env.action_space, self.env.observation_space

    def reset(self, seed=None):
        return self.env.reset(seed=seed)[0]

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, info


env, agent = OldInterface(red="meander", horizon=30, chance="cyborg"), MyChallengeAgent()
observation, done, total = env.reset(seed=153), False, 0.0
while not done:
    observation, reward, done, info = env.step(agent.get_action(observation, env.action_space))
    total += reward
agent.end_episode()
print(f"return {total:.1f}; red's last action: {info['red_action']}")

# %% [markdown]
# ## Step 3: many episodes at once
#
# Now the speed. A Python call per step is the limit, so let the agent choose for n episodes in one call: sets
# become arrays, `end_episode` becomes `reset(n)`, `get_action` becomes `act`.

# %%
SERVERS = np.array([not host.startswith("User") for host in HOSTS])
FIXABLE = SERVERS & (np.array(HOSTS) != "Defender")
FIRST_RESTORE = RESTORES[HOSTS[0]]


class MyBatchAgent:
    """The same agent, for n episodes."""

    def reset(self, n):
        self.before, self.step = np.zeros((n, len(HOSTS)), bool), 0

    def act(self, observations):
        seems = (observations.reshape(-1, len(HOSTS), 4)[:, :, 3] == 1) & SERVERS
        fell, self.before = seems & self.before & FIXABLE, seems
        self.step += 1
        if self.step <= len(DECOYS):
            return np.full(len(observations), DECOYS[self.step - 1])
        return np.where(fell.any(axis=1), FIRST_RESTORE + fell.argmax(axis=1), MONITOR)


begin = time.perf_counter()
batched = stockade.evaluate(MyBatchAgent(), episodes=20, chance="cyborg", progress=False)
fast = sum(cell.horizon * cell.episodes for cell in batched.cells) / (time.perf_counter() - begin)

for old, new in zip(score.cells, batched.cells, strict=True):
    assert old.returns == new.returns, (old, new)  # every single episode, to the last digit
print(f"the same returns in all {len(score.cells)} cells; {slow:,.0f} steps/s before, {fast:,.0f} now")

# %% [markdown]
# Equal returns for equal seeds are the test of a port: if you made a mistake, some episode differs. And with
# more episodes the gap widens, because a batch of a thousand takes little longer than one of twenty:

# %%
begin = time.perf_counter()
large = stockade.evaluate(MyBatchAgent(), episodes=1000, progress=False)  # chance="fast", the default
seconds = time.perf_counter() - begin
steps = sum(cell.horizon * cell.episodes for cell in large.cells)
print(f"{steps:,} steps in {seconds:.1f} s: {steps / seconds:,.0f} steps/s")
print(f"total {large.total:.1f} ± {large.interval:.1f}")

# %% [markdown]
# ## Check it on the real CybORG
#
# `CybORGEnv` is the reference simulator, unmodified, behind the interface of `stockade.make`. Where CybORG
# 2.1 can be imported, this cell plays the same seeds there and here. Where it cannot, it prints how to
# install it.

# %%
from stockade.integrations.cyborg import CybORGEnv

try:
    reference = CybORGEnv(red="meander", horizon=30)
except ImportError as error:
    print(error)
else:
    here = stockade.make(red="meander", horizon=30, rules=reference.rules, chance="cyborg")
    for seed in range(3):
        returns = []
        for env in (reference, here):
            agent = MyChallengeAgent()
            (observation, info), truncated, total = env.reset(seed=seed), False, 0.0
            while not truncated:
                observation, reward, terminated, truncated, info = env.step(agent.get_action(observation, 145))
                total += reward
            returns.append(round(total, 1))
        assert returns[0] == returns[1]
    print(f"CybORG and Stockade agree to the last digit, rules {reference.rules}")

# %% [markdown]
# On the command line the same check is `stockade evaluate my_agent:MyChallengeAgent --simulator cyborg`, next
# to `--chance cyborg`. Without CybORG there is still `stockade verify tests/data/traces`, in a clone of the
# repository: it replays episodes that were recorded from CybORG and compares everything after every step.
#
# **Next**
#
# - Which rules did your numbers come from? The leader board was played by other rules than today's CybORG:
#   `rules=`.
# - Train what you have ported: `stockade.make_vec(256, ...)` goes into Stable-Baselines3, RLlib or
#   `examples/ppo_one_file.py`.
# - [Fidelity](../concepts/fidelity.md): what was compared with CybORG, and how often.
