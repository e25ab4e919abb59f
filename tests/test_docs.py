"""The docs are true: links lead somewhere, commands parse, every setting is listed; test_doc_snippets.py runs them."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from scramjet import cli, errors
from scramjet.algorithms.value_scaling import MAX_DEVIATION, MIN_DEVIATION
from scramjet.commands import (
    bench,
    check,
    command_line,
    compare,
    eval,
    example,
    export_page,
    grade,
    list,
    play,
    plot,
    serve,
    sync,
    tournament,
    train,
)
from scramjet.commands.arguments.help_text import field_texts
from scramjet.commands.command_line import read_words
from scramjet.commands.tune import command as tune
from scramjet.commands.tune.spaces import split_dimensions
from scramjet.training.config.files import field_docs
from scramjet.training.config.keywords import TABLES
from scramjet.training.config.run_config import RunConfig
from tests.helpers import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ARGUMENTS = {
    "eval": eval.Arguments,
    "tournament": tournament.Arguments,
    "play": play.Arguments,
    "grade": grade.Arguments,
    "serve": serve.Arguments,
    "export-page": export_page.Arguments,
    "sync": sync.Arguments,
    "plot": plot.Arguments,
    "compare": compare.Arguments,
    "list": list.Arguments,
    "example": example.Arguments,
    "check": check.Arguments,
    "bench": bench.Arguments,
}
ABSOLUTE_PATH = re.compile(r"(?<![\w.~/:])/(work|home|root|tmp|usr|Users|opt|mnt)\b")


def blocks(page: Path, language: str) -> Any:
    """The fenced code blocks of a page in one language."""
    return [code for tag, code in FENCE.findall(page.read_text()) if tag == language]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text())


def anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)}


def broken_links(page: Path) -> Any:
    """Relative links of a page that lead nowhere."""
    broken = []
    for target in LINK.findall(prose(page)):
        path, _, fragment = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (fragment and fragment not in anchors(file)):
            broken.append(target)
    return broken


def command_lines(page: Path) -> Any:
    """The arguments of each `scramjet ...` command in a page's shell blocks."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("scramjet ")]


def parse(words: Any) -> None:
    """Parse a command as the program would, without running it; a SystemExit or ScramjetError means it is wrong."""
    command, rest = words[0], [word for word in words[1:] if word != "--help"]
    assert command in cli._COMMANDS, f"no command {command}"
    if command == "train":
        flags, parameters = train.split_env_parameters(rest)
        given = read_words(train.Arguments, flags, prog="scramjet train")
        settings = given.laid_over(RunConfig(), ("settings",))
        if not settings.env.endswith(".py"):
            train.typed_parameters(settings.env, parameters)
        return
    if command == "tune":
        rest, _ = train.split_env_parameters(split_dimensions(rest)[0])
        read_words(tune.Arguments, rest, prog="scramjet tune")
        return
    if command in ("eval", "play", "tournament", "check", "export-page"):
        rest, _ = train.split_env_parameters(rest)
    command_line.parse(ARGUMENTS[command], rest, prog=f"scramjet {command}", description="")


def table_defaults(page: Path) -> dict[str, str]:
    """Field name to default, as written in the tables `| field | default | meaning |`."""
    tables = re.findall(r"^\| field \| default \| meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE)
    rows = re.findall(r"^\| `([\w.]+)` \| `([^`]*)` \| .+ \|$", "".join(tables), re.MULTILINE)
    return dict(rows)


def as_written(default: Any) -> str:
    """A default as a config file writes it."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return f'"{default}"'
    if isinstance(default, tuple):
        return str([*default])
    return "none" if default is None else str(default)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_mentions_an_absolute_path(page: Path) -> None:
    assert ABSOLUTE_PATH.findall(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_compile(page: Path) -> None:
    for code in blocks(page, "python"):
        compile(code, page.name, "exec")


COMMANDS = [(page.name, words) for page in PAGES for words in command_lines(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_commands_in_shell_blocks_parse(page: str, words: Any) -> None:
    output = io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(output):
            parse(words)
    except SystemExit:
        pytest.fail(f"{page}: scramjet {shlex.join(words)}\n{output.getvalue()}")


def test_the_check_of_commands_sees_a_wrong_one() -> None:
    wrong = (["trian"], ["train", "--learning-rat", "1"], ["eval"], ["list", "--jsn"], ["train", "--env.gravty", "1"])
    for words in wrong:
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            assert fails(lambda words=words: parse(words)), words


def fails(action: Callable[[], None]) -> bool:
    try:
        action()
    except (SystemExit, Exception):
        return True
    return False


def test_the_docs_show_each_command() -> None:
    shown = {words[0] for _, words in COMMANDS}
    assert shown == set(cli._COMMANDS)


def test_the_configuration_page_lists_every_field_with_its_default() -> None:
    documented = table_defaults(ROOT / "docs/configuration.md")
    expected = {name: as_written(default) for name, _, default in field_docs()}
    assert documented == expected


def test_the_configuration_page_names_every_table_of_a_file() -> None:
    (named,) = re.findall(r"the tables are (.+?)\. ", (ROOT / "docs/configuration.md").read_text())
    assert set(re.findall(r"`\[(\w+)\]`", named)) == {"env", *TABLES} - {"ppo"}


def test_the_configuration_page_tells_the_least_values_that_the_help_tells() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| `[^`]*` \| (.+) \|$", (ROOT / "docs/configuration.md").read_text(), re.MULTILINE
    )
    meanings, bounded = dict(rows), 0
    for table, kind in TABLES.items():
        for name, text in field_texts(kind).items():
            for bound in re.findall(r"at least [\d.]*\d", text):
                assert bound in meanings[name if table == "ppo" else f"{table}.{name}"]
                bounded += 1
    assert bounded


@pytest.mark.parametrize(
    ("arguments", "heading"),
    [
        (train.Place, "scramjet train"),
        (tune.Place, "scramjet tune"),
        (tune.StudySettings, "scramjet tune: the study"),
        *((cls, f"scramjet {name}") for name, cls in ARGUMENTS.items()),
    ],
)
def test_the_configuration_page_lists_every_flag_of_every_command(arguments: type, heading: str) -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    table = re.search(rf"^\| `{heading}[^`]*` \|.*\|\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert table is not None
    listed = set(re.findall(r"--([a-z-]+)", "".join(re.findall(r"^\| (.+?) \|", table[1], re.MULTILINE))))
    flags = [name for name, kind in arguments.__annotations__.items() if "Positional" not in kind]
    expected = {name.replace("_", "-") for name in flags}
    assert listed == expected


def test_the_page_on_stabilizers_tells_between_which_deviations_popart_normalizes() -> None:
    page = (ROOT / "docs/stabilizers.md").read_text()
    assert f"a deviation from {MIN_DEVIATION:.4f} to {MAX_DEVIATION:,.0f}" in page


def test_the_doors_in_the_docs_are_those_in_examples() -> None:
    assert (ROOT / "examples/doors.py").read_text() in blocks(ROOT / "docs/writing-environments.md", "python")


def test_the_corridor_in_the_readme_is_the_one_in_examples() -> None:
    assert (ROOT / "examples/corridor.py").read_text() in blocks(ROOT / "README.md", "python")


def test_the_page_on_the_training_loop_quotes_the_example_as_it_is() -> None:
    source = (ROOT / "examples/ppo.py").read_text()
    without_indents = re.sub(r"^ +", "", source, flags=re.MULTILINE)
    quoted = blocks(ROOT / "docs/training-loop.md", "py")
    assert len(quoted) > 5
    assert [code for code in quoted if re.sub(r"^ +", "", code, flags=re.MULTILINE) not in without_indents] == []


def test_each_kind_of_user_error_has_its_section_on_the_troubleshooting_page() -> None:
    kinds = [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ScramjetError) and kind is not errors.ScramjetError
    ]
    headings = re.findall(r"^## (\w+):", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(kinds)


def test_messages_quoted_on_the_troubleshooting_page_are_in_the_code() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "scramjet").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # a message may go over several lines
    page = (ROOT / "docs/troubleshooting.md").read_text().partition("## Not an error")[0]
    cells = re.findall(r"^\| (`.+?) \| ", page, re.MULTILINE)
    quoted = {message for cell in cells for message in re.findall(r"`([^`]+)`", cell)} - MADE_ELSEWHERE
    fixed_parts = {message: [part.strip(" ,;") for part in message.split("...")] for message in quoted}
    assert len(quoted) > 50
    assert [message for message, parts in fixed_parts.items() if not all(part in source for part in parts)] == []


MADE_ELSEWHERE = {"my_world.py line 12: NameError: ..."}
"""Messages of Python itself."""
