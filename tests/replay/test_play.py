"""A game of `stockade play` over real sockets: what it tells, that it is the environment's, and the command."""

import http.client
import itertools
import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from urllib.parse import urlsplit

import numpy as np
import pytest

import stockade
from stockade import cli
from stockade.cage2.actions import ACTION_NAMES, N_ACTIONS, action_index
from stockade.learn.agents import as_player
from stockade.replay.play import Game, PlayCommand
from stockade.replay.result import observed
from tests.processes import PATIENCE, wait_until
from tests.replay.client import CONTENT, Client

SLEEP, STEPS = 0, 30
#: All that a player is told while the game runs.
VIEW = {"step", "activity", "belief", "log", "decoys", "n_decoys", "ever", "restores", "over"}
PAGE = {"hosts", "foothold", "service_host", "gateways", "decoys", "blind", "red", "rules", "horizon", "advisor",
        "actions", "anywhere", "view"}  # fmt: skip


@pytest.mark.parametrize(("red", "rules"), [("bline", "current"), ("meander", "leaderboard"), ("mix", "current")])
def test_a_game_is_the_environments_episode_step_for_step(red, rules):
    actions = np.random.default_rng(5).integers(N_ACTIONS, size=STEPS).tolist()
    env = stockade.make(red=red, rules=rules, horizon=STEPS)
    obs, _ = env.reset(seed=11)
    rewards, access = [], [env.true_state().red_access.copy()]
    with Client(red=red, rules=rules, seed=11) as client:
        view = json.loads(client.get("state"))
        for step, action in enumerate(actions):
            assert {name: view[name] for name in ("activity", "belief")} == observed(obs)
            assert (view["step"], view["over"]) == (step, False)
            view = client.act(step, action)
            obs, reward, _, _, info = env.step(action)
            rewards.append(reward)
            access.append(env.true_state().red_access.copy())
            assert view["log"][-1]["blue"] == info["blue_action"] == ACTION_NAMES[action]
        assert view["over"]
        content, episode = client.revealed(), client.game.replay.episode
    assert [step["reward"] for step in content["steps"]] == pytest.approx(rewards)
    assert np.array_equal(episode.truth["red_access"], access)
    assert (content["policy"], content["seed"], content["return"]) == ("You", 11, pytest.approx(sum(rewards)))


def worlds_that_look_alike(n_seeds=3000, steps=4):
    """Two seeds with which blue sees the same for all steps of Sleep, while the truth and the rewards differ."""
    envs = stockade.make_vec(n_seeds, red="meander", horizon=STEPS)
    seen, rewards = [envs.reset(seed=0)[0].copy()], []
    for _ in range(steps * 3):
        obs, reward, *_ = envs.step(np.full(n_seeds, SLEEP))
        seen.append(obs.copy())
        rewards.append(reward)
        alike = defaultdict(list)
        for i, history in enumerate(np.concatenate(seen, axis=1)):
            alike[history.tobytes()].append(i)
        for group in alike.values():
            for a, b in itertools.pairwise(group):
                if not np.array_equal(envs.true_state().red_access[a], envs.true_state().red_access[b]) and any(
                    row[a] != row[b] for row in rewards
                ):
                    return a, b, len(rewards)
    raise AssertionError("no such seeds")


def test_worlds_that_blue_cannot_tell_apart_give_the_same_bytes_until_the_end():
    one, other, steps = worlds_that_look_alike()
    flags = {"red": "meander", "advice": "champion"}
    with Client(seed=one, **flags) as a, Client(seed=other, **flags) as b:
        for step in range(steps + 1):
            for client in (a, b):
                client.said = [client.get(), client.get("state"), client.post("advice", step=step)]
            assert a.said == b.said
            assert set(json.loads(CONTENT.search(a.said[0])[1])) == PAGE
            assert set(json.loads(a.said[1])) == VIEW
            assert set(json.loads(a.said[1])["log"][-1] if step else {}) <= {"blue", "blue_host", "blue_failed", "sees"}
            if step < steps:
                assert a.act(step, SLEEP) == b.act(step, SLEEP)
        for client in (a, b):
            assert client.post("end", step=steps)[0] == 200
        first, second = a.revealed(), b.revealed()
        assert first["states"][-1]["access"] != second["states"][-1]["access"]
        assert first["return"] != second["return"]


def test_decoys_and_restores_are_what_blue_did_itself():
    with Client() as client:
        place, again = action_index("DecoyApache", "User1"), action_index("DecoySmss", "User1")
        client.act(0, place)
        view = client.act(1, again)
        assert (view["n_decoys"][9], view["log"][-1]["blue_failed"]) == (2, False)
        view = client.act(2, place)
        assert view["log"][-1]["blue_failed"]
        view = client.act(3, action_index("Restore", "User1"))
        assert (view["n_decoys"][9], view["decoys"][9], view["restores"]) == (0, 0, 1)
        assert "restored" in view["ever"][9]


def test_giving_up_reveals_the_steps_that_were_played_judged_to_the_planned_end():
    with Client(advice="champion", analyse=True, horizon=12) as client:
        assert client.post("end", step=0)[0] == 409
        for step in range(3):
            client.act(step, SLEEP)
        status, view = client.post("end", step=3)
        assert (status, view["over"]) == (200, True)
        assert client.post("act", step=3, action=SLEEP)[0] == 409
        content = client.revealed()
        episode = client.game.replay.episode
    assert len(content["steps"]) == 3
    assert [analysis["view"] for analysis in content["analyses"]] == ["hindsight", "fair"]
    assert content["advisor"] == "champion"
    assert content["steps"][0]["likely"]
    assert (len(episode), episode.config.horizon) == (3, 12)
    same = stockade.replay("sleep", horizon=12, seed=3, particles=0, progress=False)
    for t, step in enumerate(client.game.replay.analyses[0].steps):
        ours, theirs = step.played, same.analyses[0].steps[t].played
        assert ours.action == theirs.action == SLEEP
        assert ours.value > theirs.value - 1, "the champion plays on for nine steps, in place of Sleep"


def test_advice_is_the_policys_view_of_what_blue_has_seen():
    agent = stockade.load("champion")
    env = stockade.make(horizon=STEPS, obs=agent.obs)
    obs, _ = env.reset(seed=3)
    with Client(advice="champion") as client, Client(advice="react-restore") as plain:
        for step in range(6):
            status, advice = client.post("advice", step=step)
            likely = agent.probabilities(obs)
            assert status == 200
            assert [move[2] for move in advice["moves"]] == pytest.approx(np.sort(likely)[::-1][:5].tolist(), abs=1e-4)
            assert [ACTION_NAMES[move[0]] for move in advice["moves"]] == [move[1] for move in advice["moves"]]
            assert advice["value"] == pytest.approx(agent.value(obs), abs=0.01)
            assert json.loads(client.get("state"))["step"] == step, "asking is not acting"
            action = advice["moves"][0][0]
            client.act(step, action)
            obs, *_ = env.step(action)
        assert client.post("advice", step=2)[0] == 409
        assert len(plain.post("advice", step=0)[1]["moves"]) == 1


def test_a_policy_that_is_bound_to_an_order_advises_and_binds_nobody(ordered):
    game = Game(PlayCommand(seed=1, horizon=6).settings(), as_player(ordered))
    fixes = [action_index("Restore", "Op_Server0"), action_index("Remove", "User4")] * 3
    for step, fix in enumerate(fixes):
        assert len(game.advise(step)["moves"]) == 5
        view = game.act(step, fix)
    assert view["over"]
    wait_until(lambda: game.replay is not None, "the game is never judged")
    episode = game.replay.episode
    assert (episode.actions.tolist(), episode.order, episode.refused.any()) == (fixes, "", False)
    assert game.replay.analyses[0].continued_by == "champion"


def test_a_policy_that_fails_is_named_and_the_game_goes_on():
    with Client(advice="tests.replay.test_play:Fails") as client:
        status, answer = client.post("advice", step=0)
        assert (status, "I do not know" in answer["error"]) == (400, True)
        assert client.act(0, SLEEP)["step"] == 1


class Fails:
    """A policy with no answer."""

    def act(self, observations):
        raise RuntimeError("I do not know")


def test_concurrent_requests_for_a_step_make_one_step():
    with Client(horizon=10) as client:
        for step in range(10):
            answers = []
            click = lambda step=step, answers=answers: answers.append(client.post("act", step=step, action=1)[0])  # noqa: E731
            threads = [threading.Thread(target=click) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(answers) == [200, *[409] * 5]
        assert len(client.revealed()["steps"]) == 10


# -------------------------------------------------------------------------------------------------------- the command
def test_ctrl_c_ends_the_command_with_one_line_and_code_130():
    PlayCommand(advice="none", analyse=False).game()  # compiled, so that no line announces it
    command = [sys.executable, "-m", "stockade.cli", "play", "--advice", "none", "--no-analyse", "--max-steps", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[-1]
            parts = urlsplit(address)
            assert (parts.scheme, parts.hostname) == ("http", "127.0.0.1")
            connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
            for step in range(2):
                connection.request("POST", parts.path + "act", json.dumps({"step": step, "action": 0}))
                answer = connection.getresponse()
                assert answer.status == 200
                answer.read()
            connection.close()
            assert process.stdout.readline().startswith("return ")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, err) == (130, "stockade: interrupted\n")
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--advice", "champon"), "Did you mean 'champion'"),
        (("--port", "70000"), "--port 70000 must be from 0 to 65535"),
        (("--max-steps", "5000"), "--max-steps 5000 is too long"),
        (("--seed", "-1"), "--seed -1 must be"),
        (("--red-agent", "blin"), "--red-agent blin is unknown"),
        (("--advice", "tests.replay.test_play:Remembers"), "cannot advise: it has a memory of its own"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_is_served(capsys, flags, message):
    with pytest.raises(SystemExit) as ended:
        cli.main(["play", *flags])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert "Traceback" not in err


def test_a_port_in_use_is_refused(capsys):
    with Client() as client, pytest.raises(SystemExit) as ended:
        cli.main(["play", "--advice", "none", "--no-analyse", "--port", str(client.port)])
    assert ended.value.code == 2
    assert f"--port {client.port} cannot be used: Address already in use" in capsys.readouterr().err


class Remembers:
    """A policy that must have played the episode itself."""

    def reset(self, n):
        self.steps = 0

    def act(self, observations):
        return np.zeros(len(observations), np.int64)


def test_without_a_seed_every_game_is_another():
    seeds = {PlayCommand(advice="none", analyse=False).settings().seed for _ in range(5)}
    assert len(seeds) == 5
    assert isinstance(PlayCommand(advice="none", analyse=False, seed=4).game(), Game)
