"""Every format of file that may come from a stranger: which files are of it, who reads them, and what uses them.

A new format joins by one line in FORMATS. A module that reads files and is named neither there nor in OTHER_READERS
fails `tests/faults/test_forged_files.py`.
"""

import json
import re
import shutil
import sqlite3
import tomllib
import traceback
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

import scramjet
from scramjet import cli
from scramjet.errors import LAYOUT, ScramjetError, printable
from scramjet.policies.config import PolicyConfig
from scramjet.reports.run_files import read_lineage
from scramjet.runtime import checkpoint_format
from scramjet.runtime.runs import Run
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.telemetry.tracking.tracker import RunFacts, read_state
from scramjet.training.asynchronous.collector import read_schedule
from scramjet.tuning.api import METHODS
from scramjet.tuning.report import write_report
from scramjet.tuning.results import read_results
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.storage import Assignment, Outcome
from scramjet.tuning.study import Study
from scramjet.web.run_list import RunIndex
from scramjet.web.run_view import RunCurves, fork_tree, run_details
from tests.helpers.hostile_files import CANARY, ENVS
from tests.helpers.small_runs import train_small
from tests.helpers.studies import run_here, small_study
from tests.helpers.written_trials import written_study

DEEP, LONG = "@@deep@@", "@@long@@"
"""Words that stand for a list nested in itself ten thousand times, and for one of a million entries."""
_SPELLED = ((f'"{DEEP}"', "[" * 10_000 + "]" * 10_000), (f'"{LONG}"', f"[{'0,' * 999_999}0]"))


def _spelled(text: str) -> bytes:
    """Text with the words above replaced, in the notation that JSON, TOML and YAML share."""
    for word, meaning in _SPELLED:
        text = text.replace(word, meaning)
    return text.encode(errors="surrogatepass")


# --- how the fields of a file are read and written -----------------------------------------------------------


class Json:
    """A file with one JSON value."""

    def read(self, path: Path) -> Any:
        """The fields of a file, as dicts and lists."""
        return json.loads(path.read_bytes())

    def write(self, path: Path, fields: Any) -> None:
        """Write a file with these fields, and make every hash right that says what is in it."""
        path.write_bytes(_spelled(json.dumps(fields)))


class JsonLines(Json):
    """A file with a JSON value in each line; only the first and last few are forged."""

    def read(self, path: Path) -> Any:
        lines = path.read_bytes().splitlines()
        return [json.loads(line) for line in (*lines[:2], *lines[2:][-2:])]

    def write(self, path: Path, fields: Any) -> None:
        lines = fields if isinstance(fields, list) else [fields]
        path.write_bytes(b"".join(_spelled(json.dumps(line)) + b"\n" for line in lines))


class Toml(Json):
    """A TOML file; None becomes the text that configs have for it."""

    def read(self, path: Path) -> Any:
        return tomllib.loads(path.read_text())

    def write(self, path: Path, fields: Any) -> None:
        path.write_bytes(_spelled(tomli_w.dumps(_without_none(fields if isinstance(fields, dict) else {"x": fields}))))


class Metadata(Json):
    """A checkpoint's metadata.json, whose hash a stranger can make right."""

    def write(self, path: Path, fields: Any) -> None:
        if isinstance(fields, dict) and fields.get("sha256") == self.read(path).get("sha256"):
            fields = {key: value for key, value in fields.items() if key not in ("sha256", "signature")}
            text = _spelled(json.dumps(fields))
            digest = "0" * 64
            with suppress(
                RecursionError, ValueError
            ):  # what is nested too deep is refused before its hash is looked at
                digest = checkpoint_format._digest(json.loads(text))
            path.write_bytes(text[:-1] + f', "sha256": "{digest}", "signature": null}}'.encode())
            return
        super().write(path, fields)


class Header(Json):
    """The header of a safetensors file: names, types, shapes and places of tensors."""

    def read(self, path: Path) -> Any:
        data = path.read_bytes()
        return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])

    def write(self, path: Path, fields: Any) -> None:
        data = path.read_bytes()
        header = _spelled(json.dumps(fields))
        write_tensors(path, len(header).to_bytes(8, "little") + header + data[8 + int.from_bytes(data[:8], "little") :])


class Tensors(Json):
    """The numbers in a safetensors file: each tensor is filled with one number where it is forged."""

    def read(self, path: Path) -> Any:
        return {name: 0 for name in Header().read(path) if name != "__metadata__"}

    def write(self, path: Path, fields: Any) -> None:
        data = bytearray(path.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, about in Header().read(path).items():
            value = fields.get(name) if isinstance(fields, dict) else fields
            if name == "__metadata__" or value == 0:
                continue
            first, last = (begin + place for place in about["data_offsets"])
            fill = b"\xff" if not isinstance(value, float | int) or value != value or abs(value) < 2 else b"\x7f"
            data[first:last] = fill * (last - first)
        write_tensors(path, bytes(data))


class Database(Json):
    """Rows of study.db: numbers, texts, and JSON in some of them."""

    tables = ("studies", "study_directions", "study_user_attributes", "trials", "trial_user_attributes")
    tables += ("trial_params", "trial_values", "trial_intermediate_values", "version_info", "alembic_version")

    def read(self, path: Path) -> Any:
        found: dict[str, Any] = {}
        with closing(sqlite3.connect(path)) as database:
            for table in self.tables:
                rows = database.execute(f"SELECT rowid, * FROM {table}")
                columns = [each[0] for each in rows.description]
                for row in rows.fetchall():
                    for column, value in list(zip(columns, row, strict=True))[1:]:
                        parsed = json.loads(value) if column.endswith("json") else value
                        found[f"{table} {row[0]} {column}"] = parsed
        return found

    def write(self, path: Path, fields: Any) -> None:
        before = self.read(path)
        with closing(sqlite3.connect(path)) as database, database:
            for name, value in (fields if isinstance(fields, dict) else {}).items():
                table, row, column = name.split(" ")
                if value == before.get(name) and value == value:
                    continue
                stored = _spelled(json.dumps(value)).decode() if column.endswith("json") else _cell(value)
                with suppress(sqlite3.Error, OverflowError, UnicodeError):
                    database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (stored, int(row)))


def _cell(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)[:1000]


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_none(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return "none" if value is None else value


def write_tensors(path: Path, data: bytes) -> None:
    """Write a safetensors file of a checkpoint whose metadata tells of it."""
    path.write_bytes(data)
    record = json.loads((path.parent / "metadata.json").read_bytes())
    record["files"][path.name] = {"sha256": checkpoint_format._sha256(data), "bytes": len(data)}
    for own in ("sha256", "signature"):
        record.pop(own, None)
    record["sha256"] = checkpoint_format._digest(record)
    (path.parent / "metadata.json").write_text(json.dumps(record))


# --- what a user does with a stranger's folder ---------------------------------------------------------------

Use = Callable[[Path], object]
"""Something that a user does with the folder; what it writes of its own goes into the folder `out` there."""


def command(*words: str) -> Use:
    """A command of scramjet, where {} is the folder."""

    def use(folder: Path) -> None:
        cli.run([word.replace("{}", str(folder)) for word in words])

    use.__name__ = " ".join(words)
    return use


QUIET = ("--display", "quiet")
OUT = ("--runs-dir", "{}/out")


def look(folder: Path) -> None:
    """What the page says of the runs."""
    index = RunIndex(folder / "runs")
    index.rows(5.0)
    for name in ("plain", "forked"):
        json.dumps(run_details(folder / "runs" / name, RunCurves()), allow_nan=False)
        json.dumps(fork_tree(folder / "runs", name, index.facts()), allow_nan=False)


def resume_study(folder: Path) -> None:
    """Go on with a study, its trials in this process."""
    with Study.open(folder / "study") as study:
        run_here(study)


LIST = command("compare", "{}/runs/plain", "{}/runs/forked")
PLOT = command("plot", "{}/runs/plain", "-o", "{}/out/plot.html")
EVAL = command("eval", "{}/runs/plain", "--episodes", "1")
RESUME = command("train", "--resume", "{}/runs/plain", "--total-timesteps", "384", *QUIET)
FORK = command("train", "--fork", "{}/runs/plain", "--total-timesteps", "384", *OUT, *QUIET)
EXPORT = command("export-page", "{}/runs/plain", "-o", "{}/out/page.html")
RESUME_FORK = command("train", "--resume", "{}/runs/forked", "--total-timesteps", "512", *QUIET)
RESUME_GAMES = command("train", "--resume", "{}/runs/games", "--total-timesteps", "512", *QUIET)
FORK_GAMES = command("train", "--fork", "{}/runs/games", "--total-timesteps", "512", *OUT, *QUIET)
TOURNAMENT = command("tournament", "{}/runs/games", "--random", "--games", "2", "--out", "{}/tournament.jsonl")
GRADE = command("grade", "{}/runs/games")
REPORT = command("tune", "--report", "{}/study")
TRAIN_CONFIG = command(
    *("train", "--config", "{}/config.toml", "--total-timesteps", "64", "--eval.final-episodes", "1", *OUT, *QUIET)
)


def sync(folder: Path) -> None:
    """What `scramjet sync` reads of a run before a tool gets it."""
    facts = RunFacts.read(Run.open(folder / "runs" / "forked"))
    json.dumps([facts.env, facts.total_steps, facts.tags, facts.own_tags, facts.group, facts.flat_config, facts.parent])
    json.dumps(facts.fork_notes)


# --- the formats ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A kind of file: which files of the seed folder are of it, how they are written, what uses and reads them."""

    name: str
    files: str
    fields: Json
    uses: tuple[Use, ...]
    quick: tuple[Use, ...]
    """Uses that train and compile nothing, for the core."""
    read_by: tuple[str, ...] = field(default=())


def _load_config(folder: Path) -> None:
    scramjet.load_config(folder / "config.toml")


def _load_policy(folder: Path) -> None:
    scramjet.load_policy(folder / "runs" / "plain")


def _open_study(folder: Path) -> None:
    read_results(folder / "study")
    with Study.open(folder / "study") as study:
        study.interrupted()


def _open_population(folder: Path) -> None:
    write_report(folder / "population")
    with Study.open(folder / "population") as study:
        METHODS[study.settings.method]().next(study, 2)


def _read_schedule(folder: Path) -> None:
    read_schedule(folder / "schedule.jsonl", 1, "play", {})


def _read_state(folder: Path) -> None:
    with suppress(OSError, ValueError):  # which `TrackingState` turns into a note
        read_state(folder / "state.json")


def _lineage(folder: Path) -> None:
    read_lineage(folder / "runs" / "forked" / "lineage.json")


RUN = (EVAL, RESUME, FORK, EXPORT, look)
GAMES = (RESUME_GAMES, FORK_GAMES, TOURNAMENT, GRADE)
FORMATS = (
    Format("config of a run", "runs/plain/config.toml", Toml(), (RESUME, LIST, PLOT, look), (look, LIST),
           ("training.config.reading", "runtime.toml_text", "training.config.files", "reports.run_files",
            "commands.train", "training.start", "telemetry.tracking.tracker", "web.run_list")),
    Format("config file", "config.toml", Toml(), (TRAIN_CONFIG, _load_config), (_load_config,),
           ("commands.arguments.train", "commands.arguments.tune", "training.config.yaml_text")),
    Format("checkpoint's metadata", "runs/*/checkpoints/step_*/metadata.json", Metadata(), (*RUN, *GAMES, _load_policy),
           (_load_policy, look), ("runtime.checkpoint_format", "runtime.checkpoints")),
    Format("header of tensors", "runs/*/checkpoints/step_*/*.safetensors", Header(), (*RUN, *GAMES), (_load_policy,)),
    Format("tensors", "runs/*/checkpoints/step_*/*.safetensors", Tensors(), (*RUN, *GAMES), (_load_policy,)),
    Format("league", "runs/games/opponents/*/metadata.json", Metadata(), GAMES, ()),
    Format("metrics", "runs/plain/metrics.jsonl", JsonLines(), (RESUME, LIST, PLOT, look), (look, LIST, PLOT),
           ("runtime.logs", "reports.metrics_table", "telemetry.metrics_file",
            "web.run_list")),
    Format("lineage", "runs/forked/lineage.json", Json(), (RESUME_FORK, look, sync, _lineage), (look, sync, _lineage),
           ("reports.run_files", "telemetry.tracking.tracker")),
    Format("schedule of an asynchronous run", "schedule.jsonl", JsonLines(), (_read_schedule,), (_read_schedule,),
           ("training.asynchronous.collector",)),
    Format("study", "study/study.toml", Toml(), (resume_study, REPORT, _open_study), (_open_study,),
           ("tuning.study",)),
    Format("study's database", "study/study.db", Database(), (resume_study, REPORT, _open_study), (_open_study,),
           ("tuning.storage", "tuning.trials")),
    Format("population", "population/study.toml", Toml(), (_open_population,), (_open_population,)),
    Format("population's database", "population/study.db", Database(), (_open_population,), (_open_population,)),
    Format("tournament", "tournament.jsonl", JsonLines(), (TOURNAMENT,), (), ("arena.tournaments.log",)),
    Format("state of a tracker", "state.json", Json(), (_read_state,), (_read_state,),
           ("telemetry.tracking.tracker",)),
)  # fmt: skip

OTHER_READERS = {
    "runtime.files": "the door itself",
    "runtime.locks": "words about the process that holds a lock, for a message",
    "runtime.runs": "a run's copy of its world: bytes, which only their hash lets run",
    "runtime.private_files": "the user's own folder, looked at for its owner, and the kernel's",
    "runtime.machine": "the kernel's",
    "runtime.ranks.watching": "messages of ranks of one run, and the kernel's",
    "compile.cache_folder": "our own source; the compile cache, the user's own and looked at for its owner",
    "executors.compile_ahead": "our own source",
    "engine.worlds.rules": "the source of a world that is being trained",
    "adapters.gymnasium.env_state": "states of envs, put back only from the user's own checkpoints",
    "adapters.gymnasium.protocol": "the kernel's",
    "arena.grading": "comes with scramjet",
    "arena.solver.perfect_player": "comes with scramjet",
    "commands.example": "comes with scramjet",
    "reports.plots": "a plot that it has just drawn",
    "web.export_page.page": "comes with scramjet",
    "web.server": "comes with plotly",
    "distributed.exchange": "messages of ranks of one run",
    "training.agreement": "messages of ranks of one run",
    "training.evaluations": "messages of ranks of one run",
    "training.resume": "messages of ranks of one run",
    "training.session": "what it has just written",
    "training.stopping": "messages of ranks of one run",
    "telemetry.tracking.aim": "a picture that goes to a tool as it is",
    "telemetry.tracking.tensorboard": "a picture that goes to a tool as it is",
    "telemetry.tracking.background": "messages of a process of this one's",
    "tuning.trials": "messages of the trial server",
    "tuning.trial_server": "requests of the study that started it",
    "tuning.ray.program": "requests of the study that started it",
    "tuning.ray.remote": "a signal that the study left in its folder: a number",
    "tuning.report": "the kernel's",
    "web.context": "messages of a browser",
}
"""Modules that read what is no file of a stranger, and what they read."""

READING = re.compile(
    r"\b(?:read_regular|open_regular|parse_json|read_file|read_bytes|read_text|read_toml)\(|"
    r"\b(?:json\.loads?|tomllib\.loads?|sqlite3\.connect|safetensors\.torch\.load|yaml\.parse|np\.load|torch\.load)\("
)
"""What reads a file, or makes values of what was read."""


def modules_that_read() -> set[str]:
    """The modules of scramjet that read files, or make values of what was read."""
    package = Path(scramjet.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        if READING.search(re.sub(r"^ *(def|from|import) .*$", "", path.read_text(), flags=re.MULTILINE)):
            found.add(".".join(path.relative_to(package).with_suffix("").parts))
    return found


# --- a folder with one of each -------------------------------------------------------------------------------

MEMORY = PolicyConfig(hidden=(4,), memory="gru", memory_size=4)


def make_seed(folder: Path, *, has_games: bool = True) -> Path:
    """A folder with files of every format, all of them honest; without `has_games` what takes a second alone."""
    runs = folder / "runs"
    train_small(runs, "plain", "cartpole", policy=MEMORY, curiosity="rnd", total_timesteps=128)
    changed = {"runs_dir": runs, "run_name": "forked", "display": "quiet", "total_timesteps": 192}
    scramjet.train(fork=runs / "plain", **changed)
    (folder / "config.toml").write_text(tomli_w.dumps(
        {"env": {"name": "cartpole", "gravity": 9.8}, "num_envs": 4, "num_steps": 8, "total_timesteps": 64,
         "fused": False, "num_threads": 1, "device": "cpu", "policy": {"hidden": [4]}, "eval": {"every": 0},
         "self_play": {"opponents": []}, "tags": ["a"]}))  # fmt: skip
    (folder / "schedule.jsonl").write_text('{"run": {}}\n{"play": 0}\n{"learn": 0}\n')
    (folder / "state.json").write_text('{"run_id": "abc", "step": 3, "offset": 20}\n')
    with written_study(folder / "study", {"gamma": "0.5..0.99"}, total_timesteps=32, trials=2) as study:
        for number in range(2):
            study.add({"gamma": 0.9})
            study.begin(Assignment(number, f"trial-000{number}", {"gamma": 0.9}, seed=4))
        study.complete(0, [1.0], Outcome(study.interrupted()[0], "finished", 32, 1.0))
        repeat = {"trial": 0, "seed": 2, "score": 1.0, "reason": "", "steps": 1, "seconds": 1.0}
        study.keep("repeat trial-0000-s2", repeat)
    settings = StudySettings(method="pbt", population=2, interval=256, parallel=1)
    with small_study(folder / "population", "cartpole", {"gamma": "0.5..0.99"}, settings, total_timesteps=512) as study:
        for number in range(2):
            study.add({"gamma": 0.9})
            study.begin(Assignment(number, f"trial-000{number}", {"gamma": 0.9}, 256, seed=4))
            study.pause(number, Outcome(study.interrupted()[0], "paused", 256, 1.0), float(number))
    if has_games:
        play = {"pool_fraction": 0.5, "snapshot_every": 1, "opponents": ["random"], "opponents_at_once": 1}
        small = PolicyConfig(hidden=(4,), encoder="mlp")
        train_small(runs, "games", "connect_four", policy=small, self_play=SelfPlayConfig(**play))  # type: ignore[arg-type]
        TOURNAMENT(folder)
    return folder


# --- forging -------------------------------------------------------------------------------------------------


def texts(folder: Path) -> list[Any]:
    """What a stranger may write in place of a text: paths, code, addresses, characters that no text should have."""
    victims = folder.parent / "victims"
    return [
        *(str(victims), "../victims", "../../victims/book.txt", "runs/../../victims", "/", "..", "", "~/x"),
        *("evil_module:choose", "evil.py:choose", "evil.py", str(folder / "evil.py"), "gym:evil_module:CartPole-v1"),
        *("factory:evil_module:make_env", "factory:os:system", "evil_module", "http://127.0.0.1:9/x", "file:///x"),
        *("a\0b", "\x1b[2J\x1b]0;x\x07", "\u202e", "\ud800", "x" * 200_000, "sqlite:///x.db", "minimax:999999"),
    ]  # fmt: skip


NUMBERS: list[Any] = [
    *(None, float("nan"), float("inf"), -1, 0, 1, 1e18, 10**18, -(10**18), 2**63, 2**64, 1e308, 10**400, 0.5, True),
    *("1", "text", [], {}, [1], LONG, DEEP, {"a": {"b": [1]}}),
]
LISTS: list[Any] = [LONG, DEEP, None, "text", 7, {}, [], [[]], [None], ["evil.py:choose"], ["\0"], {"name": "evil.py"}]


def places(fields: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in the fields of a file, containers included."""
    entries = fields.items() if isinstance(fields, dict) else enumerate(fields) if isinstance(fields, list) else ()
    return [at, *(place for key, value in entries for place in places(value, (*at, key)))]


def value_at(fields: Any, place: tuple[Any, ...]) -> Any:
    """The value at the end of a way."""
    for key in place:
        fields = fields[key]
    return fields


def forged(fields: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The fields with another value at the end of a way."""
    if not place:
        return value
    copy = fields.copy()
    copy[place[0]] = forged(fields[place[0]], place[1:], value)
    return copy


def hostile(folder: Path, value: Any) -> list[Any]:
    """What a stranger may write in place of a value."""
    if isinstance(value, str):
        return [*texts(folder), None, 7, [], {}, LONG, DEEP]
    if isinstance(value, dict | list):
        return LISTS
    return [*NUMBERS, *texts(folder)[:12]]


@dataclass(frozen=True)
class Forgery:
    """One field of one file with another value, and what is then done with the folder."""

    format: Format
    file: str
    place: tuple[Any, ...]
    value: Any
    use: Use

    def write(self, folder: Path) -> None:
        """Forge the file."""
        path = folder / self.file
        self.format.fields.write(path, forged(self.format.fields.read(path), self.place, self.value))

    def __str__(self) -> str:
        said = repr(self.value)
        shown = said if len(said) < 80 else f"{said[:60]}... ({len(said)})"
        return f"{self.file}: {'.'.join(map(str, self.place))} = {shown}, then {self.use.__name__}"


def draw(seed_folder: Path, folder: Path, generator: np.random.Generator, *, is_quick: bool = False) -> Forgery:
    """A forgery at random: of any format, of any field of it, used in any way; `folder` is where it will be written."""
    formats = [each for each in FORMATS if (each.quick if is_quick else each.uses) and [*seed_folder.glob(each.files)]]
    chosen = formats[generator.integers(len(formats))]
    files = sorted(seed_folder.glob(chosen.files))
    path = files[generator.integers(len(files))]
    fields = chosen.fields.read(path)
    ways = places(fields)
    place = ways[generator.integers(len(ways))]
    values = hostile(folder, value_at(fields, place))
    uses = chosen.quick if is_quick else chosen.uses
    if not is_quick and "runs" in path.parts:  # what uses this very run
        name = path.relative_to(seed_folder / "runs").parts[0]
        uses = tuple(use for use in uses if f"runs/{name}" in use.__name__ or " " not in use.__name__) or uses
    value = values[generator.integers(len(values))]
    return Forgery(chosen, str(path.relative_to(seed_folder)), place, value, uses[generator.integers(len(uses))])


# --- the attack ----------------------------------------------------------------------------------------------


def prepare(base: Path, seed_folder: Path) -> Path:
    """A copy of the seed folder to forge, with a stranger's code in it, beside folders that belong to the user."""
    folder, victims = base / "stranger", base / "victims"
    shutil.copytree(seed_folder, folder, symlinks=True)
    (folder / "out").mkdir()
    for name in ("evil.py", "evil_module.py", "sitecustomize.py"):
        (folder / name).write_text(CANARY.format(canary=str(base / "canary")) + ENVS)
    if not victims.exists():
        (victims / "chapter").mkdir(parents=True)
        (victims / "book.txt").write_text("mine")
        (victims / "chapter" / "one.toml").write_text("mine = true")
    return folder


def surroundings(base: Path) -> dict[str, bytes]:
    """Everything beside the stranger's folder."""
    found = {}
    for path in sorted(base.rglob("*")):
        if not path.is_relative_to(base / "stranger") and not path.is_relative_to(base / "state"):
            found[str(path.relative_to(base))] = path.read_bytes() if path.is_file() else b""
    return found


def end_of(use: Use, folder: Path) -> str:
    """What is wrong with how a use of the folder ends: a traceback, an exit code of none of ours; "" if nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(folder)
    except ScramjetError as error:
        text = str(error)
        return "" if len(text) < 5000 and text == printable(text, keep=LAYOUT) else f"an odd message: {text[:300]!r}"
    except SystemExit as ending:
        return "" if ending.code in (0, 2, None) else f"exit code {ending.code}"
    except BaseException:
        return traceback.format_exc()
    return ""
