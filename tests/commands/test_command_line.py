"""What is typed becomes settings, and a mistake in it one message with the fix; names of other libraries get ours."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scramjet.cli import run
from scramjet.commands import bench, check, compare, eval, example, list, plot, tournament, train
from scramjet.commands.arguments.flags import flags_of
from scramjet.commands.arguments.help_text import field_texts
from scramjet.commands.command_line import parse, read_words
from scramjet.commands.train import Arguments, Place, base_config
from scramjet.errors import ScramjetError
from scramjet.training.config import names_of_other_libraries
from scramjet.training.config.files import apply, field_docs, starting_config
from scramjet.training.config.names_of_other_libraries import suggestion
from scramjet.training.config.run_config import RunConfig

COMMANDS = {"train": train, "eval": eval, "tournament": tournament, "list": list, "example": example, "check": check}
COMMANDS |= {"bench": bench, "plot": plot, "compare": compare}
NAMES = [name for name, _, _ in field_docs()]


def settings(*words: str) -> RunConfig:
    """The defaults with a command line of `scramjet train` laid over them."""
    return read_words(Arguments, [*words], prog="scramjet train").laid_over(RunConfig(), ("settings",))


def complaint(action: Callable[[], Any]) -> str:
    with pytest.raises(ScramjetError) as caught:
        action()
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        (["--seed", "7"], "seed", 7),
        (["--seed=7"], "seed", 7),
        (["--total-timesteps", "2K"], "total_timesteps", 2000),
        (["--total_timesteps", "2e3"], "total_timesteps", 2000),
        (["--num-envs", "auto"], "num_envs", "auto"),
        (["--num-envs", "3", "--num-envs", "5"], "num_envs", 5),
        (["--no-fused"], "fused", False),
        (["--fused", "false", "bandit"], "env", "bandit"),
        (["--fused=false"], "fused", False),
        (["--learning-rate", "1e-3"], "ppo.learning_rate", 1e-3),
        (["--learning-rate", "1@0,0@end"], "ppo.learning_rate", "1@0,0@end"),
        (["--target-kl", "none"], "ppo.target_kl", None),
        (["--policy.log-std-init", "-1"], "policy.log_std_init", -1.0),
        (["--policy.hidden", "8", "9", "--seed", "3"], "policy.hidden", (8, 9)),
        (["--policy.ignore"], "policy.ignore", ()),
        (["--policy.shared-trunk"], "policy.shared_trunk", True),
        (["--policy.no-shared-trunk"], "policy.shared_trunk", False),
        (["--policy.memory", "None"], "policy.memory", None),
    ],
)
def test_words_become_settings(words: list[str], name: str, expected: Any) -> None:
    value: Any = settings(*words)
    for part in name.split("."):
        value = getattr(value, part)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "x"], "--seed x: expected a whole number"),
        (["--seed"], "--seed needs a value: a whole number"),
        (["--seed", "--no-fused"], "--seed needs a value"),
        (["--gamma", "much"], "--gamma much: expected a number; the default is 0.99"),
        (["--display", "pretty"], "--display pretty: expected 'auto' or 'live' or 'plain' or 'quiet'"),
        (["--display", "lvie"], "or 'quiet'. Did you mean 'live'?"),
        (["--curiosity", "rdn"], "or 'none'. Did you mean 'rnd'?"),
        (["--policy.memory", "NONE"], "or 'mingru' or 'none'. Did you mean 'none'?"),
        (["cartpole", "bandit"], "no use for 'bandit' after ENV cartpole"),
        (["--policy.hidden", "32", "cartpole"], "other words stand before it"),
        (["-seed", "3"], "unknown flag -seed. Did you mean --seed?"),
        (["--lerning-rate", "3"], "unknown flag --lerning-rate. Did you mean --learning-rate?"),
        (["--lr", "3"], "unknown flag --lr. It is called --learning-rate here."),
        (["--batch-size=64"], "It is called --minibatch-size here. It is the samples of one gradient step"),
        (["--" + "x" * 5000], "unknown flag"),
        (["--trust=no"], "--trust=no: expected true or false; write --trust or --no-trust"),
        (["--no-trust=x"], "--no-trust=x: it takes no value"),
    ],
)
def test_a_mistake_on_the_command_line_is_named_with_the_fix(words: list[str], message: str) -> None:
    said = complaint(lambda: run(["train", *words]))
    assert message in said
    assert len(said) < 600


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eval"], "scramjet eval needs RUN, such as: scramjet eval runs/cartpole-1"),
        (["check"], "scramjet check needs WORLD"),
        (["eval", "a", "b"], "no use for 'b' after RUN a"),
        (["eval", "a", "--n-episodes", "3"], "It is called --episodes here"),
        (["list", "--jsn"], "Did you mean --json?"),
        (["list", "mze"], "Did you mean 'maze'?"),
        (["bench", "--num-envs", "4", "x"], "--num-envs x: expected a whole number in each place"),
        (["example", "coridor"], "Did you mean 'corridor'?"),
    ],
)
def test_the_other_commands_answer_in_the_same_way(words: list[str], message: str) -> None:
    assert message in complaint(lambda: run(words))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_exactly_the_flags_that_are_read_and_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output = io.StringIO()
    with pytest.raises(SystemExit) as ending, redirect_stdout(output):
        run([name, "--help"])
    assert not ending.value.code
    flags = [flag for flag in flags_of(COMMANDS[name].Arguments) if flag.metavar is None]
    shown = set(re.findall(r"^[│ ] +(--[a-z][\w.-]*)", output.getvalue().partition("options")[2], re.MULTILINE))
    assert shown == {
        flag.negation if flag.is_switch and flag.default and name != "train" else flag.spelling for flag in flags
    }
    assert max(len(line) for line in output.getvalue().splitlines()) <= 80
    (place,) = [flag for flag in flags_of(COMMANDS[name].Arguments) if flag.metavar is not None]
    usage = output.getvalue().splitlines()[0]
    assert (
        f" {place.metavar}" in usage if name in ("eval", "check", "plot", "compare") else f" [{place.metavar}]" in usage
    )


HELP_OF_HELP = "show this help message"


def broken_early(lines: Iterable[str], width: int) -> list[str]:
    """Lines of a text that had room for the first word of the next one."""
    return [line for line, following in pairwise(lines) if len(line) + 1 + len(following.split()[0]) <= width]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_line_of_help_is_as_full_as_the_next_word_allows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output = io.StringIO()
    with pytest.raises(SystemExit), redirect_stdout(output):
        run([name, "--help"])
    about, _, boxes = output.getvalue().partition("\n\n")[2].partition("\n\n  scramjet ")
    assert about
    for paragraph in about.split("\n\n"):
        assert not broken_early(paragraph.splitlines(), 80)
    column = min(line.find(HELP_OF_HELP) for line in boxes.splitlines() if HELP_OF_HELP in line)
    texts = re.findall(rf"(?:^│ {{{column - 1}}}(?! ).*│\n)+", boxes, re.MULTILINE)  # under each flag, or behind it
    assert texts or name == "example"  # it has no flags
    for text in texts:
        assert not broken_early([line.strip("│ ") for line in text.splitlines()], 78 - column)


def test_the_help_shows_what_stands_under_each_field() -> None:
    texts = field_texts(train.Place)
    assert set(texts) == {field.name for field in fields(train.Place)}
    assert texts["trust"].endswith("a file or module that you have not named yourself: it is run.")


def test_every_name_of_the_table_leads_to_a_setting_of_ours_and_hides_none() -> None:
    ours = {*NAMES, *(flag.name for flag in flags_of(Place)), "episodes"}
    assert {name for entry in names_of_other_libraries._TABLE.values() for name in entry.names} <= ours
    assert set(names_of_other_libraries._TABLE) & (set(NAMES) - {"env"}) == set()
    for entry in names_of_other_libraries._TABLE.values():
        assert entry.names or entry.note


BROUGHT = ["lr", "envs", "n_envs", "steps", "timesteps", "gpu", "n_steps", "ent_coef", "vf_coef", "anneal_lr", "wandb"]


@pytest.mark.parametrize("name", BROUGHT)
def test_names_that_people_bring_are_known(name: str) -> None:
    assert suggestion(name, NAMES)
    assert "Did you mean" not in suggestion(name, NAMES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"ent_coef": 0.1}, "unknown key 'ent_coef'. It is called 'entropy_coef' here."),
        ({"net_arch": [64]}, "It is called 'hidden' in [policy] here."),
        ({"policy": {"lstm_size": 64}}, "It is called 'memory_size' in [policy] here."),
        ({"eval": {"evry": 3}}, "Did you mean 'every'?"),
        ({"env_id": "x"}, 'in a file by env = "cartpole"'),
    ],
)
def test_keys_of_others_in_a_file_are_answered_with_ours(data: dict[str, Any], message: str) -> None:
    assert message in complaint(lambda: apply(RunConfig(), data, "mine.toml"))


def test_a_preset_by_name_stands_between_the_defaults_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('env = "bandit"\ngamma = 0.5\n')
    alone = base_config(None, Place(preset="maze"))
    assert alone == starting_config("maze")
    elsewhere = base_config("gym:Acrobot-v1", Place(preset="acrobot"))
    assert (elsewhere.env, elsewhere.ppo) == ("gym:Acrobot-v1", starting_config("acrobot").ppo)
    under_file = base_config(None, Place(preset="cartpole", config=file))
    assert (under_file.env, under_file.ppo.gamma, under_file.ppo.gae_lambda) == ("bandit", 0.5, 0.9)
    own = base_config("cartpole", Place(config=file))
    assert (own.env, own.ppo.gamma, own.ppo.gae_lambda) == ("cartpole", 0.5, 0.9)


def test_a_preset_does_not_give_its_worlds_parameters_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short.toml").write_text('gamma = 0.5\n[env]\nname = "cartpole"\ngravity = 3.5\n')
    monkeypatch.setattr("scramjet.training.config.presets.shipped_file", lambda path: tmp_path / path.partition("/")[2])
    assert base_config(None, Place(preset="short")).env_parameters == {"gravity": 3.5}
    other = base_config("nowhere.py", Place(preset="short"))
    assert (other.env, other.env_parameters, other.ppo.gamma) == ("nowhere.py", {}, 0.5)


def test_an_unknown_preset_is_answered_with_the_nearest_and_with_those_there_are() -> None:
    said = complaint(lambda: base_config(None, Place(preset="cartpol")))
    assert "Did you mean 'cartpole'?" in said
    assert "mujoco_ant" in said
    assert "name one" in complaint(lambda: base_config(None, Place(preset="atari")))
    for name in ("../cartpole", "a/b", "", "x" * 5000, "mine.toml"):
        assert "no preset" in complaint(lambda name=name: base_config(None, Place(preset=name)))


def test_list_fits_80_columns_and_tells_all_about_one_world(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 70
    assert run(["list", "Maze-v0"]) == 0
    text = capsys.readouterr().out
    for part in (
        "maze",
        "--env.rows 10",
        "100 steps",
        "configs/maze.toml",
        "docs/worlds/maze.md",
        "scramjet train maze",
    ):
        assert part in text


def test_an_example_is_written_once_and_says_what_to_type_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["example"]) == 0
    assert "corridor" in capsys.readouterr().out
    assert run(["example", "corridor"]) == 0
    assert "scramjet check corridor.py" in capsys.readouterr().out
    assert "class Corridor(Env)" in (tmp_path / "corridor.py").read_text()
    (tmp_path / "corridor.py").write_text("mine")
    assert "stays as it is" in complaint(lambda: run(["example", "corridor"]))
    assert (tmp_path / "corridor.py").read_text() == "mine"


def test_parse_gives_the_dataclass_of_a_command() -> None:
    given = parse(eval.Arguments, ["runs/a", "--episodes", "3", "--json"], prog="scramjet eval", description="")
    assert given == eval.Arguments("runs/a", episodes=3, json=True)


def test_words_before_between_and_behind_flags_are_the_runs_of_a_tournament() -> None:
    words = ["a", "--games", "6", "b", "--random", "c", "--players", "random", "greedy"]
    line = read_words(tournament.Arguments, words, prog="scramjet tournament")
    assert line.values[("runs",)] == ("a", "b", "c")
    assert line.values[("players",)] == ("random", "greedy")
