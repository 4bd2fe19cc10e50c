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
# # Your first defender in two minutes
#
# An attacker has a foothold in a network of thirteen hosts and wants to stop a service at its far end. You
# defend: once per step you may analyse a host, remove malware, restore a machine, or place a decoy. Can a
# small neural network learn to do that while you drink half a cup of coffee?
#
# This tutorial looks at the game, sees what happens when nobody defends, trains a defender, and checks
# honestly how good it is. It needs `pip install '.[train,plots]'`.

# %%
import matplotlib.pyplot as plt
import numpy as np

import stockade
from stockade.cage2 import ACTION_NAMES

# %% [markdown]
# ## The game
#
# `stockade.make` gives one world as a Gymnasium environment. The attacker here is *B_line*, who walks
# straight to the operational server. An observation has 52 bits, four for each host; there are 145 actions.

# %%
env = stockade.make(red="bline", horizon=30)
obs, info = env.reset(seed=7)
print("observation", obs.shape, obs.dtype, "  actions", env.action_space.n)

for step in range(1, 16):
    obs, reward, terminated, truncated, info = env.step(0)  # 0 is Sleep: do nothing
    print(f"step {step:>2}  red: {info['red_action']:<36}  reward {reward:6.1f}")

# %% [markdown]
# Read it from top to bottom: red looks around, breaks into a user's machine, climbs to an enterprise server
# and from there to the operational server, where *Impact* stops the service. From then on every step costs
# more than ten points. Rewards are never positive: the best that a defender can earn is 0. [The
# rules](../concepts/rules.md) have all of it.
#
# ## How bad is it to do nothing?
#
# One episode says little. `make_vec` runs many worlds at once: here a thousand, each with a seed of its own.


# %%
def play(agent, red="bline", episodes=1000, horizon=30, seed=10_000):
    """Returns of `episodes` episodes, all played at once."""
    with stockade.make_vec(episodes, red=red, horizon=horizon, obs=agent.obs) as envs:
        obs, info = envs.reset(seed=seed)  # world i has the seed 10,000 + i
        returns = np.zeros(episodes)
        for _ in range(horizon):
            actions, _ = agent.predict(obs)
            obs, reward, terminated, truncated, info = envs.step(actions)
            returns += reward
    return returns


returns = {name: play(stockade.load(name)) for name in ("sleep", "react-restore")}
for name, sample in returns.items():
    print(f"{name:<14} mean {sample.mean():7.1f}   worst {sample.min():7.1f}")

# %% [markdown]
# `sleep` does nothing. `react-restore` restores what looks compromised, a sensible rule that anyone would
# write first. It helps a lot, and still loses far more than it should.
#
# ## Train
#
# `stockade.train` is PPO with settings that suit this game. Twenty thousand episodes of 30 steps are enough
# for a first defender. The defaults are made for longer trainings; for a short one we learn more often
# (`update_steps`). Everything about the run goes to a folder, so that nothing is lost if you close the notebook.

# %%
result = stockade.train(
    red="bline",
    horizon=30,
    total_episodes=20_000,
    update_steps=50,
    progress=False,
)
result

# %%
episodes, curve = result.metrics["episodes"], result.metrics["return_mean"]
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(episodes, curve, label="PPO while it learns")
for name, sample in returns.items():
    axes.axhline(sample.mean(), ls="--", lw=1, color="grey")
    axes.text(episodes[-1], sample.mean() - 2, name, ha="right", va="top")
axes.set(xlabel="episodes of training", ylabel="mean return of an update's episodes", ylim=(-240, 5))
axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# The agent begins with random actions, and soon passes the hand-written rule.
#
# ## How good is it?
#
# Training returns flatter and deceive: they are of sampled actions, on seeds that the agent has learned from.
# So we play the likeliest action in a thousand new episodes, the same ones for everybody.

# %%
returns["my agent"] = play(result.agent)

figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
for name in ("react-restore", "my agent"):  # sleep is far out on the left
    axes.hist(returns[name], bins=np.arange(-40, 1), alpha=0.7, label=name)
axes.set(xlabel="return of an episode", ylabel="of 1000 episodes")
axes.legend()
plt.show()

for name, sample in returns.items():
    half_width = 1.96 * sample.std() / np.sqrt(len(sample))
    print(f"{name:<14} {sample.mean():7.2f} ± {half_width:.2f}")

assert returns["my agent"].mean() > returns["react-restore"].mean() > returns["sleep"].mean()

# %% [markdown]
# What does it do? `probabilities` and `value` look into its head. Here is its plan at the start of an
# episode, before anything has happened:

# %%
agent = result.agent
obs, info = stockade.make(red="bline", horizon=30, obs=agent.obs).reset(seed=0)
chances = agent.probabilities(obs)
for action in np.argsort(-chances)[:5]:
    print(f"{chances[action]:5.0%}  {ACTION_NAMES[action]}")
print(f"It expects {agent.value(obs):.1f} for the rest of the episode.")

# %% [markdown]
# Most likely decoys: services that nobody uses, and that an attacker wastes its time on. Nobody told it.
#
# ## What it cannot do
#
# The agent has only ever met B_line. *Meander* takes every host that it can find, and an agent that was never
# shown it has no reason to be good at it:

# %%
champion = stockade.load("champion")
for red in ("bline", "meander"):
    mine, best = play(agent, red).mean(), play(champion, red).mean()
    print(f"against {red:<8} my agent {mine:7.2f}   shipped champion {best:7.2f}")

# %% [markdown]
# The [shipped champion](../results/champion.md) was trained against all attackers for 400,000 episodes; the
# gap is what more training and more opponents buy.
#
# **Next**
#
# - Train longer, and against both: `stockade.train(red="bline,meander", total_episodes=100_000)`.
# - The same from a shell: `stockade train --red-agent bline --total-episodes 100000`, then `stockade evaluate
#   NAME`.
# - Look at a single episode, and find out [why it was lost](2_why_did_it_lose.md).
# - The learner as one readable file to copy from: `examples/ppo_one_file.py`.
