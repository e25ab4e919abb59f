"""What is typed becomes settings, the help shows them, and names of other libraries are answered with ours."""

import importlib
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from scramjet.cli import flags_module, run
from scramjet.commands.arguments import eval, tournament, train
from scramjet.commands.arguments.env_parameters import split_env_parameters, typed_parameters
from scramjet.commands.arguments.train import Arguments, Place, base_config
from scramjet.commands.command_line import field_texts, flags_of, parse, read_words
from scramjet.errors import ScramjetError
from scramjet.training.config import names_of_other_libraries
from scramjet.training.config.files import apply, field_docs, starting_config
from scramjet.training.config.names_of_other_libraries import suggestion
from scramjet.training.config.run_config import RunConfig

NAMES = [name for name, _, _ in field_docs()]


def complaint(action: Callable[[], Any]) -> str:
    with pytest.raises(ScramjetError) as caught:
        action()
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_words_become_settings():
    for words, name, expected in (
        ("--seed 7", "seed", 7),
        ("--seed=7", "seed", 7),
        ("--total-timesteps 2K", "total_timesteps", 2000),
        ("--total_timesteps 2e3", "total_timesteps", 2000),
        ("--num-envs auto", "num_envs", "auto"),
        ("--num-envs 3 --num-envs 5", "num_envs", 5),
        ("--no-fused", "fused", False),
        ("--fused false bandit", "env", "bandit"),
        ("--fused=false", "fused", False),
        ("--learning-rate 1e-3", "ppo.learning_rate", 1e-3),
        ("--learning-rate 1@0,0@end", "ppo.learning_rate", "1@0,0@end"),
        ("--target-kl none", "ppo.target_kl", None),
        ("--policy.log-std-init -1", "policy.log_std_init", -1.0),
        ("--policy.hidden 8 9 --seed 3", "policy.hidden", (8, 9)),
        ("--policy.ignore", "policy.ignore", ()),
        ("--policy.shared-trunk", "policy.shared_trunk", True),
        ("--policy.no-shared-trunk", "policy.shared_trunk", False),
        ("--policy.memory None", "policy.memory", None),
    ):
        line = read_words(Arguments, words.split(), prog="scramjet train")
        value: Any = line.laid_over(RunConfig(), ("settings",))
        for part in name.split("."):
            value = getattr(value, part)
        assert value == expected, words
        assert type(value) is type(expected), words
    maze = base_config("maze", Place())
    for words, ignored in (("", ("step_count",)), ("--policy.ignore", ()), ("--policy.ignore walls", ("walls",))):
        line = read_words(Arguments, words.split(), prog="scramjet train")
        assert line.laid_over(maze, ("settings",)).policy.ignore == ignored, "what a preset ignores can be seen again"


def test_a_boolean_parameter_of_a_world_is_a_flag_with_a_no_form():
    for flag, expected in (("--env.random-opponent", True), ("--env.no-random-opponent", False)):
        words, values = split_env_parameters(["connect_four", flag, "--seed", "3"])
        assert words == ["connect_four", "--seed", "3"]
        assert typed_parameters("connect_four", values) == {"random_opponent": expected}


def test_words_of_other_commands_become_their_dataclass():
    given = parse(eval.Arguments, ["runs/a", "--episodes", "3", "--json"], prog="scramjet eval", description="")
    assert given == eval.Arguments("runs/a", episodes=3, json=True)
    words = ["a", "--games", "6", "b", "--random", "c", "--players", "random", "greedy"]
    line = read_words(tournament.Arguments, words, prog="scramjet tournament")
    assert line.values[("runs",)] == ("a", "b", "c"), "also those between flags and behind them"
    assert line.values[("players",)] == ("random", "greedy")


def test_the_help_shows_exactly_the_flags_that_are_read_and_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("train", "eval", "tournament", "list", "example", "check", "bench", "plot", "compare"):
        with pytest.raises(SystemExit) as ending:
            run([name, "--help"])
        assert not ending.value.code, name
        told = capsys.readouterr().out
        all_flags = [*flags_of(importlib.import_module(flags_module(name)).Arguments)]
        flags = [flag for flag in all_flags if flag.metavar is None]
        shown = set(re.findall(r"^  (--(?!env\.)\S+?)(?:, (--\S+))?(?= |$)", told, re.MULTILINE))
        both = {flag.spelling for flag in flags if flag.is_switch and (flag.default or name == "train")}
        assert shown == {(flag.spelling, flag.negation if flag.spelling in both else "") for flag in flags}, name
        assert max(len(line) for line in told.splitlines()) <= 80, name
        (place,) = [flag.metavar for flag in all_flags if flag.metavar is not None]
        usage = f" {place} [flags]" if name in ("eval", "check", "plot", "compare") else f" [{place}] [flags]"
        assert told.splitlines()[0].endswith(usage), name
    texts = field_texts(train.Place)
    assert set(texts) == {field.name for field in fields(train.Place)}
    assert texts["trust"].endswith("a file or module that you have not named yourself: it is run.")


def test_names_of_other_libraries_lead_to_settings_of_ours_and_hide_none():
    ours = {*NAMES, *(flag.name for flag in flags_of(Place)), "episodes"}
    table = names_of_other_libraries._TABLE
    assert {name for entry in table.values() for name in entry.names} <= ours
    assert set(table) & (set(NAMES) - {"env"}) == set()
    assert all(entry.names or entry.note for entry in table.values())
    brought = (
        "lr envs n_envs steps timesteps gpu n_steps ent_coef vf_coef anneal_lr wandb policy_kwargs wrappers optimizer"
    )
    for name in brought.split():
        assert suggestion(name, NAMES), name
        assert "Did you mean" not in suggestion(name, NAMES), name
    for data, message in (
        ({"ent_coef": 0.1}, "unknown key 'ent_coef'. It is called 'entropy_coef' here."),
        ({"net_arch": [64]}, "It is called 'hidden' in [policy] here."),
        ({"policy": {"lstm_size": 64}}, "It is called 'memory_size' in [policy] here."),
        ({"eval": {"evry": 3}}, "Did you mean 'every'?"),
        ({"env_id": "x"}, 'in a file by env = "cartpole"'),
    ):
        assert message in complaint(lambda data=data: apply(RunConfig(), data, "mine.toml")), data


def test_a_preset_by_name_stands_between_the_defaults_and_the_file(tmp_path, monkeypatch):
    file = tmp_path / "mine.toml"
    file.write_text('env = "bandit"\ngamma = 0.5\n')
    assert base_config(None, Place(preset="maze")) == starting_config("maze")
    elsewhere = base_config("gym:Acrobot-v1", Place(preset="acrobot"))
    assert (elsewhere.env, elsewhere.ppo) == ("gym:Acrobot-v1", starting_config("acrobot").ppo)
    for world, config in (
        ("bandit", base_config(None, Place(preset="cartpole", config=file))),
        ("cartpole", base_config("cartpole", Place(config=file))),
    ):
        assert (config.env, config.ppo.gamma, config.ppo.gae_lambda) == (world, 0.5, 0.9)
    (tmp_path / "short.toml").write_text('gamma = 0.5\n[env]\nname = "cartpole"\ngravity = 3.5\n')
    monkeypatch.setattr("scramjet.training.config.presets.shipped_file", lambda path: tmp_path / path.partition("/")[2])
    assert base_config(None, Place(preset="short")).env_parameters == {"gravity": 3.5}
    other = base_config("nowhere.py", Place(preset="short"))
    assert (other.env, other.env_parameters, other.ppo.gamma) == ("nowhere.py", {}, 0.5), "no parameters of another's"


def test_an_unknown_preset_is_answered_with_the_nearest_and_with_those_there_are():
    said = complaint(lambda: base_config(None, Place(preset="cartpol")))
    assert "Did you mean 'cartpole'?" in said
    assert "mujoco_ant" in said
    assert "name one" in complaint(lambda: base_config(None, Place(preset="atari")))
    for name in ("../cartpole", "a/b", "", "x" * 5000, "mine.toml"):
        assert "no preset" in complaint(lambda name=name: base_config(None, Place(preset=name))), name


def test_an_example_is_written_once_and_says_what_to_type_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, told in (([], "corridor"), (["corridor"], "scramjet check corridor.py")):
        assert run(["example", *words]) == 0
        assert told in capsys.readouterr().out
    assert "class Corridor(Env)" in (tmp_path / "corridor.py").read_text()
    (tmp_path / "corridor.py").write_text("mine")
    assert "stays as it is" in complaint(lambda: run(["example", "corridor"]))
    assert (tmp_path / "corridor.py").read_text() == "mine"
