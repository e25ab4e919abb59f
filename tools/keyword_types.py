"""Writes the types of the keywords of `scramjet.train` and `scramjet.tune`, from the dataclasses of the settings.

`python tools/keyword_types.py` writes both files anew; a test says when that is due. Type checkers and editors read
them: they complete the names of settings, show their texts, and know their types.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import types
from collections.abc import Collection, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from scramjet.commands.command_line import field_texts
from scramjet.settings import Spelling
from scramjet.training.config.keywords import TABLES
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.settings import StudySettings

ROOT = Path(__file__).resolve().parent.parent
OF_TRAIN, OF_TUNE = ROOT / "scramjet/training/config/keyword_types.py", ROOT / "scramjet/tuning/keyword_types.py"
NAMED = ("total_timesteps", "time_limit")
"""Settings that are named arguments of `train`."""


def written(hint: Any) -> str:
    """A field's type as a keyword takes it: text for numbers such as "20K", and lists for tuples, are brought to it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        reads_text = any(isinstance(note, Spelling) for note in arguments[1:])
        return f"{written(arguments[0])} | float | str" if reads_text else written(arguments[0])
    if origin in (Union, types.UnionType):
        return " | ".join(written(each) for each in arguments)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is tuple:
        return f"list[{written(arguments[0])}] | tuple[{written(arguments[0])}, ...]"
    return "Mapping[str, Any]" if origin is dict else "None" if hint is type(None) else hint.__name__


def keys(cls: type, names: Collection[str] | None = None, without: Collection[str] = ()) -> Iterator[str]:
    """A line for each field of a dataclass, and its text below."""
    hints, texts = get_type_hints(cls, include_extras=True), field_texts(cls)
    for field in fields(cls):
        if field.name in without or (names is not None and field.name not in names):
            continue
        if field.name in TABLES:
            yield f"{field.name}: {settings_of(field.name)} | {TABLES[field.name].__name__}"
        else:
            yield f"{field.name}: {written(hints[field.name])}"
        text = textwrap.fill(f'"""{texts[field.name]}', 113, break_on_hyphens=False)
        yield f'{text}"""'


def settings_of(table: str) -> str:
    """The name of a table's TypedDict: PPOSettings for PPOConfig."""
    return TABLES[table].__name__.replace("Config", "Settings")


def typed_dict(name: str, text: str, lines: Iterator[str], base: str = "TypedDict, total=False") -> str:
    """A TypedDict whose keys may all be left out."""
    return f'class {name}({base}):\n    """{text}"""\n\n' + textwrap.indent("\n".join(lines), "    ")


def module(text: str, imports: str, classes: list[str]) -> str:
    """The source of a module, formatted."""
    made = f"{text} Made by tools/keyword_types.py."
    source = "\n\n\n".join([f'"""{made}"""\n\nfrom __future__ import annotations\n\n{imports}', *classes])
    words = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", "keyword_types.py", "-"]
    done = subprocess.run(words, input=source, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def sources() -> dict[Path, str]:
    """What the two files are to hold."""
    homes = sorted({(kind.__module__, kind.__name__) for kind in TABLES.values()})
    imports = "from collections.abc import Mapping\nfrom typing import Any, Literal, TypedDict\n\n"
    by_module = {home: ", ".join(name for other, name in homes if other == home) for home, _ in homes}
    imports += "\n".join(f"from {home} import {names}" for home, names in by_module.items())
    classes = [
        typed_dict(settings_of(table), f"What a dict given as `{table}` may hold.", keys(kind))
        for table, kind in TABLES.items()
    ]
    flat = [*keys(RunConfig, without=("env", *NAMED, *TABLES)), *keys(RunConfig, names=TABLES)]
    classes.append(typed_dict("Settings", "The settings of a run, as `scramjet.train` takes them.", iter(flat),
                              "PPOSettings, total=False"))  # fmt: skip
    study = [*keys(RunConfig, names=NAMED), *keys(StudySettings)]
    of_study = typed_dict("TuneSettings", "The settings of a study and its runs, as `scramjet.tune` takes them.",
                          iter(study), "Settings, total=False")  # fmt: skip
    above = "from typing import Literal\n\nfrom scramjet.training.config.keyword_types import Settings"
    return {
        OF_TRAIN: module("Types of the keywords of `scramjet.train`.", imports, classes),
        OF_TUNE: module("Types of the keywords of `scramjet.tune`.", above, [of_study]),
    }


if __name__ == "__main__":
    for path, source in sources().items():
        path.write_text(source)
