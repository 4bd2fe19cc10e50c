"""A replay: an episode and its analyses, as data, as lines of text, as one page of HTML that needs nothing else.

Episode, Analysis -> `Replay` -> to_dict() -> JSON inside page/replay.html, with its style and scripts
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from stockade.cage2 import scenario
from stockade.cage2.actions import ACTION_HOST, ACTION_NAMES, EXPLOIT, FALSE, RED_TARGETS, RED_TYPES
from stockade.cage2.belief import Belief
from stockade.cage2.scenario import DECOYS, HOSTS, N_HOSTS, SUBNET_HOSTS
from stockade.cage2.state import OBS_SIZE
from stockade.cage2.truth import ACCESS_NAMES, RED_NAMES, TrueState
from stockade.files import json_ready, write_durably
from stockade.replay.analysis import KNOWS, LABELS, Analysis, Judgement
from stockade.replay.episode import Episode, belief_of
from stockade.text import Table, fixed

FORMAT = 1  #: of `to_dict()`
LIKELIEST = 5  #: actions that are shown with their probability
#: What blue's four bits of a host say: two of activity, two of what it believes.
ACTIVITY = {(0, 0): "none", (1, 0): "scan", (1, 1): "exploit"}
BELIEF = {(0, 0): "no", (1, 0): "unsure", (0, 1): "user", (1, 1): "privileged"}
#: Red's actions in words, in the order of actions.RED_TYPES.
RED_WORDS = (
    "sleeps", "looks for hosts in the subnet", "scans", "exploits", "escalates to root on", "stops the service on",
)  # fmt: skip
PAGE_FILES = ("replay.html", "replay.css", "network.js", "timeline.js", "replay.js")
PAGE_HEIGHT = 1000  #: pixels of a page in a notebook
#: What everybody knows of the network.
NETWORK: dict[str, Any] = json_ready({
    "hosts": [{"name": name, "subnet": next(net for net, hosts in SUBNET_HOSTS.items() if name in hosts),
               "cost": scenario.HOST_COST[h] / 10} for h, name in enumerate(HOSTS)],
    "foothold": scenario.FOOTHOLD, "service_host": scenario.SERVICE_HOST,
    "gateways": scenario.GATEWAYS, "decoys": [decoy.name for decoy in DECOYS],
})  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """An episode to look at. In a notebook it shows its page; `print` gives the episode as text."""

    episode: Episode
    analyses: tuple[Analysis, ...] = ()

    def __repr__(self) -> str:
        e = self.episode
        return f"<Replay of {e.policy} against {e.config.red}, seed {e.seed}: return {fixed(e.rewards.sum(), 1)}>"

    # ------------------------------------------------------------------------------------------------------- as data
    def to_dict(self) -> dict[str, Any]:
        """All that the page shows. Steps count from 1 there; `states[0]` is the start, `states[t]` is after step t."""
        return self._content

    @cached_property
    def _content(self) -> dict[str, Any]:
        e = self.episode
        return json_ready({
            "format": FORMAT, "policy": e.policy, "style": e.style, "source": e.source, "order": e.order,
            "red": RED_NAMES[int(e.truth["red"][-1])] if e.config.red == "mix" else e.config.red,
            "rules": e.config.rules, "green": e.config.green, "seed": e.seed, "horizon": len(e),
            "return": round(float(e.rewards.sum()), 1),
            "advisor": e.advisor, **NETWORK,
            "states": [self._state(t) for t in range(len(e) + 1)],
            "steps": [self._step(t) for t in range(len(e))],
            "belief": _belief(belief_of(e)),
            "analyses": [_analysis(analysis) for analysis in self.analyses],
        })  # fmt: skip

    def _state(self, t: int) -> dict[str, Any]:
        truth = TrueState.of(self.episode.truth[t, ...])
        return {
            "access": [ACCESS_NAMES[level] for level in truth.red_access],
            **observed(self.episode.seen[t]),
            "sessions": truth.red_sessions,
            "removable": truth.red_removable,
            "decoys": truth.decoys,
            "n_decoys": truth.n_decoys,
            "files": truth.files,
            "known": truth.red_knows_address.astype(np.int8),
            "scanned": truth.red_scanned.astype(np.int8),
            "service_down": bool(truth.service_down),
        }

    def _step(self, t: int) -> dict[str, Any]:
        e, truth = self.episode, TrueState.of(self.episode.truth[t + 1, ...])
        kind, target = int(truth.red_type), int(truth.red_target)
        action, green = int(e.actions[t]), int(truth.green_target)
        exploit = scenario.EXPLOITS[int(truth.exploit)].name if kind == EXPLOIT and truth.exploit else None
        step: dict[str, Any] = {
            "blue": ACTION_NAMES[action],
            "blue_host": int(ACTION_HOST[action]),
            "blue_failed": int(truth.blue_success) == FALSE,
            "chosen": ACTION_NAMES[e.chosen[t]] if e.refused[t] else None,
            "red": RED_WORDS[kind] + (f" {RED_TARGETS[target]}" if target >= 0 else ""),
            "red_type": RED_TYPES[kind],
            "red_target": target,
            "red_failed": int(truth.red_success) == FALSE,
            "exploit": exploit,
            "noticed": None if int(truth.detected) < 0 else bool(truth.detected),
            "green": HOSTS[green] if green >= 0 else None,
            "reward": round(float(e.rewards[t]), 1),
            "costs": e.costs(t),
        }
        if e.probabilities is not None and e.values is not None:
            likely = np.argsort(-e.probabilities[t], kind="stable")[:LIKELIEST]
            step["likely"] = [[ACTION_NAMES[a], round(float(e.probabilities[t, a]), 4)] for a in likely]
            step["value"] = round(float(e.values[t]), 2)
        return step

    # ------------------------------------------------------------------------------------------------------- as text
    def __str__(self) -> str:
        e, running, rows = self.episode, np.cumsum(self.episode.rewards), []
        marks = self.analyses[0].steps if self.analyses else None
        for t, step in enumerate(self._content["steps"]):
            red = step["red"] + (f" by {step['exploit']}" if step["exploit"] else "")
            blue = step["blue"] if step["chosen"] is None else f"{step['chosen']} (refused)"
            row = [t + 1, fixed(step["reward"], 1), fixed(running[t], 1)]
            row += [red + ", fails" * step["red_failed"], blue + ", fails" * step["blue_failed"]]
            if marks is not None:
                best = f": {fixed(marks[t].best.gain, 1)} worse than {ACTION_NAMES[marks[t].best.action]}"
                row.append(marks[t].label + best if marks[t].label in LABELS else "")
            rows.append(row)
        header = ["step", "reward", "return", "red", "blue", *([] if marks is None else ["judged by rollouts"])]
        title = f"{e.policy} against {self._content['red']}, rules {e.config.rules}, seed {e.seed}, {e.source}"
        order = f"; bound to the order {e.order}" if e.order else ""
        lines = [Table(header, rows, title + order, "rrrlll"[: len(header)]).text(width=160), *self.summary()]
        return "\n".join(lines)

    def summary(self) -> list[str]:
        """The return, and of each analysis what it knows and the moves that lost most."""
        lines = [f"return {fixed(self.episode.rewards.sum(), 1)}"]
        for analysis in self.analyses:
            lines += ["", f"{analysis.view}: {KNOWS[analysis.view]}"]
            lines += [f"  {analysis.in_words(t)} ({analysis.steps[t].label})" for t in analysis.worst()]
            if not analysis.worst():
                lines.append(f"  No move lost {min(LABELS.values())} points or more beyond its interval.")
        if self.episode.snapshots == ():
            lines.append("No analysis: the built-in world gave another episode than CybORG for these actions.")
        return lines

    # ----------------------------------------------------------------------------------------------------- as a page
    def html(self) -> str:
        """The whole page."""
        return self.page()[0]

    def page(self) -> tuple[str, str]:
        """The same, and its Content-Security-Policy for a server."""
        return assemble(PAGE_FILES, f"{self.episode.policy} against {self._content['red']}", self._content)

    def save(self, path: str | Path) -> Path:
        """Write the page; nothing else is needed to look at it."""
        write_durably(Path(path).resolve(), self.html().encode())
        return Path(path)

    def _repr_html_(self) -> str:
        frame = f'sandbox="allow-scripts" width="100%" height="{PAGE_HEIGHT}" style="border:0"'
        return f'<iframe title="replay" {frame} srcdoc="{html.escape(self.html())}"></iframe>'


def assemble(names: Sequence[str], title: str, content: dict[str, Any], allowed: str = "") -> tuple[str, str]:
    """A page of files in page/ (HTML, then CSS, then JavaScript) in their frame, and its Content-Security-Policy.

    The content is data: only the script and the style of the package can take effect. `allowed` is added to the policy.
    """
    page = files("stockade.replay") / "page"
    frame, *texts = ((page / name).read_text("utf-8") for name in ("frame.html", *names))
    body, style, script = (
        "".join(text for name, text in zip(names, texts, strict=True) if name.endswith(end))
        for end in (".html", ".css", ".js")
    )
    data = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":  # so that no text in it can end the element
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'{allowed}"
    parts = {"title": html.escape(title), "policy": policy, "style": style, "body": body, "script": script,
             "content": data}  # fmt: skip
    return re.sub(r"@(\w+)@", lambda place: parts[place[1]], frame), policy  # in one pass: no part is searched


def observed(seen: np.ndarray) -> dict[str, list[str]]:
    """What blue's 52 bits, the first of `seen`, say of each host."""
    bits = seen[:OBS_SIZE].astype(int).reshape(N_HOSTS, 4).tolist()
    return {"activity": [ACTIVITY[a, b] for a, b, _, _ in bits], "belief": [BELIEF[c, d] for _, _, c, d in bits]}


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _analysis(analysis: Analysis) -> dict[str, Any]:
    return {
        "view": analysis.view, "knows": KNOWS[analysis.view], "rollouts": analysis.rollouts,
        "continued_by": analysis.continued_by, "labels": LABELS,
        "steps": [_judgement(step) for step in analysis.steps],
        "worst": [{"step": t + 1, "text": analysis.in_words(t), "label": analysis.steps[t].label}
                  for t in analysis.worst()],
    }  # fmt: skip


def _belief(belief: Belief) -> dict[str, Any]:
    """Probabilities at the start and after each step, of what the page shows."""
    return {name: np.round(getattr(belief, name), 3) for name in ("access", "root", "attacker", "leaderboard")}


def _judgement(step: Judgement) -> dict[str, Any]:
    moves = [[ACTION_NAMES[m.action], *(round(x, 2) for x in (m.value, m.half_width, m.gain, m.gain_half_width))]
             for m in step.moves]  # fmt: skip
    best = {"best": ACTION_NAMES[step.best.action], "lost": round(step.best.gain, 2), "label": step.label}
    return {"moves": moves, **best, "exact": step.exact}
