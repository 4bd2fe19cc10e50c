"""The page's section on behaviour: what the champion does, beside what the winner's published code fixes by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from champion_page_results import MISSING, RED_NAMES, Files
from champion_protocol import RULE_SETS

from stockade.bench.report_tables import markdown
from stockade.cage2.actions import ACTION_HOST, ACTION_MASK, ACTION_NAMES, N_ACTIONS
from stockade.cage2.scenario import HOSTS
from stockade.learn.presets import CHAMPION

#: Facts about the winner's code (github.com/john-cardiff/-cyborg-cage-2, commit cce8d36): actions by number.
WINNER_START = (51, 116, 55)
WINNER_DECOYS = ((54, 106, 28, 119), (55, 107, 120, 29), (43,), (44,), (61, 35, 113, 126), (37, 115, 76, 102),
                 (51, 116, 38, 90), (130, 91), (131,))  # fmt: skip
WINNER_HOSTS = tuple(HOSTS[ACTION_HOST[order[0]]] for order in WINNER_DECOYS)

_ATTACKERS = ("bline", "meander")
_SHOWN_STEPS = 8
_MARKS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
#: Actions and decoys in fewer episodes than this are not worth a line.
_RARE = 0.02

_WINNER = """\
### Beside the winner

What the winner does was not counted here, but [its code](https://github.com/john-cardiff/-cyborg-cage-2)
(`Agents/MainAgent.py`, `Agents/PPOAgent.py`) fixes much of it by hand:"""


def behaviour(files: Files) -> Iterator[str]:
    """All tables; the winner's facts even where nothing was counted."""
    yield "## What it does"
    yield ""
    found = files.behaviour
    if found is None:
        yield f"{MISSING}: run `python benchmarks/champion.py behaviour`."
    else:
        yield (
            f"Counted over {found['episodes']:,} episodes of {found['horizon']} steps against each attacker under "
            f"each rule set, policy `{found['policy']}`, likeliest actions. Where one rule set is shown it is "
            "`current`; the file [champion-behaviour.json](../benchmarks/results/champion/champion-behaviour.json) has "
            "both."
        )
        for part in (_first_steps, _parting, _fixes, _decoys, _holds, _costs):
            yield ""
            yield from part(found)
    yield ""
    yield from _winner(found)


def _world(found: Any, red: str, rules: str = "current") -> Any:
    return next(world for world in found["worlds"] if (world["red"], world["rules"]) == (red, rules))


def _share(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.1 or value == 0 else f"{100 * value:.1f}%"


def _columns() -> list[tuple[str, str]]:
    return [(red, rules) for red in _ATTACKERS for rules in RULE_SETS]


def _column_heads() -> list[str]:
    return [f"{RED_NAMES[red]}, `{rules}`" for red, rules in _columns()]


# ---------------------------------------------------------------------------------------------------------------- parts
def _first_steps(found: Any) -> Iterator[str]:
    yield "### The first steps"
    yield ""
    worlds = [_world(found, red) for red in RED_NAMES]
    rows = []
    for t in range(min(_SHOWN_STEPS, len(worlds[0]["first_steps"]))):
        tops = [[(name, share) for name, share in world["first_steps"][t] if share >= _RARE][:3] for world in worlds]
        cells = ["<br>".join(f"{name} {_share(share)}" for name, share in top) for top in tops]
        rows.append([str(t + 1), *cells])
    yield from markdown(["step", *(f"against {name}" for name in RED_NAMES.values())], rows, left=4)


def _parting(found: Any) -> Iterator[str]:
    """How soon the attackers are told apart, in deeds."""
    yield (
        "How far its actions against B_line are from those against Meander, step by step, as total variation: 0 for "
        "the same actions in the same shares, 1 for none in common."
    )
    yield ""
    for entry in found["parting"]:
        distance = entry["distance"]
        shown = ", ".join(f"{distance[k - 1]:.2f} at step {k}" for k in _MARKS if k <= len(distance))
        parts = " and ".join(f"{least} {_first_time(entry, least)}" for least in ("0.1", "0.5"))
        chance = max(entry["noise"])
        yield f"- Rules `{entry['rules']}`: {shown}. It exceeds {parts}. Chance alone makes it up to {chance:.2f}."


def _first_time(entry: Any, least: str) -> str:
    step = entry[f"first_beyond_{least}"]
    return "never" if step is None else f"first at step {step}"


def _fixes(found: Any) -> Iterator[str]:
    yield "### Analyse, Remove, Restore"
    yield ""
    kinds = list(_world(found, "bline")["kinds"])
    rows = [[kind, *(f"{_world(found, *column)['kinds'][kind]:.1f}" for column in _columns())] for kind in kinds]
    yield from markdown(["actions an episode", *_column_heads()], rows)
    yield ""
    rows = []
    for host in HOSTS:
        values = [_world(found, red)[f"{kind}_hosts"].get(host, 0.0) for red in _ATTACKERS
                  for kind in ("analyse", "remove", "restore")]  # fmt: skip
        if max(values) >= _RARE:
            rows.append([host, *(f"{value:.2f}" if value else "" for value in values)])
    heads = [f"{kind}, {RED_NAMES[red]}" for red in _ATTACKERS for kind in ("Analyse", "Remove", "Restore")]
    yield from markdown(["an episode, rules `current`", *heads], rows)
    yield ""
    for kind in ("Remove", "Restore"):
        parts = []
        for red in _ATTACKERS:
            aim = _world(found, red)["aim"][kind]
            if aim is None:
                continue
            parts.append(f"against {RED_NAMES[red]} {_share(aim['root'])} met red with root, {_share(aim['user'])} "
                         f"with a user's rights, {_share(aim['nobody'])} nobody")  # fmt: skip
        yield f"- Of its {kind}s, {'; '.join(parts)}." if parts else f"- There is no {kind} at all."


def _decoys(found: Any) -> Iterator[str]:
    yield "### Decoys"
    yield ""
    yield (
        "Share of the episodes in which each is placed, and the median step of the first time (rules `current`). "
        "The last column: its place in the winner's fixed order on that host."
    )
    yield ""
    by_red = {red: {entry["action"]: entry for entry in _world(found, red)["decoys"]} for red in RED_NAMES}
    names = dict.fromkeys(name for red in RED_NAMES for name, e in by_red[red].items() if e["episodes"] >= _RARE)
    places = {ACTION_NAMES[a]: f"{k + 1} of {len(order)}" for order in WINNER_DECOYS for k, a in enumerate(order)}
    if not names:
        yield "It places none."
        return
    rows = []
    for name in sorted(names, key=lambda name: (HOSTS.index(name.split()[1]), name)):
        cells = []
        for red in RED_NAMES:
            entry = by_red[red].get(name)
            cells.append(f"{_share(entry['episodes'])}, step {entry['first_step']:.0f}" if entry else "")
        rows.append([name, *cells, places.get(name, "never")])
    yield from markdown(["", *(f"against {name}" for name in RED_NAMES.values()), "the winner"], rows)


def _holds(found: Any) -> Iterator[str]:
    yield "### What red holds"
    yield ""
    yield "Share of the steps at whose end red has a session on the host, in brackets with root. User0 is always red's."
    yield ""
    rows = []
    for host in HOSTS:
        held = [_world(found, *column)["red_holds"][host] for column in _columns()]
        if host != "User0" and max(entry["any"] for entry in held) > 0:
            rows.append([host, *(f"{100 * entry['any']:.2f}% ({100 * entry['root']:.2f}%)" for entry in held)])
    yield from markdown(["", *_column_heads()], rows)


def _costs(found: Any) -> Iterator[str]:
    yield "### What an episode costs"
    yield ""
    yield f"By cause, means over {found['horizon']} steps."
    yield ""
    worlds = [_world(found, *column) for column in _columns()]
    causes = sorted(worlds[0]["costs"], key=lambda cause: sum(world["costs"][cause] for world in worlds))
    rows = [[cause, *(f"{world['costs'][cause]:.2f}" for world in worlds)]
            for cause in causes if any(world["costs"][cause] for world in worlds)]  # fmt: skip
    rows.append(["**return**", *(f"**{world['mean']:.2f}**" for world in worlds)])
    yield from markdown(["", *_column_heads()], rows)


# ----------------------------------------------------------------------------------------------------------- the winner
def _winner(found: Any) -> Iterator[str]:
    yield _WINNER
    yield ""
    start = ", ".join(ACTION_NAMES[a] for a in WINNER_START)
    theirs = {
        "first actions": f"always {start}",
        "who attacks": "told after three steps by the hosts that were scanned so far: two make it Meander, one B_line, "
        "else it is Sleep; then one of two specialists plays, or nobody",
        "sees": "the 52 bits, and for ten hosts whether a scan was seen, and which was the last",
        "chooses from": f'36: Analyse, Remove, Restore and "the next decoy" on {len(WINNER_HOSTS)} hosts '
        f"({', '.join(WINNER_HOSTS)}); it cannot wait",
        "decoys": "on each host in a fixed order; which stand is kept outside of the network",
        "when all decoys of a host stand": "the next likeliest action, but never a Restore",
    }
    counted = {} if found is None else _counted(found)
    ours = {
        "who attacks": "one policy that is never told",
        "sees": "the 52 bits and 108 of its own history, the decoys that stand and the steps left among them",
        "chooses from": _choices(),
        "decoys": "whatever it learned; it sees which stand",
        "when all decoys of a host stand": "nothing is forbidden",
    }
    rows = [
        [what, text, "; ".join(part for part in (ours.get(what), counted.get(what)) if part) or MISSING.lower()]
        for what, text in theirs.items()
    ]
    yield from markdown(["", "the winner", "the champion"], rows, left=3)


def _choices() -> str:
    if not CHAMPION.action_mask:
        return f"all {N_ACTIONS}"
    return f"{int(ACTION_MASK.sum())} of the {N_ACTIONS}: all but the decoys that can never succeed"


def _counted(found: Any) -> dict[str, str]:
    """What the counts say on the champion's side of the table."""
    tops = {red: [step[0] for step in _world(found, red)["first_steps"][:3]] for red in RED_NAMES}
    alike = len({tuple(name for name, _ in top) for top in tops.values()}) == 1
    first = ", ".join(f"{name} ({_share(share)})" for name, share in tops["bline"])
    apart = ", ".join(f"{_first_time(entry, '0.5')} under `{entry['rules']}`" for entry in found["parting"])
    idle = [f"{_world(found, red)['kinds']['Sleep or Monitor']:.1f} against {RED_NAMES[red]}" for red in RED_NAMES]
    entries = [entry for red in RED_NAMES for entry in _world(found, red)["decoys"] if entry["episodes"] >= _RARE]
    beyond = [host for host in HOSTS if host in {entry["host"] for entry in entries} - set(WINNER_HOSTS)]
    return {
        "first actions": f"most often {first}" + ("" if alike else " against B_line; others against other attackers"),
        "who attacks": f"its actions against B_line and Meander differ by more than 0.5 {apart}",
        "chooses from": f"steps of an episode in which it waits (Sleep or Monitor): {', '.join(idle)}",
        "decoys": f"also on {', '.join(beyond)}" if beyond else "on none but the winner's hosts",
    }
