"""`scramjet.export_page`: a game against a trained agent in one HTML file; `scramjet export-page` from Python.

The page's rules and network are tried in a JavaScript engine before the file is written, where one is installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.arena.play.thoughts import reward_scale
from scramjet.envs.api import Env
from scramjet.envs.registry import stop_if_being_read
from scramjet.errors import ConfigError, WorldError
from scramjet.runs.metadata import run_of
from scramjet.runtime.files import check_output, write_output
from scramjet.settings import coerce
from scramjet.training.config.run_config import RunConfig
from scramjet.training.playing import load_trained, note_on_played
from scramjet.web.export_page.page import Facts, SharedPage, shared_page
from scramjet.web.export_page.values import text

# --- a trial

_CHECK = """
const trialBytes = new Uint8Array(ENCODED.length / 2);
for (let k = 0; k < trialBytes.length; k++) trialBytes[k] = parseInt(ENCODED.slice(2 * k, 2 * k + 2), 16);
const trialNetwork = new Network(data.policy, new Float32Array(trialBytes.buffer));
gameDifference(new Game(data.world, rules), trialNetwork, data.recorded);
"""


def can_try() -> bool:
    """Whether mini-racer, a JavaScript engine for Python, is installed."""
    return importlib.util.find_spec("py_mini_racer") is not None


def try_page(page: SharedPage, world: str) -> None:
    """Play the recorded game in JavaScript; a WorldError where it goes another way than in Python."""
    from py_mini_racer import JSEvalException, MiniRacer

    engine = MiniRacer()
    try:
        difference = engine.eval(f"{page.engine}\nconst ENCODED = {text(page.weights.hex())};\n{_CHECK}")
    except JSEvalException as error:
        difference = str(error).strip().splitlines()[0]
    if difference is not None:
        raise WorldError(
            f"export-page cannot take {world}: its rules or network give another game in JavaScript than in Python "
            f"({difference}); nothing was written"
        )


# --- the world


def visitors_world(config: RunConfig, given: Collection[str]) -> Env:
    """The world that visitors of a shared page play: from the start, with a seat for each player.

    `given` are names of parameters that the user gave, which stay. Raises a ConfigError for a world that no page takes.
    """
    if config.frame_stack > 1:
        raise ConfigError(
            f"export-page cannot take a run with frame_stack={config.frame_stack}: the page shows its network one "
            f"observation at a time"
        )
    if not isinstance(config.make_env(), Env):
        raise ConfigError(
            f"export-page cannot take {config.env}: its rules are code of another library, not a native world whose "
            f"Python can be translated to run in a page"
        )
    with contextlib.suppress(ConfigError):  # a world for one
        config, _ = for_several(config)
    world = from_the_start(config, given)[0].make_env()
    assert isinstance(world, Env)
    return world


# --- writing the page

if TYPE_CHECKING:
    from scramjet.adapters.objects import World


@dataclass(frozen=True)
class ExportedPage:
    """A page that was written: it opens in any browser, and needs nothing else."""

    path: Path
    num_bytes: int
    notes: tuple[str, ...]
    """What has changed since the checkpoint, and what the page goes without, one line each."""

    def __repr__(self) -> str:
        """One line: the file, its size, and what there is to know of it."""
        parts = [repr(str(self.path)), f"{self.num_bytes / 1e6:.2f} MB", *self.notes]
        return f"ExportedPage({', '.join(parts)})"


def export_page(
    path: str | PathLike[str],
    out: str | Path | None = None,
    env: World | None = None,
    *,
    env_parameters: Mapping[str, Any] | None = None,
    runs_dir: str | Path = "runs",
    trust: bool = False,
) -> ExportedPage:
    """Write one HTML file in which a visitor plays against a run's or checkpoint's agent, or watches it.

    `out` is by default the run's name with .html. `env` is a world in place of the one that the checkpoint names,
    `env_parameters` change its parameters, and `trust` lets a checkpoint of somebody else name code, which is run.
    """
    stop_if_being_read()
    chosen = {} if env_parameters is None else coerce("env_parameters", env_parameters, dict[str, Any])
    file = None if out is None else Path(coerce("out", out, Path))
    return written_page(path, file, env, chosen, lambda name: chosen, runs_dir=runs_dir, trust=trust)


def written_page(
    path: str | PathLike[str],
    out: Path | None,
    env: World | None,
    given: Collection[str],
    parameters_for: Callable[[str], Mapping[str, Any]],
    *,
    runs_dir: str | Path,
    trust: bool,
) -> ExportedPage:
    """Write the page; `given` are the names of parameters to change, whose values the world's name decides."""
    if out is not None:
        check_output(out)
    policy, config, checkpoint = load_trained(
        path, runs_dir=runs_dir, env=env, choose_parameters=parameters_for if given else None, trust=trust
    )
    changed = "" if given else note_on_played(config, checkpoint)
    run = run_of(checkpoint).name
    world = visitors_world(config, given)
    page = shared_page(world, policy, Facts(run, checkpoint.step, reward_scale(checkpoint)))
    if can_try():
        try_page(page, type(world).__name__)
    file, data = out or Path(f"{run}.html"), page.html.encode()
    write_output(file, data)
    notes = [*([changed] if changed else []), *(f"{note}; the page goes without it" for note in page.notes)]
    return ExportedPage(file, len(data), tuple(notes))
