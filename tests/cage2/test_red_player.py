"""Red as a player: its 56 actions, what it can try, what it sees, and that it sees no more than its own results."""

import numpy as np
import pytest

from stockade.cage2 import actions, scenario
from stockade.cage2.actions import N_ACTIONS, N_RED_ACTIONS, RED_ACTION_NAMES, action_index, red_action_index
from stockade.cage2.batch import Batch
from stockade.cage2.config import WorldConfig
from stockade.cage2.history import CLOCK
from stockade.cage2.red_view import RED_FEATURE_NAMES, RED_OBS_SIZE
from stockade.cage2.scenario import HOSTS, PORTS, SUBNETS
from stockade.cage2.seeds import read_seeds

SLEEP = 0


class Table:
    """Some worlds that two players play, stepped by hand."""

    def __init__(self, n=1, seed=0, **options):
        self.batch = Batch(WorldConfig(red="player", **options), n, threads=1)
        self.obs = np.zeros((n, self.batch.obs_size), np.uint8)
        self.red_obs = np.zeros((n, RED_OBS_SIZE), np.uint8)
        self.rewards, self.over = np.zeros(n), np.zeros(n, np.bool_)
        self.batch.reset(self.obs, read_seeds(seed, n))
        self.batch.observe_red(self.red_obs, False)

    def play(self, red, blue=SLEEP):
        """Both act, by number or name in all worlds, or by arrays; returns red's success."""
        numbers = [red_action_index(red) if isinstance(red, str) else red,
                   action_index(blue) if isinstance(blue, str) else blue]  # fmt: skip
        red_actions, blue_actions = (np.full(self.batch.n, each, np.int64) for each in numbers)
        self.batch.step(blue_actions, self.obs, self.rewards, self.over, False, None, red_actions)
        self.batch.observe_red(self.red_obs, True)
        return int(self.batch.worlds["red_success"][0])

    def sees(self, what):
        return bool(self.red_obs[0, RED_FEATURE_NAMES.index(what)])

    def take(self, host, tries=40):
        """Scan, exploit until it succeeds, escalate."""
        self.play(f"DiscoverNetworkServices {host}")
        assert any(self.play(f"ExploitRemoteService {host}") == actions.TRUE for _ in range(tries))
        assert self.play(f"PrivilegeEscalate {host}") == actions.TRUE


def to_the_server(table):
    """The whole way to Op_Server0."""
    table.play("DiscoverRemoteSystems User")
    for host in ("User1", "Enterprise1"):
        table.take(host)
    table.play("DiscoverRemoteSystems Enterprise")
    for host in ("Enterprise2", "Op_Server0"):
        table.take(host)


# ------------------------------------------------------------------------------------------------------- 56 actions
def test_the_numbers_are_those_of_the_interface():
    assert N_RED_ACTIONS == len(RED_ACTION_NAMES) == len(set(RED_ACTION_NAMES)) == 56
    assert RED_ACTION_NAMES[:4] == ("Sleep", *(f"DiscoverRemoteSystems {net}" for net in SUBNETS))
    kinds = ("DiscoverNetworkServices", "ExploitRemoteService", "PrivilegeEscalate", "Impact")
    for i in range(4, 56):
        assert RED_ACTION_NAMES[i] == f"{kinds[(i - 4) // 13]} {HOSTS[(i - 4) % 13]}"
        assert red_action_index(RED_ACTION_NAMES[i]) == i
    with pytest.raises(ValueError, match="unknown red action 'Impact User9'"):
        red_action_index("Impact", "User9")


@pytest.mark.parametrize("chance", ["fast", "cyborg"])
@pytest.mark.parametrize("rules", ["current", "leaderboard"])
def test_a_whole_attack_stops_the_service(chance, rules):
    table = Table(horizon=500, chance=chance, rules=rules)
    to_the_server(table)
    assert table.play("Impact Op_Server0") == actions.TRUE
    assert table.rewards[0] <= -10
    assert table.play(SLEEP, "Restore Op_Server0") == actions.UNKNOWN
    assert table.rewards[0] > -10


def test_impact_needs_the_services_host():
    table = Table(horizon=500)
    to_the_server(table)
    assert table.play("Impact Enterprise2") == actions.FALSE
    assert not table.batch.worlds["service_down"][0]


def test_a_user_session_is_enough_for_impact():
    """Op_Server0 is restored after red has learned of the service; a new session there is not root."""
    table = Table(horizon=500)
    to_the_server(table)
    table.play(SLEEP, "Restore Op_Server0")
    assert table.play("Impact Op_Server0") == actions.FALSE
    table.play("ExploitRemoteService Op_Server0")
    assert table.batch.worlds["red_access"][0, scenario.SERVICE_HOST] == 1
    assert table.play("Impact Op_Server0") == actions.TRUE


@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_one_of_several_sessions_is_escalated(chance):
    table = Table(n=64, horizon=500, chance=chance)
    table.play("DiscoverRemoteSystems User")
    for host in ("User1", "Enterprise1"):
        table.play(f"DiscoverNetworkServices {host}")
        for _ in range(12):
            table.play(f"ExploitRemoteService {host}")
        table.play(f"PrivilegeEscalate {host}")
    host = HOSTS.index("Enterprise1")
    worlds = table.batch.worlds
    several = (worlds["red_sessions"][:, host] > 2) & (worlds["red_access"][:, host] == 2)
    assert several.sum() > 10
    assert np.all(worlds["red_removable"] + worlds["red_root_sessions"] <= worlds["red_sessions"])


# ------------------------------------------------------------------------------------------------ what red can try
def test_only_what_red_knows_can_be_tried():
    table = Table()
    start = {"Sleep", "DiscoverRemoteSystems User", *(f"{kind} User0" for kind in actions.RED_TYPES[2:])}
    assert {RED_ACTION_NAMES[a] for a in np.flatnonzero(table.batch.red_mask()[0])} == start
    table.play("DiscoverRemoteSystems User")
    users = {f"{kind} User{i}" for i in range(5) for kind in actions.RED_TYPES[2:4]}
    assert {RED_ACTION_NAMES[a] for a in np.flatnonzero(table.batch.red_mask()[0])} == start | users


@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_what_red_cannot_try_fails_and_draws_nothing(chance):
    """The same worlds, one with a forbidden action, one asleep: but for red's own record nothing differs."""
    tables = [Table(chance=chance) for _ in range(2)]
    for action in np.flatnonzero(tables[0].batch.red_mask()[0] == 0):
        assert tables[0].play(action) == actions.FALSE
        assert tables[1].play(SLEEP) == actions.UNKNOWN
    mine, other = (table.batch.worlds for table in tables)
    differ = {name for name in mine.dtype.names if mine[name].tobytes() != other[name].tobytes()}
    assert differ == {"red_type", "red_target", "red_success"}
    if chance == "cyborg":
        assert tables[0].batch.peek()[0] == tables[1].batch.peek()[0]


# ----------------------------------------------------------------------------------------------------- what red sees
def expected(world, memory, horizon):
    """The bits once more, by the names of the features, in plain Python."""
    bits = dict.fromkeys(RED_FEATURE_NAMES, 0)
    for h, host in enumerate(HOSTS):
        bits[f"knows address of {host}"] = int(world["known_addresses"]) >> h & 1
        bits[f"knows name of {host}"] = int(world["known_names"]) >> h & 1
        bits[f"session on {host}"] = int(host in memory["sessions"])
        bits[f"root on {host}"] = int(host in memory["roots"])
        bits[f"exploit failed on {host}"] = int(host in memory["failed"])
        for p, port in enumerate(PORTS):
            bits[f"{host} has port {port}"] = int(world["red_ports"][h]) >> p & 1
    for s, subnet in enumerate(SUBNETS):
        bits[f"knows subnet {subnet}"] = int(world["known_subnets"]) >> s & 1
        bits[f"discovered subnet {subnet}"] = int(subnet in memory["discovered"])
    bits["knows the service"], bits["last Impact succeeded"] = int(world["red_knows_service"]), int(memory["impact"])
    bits[f"last action {actions.RED_TYPES[world['red_type']]}"] = 1
    if world["red_target"] >= 0:
        bits[f"last action on {actions.RED_TARGETS[world['red_target']]}"] = 1
    bits["last action succeeded"] = int(world["red_success"] == actions.TRUE)
    bits["last action failed"] = int(world["red_success"] == actions.FALSE)
    bits["last action was answered"] = int(world["red_contact"] >= 0)
    for steps in CLOCK:
        bits[f"{steps} steps left or more"] = int(horizon - world["time"] >= steps)
    return bits


def learn(memory, world, allowed):
    """What red concludes from its last result."""
    kind, target = actions.RED_TYPES[world["red_type"]], actions.RED_TARGETS[world["red_target"]]
    success = world["red_success"] == actions.TRUE
    gateways = {host for host in HOSTS if host.startswith("Enterprise")}
    if kind == "ExploitRemoteService":
        memory["failed"] = memory["failed"] - {target} if success else memory["failed"] | {target}
        memory["sessions"] = memory["sessions"] | ({target} if success else set())
    elif kind == "PrivilegeEscalate" and success:
        memory["sessions"], memory["roots"] = memory["sessions"] | {target}, memory["roots"] | {target}
    elif kind == "PrivilegeEscalate":
        memory["sessions"], memory["roots"] = memory["sessions"] - {target}, memory["roots"] - {target}
    elif kind == "Impact":
        memory["impact"] = success
        if not success and target == "Op_Server0" and world["red_knows_service"]:
            memory["sessions"], memory["roots"] = memory["sessions"] - {target}, memory["roots"] - {target}
    elif kind == "DiscoverRemoteSystems" and success:
        memory["discovered"] = memory["discovered"] | {target}
    blocked = kind == "DiscoverRemoteSystems" and not success and allowed
    if blocked or (kind == "DiscoverNetworkServices" and success and not world["red_saw_ports"]):
        memory["sessions"], memory["roots"] = memory["sessions"] - gateways, memory["roots"] - gateways


@pytest.mark.parametrize(
    ("chance", "rules", "green"), [("fast", "current", "active"), ("cyborg", "leaderboard", "sleep")]
)
def test_the_bits_say_what_their_names_say(chance, rules, green):
    """Red tries what it can, mostly going forward, so that it gets far; blue plays at random."""
    table = Table(n=4, horizon=400, chance=chance, rules=rules, green=green)
    generator = np.random.default_rng(1)
    start = {"sessions": {"User0"}, "roots": {"User0"}, "failed": set(), "discovered": set(), "impact": False}
    memories = [dict(start) for _ in range(table.batch.n)]
    seen = set()
    for _ in range(400):
        mask = table.batch.red_mask()
        weight = np.where(mask, np.repeat([0.2, 0.5, 1.0, 3.0, 3.0, 1.0], [1, 3, 13, 13, 13, 13]), 0.02)
        red = np.array([generator.choice(N_RED_ACTIONS, p=row / row.sum()) for row in weight])
        blue = np.where(generator.random(table.batch.n) < 0.04, generator.integers(N_ACTIONS, size=table.batch.n), 0)
        table.play(red, blue)
        for i, world in enumerate(table.batch.worlds):
            learn(memories[i], world, mask[i, red[i]])
            wanted = expected(world, memories[i], 400)
            assert dict(zip(RED_FEATURE_NAMES, table.red_obs[i].tolist(), strict=True)) == wanted
            seen |= {name for name, bit in wanted.items() if bit}
    assert {"root on Op_Server0", "last Impact succeeded", "knows subnet Operational"} <= seen


def test_a_new_episode_begins_with_nothing_but_the_foothold():
    table = Table(n=2, horizon=30)
    fresh = table.red_obs.copy()
    to_see = ("DiscoverRemoteSystems User", "DiscoverNetworkServices User1", "ExploitRemoteService User1")
    for action in to_see:
        table.play(action)
    assert (table.red_obs != fresh).any()
    table.batch.reset(table.obs, read_seeds(None, 2), np.array([True, False]))
    table.batch.observe_red(table.red_obs, False)
    assert np.array_equal(table.red_obs[0], fresh[0])
    assert (table.red_obs[1] != fresh[1]).any()


@pytest.mark.parametrize("blue", ["Restore User1", "Remove User1", "DecoyTomcat User1", "Analyse User1", "Monitor"])
def test_red_does_not_see_what_blue_does(blue):
    """Two worlds that differ in blue's move alone: red sees the same, until one of its own actions meets the change."""
    tables = [Table(horizon=500) for _ in range(2)]
    for table in tables:
        table.play("DiscoverRemoteSystems User")
        table.take("User1")
    for table, move in zip(tables, (blue, SLEEP), strict=True):
        table.play(SLEEP, move)
    assert np.array_equal(tables[0].red_obs, tables[1].red_obs)
    assert np.array_equal(tables[0].batch.red_mask(), tables[1].batch.red_mask())
    if blue == "Restore User1":
        assert [table.play("PrivilegeEscalate User1") for table in tables] == [actions.FALSE, actions.TRUE]
        assert [table.sees("session on User1") for table in tables] == [False, True]


def test_red_does_not_see_hidden_state():
    """Whatever is written over the fields that red cannot know, it sees the same."""
    table = Table()
    table.play("DiscoverRemoteSystems User")
    before, worlds = table.red_obs.copy(), table.batch.worlds
    known = {"known_addresses", "known_names", "known_subnets", "red_ports", "red_knows_service", "red_type",
             "red_target", "red_success", "red_saw_ports", "red_contact", "time"}  # fmt: skip
    hidden = [name for name in worlds.dtype.names if name not in known]
    assert {"decoys", "red_sessions", "red_removable", "files", "obs", "service_down", "detected"} <= set(hidden)
    for name in hidden:
        worlds[name] += 1
    table.batch.observe_red(table.red_obs, False)
    assert np.array_equal(table.red_obs, before)


# -------------------------------------------------------------------------------------------- snapshots and errors
@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_a_snapshot_holds_what_red_remembers(chance):
    table = Table(n=3, horizon=100, chance=chance)
    table.play("DiscoverRemoteSystems User")
    snapshot, before = table.batch.snapshot(), table.red_obs.copy()

    def onwards():
        for action in ("DiscoverNetworkServices User2", "ExploitRemoteService User2", "PrivilegeEscalate User2"):
            table.play(action)
        return table.red_obs.copy()

    first = onwards()
    table.batch.restore(snapshot)
    table.batch.observe_red(table.red_obs, False)
    assert np.array_equal(table.red_obs, before)
    assert np.array_equal(onwards(), first)


def test_scripted_attackers_choose_among_the_same_actions():
    """What B_line and Meander do is always something that a player in their place could try."""
    for red in ("bline", "meander"):
        batch = Batch(WorldConfig(red=red, horizon=100), 20, threads=1)
        obs, rewards, over = np.zeros((20, 52), np.uint8), np.zeros(20), np.zeros(20, np.bool_)
        batch.reset(obs, read_seeds(0, 20))
        generator = np.random.default_rng(0)
        for _ in range(100):
            mask = batch.red_mask()
            batch.step(generator.integers(N_ACTIONS, size=20), obs, rewards, over, False)
            done = zip(batch.worlds["red_type"], batch.worlds["red_target"], strict=True)
            chosen = [red_action_index(actions.red_action_name(kind, target)) for kind, target in done]
            assert mask[np.arange(20), chosen].all()
