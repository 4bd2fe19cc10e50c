"""`render_mode="ansi"`: the two tables show what blue believes and what is true, as recorded episodes have it."""

import numpy as np
import pytest

import stockade
from stockade.cage2 import HOSTS, action_index

from .traces import load

ACTIVITY = {(0, 0): "None", (1, 0): "Scan", (1, 1): "Exploit"}
COMPROMISED = {(0, 0): "No", (1, 0): "Unknown", (0, 1): "User", (1, 1): "Privileged"}
DECOYS = ("Apache", "Femitter", "HarakaSMPT", "Smss", "SSHD", "Svchost", "Tomcat", "Vsftpd")
SUBNET_OF = dict.fromkeys(HOSTS[:4], "Enterprise") | dict.fromkeys(HOSTS[4:8], "Operational")


def tables(text: str) -> tuple[str, list[dict[str, str]], list[dict[str, str]]]:
    """The first line, and the rows of both tables by column names."""
    first, *lines = text.splitlines()
    assert lines.count("What blue believes") == lines.count("What is true") == 1
    middle = lines.index("What is true")
    found = []
    for part in (lines[1:middle], lines[middle + 1 :]):
        assert len({len(line) for line in part}) == 1, "a table is as wide in every line"
        header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part]
        found.append([dict(zip(header, row, strict=True)) for row in rows])
    return first, *found


@pytest.mark.parametrize("name", ["public_B_lineAgent_mixed", "public_RedMeanderAgent_decoys"])
def test_both_tables_show_what_was_recorded(name):
    trace, episode = load(f"{name}.npz"), 5
    red = "bline" if "B_line" in name else "meander"
    env = stockade.make(red=red, chance="cyborg", render_mode="ansi")
    env.reset(seed=int(trace["seed"][episode]))
    addresses = [".".join(map(str, int(ip).to_bytes(4, "big"))) for ip in trace["host_ip"][episode]]
    shown = set()
    for t, action in enumerate(trace["blue_action"][episode].tolist()):
        env.step(action)
        _, believed, true = tables(env.render())
        assert [row["Hostname"] for row in believed] == [row["Hostname"] for row in true] == list(HOSTS)
        for h, host in enumerate(HOSTS):
            bits = tuple(trace["obs"][episode, t + 1, 4 * h : 4 * h + 4].tolist())
            place = {"Subnet": SUBNET_OF.get(host, "User"), "IP Address": addresses[h], "Hostname": host}
            assert believed[h] == place | {"Activity": ACTIVITY[bits[:2]], "Compromised": COMPROMISED[bits[2:]]}
            facts = {
                field: int(trace[field][episode, t + 1, h]) for field in ("red_know", "red_priv", "decoys", "files")
            }
            ending = "exe" if host in ("Enterprise1", "Enterprise2", "User0", "User1", "User2") else "sh"
            assert true[h] == place | {
                "Known": str(facts["red_know"] & 1 > 0),
                "Scanned": str(facts["red_know"] & 2 > 0),
                "Access": ("None", "User", "Privileged")[facts["red_priv"]],
                "Decoys": " ".join(name for d, name in enumerate(DECOYS) if facts["decoys"] >> d & 1),
                "Files": " ".join(
                    [f"cmd.{ending}"] * (facts["files"] & 1) + [f"escalate.{ending}"] * (facts["files"] >> 1)
                ),
            }
            shown |= {believed[h]["Activity"], believed[h]["Compromised"], true[h]["Access"]}
    assert shown >= {"Scan", "Exploit", "Unknown", "User", "Privileged"}, "the episode should have shown everything"


def test_the_first_line_tells_the_step():
    env = stockade.make(red="sleep", render_mode="ansi")
    env.reset(seed=0)
    env.step(action_index("DecoyFemitter Defender"))
    assert tables(env.render())[0] == (
        "step 1: blue DecoyFemitter Defender (FALSE), red Sleep (UNKNOWN), service up, reward 0.0"
    )
    env.step(action_index("Restore Op_Server0"))
    assert tables(env.render())[0] == (
        "step 2: blue Restore Op_Server0 (TRUE), red Sleep (UNKNOWN), service up, reward -1.0"
    )


def test_a_stopped_service_is_shown():
    env = stockade.make(red="bline", render_mode="ansi")
    env.reset(seed=0)
    for _ in range(60):
        _, reward, *_ = env.step(0)
    line = tables(env.render())[0]
    assert "red Impact Op_Server0 (TRUE), service down" in line
    assert line.endswith(f"reward {reward:.1f}")


def test_a_fresh_world_can_be_shown():
    """Nothing has happened, and only the reference's stream draws addresses."""
    env = stockade.make(render_mode="ansi")
    env.reset(seed=0)
    first, believed, true = tables(env.render())
    assert first.startswith("step 0")
    assert {(row["Activity"], row["Compromised"], row["IP Address"]) for row in believed} == {("None", "No", "-")}
    assert [row["Access"] for row in true] == ["Privileged" if host == "User0" else "None" for host in HOSTS]


def test_a_vector_environment_shows_each_world():
    options = {"red": "meander", "chance": "cyborg", "render_mode": "ansi"}
    envs, env = stockade.make_vec(2, **options), stockade.make(**options)
    envs.reset(seed=7)
    env.reset(seed=8)
    for _ in range(30):
        envs.step(np.zeros(2, int))
        env.step(0)
    texts = envs.render()
    assert len(texts) == 2
    assert texts[1] == env.render() != texts[0]


def test_without_a_render_mode_nothing_is_shown():
    env, envs = stockade.make(), stockade.make_vec(2)
    env.reset(seed=0)
    envs.reset(seed=0)
    assert env.render() is None
    assert envs.render() is None
