"""`scramjet.tune`: a study from Python; the command `scramjet tune` uses the same parts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Unpack

from scramjet.adapters.factories import must_be_given
from scramjet.adapters.registry import registration
from scramjet.envs.registry import stop_if_being_read
from scramjet.errors import ConfigError
from scramjet.runs.world_trust import world_of
from scramjet.runtime.machine import available_cores
from scramjet.runtime.runs import check_run_name
from scramjet.runtime.trust import said
from scramjet.settings import coerce
from scramjet.training.config.files import load_config, starting_config
from scramjet.training.config.keywords import check_names, with_keywords
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.display import DisplayMode, StudyDisplay, make_display
from scramjet.tuning.keyword_types import TuneSettings
from scramjet.tuning.loop import run_study
from scramjet.tuning.methods.interface import Method
from scramjet.tuning.methods.population import Population
from scramjet.tuning.methods.searches import TPE, Pareto, RandomSearch, RepeatedSeeds, SuccessiveHalving
from scramjet.tuning.ray.server import RayServer
from scramjet.tuning.report import write_report
from scramjet.tuning.results import TuneResult, result_of
from scramjet.tuning.settings import MethodName, StudySettings
from scramjet.tuning.space import Space
from scramjet.tuning.study import BUDGET, Study
from scramjet.tuning.trials import TrialServer

if TYPE_CHECKING:
    from scramjet.adapters.objects import World

METHODS: dict[MethodName, type[Method]] = {
    "random": RandomSearch,
    "tpe": TPE,
    "pareto": Pareto,
    "halving": SuccessiveHalving,
    "pbt": Population,
}
"""Methods of search by name."""

_STUDY_FIELDS = tuple(field.name for field in fields(StudySettings))


def tune(
    config: RunConfig | World | None = None,
    space: Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    studies_dir: str | Path = "studies",
    study_name: str | None = None,
    display: DisplayMode = "auto",
    trust: bool = False,
    ray: str | None = None,
    **settings: Unpack[TuneSettings],
) -> TuneResult:
    """Search for good settings, as `scramjet tune` does: try many in runs of their own, and keep them all.

        tune("cartpole", {"learning_rate": "log:1e-4..1e-2", "num_envs": [64, 256]}, trials=40)
        tune(resume="studies/cartpole-1", trials=80)

    config: A world by name or file, tried with its preset; or a TOML or YAML file; or a RunConfig.
    space: A dimension for each setting that varies.
    resume: Go on with this study, whose budget alone may change.
    studies_dir: The folder that holds the studies.
    study_name: The name of the study's folder; by default the world's name and a number.
    display: What to show: "live", "plain", "quiet", or "auto": a live table in a terminal, plain lines elsewhere.
    trust: Let files of somebody else name a world in a file or module, which runs it.
    ray: The address of a Ray cluster whose Ray Tune runs the trials, or "local".
    settings: Those of the study (`method`, `objective`, `trials`, `steps`, `hours`, `parallel`, ...) and, as for
        `train`, those of its runs. See `scramjet.tuning.keyword_types.TuneSettings`.
    """
    stop_if_being_read()
    mode = coerce("display", display, DisplayMode)
    given: dict[str, Any] = {**settings}
    of_study = {name: given.pop(name) for name in _STUDY_FIELDS if name in given}
    if resume is not None:
        if config is not None or space is not None or given:
            raise ConfigError("a resumed study keeps its space and config: give resume and a budget alone")
        study = resumed_study(Path(resume), of_study, trust=trust)
    else:
        check_names(given, "scramjet.tune", ("config", "space", "studies_dir", "study_name", "display", *_STUDY_FIELDS))
        base = with_keywords(_base(config, trust=trust), given)
        _check_others_find(base.env)
        study = new_study(base, space or {}, StudySettings(**of_study), Path(studies_dir), study_name)
    with study, contextlib.closing(TrialServer()) as server:
        return go_on(study, make_display(mode), server, ray=ray)


def _base(config: RunConfig | World | None, *, trust: bool) -> RunConfig:
    """The config that `scramjet.tune` was given, or that of a file or a world's preset."""
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, str | PurePath) and str(config).endswith((".toml", ".yaml", ".yml")):
        return load_config(str(config), trust=trust)
    if config is None:
        return starting_config(None)
    world = world_of(config)
    base = starting_config(world.name)
    return base if world.parameters is None else replace(base, env_parameters=dict(world.parameters))


def _check_others_find(env: str) -> None:
    """Refuse a world that only this process knows: trials are processes of their own."""
    if must_be_given(env) or registration(env) is not None:
        raise ConfigError(
            f"the world {env} is known to this program alone, and trials are trained by others: put it at the top of a "
            f"file (in a notebook by %%writefile my_world.py) and tune the file, my_world.py"
        )


def new_study(
    base: RunConfig, space: Mapping[str, Any], settings: StudySettings, studies_dir: Path, name: str | None
) -> Study:
    """Make the folder of a new study, called by the world's name and a number where it has no name."""
    if base.ray_address is not None:
        raise ConfigError(
            f"ray_address={base.ray_address!r} is not kept in a study; set RAY_ADDRESS for its trials' actors, or "
            f"hand the trials themselves to the cluster with --ray {base.ray_address}"
        )
    if name is not None:
        check_run_name(name)
    method = METHODS[settings.method]
    base, settings = method.prepared(base, Space(space, base), settings)
    slots = settings.slots(base)
    threads = base.num_threads if isinstance(base.num_threads, int) else max(1, available_cores() // slots)
    folder = studies_dir / (name or _next_name(studies_dir, base.env))
    return Study.create(folder, settings, base, space, has_costs=method.has_costs, threads=threads)


def resumed_study(folder: Path, changes: Mapping[str, Any], *, trust: bool) -> Study:
    """Open a study to go on with it; `changes` are those of its budget."""
    for name in changes:
        if name not in BUDGET:
            raise ConfigError(
                f"{name} cannot change when a study is resumed: only {', '.join(BUDGET)} may; begin a new study"
            )
    study = Study.open(folder, said(trust))
    study.change_budget(changes)
    return study


def go_on(study: Study, display: StudyDisplay, server: TrialServer, *, ray: str | None = None) -> TuneResult:
    """Run a study to the end of its budget, or until it is stopped, and make its report; returns what it has found.

    After the search the best settings are trained again with fresh seeds, where the method allows it. `server` starts
    its trials. `ray` hands them to Ray Tune instead, on the cluster at this address, or on this machine where it is
    `local`.
    """
    search = METHODS[study.settings.method]()
    method = RepeatedSeeds(search) if search.repeats_seeds else search
    with contextlib.ExitStack() as stack:
        if ray is not None:
            server = stack.enter_context(contextlib.closing(RayServer(study, ray)))
        stack.enter_context(contextlib.closing(display))
        display.begin(study)
        exit_code = run_study(study, method, display, server)
    winner = write_report(study.path, study.approval).results.winner()
    return result_of(study, exit_code, None if winner is None else winner.number)


def _next_name(studies_dir: Path, world: str) -> str:
    """The next free name for a study of a world: `cartpole-2`."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", world.rpartition("/")[2]).lstrip(".-")[:80] or "study"
    pattern = re.compile(re.escape(base) + r"-([0-9]{1,9})")
    found = [pattern.fullmatch(path.name) for path in studies_dir.glob(f"{base}-*")] if studies_dir.is_dir() else []
    return f"{base}-{1 + max((int(match[1]) for match in found if match), default=0)}"
