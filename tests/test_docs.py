"""The docs are true: links lead somewhere, commands parse, settings are listed, names exist and what is shown runs.

Names in backticks are looked at in the prose of all pages but the CHANGELOG, which tells of names as they were. Python
blocks of one page share a folder and a namespace, so a block may build on those above it. Trainings from Python are cut
to two tiny updates; those of commands end where training would begin, with the world made and the network built. What
cannot run here is listed in NOT_RUN with its reason; nothing else is left out.
"""

import ast
import importlib
import inspect
import io
import re
import shlex
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scramjet import cli, errors
from scramjet.adapters.registry import is_foreign
from scramjet.algorithms.value_scaling import MAX_DEVIATION, MIN_DEVIATION
from scramjet.cli import run
from scramjet.commands import command_line
from scramjet.commands.arguments import train, tune
from scramjet.commands.arguments.tune import split_dimensions
from scramjet.commands.command_line import field_texts, read_words
from scramjet.policies.networks import default_network
from scramjet.training import loop
from scramjet.training.config.files import apply, field_docs, starting_config
from scramjet.training.config.keywords import TABLES
from scramjet.training.config.run_config import RunConfig
from scramjet.training.config.yaml_text import read_yaml
from tests.helpers import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CONFIGURATION = (ROOT / "docs/configuration.md").read_text()
TROUBLESHOOTING = (ROOT / "docs/troubleshooting.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ABSOLUTE_PATH = re.compile(r"(?<![\w.~/:])/(work|home|root|tmp|usr|Users|opt|mnt)\b")
ARGUMENTS = {
    name: importlib.import_module(cli.flags_module(name)).Arguments
    for name in cli._COMMANDS
    if name not in ("train", "tune")
}


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code blocks of a page in one language."""
    return [code for tag, code in FENCE.findall(page.read_text()) if tag == language]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text())


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere."""
    broken = []
    for target in LINK.findall(prose(page)):
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        is_whole = file.exists() and (not fragment or fragment in anchors(file))
        if not re.match(r"[a-z]+:", target) and not is_whole:
            broken.append(target)
    return broken


def test_relative_links_lead_to_headings_that_exist_no_path_is_absolute_and_python_compiles(tmp_path):
    for page in PAGES:
        assert broken_links(page) == [], page
        assert ABSOLUTE_PATH.findall(page.read_text()) == [], page
        for code in blocks(page, "python"):
            compile(code, page.name, "exec")
    (tmp_path / "page.md").write_text("# A b\n[1](page.md#a-b) [2](#a-b) [3](https://x) [4](#c) [5](gone.md)\n")
    assert broken_links(tmp_path / "page.md") == ["#c", "gone.md"]


def command_lines(page: Path) -> list[list[str]]:
    """The arguments of each `scramjet ...` command in a page's shell blocks."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("scramjet ")]


def parse(words: list[str]) -> None:
    """Parse a command as the program would, without running it; a SystemExit or ScramjetError means it is wrong."""
    command, rest = words[0], [word for word in words[1:] if word != "--help"]
    assert command in cli._COMMANDS, f"no command {command}"
    if command == "train":
        flags, parameters = train.split_env_parameters(rest)
        given = read_words(train.Arguments, flags, prog="scramjet train")
        settings = given.laid_over(RunConfig(), ("settings",))
        if not settings.env.endswith(".py"):
            train.typed_parameters(settings.env, parameters)
    elif command == "tune":
        rest, _ = train.split_env_parameters(split_dimensions(rest)[0])
        read_words(tune.Arguments, rest, prog="scramjet tune")
    else:
        if command in ("eval", "play", "tournament", "check", "export-page"):
            rest, _ = train.split_env_parameters(rest)
        command_line.parse(ARGUMENTS[command], rest, prog=f"scramjet {command}", description="")


def problem_with(words: list[str]) -> str | None:
    """What the program would say against a command."""
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            parse(words)
    except (SystemExit, Exception) as problem:
        return f"scramjet {shlex.join(words)}\n{said.getvalue()}{problem}"
    return None


def test_commands_in_shell_blocks_parse_and_each_command_is_shown():
    shown = [(page, words) for page in PAGES for words in command_lines(page)]
    for page, words in shown:
        assert problem_with(words) is None, page
    assert {words[0] for _, words in shown} == set(cli._COMMANDS)
    wrong = (["trian"], ["train", "--learning-rat", "1"], ["eval"], ["list", "--jsn"], ["train", "--env.gravty", "1"])
    assert all(problem_with(words) for words in wrong)


def test_the_configuration_page_lists_every_field_with_its_default_and_every_table_of_a_file():
    tables = re.findall(r"^\| field \| default \| meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)", CONFIGURATION, re.MULTILINE)
    documented = dict(re.findall(r"^\| `([\w.]+)` \| `([^`]*)` \| .+ \|$", "".join(tables), re.MULTILINE))
    assert documented == {name: as_written(default) for name, _, default in field_docs()}
    (named,) = re.findall(r"the tables are (.+?)\. ", CONFIGURATION)
    assert set(re.findall(r"`\[(\w+)\]`", named)) == {"env", *TABLES} - {"ppo"}


def as_written(default: Any) -> str:
    """A default as a config file writes it."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return f'"{default}"'
    if isinstance(default, tuple):
        return str([*default])
    return "none" if default is None else str(default)


def test_the_configuration_page_tells_the_least_values_that_the_help_tells():
    meanings = dict(re.findall(r"^\| `([\w.]+)` \| `[^`]*` \| (.+) \|$", CONFIGURATION, re.MULTILINE))
    bounds = [
        (name if table == "ppo" else f"{table}.{name}", bound)
        for table, kind in TABLES.items()
        for name, text in field_texts(kind).items()
        for bound in re.findall(r"at least [\d.]*\d", text)
    ]
    assert bounds
    assert [(name, bound) for name, bound in bounds if bound not in meanings[name]] == []


def test_the_configuration_page_lists_every_flag_of_every_command():
    headings = {f"scramjet {name}": kind for name, kind in ARGUMENTS.items()}
    headings |= {"scramjet train": train.Place, "scramjet tune": tune.Place}
    for heading, arguments in (headings | {"scramjet tune: the study": tune.StudySettings}).items():
        table = re.search(rf"^\| `{heading}[^`]*` \|.*\|\n\|[-|]+\|\n((?:\|.*\n)+)", CONFIGURATION, re.MULTILINE)
        assert table is not None, heading
        listed = set(re.findall(r"--([a-z-]+)", "".join(re.findall(r"^\| (.+?) \|", table[1], re.MULTILINE))))
        flags = [name for name, kind in arguments.__annotations__.items() if "Positional" not in kind]
        assert listed == {name.replace("_", "-") for name in flags}, heading


def test_examples_and_the_bounds_of_popart_are_quoted_as_they_are():
    assert f"from {MIN_DEVIATION:.4f} to {MAX_DEVIATION:,.0f}" in (ROOT / "docs/stabilizers.md").read_text()
    for example, page in (("doors", "docs/writing-environments.md"), ("corridor", "README.md")):
        assert (ROOT / f"examples/{example}.py").read_text() in blocks(ROOT / page, "python"), page
    source = re.sub(r"^ +", "", (ROOT / "examples/ppo.py").read_text(), flags=re.MULTILINE)
    quoted = blocks(ROOT / "docs/training-loop.md", "py")
    assert len(quoted) > 5
    assert [code for code in quoted if re.sub(r"^ +", "", code, flags=re.MULTILINE) not in source] == []


def test_each_kind_of_error_has_its_section_of_troubleshooting_with_messages_that_are_in_the_code():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    kinds = [kind for kind in kinds if issubclass(kind, errors.ScramjetError) and kind is not errors.ScramjetError]
    headings = re.findall(r"^## (\w+):", TROUBLESHOOTING, re.MULTILINE)
    assert sorted(headings) == sorted(kind.__name__ for kind in kinds)
    source = "\n".join(path.read_text() for path in (ROOT / "scramjet").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # a message may go over several lines
    cells = re.findall(r"^\| (`.+?) \| ", TROUBLESHOOTING.partition("## Not an error")[0], re.MULTILINE)
    quoted = {message for cell in cells for message in re.findall(r"`([^`]+)`", cell)}
    quoted -= {"my_world.py line 12: NameError: ..."}  # Python's own
    assert len(quoted) > 50
    parts = {message: [part.strip(" ,;") for part in message.split("...")] for message in quoted}
    assert [message for message in quoted if not all(part in source for part in parts[message])] == []


PACKAGE = ROOT / "scramjet"
SOURCES = sorted(path for name in ("scramjet", "examples", "benchmarks") for path in (ROOT / name).rglob("*.py"))

SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:\.\./)*[\w/-]+\.(?:py|md|toml|jsonl?|safetensors)")
OURS = re.compile(r"scramjet(\.\w+)+")
CLASS = re.compile(r"([A-Z]\w*[a-z]\w*)(?:\.(\w+))?(?:\(.*\))?")
CALL = re.compile(r"(?:\w+\.)*(\w+)\(.*")
NAME = re.compile(r"_*[a-z]\w*_\w+")

OUTSIDE_FILES = {"my_world.py", "FILE.py", "treasure.py", "helpers.py", "my_world.toml", "NAME.toml"}
"""Files of the reader's own."""
OUTSIDE_NAMES = {
    *("Dict", "Discrete", "MultiBinary", "MultiDiscrete", "Box", "Tuple"),  # Gymnasium
    *("RecordEpisodeStatistics", "action_mask", "rgb_array", "register_envs"),
    *("None", "True", "ValueError", "KeyboardInterrupt", "SystemExit", "NameError"),  # Python
    *("breakpoint", "float", "self", "_exit"),
    *("to", "register_buffer", "use_deterministic_algorithms"),  # torch
    *("ent_coef", "should_save"),  # names that other libraries, or examples of names, have
    *("helper", "divisor", "NAME_mask"),  # of the reader's own
}


@cache
def names_of_sources() -> tuple[frozenset[str], frozenset[str]]:
    """Names of all functions and classes of the package, its examples and benchmarks; and of everything in them.

    The second has every literal string too: settings, metrics and entries of observations.
    """
    defined, used = set(), set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                used |= {node.value, *re.split(r"\W", node.value)}
            elif name := {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}.get(type(node)):
                used.add(getattr(node, name))
    return frozenset(defined), frozenset(defined | used)


@cache
def file_names() -> frozenset[str]:
    """Names of all files of the repository that the docs may mean by their last part alone."""
    folders = ("scramjet", "tests", "examples", "benchmarks", "configs", "docs")
    return frozenset(path.name for folder in folders for path in (ROOT / folder).rglob("*.*"))


def is_file(span: str, page: Path) -> bool:
    if "/" in span and span.endswith((".py", ".md")):
        return any((folder / span).is_file() for folder in (ROOT, PACKAGE, page.parent))
    name = span.rpartition("/")[2]
    return name in file_names() or name in names_of_sources()[1] or (ROOT / span).is_file()  # or a run's: `config.toml`


def imports(name: str) -> bool:
    """Whether `scramjet.a.b` is a module, or something that a module holds."""
    module, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), last) or bool(importlib.import_module(name))
    except ImportError:
        return False


def exists(span: str, page: Path) -> bool:
    """Whether what a page has in backticks exists, if it is the name of something at all."""
    defined, used = names_of_sources()
    if FILE.fullmatch(span):
        return span.rpartition("/")[2] in OUTSIDE_FILES or is_file(span, page)
    if found := OURS.match(span):
        return imports(found[0])
    if found := CLASS.fullmatch(span):
        return found[1] in defined | OUTSIDE_NAMES and (found[2] is None or found[2] in used)
    if found := CALL.fullmatch(span):
        return found[1] in defined | OUTSIDE_NAMES
    if NAME.fullmatch(span):
        return span in used | OUTSIDE_NAMES or f"{span}.toml" in file_names()  # a preset by its name
    return True


def missing(page: Path) -> list[str]:
    return [span for span in SPAN.findall(prose(page)) if not exists(span, page)]


def test_what_a_page_has_in_backticks_exists():
    assert {page.name: missing(page) for page in PAGES if page.name != "CHANGELOG.md" and missing(page)} == {}


def test_the_check_of_names_sees_what_does_not_exist_and_needs_every_outside_name(tmp_path):
    there = ["scramjet/cli.py", "envs/api.py", "cartpole.py", "scramjet.train", "scramjet.algorithms.advantages.gae"]
    there += ["Policy", "Learner.update", "pool.episodes()", "num_envs", "approx_kl", "metrics.jsonl", "a b c", "-1"]
    gone = ["scramjet/clj.py", "envs/engine.py", "cartpool.py", "scramjet.trian", "scramjet.algorithms.gae.gae"]
    gone += ["Polizy", "Learner.no_such", "pool.episoden()", "num_environs", "approx_k4", "metric.jsonl"]
    page = tmp_path / "page.md"
    page.write_text("\n".join(f"`{span}`" for span in there + gone) + "\n```sh\n`no_such_name`\n```\n")
    assert missing(page) == gone
    spans = {span for page in PAGES for span in SPAN.findall(prose(page))}
    words = {word for span in spans for word in re.split(r"[^\w.]|\.(?!toml|py)", span)}
    assert {
        name for name in OUTSIDE_NAMES | OUTSIDE_FILES if name not in words or name in names_of_sources()[0]
    } == set()


NOT_RUN = {
    "ale:": "tests/adapters/test_atari.py plays Atari games",
    "mujoco:": "tests/training/test_foreign_training.py trains it",
    "envpool:": "tests/adapters/test_envpool.py plays it",
    "pettingzoo": "tests/adapters/test_pettingzoo.py plays it",
    "my_": "a file of the reader's",
    "my-run": "a run of the reader's",
    "--device cuda": "needs a GPU",
    'device="cuda"': "needs a GPU",
    "--help": "tests/commands/test_command_line.py shows the help of each command",
    "play connect_four": "waits for a person; tests/commands/test_play.py types for one",
    "bench": "measures for minutes; tests/commands/test_bench.py runs it",
    "tune cartpole": "trains many runs; tests/tuning/ and tests/commands/test_tune.py run studies",
    "scramjet.tune(": "trains many runs, each in a process of its own; tests/tuning/ run studies",
    "studies/": "a study of the reader's",
    "runs/": "a run of the reader's; tests/commands/ evaluate, resume and fork",
}
"""Text in a command or block that keeps it from being run here, and why."""
PYTHON = [page for page in PAGES if blocks(page, "python")]
COMMANDS = sorted({shlex.join(words) for page in PAGES for words in command_lines(page)})


def can_run(text: str) -> bool:
    return not any(part in text for part in NOT_RUN)


def test_what_is_not_run_is_found_in_the_docs():
    shown = [*COMMANDS, *(code for page in PYTHON for code in blocks(page, "python"))]
    for part in NOT_RUN:
        assert any(part in text for text in shown), f"nothing shows {part!r}: take it off the list"


def test_config_files_are_taken():
    for page in PAGES:
        for kind, read in (("toml", tomllib.loads), ("yaml", read_yaml)):
            for text in blocks(page, kind):
                assert apply(RunConfig(), read(text), page.name), text


@pytest.mark.rest  # it makes every world that is shown
def test_commands_run_up_to_where_training_begins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scramjet.commands.train.train", begin)
    guide = blocks(ROOT / "docs/writing-environments.md", "python")
    (tmp_path / "treasure.py").write_text(next(code for code in guide if "class Treasure" in code))
    ran = 0
    for command in sorted(COMMANDS, key=lambda command: "example" not in command):  # it writes what others take
        words = shlex.split(command)
        if can_run(command) and words[0] != "serve":  # goes on until Ctrl-C; tests/web/ opens its page
            assert run([*words, *(["--steps", "50"] if words[0] == "check" else [])]) == 0, command
            ran += 1
    assert ran > 30


def begin(config: RunConfig, **place: Any) -> Any:
    """Stands for training: the world is made, and the network that it would train is built."""
    world = config.make_env()
    if not is_foreign(config.env) and config.frame_stack == 1:
        with torch.device("meta"):  # of every size and kind, without its numbers
            default_network(world.observation_space, world.action_space, config.policy)
    return SimpleNamespace(exit_code=0)


@pytest.mark.rest  # they train
@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "train", cut_short(loop.train))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(blocks(page, "python"), start=1):
        if can_run(code):
            world = re.search(r"^class (\w+)\(Env\)", code, re.MULTILINE)
            file = tmp_path / (f"{world[1].lower()}.py" if world else f"block_{number}.py")  # as the page calls it
            file.write_text(code)
            exec(compile(code, str(file), "exec"), namespace)


def cut_short(whole: Any) -> Any:
    """`scramjet.train` with everything as given but for the size: two updates."""
    parameters = inspect.signature(whole).parameters

    def train(config: Any = None, **given: Any) -> Any:
        if not set(given) <= set(parameters):
            given.update(total_timesteps=256, num_envs=8, num_steps=16)
        elif given.get("resume") is None and given.get("fork") is None:
            if config is not None and not isinstance(config, str | RunConfig):  # a world as an object
                given["env"], config = config, None
            config = starting_config(config) if isinstance(config, str) else config or RunConfig()
            evaluation = replace(config.eval, every=0, final_episodes=2)
            ppo = replace(config.ppo, num_minibatches=1, minibatch_size=None, num_epochs=1, bptt_horizon=None)
            small = {"num_envs": 8, "num_steps": 16, "total_timesteps": 256, "num_threads": 1}
            config = replace(config, ppo=ppo, eval=evaluation, **small)
        return whole(config, **{**given, "display": "quiet"})

    return train
