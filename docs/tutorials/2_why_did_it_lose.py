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
# # Why did it lose? Looking at an episode
#
# A mean return says how good a defender is, not why it loses when it does. Take the shipped champion against
# *Meander*, find its worst episode out of a thousand, and ask: a mistake, or bad luck?
#
# You will see the episode three ways: what it cost, what was true against what the defender believed, and
# what every move was worth. It needs `pip install '.[train,plots]'`.

# %%
import matplotlib.pyplot as plt
import numpy as np

import stockade
from stockade.cage2 import HOSTS

HORIZON, FIRST_SEED, EPISODES = 50, 20_000, 1000
champion = stockade.load("champion")
print(champion)

# %% [markdown]
# ## Find the worst episode
#
# World i of a vector environment has the seed `FIRST_SEED + i`, so that any of its episodes can be played
# again alone.

# %%
with stockade.make_vec(EPISODES, red="meander", horizon=HORIZON, obs=champion.obs) as envs:
    obs, info = envs.reset(seed=FIRST_SEED)
    returns = np.zeros(EPISODES)
    for _ in range(HORIZON):
        obs, reward, terminated, truncated, info = envs.step(champion.act(obs))
        returns += reward

worst = int(returns.argmin())
print(f"mean {returns.mean():.2f}, median {np.median(returns):.2f}, worst {returns[worst]:.1f} (world {worst})")

figure, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
axes.hist(returns, bins=60)
axes.annotate("this one", (returns[worst], 1), (returns[worst], 40), ha="center", arrowprops={"arrowstyle": "->"})
axes.set(xlabel="return of an episode", ylabel="episodes")
plt.show()

# %% [markdown]
# ## Play it again and judge every move
#
# `stockade.replay` records an episode with everything that was true and seen. For each step it then plays the
# rest of the episode many times over: after the move that was made, and after the likeliest others. All
# candidates start from the same states and meet the same chance, so that their differences are sharp.

# %%
seed = FIRST_SEED + worst
replay = stockade.replay("champion", red="meander", seed=seed, horizon=HORIZON, rollouts=200, progress=False)
episode = replay.episode
assert np.isclose(episode.rewards.sum(), returns[worst])  # the same episode, step for step
replay

# %% [markdown]
# A script would write this page with `replay.save("page.html")`; on the command line it is `stockade replay
# champion --red-agent meander --seed N --open`. Step through it: the left half of a host is what is true, the
# right half what blue believes. Everything on the page is also data, which we now use.
#
# ## What did it cost?

# %%
causes = {"root": "red holds root", "service": "service down", "restore": "price of Restore"}
costs = {cause: np.zeros(HORIZON) for cause in causes}
for t in range(HORIZON):
    for cause, _, points in episode.costs(t):
        costs[cause][t] += points

steps = np.arange(1, HORIZON + 1)
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
below = np.zeros(HORIZON)
for cause, label in causes.items():
    axes.bar(steps, -costs[cause], bottom=-below, label=f"{label}: {costs[cause].sum():.1f} points")
    below += costs[cause]
axes.set(xlabel="step", ylabel="reward")
axes.legend()
plt.show()

assert np.isclose(sum(each.sum() for each in costs.values()), -episode.rewards.sum())

# %% [markdown]
# ## What was true, and what did it believe?
#
# The defender never sees the attacker's access. It sees activity and draws conclusions, some of them wrong.
# Left is the truth, right what blue's bits say; both from step 0 to the end.

# %%
truth = episode.truth["red_access"]  # (51, 13): 0 none, 1 user, 2 root
bits = episode.seen[:, :52].reshape(-1, 13, 4)
belief = np.array([[0, 2], [1, 3]])[bits[:, :, 2], bits[:, :, 3]]  # 0 no, 1 unknown, 2 user, 3 privileged

figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
panels[0].imshow(truth.T, aspect="auto", cmap="Reds", vmin=0, vmax=2, interpolation="nearest")
panels[0].set(title="true: user (light) or root (dark)", xlabel="step")
panels[0].set_yticks(range(13), HOSTS)
panels[1].imshow(belief.T, aspect="auto", cmap="Blues", vmin=0, vmax=3, interpolation="nearest")
panels[1].set(title="believed: unknown, user, privileged", xlabel="step")
plt.show()

held = np.delete(truth > 0, HOSTS.index("User0"), axis=1)  # red's foothold on User0 never goes away
seems = np.delete(belief >= 2, HOSTS.index("User0"), axis=1)
print(f"of {held.sum()} host-steps that red held, blue believed it in {(held & seems).sum()}")
print(f"of {seems.sum()} host-steps that seemed compromised, red held {(held & seems).sum()}")

# %% [markdown]
# One row stands out: red has root on Enterprise1 for half of the episode, and on the right that row stays
# white. The break-in looked like a scan, as one in twenty does, and nothing on the screen says that anybody
# is there.
#
# ## Mistake or bad luck?
#
# Before every step the rollouts say what the rest of the episode is worth. Added to what was already lost,
# that is the return one could expect at that moment. Where the curve falls, the episode was lost.

# %%
hindsight, fair = replay.analyses
so_far = np.concatenate([[0], np.cumsum(episode.rewards)])
expected = np.array([so_far[t] + step.played.value for t, step in enumerate(hindsight.steps)] + [so_far[-1]])

figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
axes.plot(range(HORIZON + 1), expected, drawstyle="steps-post")
axes.set(xlabel="step", ylabel="expected return", title="What the episode was heading for")
axes.grid(alpha=0.3)
plt.show()

falls = np.diff(expected)
content = replay.to_dict()["steps"]
print("The largest falls, and what happened in these steps:")
for t in np.argsort(falls)[:5]:
    move, judgement = content[t], hindsight.steps[t]
    print(f"step {t + 1:>2}  {falls[t]:6.2f}  red {move['red']:<36} blue {move['blue']:<26} ({judgement.label})")

# %% [markdown]
# Look at the marks in brackets. The first large falls, in steps 16 and 26, come with moves that were the best
# there were: an exploit went through, and that is luck. The blunder comes later, once the situation is one
# that the champion hardly ever met in training.
#
# But did it have a chance to know? The judgement with `hindsight` starts from the true state, which blue
# could not see. The `fair` one starts from states that agree with everything that blue had seen, and blames
# it only for what it could have known:

# %%
for analysis in (hindsight, fair):
    marked = analysis.worst(most=HORIZON)
    print(f"{analysis.view}: {len(marked)} marked moves, the first in step {min(marked) + 1}; the worst:")
    for t in marked[:4]:
        print(f"   {analysis.in_words(t)} ({analysis.steps[t].label})")

start = hindsight.steps[0].played.value
print(f"Expected at the start {start:.1f}, got {so_far[-1]:.1f}.")
assert fair.steps[fair.worst()[0]].label == "blunder"

# %% [markdown]
# Both agree, so blue had reason to know better. How much could it know? Behind the fair judgement is a
# particle filter: thousands of worlds that fit everything that blue has seen. In how many of them is red on
# Enterprise1?

# %%
host = HOSTS.index("Enterprise1")
figure, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
axes.fill_between(range(HORIZON + 1), truth[:, host] > 0, step="post", alpha=0.2, label="true")
axes.plot(fair.held[:, host], drawstyle="steps-post", label="what blue could have known")
axes.set(xlabel="step", ylabel="P(red on Enterprise1)", ylim=(0, 1.3))
axes.legend(ncols=2)
plt.show()

states = replay.to_dict()["states"]
for t in range(12, 18):
    move, state = content[t - 1], states[t]
    red = f"{move['red']}{', fails' * move['red_failed']}"
    seen = f"activity {state['activity'][host]:<7}  decoys {state['n_decoys'][host]}"
    print(f"step {t}  red {red:<44} blue {move['blue']:<26} Enterprise1: {seen}")

assert fair.held[20, host] > 0.9

# %% [markdown]
# In all of them. Read the lines: in step 14 blue restores Enterprise1, and the Restore takes the decoy away.
# In step 16 blue sees a *scan* there. Meander scans a host only once, which was in step 12, and there is no
# decoy left that could have caught an exploit. What remains is a break-in that nobody noticed. The champion
# did not draw that conclusion, and paid for it for 28 steps.
#
# The verdict for this episode: bad luck, one chance in twenty, and then a mistake. (Do not add up the losses
# of the marked moves: as long as the host is not repaired, every further step is blamed for the same thing.)
#
# This is one episode of a thousand, chosen because it is the worst. It does not say that the champion is bad;
# it says what is left to learn.
#
# **Next**
#
# - Try `FIRST_SEED = 30_000`, or the episode of a policy of your own: `stockade.replay(MyPolicy(), ...)`.
# - [Play yourself](../guides/play.md): `stockade play --red-agent meander --open`.
# - The rollouts that judge moves are made with snapshots; [the tutorial about planning](6_planning.md) builds
#   them from scratch.
