"""`scramjet check` finds each kind of mistake and tells it in the author's terms: the world, the function, the line."""

import itertools
import re
import sys
import textwrap
from pathlib import Path

import pytest

from scramjet.compile import numba_versions
from scramjet.engine.worlds import check as check_module
from scramjet.engine.worlds.check import FEWEST_STEPS, check_world
from tests.helpers import ROOT

HEAD = """\
import numpy as np
from scramjet.envs import Box, Dict, Discrete, Env, MultiDiscrete, randint, uniform
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
ALL_INTERPRETED = "deterministic; all state is in the record"
"""What is told last before anything is compiled."""

Changes = dict[str, str]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(check_module, "INTERPRETED_SECONDS", 600.0)  # all steps, on a busy machine too


def write(folder: Path, changes: Changes) -> Path:
    """Write the good world with some of its parts changed, into a folder of its own."""
    assert set(changes) <= set(PARTS)
    parts = {name: textwrap.dedent(changes.get(name, text)).strip() for name, text in PARTS.items()}
    body = "\n\n".join(text for name, text in parts.items() if name != "globals" and text)
    path = folder / f"world {len(list(folder.glob('world *')))}" / "meadow.py"
    path.parent.mkdir()
    path.write_text(f"{HEAD}\n{parts['globals']}\n\n\nclass Meadow(Env):\n{textwrap.indent(body, '    ')}\n")
    return path


def line_with(lines: list[str], text: str) -> int:
    """The number of the only line that contains `text`."""
    (number,) = [number for number, line in enumerate(lines, start=1) if text in line]
    return number


Mistake = tuple[Changes, *tuple[str, ...]]
"""What is changed in the good world, and what is said then; "@code" stands for the number of the line with the code."""


def check_that_all_are_told(folder: Path, mistakes: list[Mistake]) -> None:
    for changes, *said in mistakes:
        path = write(folder, changes)
        last = list(check_world(str(path), steps=FEWEST_STEPS))[-1]
        assert not last.is_fine, changes
        for each in said:
            wanted = f"line {line_with(path.read_text().splitlines(), each[1:])}" if each[0] == "@" else each
            assert wanted in last.text, (changes, last.text)
        assert len(last.text.splitlines()) == 1, changes


def step(code: str) -> Changes:
    return {"step": f"def step(self, s, action):\n    {code}"}


def reset(code: str) -> Changes:
    return {"reset": f"def reset(self, s):\n    {code}"}


def observe(code: str) -> Changes:
    return {"observe": f"def observe(self, s, obs):\n    {code}"}


def mask(code: str) -> Changes:
    return {"extra": f"def mask(self, s, mask):\n    {code}"}


def fields(more: str = "", x: str = "np.int32") -> Changes:
    return {"state": f'state = {{"x": {x}, "y": np.float64, {more}}}'}


# --- worlds that are fine


NONE_IS_LAST_ONLY = "no choice is shown only when time is up"
OTHERS = ("pendulum", "maze", "examples/corridor", "snake")


@pytest.mark.parametrize(
    "name", ["cartpole", "connect_four", *(pytest.param(other, marks=pytest.mark.rest) for other in OTHERS)]
)
def test_good_worlds_pass(name: str) -> None:
    """One of each kind of space and players; the parity tests compare the back-ends of every world."""
    findings = list(check_world(f"{ROOT}/{name}.py" if "/" in name else name, steps=80))
    assert [finding.text for finding in findings if not finding.is_fine] == []
    texts = [finding.text for finding in findings]
    assert NONE_IS_LAST_ONLY in texts
    assert len(texts) >= 6
    assert any("compiled for the CPU" in text for text in texts)


CRITIC = "critic_space = Box(0, 9, (2,), np.float32)\n\ndef observe_critic(self, s, obs):\n    {}\n"
STATS = 'stat_names = ("win",)\n\ndef stats(self, s, stats):\n    stats.win = s.x\n    {}pass'
MASK = "def mask(self, s, mask):\n    mask[2] = s.x < 8"
CLICKS = "def action_at(self, s, x, y):\n    return int(x > 0.5) if y < 0.9 else -1"
DTYPES = ("bool", "np.int8", "np.uint8", "np.int16", "np.uint32", "np.int64", "np.float64")
EVERYTHING = (
    fields(", ".join(f'"one{i}": {dtype}' for i, dtype in enumerate(DTYPES)))
    | step(
        "; ".join(f"s.one{i} = s.x % 2" for i in range(len(DTYPES)))
        + "\n    s.x = min(s.x + action, 9)\n    return "
        + " + ".join(f"(1.0 if s.one{i} else 0.0)" for i in range(len(DTYPES)))
        + ", s.x >= 9"
    )
    | {"extra": "\n\n".join([CRITIC.format("obs[0] = s.x\n    obs[1] = s.y"), STATS.format(""), MASK, CLICKS])}
)


@pytest.mark.skipif(not numba_versions.IS_TESTED, reason="needs the compile cache, of tested versions of Numba")
def test_a_world_with_everything_passes_and_is_told_how_long_compiling_took_or_that_the_cache_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "cache"))
    path = str(write(tmp_path, EVERYTHING))
    first, second = (list(check_world(path, steps=FEWEST_STEPS)) for _ in range(2))
    assert [finding.text for finding in first if not finding.is_fine] == []
    assert first[-1].text == "actions that the mask forbids break nothing"
    compiled, from_cache = (next(each.text for each in told if "for the CPU" in each.text) for told in (first, second))
    (seconds,) = re.findall(r"compiled for the CPU \((.+) s\) and equal", compiled)
    assert float(seconds) >= 0.1
    assert "compiled for the CPU (from the compile cache) and equal" in from_cache


RICHER = fields('"seen": np.int8, "marks": (np.int8, (2, 3)), "turn": np.int8') | reset(
    "s.x = randint(s, 3); s.y = 1.0"
)
"""The good world with more state, for functions that change some of it."""
OF_PLAYERS = {
    "step": "def step(self, s, action, reward):\n    s.x = min(s.x + 1, 9)\n    return s.x >= 9",
    "observe": "def observe(self, s, obs, player):\n    obs[0] = s.x\n    obs[1] = s.y",
}
"""The same for two players."""
SEATS = "num_seats = 2\n\ndef seat(self, s):\n    {}return s.turn"
AGENTS = "num_agents = 2\n\ndef alive(self, s, player):\n    {}return True"
SCORE = "\n\ndef score(self, s, player):\n    {}return 0.0"


def test_functions_of_players_that_only_read_the_state_pass(tmp_path: Path) -> None:
    for extra in (SEATS.format("") + SCORE.format(""), AGENTS.format("")):
        path = str(write(tmp_path, RICHER | OF_PLAYERS | {"extra": extra}))
        findings = itertools.takewhile(lambda each: each.is_fine, check_world(path, steps=FEWEST_STEPS))
        assert any(finding.text == ALL_INTERPRETED for finding in findings), extra  # any: nothing is compiled


COUNTED = (
    {"limit": "max_episode_steps = 6"}
    | fields()
    | reset("pass")
    | step("s.x += 1\n    return 0.0, action == 2 and s.x < 2")
)
CLOCK = "Dict({'clock': Discrete(7)})"
CLOCKS = [
    ("Dict({'clock': Discrete(7), 'x': Box(0, 9, (1,))})", observe("obs.clock[0] = s.x\n    obs.x[0] = s.x"), "clock"),
    ("Dict({'a': Dict({'clock': Discrete(7)})})", observe("obs.a.clock[0] = s.x"), "a.clock"),
    ("Dict({'clock': Box(0, 9, (1,))})", observe("obs.clock[0] = s.x"), None),  # a number
    (CLOCK, observe("obs.clock[0] = s.x % 6"), None),  # shown before too
    (CLOCK, observe("obs.clock[0] = s.x") | step("s.x += 1\n    return 0.0, s.x == 6"), None),  # ended by the rules
]


def test_a_choice_that_is_only_shown_when_time_is_up_is_told_with_the_way_to_leave_it_out(tmp_path: Path) -> None:
    for space, changes, name in CLOCKS:
        path = write(tmp_path, COUNTED | {"observation_space": f"observation_space = {space}"} | changes)
        said = next(each.text for each in check_world(str(path), steps=60) if "time is up" in each.text)
        if name is None:
            assert said == NONE_IS_LAST_ONLY, (space, changes)
        else:
            assert said.startswith(f"{name} is 6 only when time is up")
            assert "show a count as a number (Box)" in said
            assert said.endswith(f"--policy.ignore {name}")


def test_of_the_worlds_here_the_maze_has_such_a_count() -> None:
    said = next(each.text for each in check_world("maze", steps=120) if "time is up" in each.text)  # an episode has 100
    assert said.startswith("step_count is 100 only when time is up")


# --- mistakes that show when a world is declared or played


def test_a_declaration_that_cannot_be_is_told(tmp_path: Path) -> None:
    observed, actions = "observation_space", "action_space"
    declarations = [
        ("reset", "", "Meadow has no reset()"),
        ("step", "", "Meadow has no step()"),
        ("observe", "", "Meadow has no observe()"),
        ("state", "", "Meadow.state must be a dict"),
        ("state", 'state = {"_x": np.int32}', "'_x'"),
        ("state", 'state = {"x": "nothing"}', "Meadow.state['x']"),
        ("state", 'state = {"x": object}', "Meadow.state['x']"),
        (observed, "", "Meadow.observation_space"),
        (observed, "observation_space = 3", "Meadow.observation_space"),
        (observed, "observation_space = Box(0, 1, (0,), np.float32)", "there is nothing to observe"),
        (actions, "action_space = Box(0, 1, (2,), np.float64)", "Meadow.action_space"),
        (actions, "action_space = Discrete(3, start=1)", "starts at 1"),
        (actions, "action_space = MultiDiscrete([])", "there is nothing to choose"),
        (actions, "action_space = 'left or right'", "scramjet actions are"),
        ("extra", 'stat_names = ("win",)', "Meadow needs both stat_names"),
        ("extra", "def stats(self, s, stats):\n    pass", "Meadow needs both stat_names"),
        ("extra", 'stat_names = ("_w",)\n\ndef stats(self, s, stats):\n    pass', "stat_names has '_w'"),
        ("extra", "critic_space = Box(0, 1, (1,), np.float32)", "needs both critic_space and `def observe_critic"),
        ("extra", CRITIC.partition("\n")[2].format("pass"), "needs both critic_space and `def observe_critic"),
        ("extra", CRITIC.replace("Box(0, 9, (2,), np.float32)", "3"), "Meadow.critic_space is 3; scramjet"),
        ("extra", CRITIC.replace("s, obs", "s"), "must be written `def observe_critic(self, s, obs)`"),
        # What somebody who comes from Gymnasium writes first.
        ("step", "def step(self, s, action):\n    return 1.0", "Meadow.step"),
        ("step", "def step(self, s, action):\n    return s.x, 1.0, False, False, {}", "Meadow.step"),
        ("step", "def step(self, s, action):\n    return None, False", "Meadow.step"),
        ("step", "def step(self, s, action):\n    s.x = 1", "Meadow.step"),
        ("step", "def step(self, s):\n    return 1.0, False", "Meadow.step"),
        ("observe", "def observe(self, s):\n    return np.array([s.x, s.y])", "Meadow.observe"),
        ("reset", "def reset(self):\n    pass", "Meadow.reset"),
    ]
    check_that_all_are_told(tmp_path, [({part: code}, said) for part, code, said in declarations])


IN_THE_RULES: list[Mistake] = [
    (step("return unknown_name * 1.0, False"), "Meadow.step", "@unknown_name", "unknown_name"),
    (reset("s.z = 1"), "Meadow.reset", "@s.z = 1", "'z'", "x, y"),
    (
        fields('"speed": np.float64') | step("return s.sped, False"),
        "Meadow.step", "@s.sped", "Did you mean 'speed'?",
    ),
    (
        fields('"board": (np.int8, 3)') | step("s.board[action + 1] = 1\n    return 1.0, False"),
        "Meadow.step", "@s.board[action",
    ),
    (
        fields(x="np.int8")
        | step("s.x = s.x + 100\n    return 1.0, False")
        | observe("obs[0] = s.x % 10\n    obs[1] = s.y"),
        "Meadow.step", "@s.x + 100", "int8",
    ),
    (step("return 1 // (s.x - s.x), False"), "Meadow.step", "@1 // ", "ZeroDivisionError"),
    ({"limit": ""} | step("return 1.0, False"), "Meadow: no episode ended", "max_episode_steps"),
    (mask("mask[:] = False"), "Meadow", "mask", "no legal action in env 0"),
    *(
        (step(f"return {value}, False"), "Meadow.step gave a reward of", "in env 0 at step 0")
        for value in ("np.nan", "np.inf", "-np.inf")
    ),
    *(
        ({"extra": f"def action_at(self, s, x, y):\n    {code}"}, "Meadow.action_at", said)
        for code, said in {
            "return 99": "gave 99 at x=",
            "return 0.5": "gave 0.5 at x=",
            "return 1 // 0": "raised ZeroDivisionError",
            "s.x = 1 - s.x\n    return 0": "changes the state",
            "return None": "gave no action at any point",
        }.items()
    ),
]  # fmt: skip


def test_a_mistake_in_the_rules_is_told_with_function_and_line(tmp_path: Path) -> None:
    check_that_all_are_told(tmp_path, IN_THE_RULES)


IN_OBSERVATIONS: list[Mistake] = [
    *(
        (observe(f"obs[0] = s.x\n    obs[{index}] = s.y"), "Meadow.observe", f"@obs[{index}]", "out of bounds")
        for index in (2, -3)
    ),
    *(
        (observe(f"obs[0] = {value}\n    obs[1] = s.y"), "Meadow.observe wrote obs[0]", shown, "[0.0, 10.0]")
        for value, shown in (("s.x + 9.5", "[0]"), ("-1.0", "[0]"), ("np.nan", "nan"))
    ),
    (step("s.x += 1\n    return 1.0, s.x > 10"), "Meadow.observe wrote obs[0] = 11.0", "last observation"),
    (observe("obs[0] = s.x"), "Meadow.observe does not write obs[1]"),
    (
        {"observation_space": "observation_space = Box(0, 10, (2,), np.int32)"}
        | observe("obs[0] = s.x\n    obs[1] = s.x / 2"),
        "Meadow.observe writes ", ".5 to obs, which int32 cannot hold",
    ),
    ({"extra": CRITIC.format("obs[0] = s.x")}, "Meadow.observe_critic does not write obs[1]"),
    ({"extra": CRITIC.format("obs[:] = s.x + 10")}, "observe_critic wrote obs[0] = ", "widen critic_space"),
]  # fmt: skip


def test_a_mistake_in_observations_is_told_with_entry_and_bounds(tmp_path: Path) -> None:
    check_that_all_are_told(tmp_path, IN_OBSERVATIONS)


def test_a_function_that_may_only_read_is_told_at_the_first_change_with_field_and_fix(tmp_path: Path) -> None:
    """What is changed each time to the same: nothing differs between a second call and a third."""
    shown, seats = "\n    obs[0] = s.x\n    obs[1] = s.y", SEATS.format("")
    fix = "change the state and draw random numbers in reset and step alone"
    changing: list[tuple[Changes, str, str]] = [
        (observe(f"s.seen = 1{shown}"), "observe", "s.seen was 0 and became 1."),
        (observe(f"s.y = min(s.y, 0.5){shown}"), "observe", "s.y was 1.0 and became 0.5."),
        (observe(f"pass{shown}\n    s.y = uniform(s)"), "observe", "s.y was 1.0 and became 0."),
        (mask("s.marks[1, 2] = 3"), "mask", "s.marks[1, 2] was 0 and became 3."),
        (mask("s.x += 1"), "mask", "s.x was "),
        (mask("randint(s, 3)"), "mask", "it draws random numbers."),
        ({"extra": STATS.format("s.seen = 1; ")}, "stats", "s.seen was 0 and became 1."),
        (OF_PLAYERS | {"extra": SEATS.format("s.turn = 1; ")}, "seat", "s.turn was 0 and became 1."),
        (OF_PLAYERS | {"extra": seats + SCORE.format("s.seen = 1; ")}, "score", "s.seen was 0 and became 1."),
        (OF_PLAYERS | {"extra": AGENTS.format("s.seen = 1; ")}, "alive", "s.seen was 0"),
        ({"extra": CRITIC.format("s.y = -0.0\n    obs[:] = 1")}, "observe_critic", "s.y was 1.0 and became -0.0."),
    ]
    check_that_all_are_told(
        tmp_path,
        [(RICHER | changes, f"Meadow.{rule} changes the state: {said}", fix) for changes, rule, said in changing],
    )


def test_state_or_chance_outside_the_record_is_told(tmp_path: Path) -> None:
    for globals_, code in (
        ("MEMORY = [0]", "MEMORY[0] += 1\n    return float(MEMORY[0]), s.x >= 9"),
        ("MEMORY = np.zeros(1)", "MEMORY[0] += 1\n    return MEMORY[0], s.x >= 9"),
        ("import random", "return random.random(), s.x >= 9"),
        ("", "return np.random.random(), s.x >= 9"),
        ("", "return 1000.0 + 0.001 * np.random.random(), s.x >= 9"),  # little, but a resumed run would differ
    ):
        changes = {"globals": globals_} | step(f"s.x = min(s.x + action, 9)\n    {code}")
        said = "Meadow: played twice from one seed, reward of env", "outside the record"
        check_that_all_are_told(tmp_path, [(changes, *said)])


# --- mistakes that only the compiler sees


BELOW = {"extra": 'title = "meadow"\n\n@property\ndef worth(self):\n    return {"a": 2.0, 1: "b"}'}
NOT_COMPILED: list[Mistake] = [
    (BELOW | step('return self.worth["a"], False'), "Meadow.step", "@return self.worth", "worth"),
    (step('table = {s.x: 1, "b": 2}\n    return float(len(table)), False'), "Meadow.step", "@table ="),
    (
        RICHER | OF_PLAYERS | {"extra": SEATS.format("") + SCORE.format("return 1.0 * (int(s.seen + 3) << 62); ")},
        "compiled, score of env 0",
    ),
    ({"extra": CRITIC.format("obs[:] = eval('1')")}, "Meadow.observe_critic (", "@eval", "cannot be compiled"),
    (
        {"globals": 'def helper(x):\n    return "{}".format(x)'} | step("return float(len(helper(s.x))), False"),
        "@.format(x)",
    ),
    (step('label = "{}".format(s.x)\n    return float(len(label)), False'), "Meadow.step", "@label ="),
    (BELOW | step("return float(len(self.title)), False"), "Meadow.step", "@self.title", "title"),
    ({"globals": "import os"} | step("return float(len(os.getcwd())), False"), "Meadow.step", "@os.getcwd"),
    (step('label = 1 if s.x > 100 else "a"\n    return 1.0, label == 1'), "Meadow.step", "@label = 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    "mistakes", [NOT_COMPILED[:3], pytest.param(NOT_COMPILED[3:], marks=pytest.mark.rest)], ids=["few", "more"]
)
def test_code_that_cannot_be_compiled_is_told_with_function_and_line(tmp_path: Path, mistakes: list[Mistake]) -> None:
    check_that_all_are_told(tmp_path, mistakes)
