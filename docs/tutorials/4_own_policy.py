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
# # Your own policy by the official protocol
#
# You have an idea for a defender. How good is it, by the rules that everybody else was scored with? This
# tutorial writes a policy without any learning, plays it by the protocol of CAGE Challenge 2, sees where it
# loses, and changes it three times; one of the changes makes it worse. It needs `pip install
# '.[train,plots]'`.

# %%
import matplotlib.pyplot as plt
import numpy as np

import stockade
from stockade.cage2 import ACTION_NAMES, HOSTS, action_index

# %% [markdown]
# ## What a policy is
#
# Any object with a method `act`. It plays many episodes at once: it gets `(n, 52)` bits and gives `n`
# actions. The four bits of a host say what happened there in this step and what blue believes; the last one
# is set if the host seems compromised, by a user or with privileges.

# %%
MONITOR = ACTION_NAMES.index("Monitor")
ANALYSE, RESTORE = action_index("Analyse", HOSTS[0]), action_index("Restore", HOSTS[0])  # + number of the host


def seems_compromised(observations):
    """(n, 13) bool."""
    return observations.reshape(-1, len(HOSTS), 4)[:, :, 3] == 1


class First:
    """Restores the first host that seems compromised; otherwise it watches."""

    def act(self, observations):
        seems = seems_compromised(observations)
        return np.where(seems.any(axis=1), RESTORE + seems.argmax(axis=1), MONITOR)


first = stockade.evaluate(First(), episodes=200, progress=False)
first

# %% [markdown]
# Nine cells: three attackers, three lengths of an episode. The sum of their means is the score of the
# challenge, and below it are published scores under the same rules. With 1000 episodes per cell (the default)
# this is the full protocol; 200 are enough while you think.
#
# ## Where does it lose?
#
# `stockade.replay` would show an episode of it; here we only count what it does.

# %%
envs = stockade.make_vec(200, red="bline", horizon=50)
obs, info = envs.reset(seed=0)
counts = np.zeros(len(ACTION_NAMES), int)
policy = First()
for _ in range(50):
    actions = policy.act(obs)
    np.add.at(counts, actions, 1)
    obs, *_ = envs.step(actions)
for action in np.argsort(-counts)[:6]:
    print(f"{counts[action] / 200:5.1f} times per episode   {ACTION_NAMES[action]}")

# %% [markdown]
# It restores users' machines again and again. A Restore costs a point, root on a user's machine only a tenth
# of a point per step. So here is an obvious improvement: let the users go, and restore servers only. (Not the
# Defender either: red can never hold it, so an alarm there is false.)

# %%
IS_SERVER = np.array([not host.startswith("User") and host != "Defender" for host in HOSTS])


class ServersOnly:
    """Restores servers, leaves users' machines alone."""

    def act(self, observations):
        seems = seems_compromised(observations) & IS_SERVER
        return np.where(seems.any(axis=1), RESTORE + seems.argmax(axis=1), MONITOR)


print(f"First       {first.total:.1f} ± {first.interval:.1f}")
servers_only = stockade.evaluate(ServersOnly(), episodes=200, progress=False)
print(f"ServersOnly {servers_only.total:.1f} ± {servers_only.interval:.1f}")

# %% [markdown]
# Worse, and by far more than the intervals. The users' machines are cheap, but they are the way in: whoever
# keeps one is soon back on the server. Ideas are cheap too; the protocol takes a second, so ask it.
#
# ## Decoys
#
# The better weapon is a service that nobody uses. A decoy costs nothing, and an attacker that chooses it
# fails. It must stand before red scans the host, so the first steps are for the ways into the enterprise
# network. Whenever there is nothing to repair, go round and place what is missing: a decoy that already
# stands simply fails.
#
# A policy with memory has `reset(n)`, which is called when n episodes begin.


# %%
class Decoys(ServersOnly):
    """Places decoys whenever there is nothing to repair."""

    places = np.array([ACTION_NAMES.index(name) for name in (
        "DecoyTomcat User2", "DecoyVsftpd Enterprise0", "DecoyFemitter Enterprise1", "DecoyFemitter Enterprise2",
        "DecoyHarakaSMPT Enterprise0", "DecoyTomcat Enterprise0", "DecoyHarakaSMPT Op_Server0",
        "DecoyTomcat Op_Server0", "DecoyVsftpd Op_Server0",
    )])  # fmt: skip

    def reset(self, n):
        self.next = np.zeros(n, int)

    def act(self, observations):
        actions = super().act(observations)
        idle = actions == MONITOR
        actions[idle] = self.places[self.next[idle] % len(self.places)]
        self.next += idle
        return actions


# %% [markdown]
# ## Doubt
#
# Blue misses one shell in twenty: then a break-in looks like a scan. *Analyse* finds the file that it left.
# So look closer at every server where something happened that does not seem a break-in, before the next
# decoy.


# %%
class Doubt(Decoys):
    """Analyses servers on which something happened that looks like a scan."""

    def act(self, observations):
        activity = observations.reshape(-1, len(HOSTS), 4)
        scanned = (activity[:, :, 0] == 1) & (activity[:, :, 1] == 0) & IS_SERVER
        doubtful = scanned.any(axis=1) & (ServersOnly.act(self, observations) == MONITOR)
        turn = self.next.copy()
        actions = super().act(observations)
        self.next[doubtful] = turn[doubtful]  # the decoy waits
        return np.where(doubtful, ANALYSE + scanned.argmax(axis=1), actions)


# %% [markdown]
# ## Side by side

# %%
scores = {"First": first, "ServersOnly": servers_only}
for policy in (Decoys(), Doubt()):
    scores[type(policy).__name__] = stockade.evaluate(policy, episodes=200, progress=False)
scores["champion"] = stockade.evaluate("champion", episodes=200, progress=False)

for name, score in scores.items():
    print(f"{name:<12} {score.total:8.1f} ± {score.interval:.1f}")

totals = {name: score.total for name, score in scores.items()}
assert totals["ServersOnly"] < totals["First"] < totals["Decoys"] < totals["Doubt"] < totals["champion"]

# %%
cells = [f"{cell.red} {cell.horizon}" for cell in first.cells[:6]]
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
for k, (name, score) in enumerate(scores.items()):
    places = np.arange(6) + 0.16 * (k - 2)
    means, reach = [cell.mean for cell in score.cells[:6]], [cell.interval for cell in score.cells[:6]]
    axes.bar(places, means, 0.15, yerr=reach, label=name)
axes.set_xticks(range(6), cells)
axes.set(ylabel="mean return, 95% interval")
axes.grid(alpha=0.3, axis="y")
figure.legend(loc="outside upper center", ncols=5)
plt.show()

# %% [markdown]
# Forty lines without learning, and most of the way from doing nothing to a trained policy. Against B_line
# over 30 steps it is close; in long episodes against Meander the champion is far ahead. That is what is worth
# learning: when a suspicion is false, whom to let go, what to place next.
#
# ## The very episodes of the challenge
#
# Two settings matter when you compare numbers with others. `rules` says by which rules the world plays; the
# published leader board was played by older ones that are kinder to blue. And the challenge's own script
# plays one episode after the other on one stream of random numbers. With `chance="cyborg"` and
# `official_order=True` you get the very episodes that it plays:

# %%
official = stockade.evaluate(
    Doubt(), episodes=10, chance="cyborg", official_order=True, rules="leaderboard", seed=153, progress=False
)
again = stockade.evaluate(
    Doubt(), episodes=10, chance="cyborg", official_order=True, rules="leaderboard", seed=153, progress=False
)
assert [cell.returns for cell in official.cells] == [cell.returns for cell in again.cells]
print("returns of the first cell:", *official.cells[0].returns)

# %% [markdown]
# **Next**
#
# - From a shell: put the class into `my_policy.py`, then `stockade evaluate my_policy:Doubt --json
#   score.json`.
# - Every single return is in `score.to_dict()`, for tests and plots of your own.
# - On the real simulator, if CybORG is installed: `stockade evaluate my_policy:Doubt --simulator cyborg`.
# - See what it does wrong: `stockade.replay(Doubt(), red="meander")`, as in [the tutorial about an
#   episode](2_why_did_it_lose.md).
