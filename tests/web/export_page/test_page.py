"""The file that `scramjet export-page` writes, what it refuses, its network as torch has it, and a visitor's game."""

import copy
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from scramjet.algorithms.config import PPOConfig
from scramjet.envs import Env, load_env, registrations
from scramjet.errors import ConfigError, WorldError
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.layers import MAX_SYMLOG
from scramjet.training.components import make_policy
from scramjet.training.config.run_config import RunConfig
from scramjet.web.export_page.exported import try_page
from scramjet.web.export_page.network import describe_policy
from scramjet.web.export_page.page import Facts, SharedPage, asset, recorded_game, shared_page, world_data
from scramjet.web.export_page.program import world_program
from tests.helpers import HELPERS
from tests.helpers.command_calls import call, refusal
from tests.helpers.javascript import javascript, world_source
from tests.helpers.small_runs import train_small
from tests.web.export_page.test_rules import USERS_WORLD

ANSWERS = """
(({ world, rules }, network, recorded) => {
  const game = new Game(world, rules);
  const fresh = () => $.range(world.numPlayers).map(() => network.initialState);
  game.begin(recorded.key);
  let states = fresh();
  const answers = [];
  for (const step of recorded.steps) {
    for (const { player } of step.players) {
      const { logits, value, state } = network.forward(game.observation(player), states[player]);
      states[player] = state;
      answers.push([...logits, value]);
    }
    game.step(step.actions);
    if (game.isOver) [states] = [fresh(), game.beginNext()];
  }
  return JSON.stringify([answers, gameDifference(new Game(world, rules), network, recorded)]);
})
"""
PRIVILEGED = HELPERS / "worlds" / "privileged.py"
NETWORKS: list[tuple[str, bool, dict[str, Any]]] = [
    ("cartpole", True, {"activation": "relu", "shared_trunk": True}),
    ("pendulum", True, {"state_dependent_std": True}),
    ("connect_four", False, {"encoder": "grid_cnn", "grid_channels": (8,), "grid_blocks": 2, "symmetry": "canonical"}),
    ("tic_tac_toe", False, {"encoder": "grid_cnn", "grid_readout": "pool", "symmetry": "average"}),
    ("snake", False, {"encoder": "impala_cnn", "hidden": (16,), "shared_trunk": True}),
    ("cartpole", False, {"memory": "lstm", "memory_size": 8, "memory_layers": 2}),
    ("cartpole", False, {"memory": "mingru", "memory_size": 8}),
    (f"{PRIVILEGED}:Cards", True, {"memory": "gru", "memory_size": 8}),
    ("cartpole", True, {"value_bins": 21}),
]
MORE_NETWORKS: list[tuple[str, bool, dict[str, Any]]] = [
    ("pendulum", False, {}),
    ("door_key", False, {"encoder": "grid_cnn", "grid_channels": (4,), "hidden": (16,)}),
    ("binpack", True, {"hidden": (16,)}),
    ("tmaze", False, {"value_bins": 8, "memory": "gru", "memory_size": 8, "shared_trunk": True}),
    ("kuhn", False, {"memory": "mingru", "memory_size": 8}),
    ("memory", False, {"memory": "lstm", "memory_size": 8, "memory_layers": 2}),
    (f"{PRIVILEGED}:Nim", True, {}),
    ("maze", True, {"encoder": "grid_cnn", "grid_channels": (4, 4)}),
    ("maze", False, {"encoder": "value_propagation", "ignore": ("step_count",), "grid_channels": (8,)}),
    ("maze", False, {"embedding_size": 5}),
]


def trained_policy(world: str, is_normalized: bool, settings: dict[str, Any]) -> tuple[Policy, RunConfig]:
    """A policy with weights and statistics away from where they begin, as training leaves them."""
    config = RunConfig(env=world, policy=PolicyConfig(**settings))
    config = replace(config, ppo=replace(config.ppo, normalize_observations=is_normalized))
    policy, generator = make_policy(config).eval(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        for name, buffer in policy.named_buffers():
            if name.endswith(("moments.mean", "moments.variance")):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return policy, config


def answers(policy: Policy, config: RunConfig, recorded: dict[str, Any]) -> Any:
    described, weights = describe_policy(policy)
    numbers = np.frombuffer(weights, "<f4").astype(float).tolist()
    network = f"new Network({json.dumps(described)}, new Float32Array({json.dumps(numbers)}))"
    world: Any = config.make_env()
    return json.loads(javascript().eval(f"{ANSWERS}({world_source(world)}, {network}, {json.dumps(recorded)})"))


def assert_same_answers(world: str, is_normalized: bool, settings: dict[str, Any]) -> None:
    policy, config = trained_policy(world, is_normalized, settings)
    recorded = recorded_game(config.make_env(), policy, num_steps=6 if world == "snake" else 20)  # type: ignore[arg-type]
    found, difference = answers(policy, config, recorded)
    wanted = [[*seen["logits"], seen["value"]] for step in recorded["steps"] for seen in step["players"]]
    assert len(wanted) >= 6
    np.testing.assert_allclose(found, wanted, atol=1e-4, rtol=1e-4, err_msg=f"{world} {settings}")
    assert difference is None


def test_networks_answer_as_in_torch() -> None:
    for case in NETWORKS:
        assert_same_answers(*case)


@pytest.mark.rest
@pytest.mark.parametrize("case", MORE_NETWORKS, ids=str)
def test_networks_of_every_kind_answer_as_in_torch(case: tuple[str, bool, dict[str, Any]]) -> None:
    assert_same_answers(*case)


def test_values_on_the_symlog_scale_are_shown_as_returns() -> None:
    for symmetry, factor in (("none", 500.0), ("average", 5.0)):
        policy, config = trained_policy("tic_tac_toe", False, {"hidden": (8,), "encoder": "mlp", "symmetry": symmetry})
        network: Any = policy.network if symmetry == "none" else policy.network.network
        with torch.no_grad():
            network.critic_head.weight.mul_(factor)
        policy.values_are_symlog = True
        recorded = recorded_game(config.make_env(), policy, num_steps=20)  # type: ignore[arg-type]
        found, difference = answers(policy, config, recorded)
        wanted = [seen["value"] for step in recorded["steps"] for seen in step["players"]]
        assert difference is None
        np.testing.assert_allclose([one[-1] for one in found], wanted, rtol=1e-3, atol=1e-4, err_msg=symmetry)
        largest = max(map(abs, wanted))
        assert largest == pytest.approx(np.expm1(MAX_SYMLOG)) if factor == 500.0 else 2 < largest < 1e9


def test_the_check_of_a_recorded_game_tells_what_differs() -> None:
    policy, config = trained_policy("tic_tac_toe", False, {"hidden": (8,), "encoder": "mlp"})
    whole = recorded_game(config.make_env(), policy, num_steps=12)  # type: ignore[arg-type]
    for damage in ("rewards", "record", "logits", "obs"):
        recorded = copy.deepcopy(whole)
        step = recorded["steps"][9]
        place = step["players"][0] if damage in ("logits", "obs") else step
        place[damage] = [one + 1 for one in place[damage]] if isinstance(place[damage], list) else place[damage] + 1
        assert "step 9" in answers(policy, config, recorded)[1], damage


def test_networks_that_the_page_cannot_run_are_refused_by_name() -> None:
    attention, _ = trained_policy("binpack", False, {"encoder": "entity_attention"})
    gelu, _ = trained_policy("cartpole", False, {})
    gelu.network.actor.append(nn.GELU())  # type: ignore[union-attr, operator]
    endless, _ = trained_policy("cartpole", False, {})
    next(endless.parameters()).data.fill_(float("nan"))
    for policy, problem in (
        (attention, r"cannot take a network with .*Entity"),
        (gelu, "cannot take a network with GELU"),
        (endless, "no finite numbers"),
    ):
        with pytest.raises(ConfigError, match=problem):
            describe_policy(policy)


def test_a_drawn_choice_follows_the_probabilities_and_a_continuous_action_lies_in_the_bounds_as_in_torch() -> None:
    drawn = javascript().eval(
        "(() => { let k = 0; const random = () => ((k++ * 0.618034) % 1); const counts = [0, 0, 0];"
        " const mask = $.np.array([true, false, true], 'bool');"
        " for (let i = 0; i < 2000; i++) counts[policyAction({ kind: 'choice' }, [1, 9, 0], mask, 1, random)] += 1;"
        " return JSON.stringify([counts, policyAction({ kind: 'choice' }, [1, 9, 2], mask, 0, random)]); })()"
    )
    (first, illegal, last), likeliest = json.loads(drawn)
    assert illegal == 0
    assert likeliest == 2
    assert first / (first + last) == pytest.approx(1 / (1 + np.exp(-1)), abs=0.02)
    for bounded in ("scale", "clip", "tanh"):
        policy, _ = trained_policy("pendulum", False, {"bounded_actions": bounded})
        distribution = describe_policy(policy)[0]["distribution"]
        for mean in (-3.0, -0.4, 0.3, 5.0):
            logits = torch.tensor([[mean, 0.0]])
            wanted = policy.distribution.env_action(policy.distribution.mode(logits, None)).item()
            found = javascript().eval(f"policyAction({json.dumps(distribution)}, [{mean}, 0], null, 0, Math.random)[0]")
            assert found == pytest.approx(wanted, rel=1e-6)


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


def test_what_has_no_translation_is_refused_by_world_function_and_line_and_a_picture_left_out(tmp_path: Path) -> None:
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
