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
# # Which repair order?
#
# Red holds a user's laptop and an enterprise server. You can repair one machine per step. Which first? And
# does it matter at all?
#
# This tutorial takes that question from its statement to a verdict, on a budget of a minute. A budget that
# small can mislead, so it ends with the most useful part: how to see that it did, and what the full search
# says. It needs `pip install '.[train,plots]'`.

# %%
import matplotlib.pyplot as plt
import numpy as np

import stockade

# %% [markdown]
# ## The question, made precise
#
# An *order* is a sequence of unit types. While red holds a host of an earlier type, hosts of later types
# wait: a Remove or Restore that the order forbids is not carried out, and the step is lost. The value of an
# order is what the best defender earns that must keep to it.
#
# There are five types, so 120 orders. Against B_line only three of them ever matter, because red never holds
# the others: `enterprise`, `op_server` and `user`. That leaves six orders to compare, and *no order* as the
# yardstick: a defender that may repair anything at any time can only be better.
#
# Training 6 defenders and comparing their returns would be the obvious way. It is slow, and what one sees are
# mostly differences of luck in training. `stockade.search` trains **one** network for all orders; the order
# is part of its input. Afterwards every order is judged on the same seeds.

# %%
result = stockade.search(
    red="bline",
    horizon=30,
    total_episodes=20_000,
    n_eval_episodes=1_000,
    plots=False,
    progress=False,
)
result

# %% [markdown]
# ## Read the verdict
#
# The words come first, and the table below them is the evidence: for each order its value with a 95%
# interval, and the probability that it is the best. Orders that are equal share that probability.
#
# Look at the very first line. It says that the budget is short. Before we believe anything, let us look at
# how the values came about.

# %%
summary = result.to_dict()
names, episodes = summary["curves"]["orders"], np.array(summary["curves"]["episodes"])
values = np.array(summary["curves"]["values"])[:, 0]  # (rounds, orders), against the only attacker

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, curve in zip(names, values.T, strict=True):
    user_first = name.find("user") < name.find("enterprise")
    family = "no order" if name == "no order" else f"{'user' if user_first else 'enterprise'} first"
    colour = {"no order": "black", "enterprise first": "C0", "user first": "C1"}[family]
    known = axes.get_legend_handles_labels()[1]
    axes.plot(episodes, curve, lw=1.3, color=colour, label="" if family in known else family)
axes.set(xlabel="episodes of training", ylabel="return, greedy, validation seeds", ylim=(-40, 0))
axes.grid(alpha=0.3)
axes.legend()
plt.show()

# %% [markdown]
# Two families: orders with enterprise before user, and those with user before enterprise. The gap between
# them is the verdict's first sentence. And both seem settled: who would train on, looking at these curves?
# But the lower family is far from what it could reach. In this game a Restore costs a point at once and pays
# off many steps later. A learner soon gives it up, and defenders that must clean users first cannot do
# without it. The search pays for Restores at the start of a training, and with a budget this small the
# payment ends before the lesson is learned.
#
# That is what the warning says. The gap is a fact about *these* trainings, and an upper bound of the truth.

# %%
for entry in summary["precedences"]:
    name = f"{entry['before']} before {entry['after']}"
    print(f"{name:<28} {entry['effect']:+6.1f}  ({entry['low']:.1f} to {entry['high']:.1f})")

best = result.best
print("winning set:", *best, sep="\n  ")
assert any("enterprise > " in order for order in best)
assert "short" in result.verdict.splitlines()[0]

# %% [markdown]
# ## More training changes the answer
#
# A finished search can be extended; it keeps what it has learned. The larger budget is still short, but shows
# where this is going:

# %%
more = stockade.search(resume=result.folder, total_episodes=35_000, plots=False, progress=False)
longer = more.to_dict()

figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
order_names = [entry["order"] for entry in longer["classes"]]
for k, (content, label) in enumerate([(summary, "20,000 episodes"), (longer, "35,000 episodes")]):
    rows = {entry["order"]: entry for entry in content["classes"]}
    middle = np.array([rows[name]["value"] for name in order_names])
    reach = np.array([[rows[name]["value"] - rows[name]["low"], rows[name]["high"] - rows[name]["value"]]
                      for name in order_names]).T  # fmt: skip
    places = np.arange(len(order_names)) + 0.2 * k
    axes.errorbar(middle, places, xerr=reach, fmt="o", ms=4, color=f"C{k}", label=label)
axes.set_yticks(np.arange(len(order_names)) + 0.1, order_names)
axes.invert_yaxis()
axes.set(xlabel="value of the order: reward per episode, 95% interval")
axes.grid(alpha=0.3, axis="x")
axes.legend()
plt.show()

print(more.verdict)

# %% [markdown]
# Compare the two colours: the orders that looked hopeless come closer, and the best ones improve too. An
# interval speaks of the training that was made, not of the one that should have been made. That is why the
# first line is there, and why it comes first.
#
# ## The full search
#
# ```sh
# stockade search --max-steps 30 --total-episodes 150000
# ```
#
# takes a bit more than a minute on two free cores. Its verdict, the same for three seeds: *enterprise before
# user* is worth **one point** per episode (0.9 to 1.2), not ten; where `op_server` stands makes no
# difference; and the right order costs nothing against a defender that is free to repair in any order. [The
# search's results](../results/search.md) show all of it, and [compliance and its
# traps](../concepts/compliance.md) two ways in which this very question was answered wrongly.
#
# ## Use the winner
#
# The search delivers a policy that keeps to the best order. `evaluate` refuses what the order forbids:

# %%
agent = more.agent
print(agent)
stockade.evaluate(more, episodes=20, progress=False)

# %% [markdown]
# It was trained against B_line over 30 steps; the other rows of the table are strange to it.
#
# **Next**
#
# - Several attackers at once: `stockade.search(red="bline,meander")`. Orders of single hosts:
#   `units="hosts"`.
# - Confirm a verdict by separate trainings from scratch: `stockade search --resume NAME --certify 5`.
# - What if the rule can only go by what blue *sees*? `judge="observed"`.
