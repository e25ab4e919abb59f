"""The file that `scramjet export-page` writes, what it refuses, and a visitor's game in it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from scramjet.algorithms.ppo import PPOConfig
from scramjet.envs.api import Env
from scramjet.envs.registry import load_env, registrations
from scramjet.errors import WorldError
from scramjet.policies.config import PolicyConfig
from scramjet.training.components import make_policy
from scramjet.training.config.run_config import RunConfig
from scramjet.web.export_page.assets import asset
from scramjet.web.export_page.page import Facts, SharedPage, shared_page
from scramjet.web.export_page.program import world_program
from scramjet.web.export_page.trial import try_page
from scramjet.web.export_page.world_data import world_data
from tests.helpers.command_calls import call, refusal
from tests.helpers.javascript import javascript
from tests.helpers.small_runs import train_small
from tests.web.export_page.test_rules import USERS_WORLD

MLP = PolicyConfig(hidden=(8,), encoder="mlp")

WORLD_WITH = '''
import numpy as np
from scramjet.envs import Box, Discrete, Env
from scramjet.envs.rng import randint

def first(s):
    {construct}
    return 0

class Odd(Env):
    """Something odd."""
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {{"x": {dtype}}}
    def reset(self, s):
        s.x = first(s)
    def step(self, s, action):
        return {reward}, True
    def observe(self, s, obs):
        obs[0] = 0
    def render(self, s):
        {picture}
'''


def odd_world(folder: Path, **parts: str) -> Env:
    """A world with a construct of Python that is to be tried."""
    picture = "return np.zeros((4, 4, 3), np.uint8)"
    usual = {"construct": "pass", "dtype": "np.int32", "reward": "0.0", "picture": picture}
    path = folder / "odd.py"
    path.write_text(WORLD_WITH.format(**{**usual, **parts}))
    return load_env(str(path))


def page_of(env: Env, world: str = "cartpole", facts: Facts | None = None) -> SharedPage:
    return shared_page(env, make_policy(RunConfig(env=world, policy=MLP)), facts or Facts("run", 100))


@pytest.fixture(scope="module")
def tic_tac_toe() -> SharedPage:
    return page_of(load_env("tic_tac_toe"), "tic_tac_toe")


def test_what_has_no_translation_is_refused_by_world_function_and_line(tmp_path: Path) -> None:
    for construct, what in (
        ("try:\n        pass\n    except ValueError:\n        pass", "try"),
        ("import math", "import math"),
        ("with open('x') as file:\n        pass", "with open"),
        ("for k in range(3):\n        pass\n    else:\n        pass", "a loop with else"),
        ("return 1 << 60 if s.x else 1152921504606846976", "beyond 2**53"),
        ("print(s.x)", "a call of print"),
        ("del s", "del s"),
        ("x = object", "object"),
    ):
        with pytest.raises(WorldError, match=r"cannot take Odd: first, line 7 of odd\.py") as refused:
            page_of(odd_world(tmp_path, construct=construct))
        assert what in str(refused.value)
    with pytest.raises(WorldError, match=r"state\['x'\] is float16"):  # no array of JavaScript has these
        page_of(odd_world(tmp_path, dtype="np.float16"))


def test_a_picture_without_translation_is_left_out_with_a_note(tmp_path: Path) -> None:
    env = odd_world(tmp_path, picture="return np.fft.fft(np.zeros((4, 4, 3)))")
    page = page_of(env, str(tmp_path / "odd.py"))
    assert "Odd.render, line 22 of odd.py, has a call of np.fft.fft" in page.notes[0]
    assert "render:" not in page.engine


def test_rules_that_differ_in_javascript_are_found_before_anything_is_written(tic_tac_toe: SharedPage) -> None:
    javascript()  # skips where there is no engine
    try_page(tic_tac_toe, "TicTacToe")
    wrong = tic_tac_toe.engine.replace("s.turn = $.sub(1, side);", "s.turn = side;")
    assert wrong != tic_tac_toe.engine
    with pytest.raises(WorldError, match="another game in JavaScript"):
        try_page(SharedPage("", wrong, tic_tac_toe.weights, []), "TicTacToe")


class Tags(HTMLParser):
    """Counts the tags of a page and keeps what its policy says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attributes)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        assert not any(name.startswith("on") for name in given), given


def test_texts_of_a_run_and_a_world_cannot_become_markup_or_code(tmp_path: Path, tic_tac_toe: SharedPage) -> None:
    (tmp_path / "heap.py").write_text(USERS_WORLD)
    env = load_env(str(tmp_path / "heap.py"))
    assert "</script>" in (type(env).__doc__ or "")
    hostile = '</title></script><img src=x onerror="alert(1)"><!--\u2028{weights}'
    page = Tags(page_of(env, str(tmp_path / "heap.py"), Facts(hostile, 1)).html)
    assert page.tags == Tags(tic_tac_toe.html).tags
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in page.policy
    elsewhere = r"https?:|//[a-z]+\.|src=|fetch\(|XMLHttpRequest|WebSocket|import\("  # it names nothing outside itself
    assert not re.search(elsewhere, tic_tac_toe.html)


@pytest.mark.rest
@pytest.mark.parametrize("changes", [
    {"ppo": PPOConfig(value_scale="symlog")},
    {"ppo": PPOConfig(value_scale="popart")},
    {"policy": PolicyConfig(hidden=(8,), value_bins=11)},
], ids=["symlog", "popart", "value_bins"])  # fmt: skip
def test_a_run_whose_values_are_learned_on_another_scale_becomes_a_page(
    tmp_path: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    javascript()  # skips where there is no engine, for nothing would be compared
    train_small(tmp_path, "game", "tic_tac_toe", **changes)
    assert call("export-page", tmp_path / "game", "-o", tmp_path / "game.html") == 0
    assert "MB; open it in any browser" in capsys.readouterr().out


def test_the_command_writes_one_file_and_refuses_what_it_cannot_write_or_find(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, run = tmp_path / "game.html", runs / "toe"
    assert call("export-page", run, "-o", out, "--checkpoint", "latest") == 0
    assert re.search(rf"{out}: .* MB; open it in any browser", capsys.readouterr().out)
    assert "trained for 256 steps" in out.read_text()
    for words, problem in (
        ((run, "--checkpoint", "worst"), "has no checkpoint worst; it has best, latest"),
        ((run, "--checkpoint", "../x"), "is a name"),
        ((run, "-o", tmp_path), "is a folder"),
        (("nothing", "--runs-dir", tmp_path), "there is no run 'nothing'"),
    ):
        assert problem in refusal(capsys, "export-page", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["game.html"]


@pytest.mark.rest
def test_worlds_of_other_libraries_and_stacked_frames_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = train_small(tmp_path, "foreign", "gym:CartPole-v1")
    assert "its rules are code of another library" in refusal(capsys, "export-page", foreign, "-o", tmp_path / "a.html")
    stacked = train_small(tmp_path, "stacked", "cartpole", frame_stack=2)
    assert "frame_stack=2" in refusal(capsys, "export-page", stacked, "-o", tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()


VISIT = """
(() => {
  const session = new Session(new Game(data.world, rules), network, Math.random);
  session.visitor = 0;
  session.begin();
  const before = session.game.bytes.join();
  session.step(4);
  const isNetworks = !session.isVisitorsTurn;
  session.step();
  session.step([0, 1, 2, 3].find((cell) => session.isLegal(cell)));
  const deep = session.history.length;
  session.undo();
  const once = session.history.length;
  session.undo();
  const isBack = session.game.bytes.join() === before;
  while (!session.game.isOver) session.step(session.isVisitorsTurn ? session.preferences[0].action : null);
  return JSON.stringify({ isNetworks, deep, once, isBack, returns: session.returns, canUndo: session.canUndo });
})()
"""


def test_a_visitor_plays_takes_back_and_plays_to_the_end(tic_tac_toe: SharedPage) -> None:
    weights = json.dumps(list(tic_tac_toe.weights))
    network = f"new Network(data.policy, new Float32Array(new Uint8Array({weights}).buffer))"
    source = f"{tic_tac_toe.engine}\n{asset('session.js')}\nconst network = {network};"
    own = f"(() => {{ {source} return {VISIT.strip()}; }})()"
    seen: dict[str, Any] = json.loads(javascript().eval(own))
    assert seen["isNetworks"]
    assert (seen["deep"], seen["once"]) == (3, 2)
    assert seen["isBack"]
    assert sum(seen["returns"]) == 0
    assert seen["canUndo"]


def test_the_table_in_the_docs_says_of_every_built_in_world_what_a_page_can_do() -> None:
    text = (Path(__file__).parents[3] / "docs" / "share.md").read_text()
    told = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \|$", text, re.MULTILINE)
    found = []
    for name in sorted(entry.name for entry in registrations() if str(entry.target).startswith("scramjet.")):
        env = load_env(name)
        roles = world_program(env)[0].splitlines()[-1]
        picture = "yes" if " render:" in roles else "text" if " ascii:" in roles else "none"
        buttons = "sliders" if world_data(env)["action"]["kind"] == "box" else "buttons"
        found.append((name, "yes", picture, "click" if " action_at:" in roles else buttons))
    assert told == found
