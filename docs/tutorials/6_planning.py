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
# # Planning with snapshots
#
# What if a defender could try every move before it makes one? CybORG cannot copy itself, so nobody plans with
# it. Here a moment of a world is 320 bytes: keep it, put it into ten thousand worlds at once, play all of
# them on.
#
# This tutorial builds a planner in twenty lines, without any learning, and then asks the question that
# decides whether the result means anything: what did the planner know that a defender does not? It needs `pip
# install '.[train,plots]'`.

# %%
import time
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import stockade
from stockade.cage2 import ACTION_MASK

HORIZON = 30
CANDIDATES = np.flatnonzero(ACTION_MASK)  # 82 actions; the others are decoys that can never work
print(len(CANDIDATES), "candidates")

# %% [markdown]
# ## Keep a moment, and go back to it

# %%
env = stockade.make(red="bline", horizon=HORIZON)
env.reset(seed=0)
for _ in range(8):
    env.step(0)  # Sleep

moment = env.snapshot()
futures = [[env.step(0)[4]["red_action"] for _ in range(4)] for _ in range(2) if env.restore(moment) is not None]
assert futures[0] == futures[1]  # chance is part of the moment: the same future again
print(futures[0])

worlds = stockade.make_vec(10_000, red="bline", horizon=HORIZON)
begin = time.perf_counter()
worlds.restore(moment, seed=1)  # one moment in ten thousand worlds, each with new chance from here on
print(f"{1e6 * (time.perf_counter() - begin) / 10_000:.2f} microseconds per world")

# %% [markdown]
# ## A planner
#
# For each candidate: make that move in 32 copies of the present, let a simple policy play on for some steps,
# and add up what it costs. Take the candidate with the best mean. The policy that plays on is `react-remove`,
# which removes whatever it sees: a planner judges a move by what *it* would do afterwards, so it should not
# be asleep.

# %%
FUTURES = 32
ROWS = len(CANDIDATES) * FUTURES
planner = stockade.make_vec(ROWS, red="bline", horizon=HORIZON)
follower = stockade.load("react-remove")
follower.generator = np.random.default_rng(0)


def best_action(moment, depth, seed):
    """The candidate whose futures cost least over `depth` steps. `moment`: one world, or one for each row."""
    obs = planner.restore(moment, seed=seed)
    actions, total = np.repeat(CANDIDATES, FUTURES), np.zeros(ROWS)
    for _ in range(depth):
        obs, reward, *_ = planner.step(actions)
        total += reward
        actions = follower.act(obs)
    return int(CANDIDATES[total.reshape(len(CANDIDATES), FUTURES).mean(axis=1).argmax()])


def play(choose, seed):
    """The return of an episode; `choose(env, t)` gives an action, `env` is the world itself."""
    env = stockade.make(red="bline", horizon=HORIZON)
    env.reset(seed=seed)
    return sum(env.step(choose(env, t))[1] for t in range(HORIZON))


def omniscient(depth):
    """A planner that starts from the true state."""
    return lambda env, t: best_action(env.snapshot(), min(depth, HORIZON - t), seed=1000 * t)


SEEDS = range(8)
nothing = np.mean([play(lambda env, t: 0, seed) for seed in SEEDS])
depths = [1, 2, 4, 8, 12]
means = [np.mean([play(omniscient(depth), seed) for seed in SEEDS]) for depth in depths]

figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
axes.plot(depths, means, "o-", label="planner that sees the true state")
axes.axhline(nothing, ls="--", color="grey", label="doing nothing")
axes.set(xlabel="steps looked ahead", ylabel="mean return", yscale="symlog")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
print({depth: round(float(mean), 1) for depth, mean in zip(depths, means, strict=True)})

assert means[-1] > means[0] > nothing

# %% [markdown]
# One step of foresight already prevents the worst, since the planner sees the blow that is about to fall.
# With four it also sees the steps that lead there. Much further nothing is gained: the follower's future is
# not the planner's own.
#
# ## What did it know?
#
# Everything. `env.snapshot()` is the true state, with red in it. A real defender has 52 bits. The planner's
# result is a bound for what can be known, not a score, and should never stand in a table beside agents that
# play by the rules.
#
# A fair planner starts from what it *believes*. Keep a few thousand worlds that might be the real one. Make
# the same moves in all of them. Those that show other bits than the real world did are ruled out, and
# replaced by copies of those that agree. That is a particle filter, and snapshots make it a few lines:

# %%
PARTICLES = 4000
belief = stockade.make_vec(PARTICLES, red="bline", horizon=HORIZON)


def rows_of(snapshot, rows):
    """Some worlds of a snapshot, in any number."""
    return replace(snapshot, worlds=snapshot.worlds[rows])


def fair_return(depth, seed):
    """An episode of a planner that knows its own 52 bits, who attacks, and nothing else."""
    env, chance = stockade.make(red="bline", horizon=HORIZON), np.random.default_rng(seed)
    seen, _ = env.reset(seed=seed)
    believed, _ = belief.reset(seed=50_000 + seed)
    total, unseen = 0.0, 0
    for t in range(HORIZON):
        wrong = (believed != seen).sum(axis=1)
        agree = np.flatnonzero(wrong == wrong.min())
        unseen += wrong.min() > 0  # no particle agrees: the nearest are kept
        belief.restore(rows_of(belief.snapshot(), chance.choice(agree, PARTICLES)), seed=int(chance.integers(2**31)))
        starts = np.tile(chance.choice(PARTICLES, FUTURES), len(CANDIDATES))  # the same ones for every candidate
        action = best_action(rows_of(belief.snapshot(), starts), min(depth, HORIZON - t), seed=1000 * t)
        seen, reward, *_ = env.step(action)
        believed, *_ = belief.step(np.full(PARTICLES, action))
        total += reward
    return total, unseen


results = [fair_return(depth=12, seed=seed) for seed in SEEDS]
fair = np.mean([total for total, _ in results])
print(f"steps in which no particle agreed: {sum(unseen for _, unseen in results)} of {HORIZON * len(SEEDS)}")

# %%
champion = stockade.load("champion")
with stockade.make_vec(1000, red="bline", horizon=HORIZON, obs=champion.obs) as envs:
    obs, _ = envs.reset(seed=0)
    learned = np.zeros(1000)
    for _ in range(HORIZON):
        obs, reward, *_ = envs.step(champion.act(obs))
        learned += reward

for name, mean in [
    ("doing nothing", nothing),
    ("planner, its own 52 bits", fair),
    ("planner, true state", means[-1]),
    ("champion, trained, 1000 episodes", learned.mean()),
]:
    print(f"{name:<34} {mean:7.1f}")

assert fair > nothing / 10

# %% [markdown]
# Eight episodes say nothing about tenths of a point; they do show the size of things. Without a single step
# of learning, on its own 52 bits, the planner is in the range of the trained champion. Two things are in its
# favour: it has the simulator itself as a model, and it knows who attacks, which the champion does not. And
# it pays: 2,624 rollouts for every move, where the champion's network needs one pass.
#
# **Next**
#
# - Let the champion play on in the rollouts in place of `react-remove`, with `obs="memory"` in all worlds.
#   That is what `stockade.replay` does to judge moves.
# - Snapshots can be compared and hashed, so they are ready to be nodes of a search tree.
# - `chance="cyborg"` snapshots include the position in CybORG's random stream.
