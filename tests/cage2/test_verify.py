"""`verify_file` finds no difference in the recorded traces, and every difference that is put into one."""

import json
from pathlib import Path

import numpy as np
import pytest

from stockade.cage2.verify import TraceError, find_traces, load_trace, verify_file

from .traces import FILES, TRACES, load, shortened

#: What is altered below: four episodes of fifty steps.
SOURCE = shortened(load("green_RedMeanderAgent_mixed.npz"), episodes=4, steps=50)
HOSTS = json.loads(str(SOURCE["meta"]))["hosts"]
EPISODE, STEP = 2, 41
PLAYED = "free_current_climber_sleep.npz"
#: Arrays of the state: index STEP + 1 is after step STEP. The number is the place within it, if it has places.
STATE_FIELDS = {
    "obs": 30, "red_priv": 11, "red_sessions": 3, "decoys": 0, "files": 12, "ot": None, "rng_peek": None,
    "red_root_sessions": 8, "red_removable": 9, "n_decoys": 5, "red_ports": 2, "red_subnets": None, "n_eph_ports": 8,
    "rng_words": None,
}  # fmt: skip
STEP_FIELDS = (
    "reward", "red_type", "red_target", "red_success", "exploit", "detect", "blue_success", "green_target",
)  # fmt: skip


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in SOURCE.items()}


@pytest.fixture
def save(tmp_path):
    def save_as(arrays: dict[str, np.ndarray], name: str = "altered.npz") -> Path:
        path = tmp_path / name
        np.savez(path, **arrays)
        return path

    return save_as


def with_meta(arrays: dict[str, np.ndarray], **changes) -> dict[str, np.ndarray]:
    meta = json.loads(str(arrays["meta"])) | changes
    kept = {key: value for key, value in meta.items() if value is not None}
    return arrays | {"meta": np.array(json.dumps(kept))}


# ------------------------------------------------------------------------------------------------------ equal, unequal
def test_all_traces_are_in_the_repository():
    assert len(FILES) == 67
    assert find_traces([TRACES]) == FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_episodes_are_replayed_without_a_difference(path):
    report = verify_file(path)
    with np.load(path) as file:
        steps = int(file["valid_steps"].sum())
    assert (report.first, report.mismatches, report.steps, report.file) == (None, 0, steps, path.name)


@pytest.mark.parametrize("field", STATE_FIELDS)
@pytest.mark.parametrize("step", [-1, STEP])
def test_one_altered_bit_of_the_state_is_found_and_explained(field, step, arrays, save):
    place = STATE_FIELDS[field]
    index = (EPISODE, step + 1) if place is None else (EPISODE, step + 1, place)
    true = arrays[field][index].item()
    arrays[field][index] = true ^ 1
    report = verify_file(save(arrays))

    first = report.first
    host = "" if place is None else f"[{place}] ({HOSTS[place // 4 if field == 'obs' else place]})"
    assert report.mismatches == 1
    assert (first.file, first.episode, first.seed) == ("altered.npz", EPISODE, arrays["seed"][EPISODE])
    assert (first.step, first.field) == (step, field + host)
    assert (first.expected, first.got) == (true ^ 1, true)


def test_an_altered_mask_of_a_played_red_is_found_and_explained(save):
    arrays = load(PLAYED)
    arrays["red_mask"][1, STEP + 1] ^= np.uint64(1 << 55)
    report = verify_file(save(arrays))
    assert (report.mismatches, report.first.field, report.first.episode, report.first.step) == (1, "red_mask", 1, STEP)
    assert ", red: " in report.first.action


def test_a_played_red_does_what_the_file_says(save):
    """Another action of red makes another game."""
    arrays = load(PLAYED)
    arrays["red_action"][0, :3] = 0
    report = verify_file(save(arrays))
    assert (report.first.step, report.first.episode) == (0, 0)


@pytest.mark.parametrize("field", ["red_action", "red_mask"])
def test_a_played_red_needs_its_fields(field, save):
    arrays = load(PLAYED)
    del arrays[field]
    with pytest.raises(TraceError, match=rf"lacks the field {field}$"):
        verify_file(save(arrays))


@pytest.mark.parametrize("action", [-1, 56])
def test_an_action_of_red_out_of_range_is_refused(action, save):
    arrays = load(PLAYED)
    arrays["red_action"][1, 4] = action
    with pytest.raises(TraceError, match=r"red_action holds values .* 0 to 55"):
        verify_file(save(arrays))


@pytest.mark.parametrize("field", STEP_FIELDS)
@pytest.mark.parametrize("step", [0, STEP, 49])
def test_one_altered_value_of_a_step_is_found_and_explained(field, step, arrays, save):
    true = arrays[field][EPISODE, step].item()
    wrong = true - 0.1 if field == "reward" else true ^ 1
    arrays[field][EPISODE, step] = wrong
    report = verify_file(save(arrays))

    first = report.first
    assert report.mismatches == 1
    assert (first.episode, first.step, first.field) == (EPISODE, step, field)
    assert (first.expected, first.got) == (wrong, true)


def test_the_first_mismatch_is_the_earliest_step_and_all_are_counted(arrays, save):
    arrays["obs"][2, 40 + 1, :2] ^= 1  # two bits of one observation are one mismatch
    arrays["red_target"][3, 17] += 1
    arrays["files"][1, 17 + 1, 3] ^= 2
    report = verify_file(save(arrays))
    assert report.mismatches == 3
    assert (report.first.episode, report.first.step, report.first.field) == (3, 17, "red_target")


def test_the_explanation_names_file_episode_seed_step_action_field_and_both_values(arrays, save):
    arrays["rng_peek"][EPISODE, STEP + 1] = 12345
    true = SOURCE["rng_peek"][EPISODE, STEP + 1]
    text = str(verify_file(save(arrays, "wrong.npz")).first)
    kind, host = divmod(int(arrays["blue_action"][EPISODE, STEP]) - 2, 13)
    assert kind == 3, "the comparison below is of a DecoyFemitter"
    for part in ("wrong.npz", "episode 2", f"seed {arrays['seed'][2]}", "step 41", f"DecoyFemitter {HOSTS[host]}",
                 "rng_peek", "expected 12345", f"got      {true}"):  # fmt: skip
        assert part in text


def test_steps_after_the_valid_ones_are_not_compared(arrays, save):
    arrays["valid_steps"][EPISODE] = STEP
    arrays["reward"][EPISODE, STEP:] = -99.0
    arrays["obs"][EPISODE, STEP + 1 :] = 7
    report = verify_file(save(arrays))
    assert (report.mismatches, report.steps) == (0, 3 * 50 + STEP)
    arrays["reward"][EPISODE, STEP - 1] = -99.0
    assert verify_file(save(arrays)).mismatches == 1


def test_another_action_seed_green_or_rule_set_does_not_replay(arrays, save):
    """So the comparison rests on what the file says, not on what it happens to find."""
    action, seed = arrays["blue_action"].copy(), arrays["seed"].copy()
    action[0, 0] = (action[0, 0] + 40) % 145
    seed[0] += 1
    assert verify_file(save(arrays | {"blue_action": action})).first.step == 0
    assert verify_file(save(arrays | {"seed": seed})).first.step == -1
    assert verify_file(save(with_meta(arrays, green=None))).mismatches > 200
    assert verify_file(save(with_meta(arrays, red="B_lineAgent"))).mismatches > 200
    old = load("leaderboard_RedMeanderAgent_react_restore.npz")
    assert verify_file(save(with_meta(old, rules="leaderboard"))).mismatches == 0
    assert verify_file(save(with_meta(old, rules=None))).mismatches > 0


def test_only_what_the_schema_requires_is_needed(arrays, save):
    """A file of somebody else may lack what is compared only where it is there."""
    optional = {
        *("red_root_sessions", "red_removable", "n_decoys", "red_ports", "red_subnets", "n_eph_ports", "rng_words"),
        *("green_target", "green_type", "red_know", "sus_pids", "host_ip", "red_fsm", "exploit_options"),
    }
    report = verify_file(save({name: array for name, array in arrays.items() if name not in optional}))
    assert (report.mismatches, report.steps) == (0, 200)


# ---------------------------------------------------------------------------------------------------------- bad files
REQUIRED = (
    "seed", "blue_action", "valid_steps", "meta", "obs", "red_priv", "red_sessions", "decoys", "files", "ot",
    "rng_peek", "reward", "red_type", "red_target", "red_success", "exploit", "detect", "blue_success",
)  # fmt: skip


@pytest.mark.parametrize("field", REQUIRED)
def test_a_missing_field_is_named(field, arrays, save):
    del arrays[field]
    with pytest.raises(TraceError, match=rf"altered\.npz: lacks the field {field}$"):
        verify_file(save(arrays))


def test_all_missing_fields_are_named(arrays, save):
    del arrays["obs"], arrays["detect"]
    with pytest.raises(TraceError, match="lacks the fields obs, detect"):
        verify_file(save(arrays))


@pytest.mark.parametrize("field", [name for name in REQUIRED if name != "meta"])
def test_a_wrong_shape_is_named(field, arrays, save):
    short = arrays[field][:-1] if field != "blue_action" else arrays[field][0]
    with pytest.raises(TraceError, match=rf"altered\.npz: {field} has shape .*{short.shape[0]}.*; expected "):
        verify_file(save(arrays | {field: short}))


@pytest.mark.parametrize("action", [-1, 145, 300])
def test_an_action_out_of_range_is_refused(action, arrays, save):
    arrays["blue_action"][3, 4] = action
    with pytest.raises(TraceError, match=r"blue_action holds values .* 0 to 144"):
        verify_file(save(arrays))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"red": "NobodyAgent"}, "'NobodyAgent' is unknown.*B_lineAgent.*RedMeanderAgent.*SleepAgent"),
        ({"red": None}, "names the red agent"),
        ({"red": ["B_lineAgent"]}, r"\['B_lineAgent'\]"),
        ({"green": "BlueAgent"}, "'BlueAgent'; known are SleepAgent, GreenAgent"),
        ({"green": ["GreenAgent"]}, r"\['GreenAgent'\]"),
        ({"rules": "future"}, "rules='future' is unknown.*'current', 'leaderboard'"),
    ],
)
def test_a_meta_with_unknown_agents_or_rules_is_refused(changes, message, arrays, save):
    with pytest.raises(TraceError, match=message):
        verify_file(save(with_meta(arrays, **changes)))


@pytest.mark.parametrize("meta", ["not JSON", "[1, 2]", "3", ""])
def test_a_meta_that_is_no_json_object_is_refused(meta, arrays, save):
    with pytest.raises(TraceError, match="meta is not JSON that names the red agent"):
        verify_file(save(arrays | {"meta": np.array(meta)}))


@pytest.mark.parametrize("seed", [-1, 0.5, "seven"])
def test_a_seed_that_is_none_is_refused(seed, arrays, save):
    with pytest.raises(TraceError, match="seed"):
        verify_file(save(arrays | {"seed": np.array([seed] * 4)}))


@pytest.mark.parametrize("valid_steps", [-1, 51, 0.5, "all"])
def test_valid_steps_that_cannot_be_are_refused(valid_steps, arrays, save):
    with pytest.raises(TraceError, match="valid_steps"):
        verify_file(save(arrays | {"valid_steps": np.array([valid_steps] * 4)}))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(share, tmp_path):
    whole = FILES[0].read_bytes()
    path = tmp_path / "cut.npz"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(TraceError, match=r"cut\.npz: cannot be read as a trace, it may be truncated"):
        verify_file(path)


@pytest.mark.parametrize("flag", range(8))
@pytest.mark.parametrize("place", [6, 8, 80])
def test_a_flipped_flag_is_refused_or_harmless(tmp_path, place, flag):
    """The flags and the compression that a zip's table of contents gives a file; the header of an array."""
    content = bytearray(FILES[0].read_bytes())
    table = content.index(b"PK\x01\x02") if place < 80 else 0
    content[table + place + 2 * (place < 80)] ^= 1 << flag
    path = tmp_path / "flipped.npz"
    path.write_bytes(content)
    try:
        load_trace(path)
    except TraceError as error:
        assert "flipped.npz" in str(error)  # noqa: PT017


def test_a_damaged_file_is_refused(tmp_path):
    """Its zip directory is whole, but not the data."""
    damaged = bytearray(FILES[0].read_bytes())
    damaged[2000:2050] = bytes(50)
    path = tmp_path / "damaged.npz"
    path.write_bytes(damaged)
    with pytest.raises(TraceError, match=r"damaged\.npz: cannot be read"):
        verify_file(path)


def test_a_pickle_is_never_opened(arrays, save):
    with pytest.raises(TraceError, match="cannot be read as a trace"):
        verify_file(save(arrays | {"meta": np.array({"red": "B_lineAgent"}, dtype=object)}))


def test_other_files_are_refused(tmp_path):
    text, array = tmp_path / "notes.npz", tmp_path / "one_array.npy"
    text.write_text("no archive\n" * 100)
    np.save(array, np.arange(3))
    for path in (text, array):
        with pytest.raises(TraceError, match=f"{path.name}: cannot be read as a trace"):
            verify_file(path)


def test_paths_that_lead_nowhere_are_refused(tmp_path):
    with pytest.raises(TraceError, match=r"missing\.npz: no such file"):
        find_traces([tmp_path / "missing.npz"])
    with pytest.raises(TraceError, match=r"there is no \.npz file in this folder"):
        find_traces([tmp_path])
    with pytest.raises(TraceError, match="name at least one"):
        find_traces([])
