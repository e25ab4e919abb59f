"""`scramjet check` finds each kind of mistake and tells it in the author's terms: the world, the function, the line."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

from scramjet.compile import numba_versions
from scramjet.engine.worlds.check import check_world
from tests.helpers import ROOT

STEPS = 80

HEAD = """\
import numpy as np
from scramjet.envs import Box, Discrete, Env, MultiDiscrete, randint, uniform
"""

PARTS = {
    "globals": "",
    "limit": "max_episode_steps = 20",
    "observation_space": "observation_space = Box(0, 10, (2,), np.float32)",
    "action_space": "action_space = Discrete(3)",
    "state": 'state = {"x": np.int32, "y": np.float64}',
    "reset": "def reset(self, s):\n    s.x = randint(s, 3)",
    "step": "def step(self, s, action):\n    s.x = min(s.x + action, 9)\n    return float(s.x), s.x >= 9",
    "observe": "def observe(self, s, obs):\n    obs[0] = s.x\n    obs[1] = s.y",
    "extra": "",
}


@pytest.fixture(autouse=True)
def _clean_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def check(tmp_path: Path):
    """Write the good world with some of its parts changed, check it; (all fine, the last text, the file's lines)."""

    def run(**changes: str) -> tuple[bool, str, list[str]]:
        parts = {name: textwrap.dedent(changes.get(name, text)).strip() for name, text in PARTS.items()}
        assert set(changes) <= set(PARTS)
        body = "\n\n".join(text for name, text in parts.items() if name != "globals" and text)
        source = f"{HEAD}\n{parts['globals']}\n\n\nclass Meadow(Env):\n{textwrap.indent(body, '    ')}\n"
        path = tmp_path / "meadow.py"
        path.write_text(source)
        findings = list(check_world(str(path), steps=STEPS))
        return all(finding.is_fine for finding in findings), findings[-1].text, source.splitlines()

    return run


def line_with(lines: list[str], text: str) -> int:
    """The number of the only line that contains `text`."""
    (number,) = [number for number, line in enumerate(lines, start=1) if text in line]
    return number


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        *((name, STEPS) for name in ("cartpole", "pendulum", "maze", f"{ROOT}/examples/corridor.py")),
        *((name, 120) for name in ("snake", "connect_four")),
    ],
)
def test_good_worlds_pass(name: str, steps: int) -> None:
    """One of each kind of space and players; the parity tests compare the back-ends of every world."""
    findings = list(check_world(name, steps=steps))
    assert [finding.text for finding in findings if not finding.is_fine] == []
    assert NONE_IS_LAST_ONLY in [finding.text for finding in findings]
    assert len(findings) >= 6
    assert any("compiled for the CPU" in finding.text for finding in findings)


@pytest.mark.skipif(not numba_versions.IS_TESTED, reason="needs the compile cache, of tested versions of Numba")
@pytest.mark.parametrize("name", [f"{ROOT}/examples/corridor.py", "masked_cartpole"])
def test_check_says_how_long_compiling_took_or_that_the_compile_cache_had_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "cache"))
    texts = [finding.text for _ in range(2) for finding in check_world(name, steps=STEPS)]
    first, second = (text for text in texts if "for the CPU" in text)
    (seconds,) = re.findall(r"compiled for the CPU \((.+) s\) and equal", first)
    assert float(seconds) >= 0.1
    assert "compiled for the CPU (from the compile cache) and equal" in second


def test_the_world_that_the_mistakes_below_start_from_passes(check) -> None:
    is_fine, text, _ = check()
    assert is_fine, text


STEP_MISTAKES = {
    "an unknown name": ("return unknown_name * 1.0, False", "unknown_name"),
    "a method of self": ("return self.worth(s), False", "worth"),
    "a string format": ('label = "{}".format(s.x)\n    return float(len(label)), False', None),
    "a dict of mixed values": ('table = {s.x: 1, "b": 2}\n    return float(len(table)), False', None),
    "an attribute that is no number": ("return float(len(self.title)), False", "title"),
    "a module's function that cannot be compiled": ("return float(len(os.getcwd())), False", None),
    "a variable of two types": ('label = 1 if s.x > 100 else "a"\n    return 1.0, label == 1', None),
}


@pytest.mark.parametrize("kind", STEP_MISTAKES)
def test_code_that_cannot_be_compiled_is_reported_with_function_and_line(check, kind: str) -> None:
    code, named = STEP_MISTAKES[kind]
    is_fine, text, lines = check(
        globals="import os",
        step=f"def step(self, s, action):\n    {code}",
        extra='title = "meadow"\n\ndef worth(self, s):\n    return 1.0 * s.x',
    )
    assert not is_fine
    assert "Meadow.step" in text
    assert f"line {line_with(lines, code.splitlines()[0])}" in text
    assert named is None or named in text
    assert "self" in code or "self" not in text
    assert len(text.splitlines()) == 1


def test_an_undeclared_field_is_reported_with_function_and_line(check) -> None:
    is_fine, text, lines = check(reset="def reset(self, s):\n    s.z = 1")
    assert not is_fine
    assert "Meadow.reset" in text
    assert f"line {line_with(lines, 's.z = 1')}" in text
    assert "'z'" in text
    assert "x, y" in text


def test_reading_an_undeclared_field_suggests_the_declared_one(check) -> None:
    is_fine, text, lines = check(
        state='state = {"x": np.int32, "y": np.float64, "speed": np.float64}',
        step="def step(self, s, action):\n    return s.sped, False",
    )
    assert not is_fine
    assert "Meadow.step" in text
    assert f"line {line_with(lines, 's.sped')}" in text
    assert "Did you mean 'speed'?" in text


@pytest.mark.parametrize("index", [2, -3])
def test_an_observation_index_out_of_range_is_reported_with_function_and_line(check, index: int) -> None:
    is_fine, text, lines = check(observe=f"def observe(self, s, obs):\n    obs[0] = s.x\n    obs[{index}] = s.y")
    assert not is_fine
    assert "Meadow.observe" in text
    assert f"line {line_with(lines, f'obs[{index}]')}" in text
    assert "out of bounds" in text


def test_an_index_out_of_range_in_an_array_field_is_reported_with_function_and_line(check) -> None:
    is_fine, text, lines = check(
        state='state = {"x": np.int32, "y": np.float64, "board": (np.int8, 3)}',
        step="def step(self, s, action):\n    s.board[action + 1] = 1\n    return 1.0, False",
    )
    assert not is_fine
    assert "Meadow.step" in text
    assert f"line {line_with(lines, 's.board[action')}" in text


@pytest.mark.parametrize(("value", "shown"), [("s.x + 9.5", "[0]"), ("-1.0", "[0]"), ("np.nan", "nan")])
def test_an_observation_outside_its_space_is_reported_with_entry_and_bounds(check, value: str, shown: str) -> None:
    is_fine, text, _ = check(observe=f"def observe(self, s, obs):\n    obs[0] = {value}\n    obs[1] = s.y")
    assert not is_fine
    assert "Meadow.observe wrote obs[0]" in text
    assert shown in text
    assert "[0.0, 10.0]" in text


def test_a_last_observation_outside_its_space_is_reported(check) -> None:
    is_fine, text, _ = check(
        step="def step(self, s, action):\n    s.x = s.x + 1\n    done = s.x > 10\n    return 1.0, done"
    )
    assert not is_fine
    assert "Meadow.observe wrote obs[0] = 11.0" in text
    assert "last observation" in text


COUNTED = {
    "limit": "max_episode_steps = 6",
    "state": 'state = {"x": np.int32}',
    "reset": "def reset(self, s):\n    pass",
    "step": "def step(self, s, action):\n    s.x += 1\n    return 0.0, action == 2 and s.x < 2",
}


def said_of_choices(*, space: str, shown: str, tmp_path: Path, **changes: str) -> str:
    """What `check_world` says of a world that shows how many steps it has taken, or something made of that."""
    parts = COUNTED | changes
    body = [parts["limit"], f"observation_space = {space}", "action_space = Discrete(3)", parts["state"]]
    body += [parts["reset"], parts["step"], f"def observe(self, s, obs):\n    {shown}"]
    indented = textwrap.indent("\n\n".join(body), "    ")
    path = tmp_path / "counted.py"
    path.write_text(f"{HEAD.replace('Box,', 'Box, Dict,')}\n\nclass Counted(Env):\n{indented}\n")
    findings = list(check_world(str(path), steps=60))
    assert [finding.text for finding in findings if not finding.is_fine] == []
    (said,) = (finding.text for finding in findings if "time is up" in finding.text)
    return said


NONE_IS_LAST_ONLY = "no choice is shown only when time is up"


@pytest.mark.parametrize(
    ("space", "shown", "name"),
    [
        ("Dict({'clock': Discrete(7), 'x': Box(0, 9, (1,))})", "obs.clock[0] = s.x\n    obs.x[0] = s.x", "clock"),
        ("Dict({'a': Dict({'clock': Discrete(7)})})", "obs.a.clock[0] = s.x", "a.clock"),
    ],
    ids=["an entry", "a nested entry"],
)
def test_a_choice_that_is_only_shown_when_time_is_up_is_told_with_the_way_to_leave_it_out(
    space: str, shown: str, name: str, tmp_path: Path
) -> None:
    said = said_of_choices(space=space, shown=shown, tmp_path=tmp_path)
    assert said.startswith(f"{name} is 6 only when time is up")
    assert f"--policy.ignore {name}" in said
    assert "show a count as a number (Box)" in said


@pytest.mark.parametrize(
    ("space", "shown", "changes"),
    [
        ("Dict({'clock': Box(0, 9, (1,))})", "obs.clock[0] = s.x", {}),
        ("Dict({'clock': Discrete(7)})", "obs.clock[0] = s.x % 6", {}),
        (
            "Dict({'clock': Discrete(7)})",
            "obs.clock[0] = s.x",
            {"step": "def step(self, s, action):\n    s.x += 1\n    return 0.0, s.x == 6"},
        ),
    ],
    ids=["a number", "shown before too", "ended by the rules"],
)
def test_other_counts_are_fine(space: str, shown: str, changes: dict[str, str], tmp_path: Path) -> None:
    assert said_of_choices(space=space, shown=shown, tmp_path=tmp_path, **changes) == NONE_IS_LAST_ONLY


def test_of_the_worlds_here_the_maze_has_such_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scramjet.engine.worlds.check.INTERPRETED_SECONDS", 60.0)  # all steps, on a busy machine too
    texts = [finding.text for finding in check_world("maze", steps=120)]  # an episode of it has 100
    assert "step_count is 100 only when time is up" in " ".join(texts)
    assert NONE_IS_LAST_ONLY not in texts


def test_an_observation_entry_never_written_is_reported(check) -> None:
    is_fine, text, _ = check(observe="def observe(self, s, obs):\n    obs[0] = s.x")
    assert not is_fine
    assert "Meadow.observe does not write obs[1]" in text


@pytest.mark.parametrize("code", ["s.x = s.x + 0 * 1 if s.x > 5 else s.x + 1", "s.y = uniform(s)"])
def test_an_observe_that_changes_the_state_is_reported(check, code: str) -> None:
    is_fine, text, _ = check(
        step="def step(self, s, action):\n    return 1.0, False",
        observe=f"def observe(self, s, obs):\n    obs[0] = min(s.x, 9)\n    obs[1] = s.y\n    {code}",
    )
    assert not is_fine
    assert "Meadow.observe changes the state" in text


RICHER = {
    "state": 'state = {"x": np.int32, "y": np.float64, "seen": np.int8, "marks": (np.int8, (2, 3)), "turn": np.int8}',
    "reset": "def reset(self, s):\n    s.x = randint(s, 3)\n    s.y = 1.0",
}
"""The good world with more state, for functions that change some of it."""
OF_PLAYERS = {
    "step": "def step(self, s, action, reward):\n    s.x = min(s.x + 1, 9)\n    return s.x >= 9",
    "observe": "def observe(self, s, obs, player):\n    obs[0] = s.x\n    obs[1] = s.y",
}
"""The same for two players."""
SEATS = "num_seats = 2\n\ndef seat(self, s):\n    {}return s.turn"
AGENTS = "num_agents = 2\n\ndef alive(self, s, player):\n    {}return True"
STATS = 'stat_names = ("win",)\n\ndef stats(self, s, stats):\n    stats.win = s.x\n    {}pass'
SCORE = "\n\ndef score(self, s, player):\n    {}return 0.0"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # What is changed each time to the same: nothing differs between a second call and a third.
        (
            {"observe": "def observe(self, s, obs):\n    s.seen = 1\n    obs[0] = s.x\n    obs[1] = s.y"},
            "Meadow.observe changes the state: s.seen was 0 and became 1.",
        ),
        (
            {"observe": "def observe(self, s, obs):\n    s.y = min(s.y, 0.5)\n    obs[0] = s.x\n    obs[1] = s.y"},
            "Meadow.observe changes the state: s.y was 1.0 and became 0.5.",
        ),
        (
            {"extra": "def mask(self, s, mask):\n    s.marks[1, 2] = 3"},
            "Meadow.mask changes the state: s.marks[1, 2] was 0 and became 3.",
        ),
        ({"extra": "def mask(self, s, mask):\n    s.x += 1"}, "Meadow.mask changes the state: s.x was "),
        (
            {"extra": "def mask(self, s, mask):\n    randint(s, 3)"},
            "Meadow.mask changes the state: it draws random numbers.",
        ),
        ({"extra": STATS.format("s.seen = 1; ")}, "Meadow.stats changes the state: s.seen was 0 and became 1."),
        (
            OF_PLAYERS | {"extra": SEATS.format("s.turn = 1; ")},
            "Meadow.seat changes the state: s.turn was 0 and became 1.",
        ),
        (
            OF_PLAYERS | {"extra": SEATS.format("") + SCORE.format("s.seen = 1; ")},
            "Meadow.score changes the state: s.seen was 0 and became 1.",
        ),
        (OF_PLAYERS | {"extra": AGENTS.format("s.seen = 1; ")}, "Meadow.alive changes the state: s.seen was 0"),
        (
            {
                "extra": "critic_space = Box(0, 9, (1,), np.float32)\n\ndef observe_critic(self, s, obs):\n"
                "    s.y = -0.0\n    obs[0] = s.x"
            },
            "Meadow.observe_critic changes the state: s.y was 1.0 and became -0.0.",
        ),
    ],
)
def test_a_function_that_may_only_read_is_reported_at_the_first_change_with_field_and_fix(
    check, changes: dict[str, str], said: str
) -> None:
    is_fine, text, _ = check(**RICHER | changes)
    assert not is_fine
    assert said in text
    assert "change the state and draw random numbers in reset and step alone" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": "def mask(self, s, mask):\n    mask[2] = s.x < 8"},
        {"extra": STATS.format("")},
        OF_PLAYERS | {"extra": SEATS.format("") + SCORE.format("")},
        OF_PLAYERS | {"extra": AGENTS.format("")},
    ],
)
def test_functions_that_only_read_the_state_pass(check, changes: dict[str, str]) -> None:
    is_fine, text, _ = check(**RICHER | changes)
    assert is_fine, text


def test_a_fraction_written_into_a_whole_number_observation_is_reported(check) -> None:
    is_fine, text, _ = check(
        observation_space="observation_space = Box(0, 10, (2,), np.int32)",
        observe="def observe(self, s, obs):\n    obs[0] = s.x\n    obs[1] = s.x / 2",
    )
    assert not is_fine
    assert re.search(r"Meadow.observe writes \d.5 to obs, which int32 cannot hold", text)


def test_a_number_too_large_for_its_field_is_reported_with_function_and_line(check) -> None:
    is_fine, text, lines = check(
        state='state = {"x": np.int8, "y": np.float64}',
        step="def step(self, s, action):\n    s.x = s.x + 100\n    return 1.0, False",
        observe="def observe(self, s, obs):\n    obs[0] = s.x % 10\n    obs[1] = s.y",
    )
    assert not is_fine
    assert "Meadow.step" in text
    assert f"line {line_with(lines, 's.x + 100')}" in text
    assert "int8" in text


@pytest.mark.parametrize(
    ("globals_", "code"),
    [
        ("MEMORY = [0]", "MEMORY[0] += 1\n    return float(MEMORY[0]), s.x >= 9"),
        ("MEMORY = np.zeros(1)", "MEMORY[0] += 1\n    return MEMORY[0], s.x >= 9"),
        ("import random", "return random.random(), s.x >= 9"),
        ("", "return np.random.random(), s.x >= 9"),
        ("", "return 1000.0 + 0.001 * np.random.random(), s.x >= 9"),  # little, but a resumed run would differ
    ],
)
def test_state_or_chance_outside_the_record_is_reported(check, globals_: str, code: str) -> None:
    is_fine, text, _ = check(
        globals=globals_, step=f"def step(self, s, action):\n    s.x = min(s.x + action, 9)\n    {code}"
    )
    assert not is_fine
    assert "Meadow: played twice from one seed, reward of env" in text
    assert "outside the record" in text


@pytest.mark.parametrize("value", ["np.nan", "np.inf", "-np.inf"])
def test_a_reward_that_is_not_finite_is_reported_with_env_and_step(check, value: str) -> None:
    is_fine, text, _ = check(step=f"def step(self, s, action):\n    return {value}, False")
    assert not is_fine
    assert "Meadow.step gave a reward of" in text
    assert "in env 0 at step 0" in text


def test_a_mask_without_a_legal_action_is_reported_with_world_and_env(check) -> None:
    is_fine, text, _ = check(extra="def mask(self, s, mask):\n    mask[:] = False")
    assert not is_fine
    assert "Meadow" in text
    assert re.search(r"mask.* no legal action in env 0", text)


def test_a_world_that_never_ends_and_has_no_limit_is_reported(check) -> None:
    is_fine, text, _ = check(limit="", step="def step(self, s, action):\n    return 1.0, False")
    assert not is_fine
    assert "Meadow: no episode ended" in text
    assert "max_episode_steps" in text


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("step", "def step(self, s, action):\n    return 1.0"),
        ("step", "def step(self, s, action):\n    return s.x, 1.0, False, False, {}"),
        ("step", "def step(self, s, action):\n    return None, False"),
        ("step", "def step(self, s, action):\n    s.x = 1"),
        ("step", "def step(self, s):\n    return 1.0, False"),
        ("observe", "def observe(self, s):\n    return np.array([s.x, s.y])"),
        ("reset", "def reset(self):\n    pass"),
    ],
)
def test_a_function_of_the_wrong_form_is_reported_by_name(check, part: str, code: str) -> None:
    """What somebody who comes from Gymnasium writes first."""
    is_fine, text, _ = check(**{part: code})
    assert not is_fine
    assert f"Meadow.{part}" in text


@pytest.mark.parametrize(
    ("part", "code", "message"),
    [
        ("reset", "", r"Meadow has no reset()"),
        ("step", "", r"Meadow has no step()"),
        ("observe", "", r"Meadow has no observe()"),
        ("state", "", "Meadow.state must be a dict"),
        ("state", 'state = {"_x": np.int32}', "'_x'"),
        ("state", 'state = {"x": "nothing"}', "Meadow.state['x']"),
        ("state", 'state = {"x": object}', "Meadow.state['x']"),
        ("observation_space", "", "Meadow.observation_space"),
        ("observation_space", "observation_space = 3", "Meadow.observation_space"),
        ("action_space", "action_space = Box(0, 1, (2,), np.float64)", "Meadow.action_space"),
        ("observation_space", "observation_space = Box(0, 1, (0,), np.float32)", "there is nothing to observe"),
        ("action_space", "action_space = Discrete(3, start=1)", "starts at 1"),
        ("action_space", "action_space = MultiDiscrete([])", "there is nothing to choose"),
        ("action_space", "action_space = 'left or right'", "scramjet actions are"),
        ("extra", 'stat_names = ("win",)', "Meadow needs both stat_names"),
        ("extra", "def stats(self, s, stats):\n    pass", "Meadow needs both stat_names"),
        ("extra", 'stat_names = ("_w",)\n\ndef stats(self, s, stats):\n    pass', "stat_names has '_w'"),
    ],
)
def test_a_declaration_that_cannot_be_is_reported(check, part: str, code: str, message: str) -> None:
    is_fine, text, _ = check(**{part: code})
    assert not is_fine
    assert message in text


def test_fields_of_every_usual_dtype_work(check) -> None:
    dtypes = ("bool", "np.int8", "np.uint8", "np.int16", "np.uint32", "np.int64", "np.float64")
    fields = "".join(f', "one{i}": {dtype}' for i, dtype in enumerate(dtypes))
    writes = "\n".join(f"    s.one{i} = s.x % 2" for i in range(len(dtypes)))
    total = " + ".join(f"(1.0 if s.one{i} else 0.0)" for i in range(len(dtypes)))
    is_fine, text, _ = check(
        state=f'state = {{"x": np.int32, "y": np.float64{fields}}}',
        step=f"def step(self, s, action):\n{writes}\n    s.x = min(s.x + action, 9)\n    return {total}, s.x >= 9",
    )
    assert is_fine, text


def test_a_bare_python_error_in_the_rules_is_reported_with_function_and_line(check) -> None:
    is_fine, text, lines = check(step="def step(self, s, action):\n    return 1 // (s.x - s.x), False")
    assert not is_fine
    assert f"line {line_with(lines, '1 // ')}" in text
    assert "Meadow.step" in text
    assert "ZeroDivisionError" in text


def test_a_mistake_in_a_helper_beside_the_class_is_reported_with_its_line(check) -> None:
    is_fine, text, lines = check(
        globals='def helper(x):\n    return "{}".format(x)',
        step="def step(self, s, action):\n    return float(len(helper(s.x))), False",
    )
    assert not is_fine
    assert f"line {line_with(lines, '.format(x)')}" in text


SCORED = """
class Counting(Env):
    num_seats = 2
    observation_space = Box(0, 9, (1,), np.int8)
    action_space = Discrete(2)
    state = {"count": np.int64}

    def reset(self, s):
        s.count = 1

    def step(self, s, action, reward):
        s.count += 1
        return s.count == 9

    def seat(self, s):
        return s.count % 2

    def observe(self, s, obs, player):
        obs[0] = s.count

    def score(self, s, player):
        return SCORE
"""
"""A world for two that judges its positions."""


@pytest.mark.parametrize(("score", "is_fine"), [("0.5 * s.count - player", True), ("1.0 * (s.count << 62)", False)])
def test_scores_are_compared_between_the_back_ends(tmp_path: Path, score: str, is_fine: bool) -> None:
    path = tmp_path / "counting.py"
    path.write_text(f"{HEAD}\n{SCORED.replace('SCORE', score)}")
    last = list(check_world(str(path), steps=STEPS))[-1]
    assert last.is_fine == is_fine, last.text
    assert is_fine or "compiled, score of env 0" in last.text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("return 99", "gave 99 at x="),
        ("return 0.5", "gave 0.5 at x="),
        ("return 1 // 0", "raised ZeroDivisionError"),
        ("s.x = 1 - s.x\n    return 0", "changes the state"),
        ("return None", "gave no action at any point"),
    ],
)
def test_an_action_at_that_answers_no_action_or_changes_something_is_reported(check, code: str, said: str) -> None:
    is_fine, text, _ = check(extra=f"def action_at(self, s, x, y):\n    {code}")
    assert not is_fine
    assert "Meadow.action_at" in text
    assert said in text


def test_an_action_at_that_keeps_to_its_promise_passes(check) -> None:
    is_fine, text, _ = check(extra="def action_at(self, s, x, y):\n    return int(x > 0.5) if y < 0.9 else -1")
    assert is_fine, text


CRITIC = "critic_space = Box(0, 9, (2,), np.float32)\n\ndef observe_critic(self, s, obs):\n    {}\n"


def test_a_world_whose_critic_sees_more_is_checked_on_all_back_ends(check) -> None:
    fine, text, _ = check(extra=CRITIC.format("obs[0] = s.x\n    obs[1] = s.y"))
    assert fine
    assert "compiled for the" in text


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (CRITIC.format("obs[0] = s.x"), r"Meadow.observe_critic does not write obs\[1\]"),
        (CRITIC.format("obs[:] = s.x + 10"), r"observe_critic wrote obs\[0\] = .*widen critic_space"),
        (CRITIC.format("obs[:] = 0\n    s.y = 1 - s.y"), r"Meadow.observe_critic changes the state"),
        (CRITIC.format("obs[:] = eval('1')"), r"Meadow.observe_critic \(.*meadow.py line \d+\) cannot be compiled"),
        ("critic_space = Box(0, 1, (1,), np.float32)", "needs both critic_space and `def observe_critic"),
        ("def observe_critic(self, s, obs):\n    obs[0] = 1", "needs both critic_space and `def observe_critic"),
        (
            "critic_space = 3\n\ndef observe_critic(self, s, obs):\n    obs[0] = 1",
            r"Meadow.critic_space is 3; scramjet",
        ),
        (CRITIC.replace("s, obs", "s").format("pass"), r"must be written `def observe_critic\(self, s, obs\)`"),
    ],
)
def test_a_mistake_in_what_the_critic_sees_is_told_by_its_name(check, extra: str, message: str) -> None:
    fine, text, _ = check(extra=extra)
    assert not fine
    assert re.search(message, text), text
