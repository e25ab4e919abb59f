"""The report of a study: its table, a page with plots, and the winner as a preset file, written into report/.

The Pareto front and the importance of settings are Optuna's.
Text from files is escaped wherever it is shown.
"""

from __future__ import annotations

import math
import os
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from html import escape
from pathlib import Path
from typing import Any, get_args

import tomli_w

from scramjet.adapters.registry import parameter_defaults
from scramjet.errors import RunError, ScramjetError, printable
from scramjet.reports.curves import CurveSettings, Panel, Tables, panels
from scramjet.reports.figures import THEMES, ThemeName, curves_figure, html_page, layout, legend_list, places, shown
from scramjet.reports.groups import Configured, Group, configured
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.files import explain_disk_errors, is_folder, make_folder, write_atomic
from scramjet.runtime.machine import available_cores
from scramjet.runtime.trust import Approval
from scramjet.telemetry.readable import human_count, human_duration, human_number
from scramjet.training.config.algorithm_choice import with_algorithm
from scramjet.training.config.changes import changes
from scramjet.training.config.files import apply, starting_config, to_dict
from scramjet.training.config.run_config import RunConfig
from scramjet.training.config.setting_tables import nested
from scramjet.tuning.results import StudyResults, TrialResult, TrialState, read_results, trial_config
from scramjet.tuning.space import optuna_module
from scramjet.tuning.tables import failures, markdown_table, rows, setting_text, spread_text, winner_line

TABLE, PAGE, WINNER = "table.md", "report.html", "winner.toml"
MOST_CURVES = 5
FEWEST_TRIALS = 8
"""Below so many trials with a score nothing is said of importance."""
_MOST_SLICES = 12
"""Settings that have a plot of their own: the most important ones."""
_MOST_SETTINGS = 3
"""Settings in the label of a curve."""
NOT_IN_A_PRESET = (
    *("env", "seed", "time_limit", "num_threads", "num_workers", "num_processes", "device", "env_device", "tags"),
    *("track", "track_project", "video_every", "record_schedule", "replay_schedule", "checkpoint"),
)
"""Settings that belong to one run or machine: whoever trains with the preset decides on them."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a study, and the folder that tells of them."""

    results: StudyResults
    path: Path


def write_report(folder: Path, approval: Approval | None = None) -> Report:
    """Make the report of the study in a folder, in place of an earlier one.

    It may be made at any time, also while the study runs. `approval` lets the study name a world of code that this user
    has not named before; without it such a study has no winner.toml.
    """
    results = read_results(folder)
    preset, notes = _preset(folder, results, approval)
    results = replace(results, notes=(*results.notes, *notes))
    path = folder / "report"
    if os.path.lexists(path) and not is_folder(path):
        raise RunError(f"{path} is no folder; move it away, and make the report again")
    page = report_page(results, charts(results), best_curves(results, folder.resolve() / "runs"), preset)
    with explain_disk_errors(path):
        make_folder(path)
        write_atomic(path / TABLE, markdown_table(results).encode())
        write_atomic(path / PAGE, page)
        if preset:
            write_atomic(path / WINNER, preset.encode())
    return Report(results, path)


# --- plots


@dataclass(frozen=True, slots=True)
class Chart:
    """One plot of a study; the colours of its traces are numbers of a theme's."""

    title: str
    x_title: str
    y_title: str
    traces: tuple[dict[str, Any], ...]
    note: str = ""
    """A sentence below the plot."""
    x: Mapping[str, Any] = field(default_factory=dict)
    """What plotly's x axis has besides its title."""
    y: Mapping[str, Any] = field(default_factory=dict)

    def figure(self, theme: ThemeName) -> dict[str, Any]:
        """The chart in the colours of a theme."""
        made, data = layout(theme, self.title, self.x_title, self.y_title), []
        made["title"] |= {"x": 0, "xref": "paper"}
        made["xaxis"] |= {"exponentformat": "e", **self.x}
        made["yaxis"] |= self.y
        for trace in self.traces:
            marker = {**trace["marker"], "color": THEMES[theme].colour(trace["marker"]["color"])}
            data.append({**trace, "marker": marker})
        if len(data) > 1:
            made["showlegend"] = True
            made["legend"] = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left"}
            made["margin"]["t"] = 64
        return {"data": data, "layout": made}


def charts(results: StudyResults) -> list[Chart]:
    """The charts of a study that there are numbers for, in reading order."""
    shares = importances(results)
    found = [_cost_chart(results), _repeats_chart(results), _importance_chart(shares)]
    found += [_slice_chart(results, name) for name in list(shares or results.settings)[:_MOST_SLICES]]
    return [chart for chart in found if chart is not None]


def importances(results: StudyResults) -> dict[str, float]:
    """The importance of each setting for the score by PED-ANOVA (Watanabe et al. 2023), largest first, 1 in sum.

    Empty where there are too few trials to say.
    """
    study = _optuna_study(results, [_score])
    if len(study.get_trials(deepcopy=False, states=[_complete()])) < FEWEST_TRIALS:
        return {}
    importance = optuna_module().importance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older versions call it experimental
        found = importance.get_param_importances(study, evaluator=importance.PedAnovaImportanceEvaluator())
    return dict(found)


def _cost_chart(results: StudyResults) -> Chart | None:
    """Score against time of training, with the Pareto front."""
    study = _optuna_study(results, [_seconds, _score])
    trials = study.get_trials(deepcopy=False, states=[_complete()])
    if not trials:
        return None
    x_title, y_title = "training time (seconds)", "score"
    front = {trial.number for trial in study.best_trials}
    best, others = ([each for each in trials if (each.number in front) is is_best] for is_best in (True, False))
    seconds = [trial.values[0] for trial in trials]
    is_log = min(seconds) > 0 and max(seconds) > 20 * min(seconds)
    return Chart(
        "Score against cost",
        x_title,
        y_title,
        (_points("trial", 0, *_costs(results, others)), _points("Pareto front", 1, *_costs(results, best))),
        "No trial is both better and faster than one on the Pareto front.",
        x={"type": "log"} if is_log else {},
    )


def _repeats_chart(results: StudyResults) -> Chart | None:
    """The score of the search beside the mean of the repeated seeds, for each of the best."""
    found = [(trial, spread) for trial in results.with_repeats() if (spread := trial.repeated) is not None]
    found = [(trial, spread) for trial, spread in found if trial.score is not None and math.isfinite(spread.mean)]
    if not found:
        return None
    names = [f"trial {trial.number}" for trial, _ in found]
    texts = [f"{human_number(trial.score)} in the search" for trial, _ in found]
    searched = _points("in the search", 0, names, [trial.score for trial, _ in found], texts)
    means = [f"mean of fresh seeds: {spread_text(spread)}" for _, spread in found]
    again = _points("mean of fresh seeds", 1, names, [spread.mean for _, spread in found], means, "diamond")
    widths = [0.0 if math.isnan(spread.half_width) else spread.half_width for _, spread in found]
    again["error_y"] = {"type": "data", "array": widths, "thickness": 1.5}
    note = (
        "The best of many trials owes part of its score to luck; fresh seeds show how much. Bars: 95 % intervals over "
        "three seeds or more. The winner stands first."
    )
    x = {"type": "category", "categoryarray": names, "range": [-0.5, len(names) - 0.5]}
    return Chart("Search and repeated seeds", "", "score", (searched, again), note, x)


def _importance_chart(shares: Mapping[str, float]) -> Chart | None:
    """How much each setting matters."""
    if not shares:
        return None
    names, numbers = [shown(name) for name in shares][::-1], list(shares.values())[::-1]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": numbers,
        "y": names,
        "text": [f"{share:.0%}" for share in numbers],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "marker": {"color": 0},
    }
    note = (
        "How much the best tenth of the trials differ from all in each setting, as shares of 1 (PED-ANOVA, Watanabe et "
        "al. 2023). What settings do only together is not seen."
    )
    x = {"tickformat": ".0%", "range": [0, max(0.1, 1.15 * max(numbers))]}
    y = {"type": "category", "categoryarray": names}
    return Chart("Importance of settings", "importance", "", (bars,), note, x, y)


def _slice_chart(results: StudyResults, name: str) -> Chart | None:
    """Score against one setting."""
    study = _optuna_study(results, [_score])
    trials = [trial for trial in study.get_trials(deepcopy=False, states=[_complete()]) if name in trial.params]
    if not trials:
        return None
    distribution, x = trials[0].distributions[name], [trial.params[name] for trial in trials]
    kind: dict[str, Any] = {"type": "log"} if getattr(distribution, "log", False) else {}
    if hasattr(distribution, "choices"):
        labels = [shown(str(choice)) for choice in distribution.choices]
        kind = {"type": "category", "categoryarray": labels, "range": [-0.5, len(labels) - 0.5]}
        x = [shown(str(value)) for value in x]
    texts = [_told(results, trial.number) for trial in trials]
    return Chart("", name, "score", (_points("trial", 0, x, [trial.value for trial in trials], texts),), x=kind)


def _costs(results: StudyResults, trials: Sequence[Any]) -> tuple[list[float], list[float], list[str]]:
    """Seconds and scores of trials, and what each says when pointed at."""
    seconds, scores = ([trial.values[place] for trial in trials] for place in (0, 1))
    return seconds, scores, [_told(results, trial.number) for trial in trials]


def _told(results: StudyResults, number: int) -> str:
    trial = results.trials[number]
    settings = [f"{name} {setting_text(value)}" for name, value in trial.settings.items()]
    return "\n".join([f"trial {number}", f"{human_number(trial.score)} in {human_duration(trial.seconds)}", *settings])


def _points(
    name: str, colour: int, x: Sequence[Any], y: Sequence[Any], texts: Sequence[str], symbol: str = "circle"
) -> dict[str, Any]:
    """A trace of marks, with what each says when pointed at."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "hovertext": [shown(text) for text in texts],
        "hoverinfo": "text",
        "marker": {"color": colour, "symbol": symbol, "size": 9},
    }


def _optuna_study(results: StudyResults, numbers: Sequence[Any]) -> Any:
    """The trials as a study in memory, with these numbers as their values; those that lack one are left failed."""
    optuna = optuna_module()
    directions = ["minimize" if each is _seconds or results.minimizes else "maximize" for each in numbers]
    study = optuna.create_study(directions=directions)
    for stored, trial in zip(results.stored, results.trials, strict=True):
        values = [each(trial) for each in numbers]
        is_whole = trial.state == "complete" and all(map(math.isfinite, values))
        state = optuna.trial.TrialState.COMPLETE if is_whole else optuna.trial.TrialState.FAIL
        settings = {"params": stored.params, "distributions": stored.distributions}
        made = optuna.trial.create_trial(state=state, values=values if is_whole else None, **settings)
        study.add_trial(made)
    return study


def _score(trial: TrialResult) -> float:
    return math.nan if trial.score is None else float(trial.score)


def _seconds(trial: TrialResult) -> float:
    return trial.seconds or math.nan


def _complete() -> Any:
    return optuna_module().trial.TrialState.COMPLETE


# --- learning curves of the best


def best_curves(results: StudyResults, runs_path: Path) -> list[Panel]:
    """Panels of the best trials' curves, over steps and over time; those with repeated seeds before the others."""
    repeated = results.with_repeats()
    best = [*repeated, *(trial for trial in results.ranked() if trial not in repeated)][:MOST_CURVES]
    groups, runs = [], []
    for trial in best:
        found = _runs_of(trial, runs_path)
        groups.append(Group([each.run for each in found], _label(trial)))
        runs += found
    return panels(groups, runs, Tables(), CurveSettings([results.metric]))


def _runs_of(trial: TrialResult, runs_path: Path) -> list[Configured]:
    """The runs of a trial whose configs can be read; where seeds are repeated, those alone, as luck chose the first."""
    names = [repeat.run for repeat in trial.repeats if repeat.score is not None]
    found = []
    for name in names or ([trial.run_path.name] if trial.run_path is not None else []):
        path = runs_path / name
        if path.parent == runs_path and not path.is_symlink():
            try:
                found.append(RunFiles(path))
            except RunError:
                continue
    return configured(found)[0]


def _label(trial: TrialResult) -> str:
    settings = [f"{name.rpartition('.')[2]} {setting_text(value)}" for name, value in trial.settings.items()]
    more = ", ..." if len(settings) > _MOST_SETTINGS else ""
    return f"trial {trial.number}: {', '.join(settings[:_MOST_SETTINGS])}{more}"


# --- the page


def report_page(results: StudyResults, drawn: Sequence[Chart], curves: Sequence[Panel], preset: str) -> bytes:
    """The report as one HTML page that follows the reader's choice of light or dark.

    `preset` is the text of the winner's file, empty where nothing has won yet.
    """
    themes: tuple[ThemeName, ...] = get_args(ThemeName)
    figures = {
        theme: [*(chart.figure(theme) for chart in drawn), *(curves_figure(panel, theme) for panel in curves)]
        for theme in themes
    }
    body = f"<h1>{_text(results.name)}</h1>{_facts(results)}{_winner(results, preset)}"
    body += places(len(drawn), notes=[chart.note for chart in drawn])
    if curves:
        legends = "".join(legend_list(curves, theme) for theme in themes)
        body += f"<h2>Learning curves of the best</h2>{legends}{places(len(curves), first=len(drawn))}"
    heads, cells = rows(results)
    table = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in cells)
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{table}</tbody></table>"
    body += f'<h2>Trials</h2><div class="wide">{table}</div>'
    lines = "".join(f"<li>{_text(line)}</li>" for line in [*failures(results), *results.notes])
    body += f"<h2>Failures and notes</h2><ul>{lines}</ul>" if lines else ""
    return html_page(figures, body, title=results.name)


def _facts(results: StudyResults) -> str:
    states = [trial.state for trial in results.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in get_args(TrialState) if state in states)
    texts = [results.world, f"score: {results.objective}", results.method, f"trials: {counts or 'none yet'}"]
    return f"<p>{' &middot; '.join(_text(text) for text in texts if text)}</p>"


def _winner(results: StudyResults, preset: str) -> str:
    winner = results.winner()
    if winner is None:
        return "<p>No trial has finished yet.</p>"
    file = f"<details><summary>winner.toml</summary><pre>{escape(printable(preset, keep=chr(10)))}</pre></details>"
    return f'<p class="winner">{_text(winner_line(winner))}</p>{file if preset else ""}'


def _text(text: str) -> str:
    return escape(printable(text))


# --- the winner as a preset, in the form of those that come with scramjet


def _preset(folder: Path, results: StudyResults, approval: Approval | None) -> tuple[str, list[str]]:
    """The text of the winner's preset, empty where there is none, and a note that says why."""
    winner = results.winner()
    if winner is None:
        return "", []
    try:
        config = trial_config(folder, winner, approval)
        return preset_text(config, preset_header(results, winner, config)), []
    except ScramjetError as error:
        return "", [f"no winner.toml was written: {error}"]


def preset_text(config: RunConfig, header: str) -> str:
    """The settings of `config` as a preset, below `header` as a comment.

    It holds what differs from the code's defaults, or from the world's own preset: so it is the same whether it is
    laid over that preset (`scramjet train --config FILE`) or takes its place.
    """
    wanted = _settings(config)
    usual = _settings(with_algorithm(RunConfig(env=config.env), config.algorithm))
    shipped = apply(starting_config(config.env), {"algorithm": config.algorithm}, "the winner")
    names = [*changes(usual, wanted), *changes(_settings(shipped), wanted)]
    flat = {name: _value(wanted, name) for name in dict.fromkeys(names)}
    settings = nested({name: "none" if value is None else value for name, value in flat.items()}, "the winner")
    tables = {name: value for name, value in settings.items() if isinstance(value, dict)}
    plain = {name: value for name, value in settings.items() if name not in tables}
    # Of the parameters in the world's preset, those that the winner leaves at their defaults are named too.
    defaults = parameter_defaults(config.env) or {}
    parameters = {name: defaults[name] for name in shipped.env_parameters if name in defaults} | config.env_parameters
    algorithm = {} if config.algorithm == "ppo" else {"algorithm": config.algorithm}
    if parameters:
        tables = {"env": {"name": config.env, **parameters}, **tables}
    else:
        plain = {"env": config.env, **plain}
    comment = "".join(f"# {line}\n" for line in textwrap.wrap(printable(header), 118))
    return comment + tomli_w.dumps({**algorithm, **plain, **tables})


def preset_header(results: StudyResults, winner: TrialResult, config: RunConfig) -> str:
    """What the winner reached, after how many steps, on which machine and when."""
    repeated = winner.repeated
    score = spread_text(repeated) if repeated is not None else f"{winner.score:.4g} (1 seed, not repeated)"
    world = config.env.replace("_", " ").capitalize() if config.env.isidentifier() else config.env
    seconds = f", {human_duration(winner.seconds)} of training" if winner.seconds else ""
    return (
        f"{world}: {results.objective} {score}, {human_count(config.total_timesteps)} steps{seconds} on "
        f"{machine()} ({date.today().isoformat()}). Trial {winner.number} of {len(results.trials)} of the study "
        f"{results.name}."
    )


def machine() -> str:
    """This machine in a few words: its cores and their kind."""
    cores = available_cores()
    return f"{_core_name()}, {cores} core{'s' if cores > 1 else ''}"


def _core_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return "a CPU"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "a CPU")[:60]


def _settings(config: RunConfig) -> dict[str, Any]:
    """The settings of a config that belong in a preset, as a file holds them."""
    return {name: value for name, value in to_dict(config).items() if name not in NOT_IN_A_PRESET}


def _value(settings: Mapping[str, Any], name: str) -> Any:
    table, _, key = name.rpartition(".")
    value = settings[table][key] if table else settings[name]
    return list(value) if isinstance(value, tuple) else value
