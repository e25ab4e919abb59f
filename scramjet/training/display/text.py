"""Text of the displays: numbers in readable form, the characters of the view, commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scramjet.adapters.factories import must_be_given, name_to_give
from scramjet.adapters.registry import is_foreign, registration
from scramjet.algorithms.intervals import mean_half_width, share_half_width
from scramjet.telemetry.metrics import Record
from scramjet.telemetry.readable import human_count, human_duration, human_number, short_path
from scramjet.training.display.interface import Hint, RunInfo, Summary


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of the view, in a richer and a plainer set."""

    levels: str  # heights of a bar, lowest first
    done: str
    todo: str
    phases: str  # one fill for each phase of PHASES
    dot: str
    times: str
    plus_minus: str
    warning: str
    mark: str  # an evaluation on the curve of returns
    tick: str  # the side of a chart where a label stands
    side: str
    corner: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "━", "─", "█▓▒░·", "·", "×", "±", "▲", "●", "┤", "│", "└")
ASCII = Glyphs("_.-:=+*#", "#", "-", "#=+-.", "|", "x", "+-", "!", "o", "+", "|", "+")

PHASES = (
    ("rollout", "rollout_seconds", "cyan"),
    ("prepare", "prepare_seconds", "yellow"),
    ("learn", "learn_seconds", "magenta"),
    ("evaluate", "evaluate_seconds", "green"),
    ("checkpoint", "checkpoint_seconds", "blue"),
)  # name, key in a record's "time", colour

DIAGNOSTICS = (
    ("policy loss", "policy_loss"),
    ("approx kl", "approx_kl"),
    ("explained var", "explained_variance"),
    ("value loss", "value_loss"),
    ("clip fraction", "clip_fraction"),
    ("grad norm", "grad_norm"),
    ("entropy", "entropy"),
    ("epochs", "epochs"),
    ("learning rate", "learning_rate"),
)  # label, key; row by row in three columns
ASYNC_DIAGNOSTICS = (
    ("policy lag", "async/policy_lag_mean"),
    ("learner idle", "async/learner_idle"),
    ("actors idle", "async/actors_idle"),
)  # shown where actors play beside the learner
CURIOSITY_DIAGNOSTICS = (
    ("bonus", "bonus/mean"),
    ("bonus loss", "bonus/loss"),
    ("bonus val loss", "bonus/value_loss"),
)  # shown where curiosity pays bonuses
SEARCH_DIAGNOSTICS = (
    ("moves changed", "search/changed"),
    ("eff particles", "search/effective_particles"),
    ("temperature", "spo/temperature"),
    ("target kl", "spo/kl"),
    ("alpha", "spo/alpha"),
)  # shown where a search plays


def next_commands(summary: Summary) -> list[tuple[str, str]]:
    """The commands to type after a run, as (purpose, command)."""
    run = short_path(summary.run_path)
    checkpoints = Path(summary.run_path) / "checkpoints"
    has_only_latest = (checkpoints / "latest").exists() and not (checkpoints / "best").exists()
    checkpoint = shlex.quote(f"{run}/checkpoints/{'latest' if has_only_latest else 'best'}")
    if _is_for_python(summary):
        return _next_in_python(summary, run)
    run = shlex.quote(run)
    further = f" --total-timesteps {2 * summary.step}" if summary.stopped_by is None else ""
    go_on = f"scramjet train --resume {run}{further}"
    evaluate = [("evaluate it", f"scramjet eval {run} --episodes 100")]
    watch = [("watch it", f"scramjet eval {run} --render")] if summary.can_be_watched else []
    if summary.rating is not None or summary.is_game:
        evaluate = [("measure it", f"scramjet eval {run} --against random --games 1000")]
        watch = [] if is_foreign(summary.env) else [("play against it", f"scramjet play {run}")]
    folder = Path(short_path(summary.run_path)).parent
    serve = "scramjet serve" if str(folder) == "runs" else f"scramjet serve --runs-dir {shlex.quote(str(folder))}"
    further_on = [("finish it" if summary.stopped_by else "train it further", go_on)]
    return [
        *evaluate,
        *watch,
        ("see it in the browser", serve),
        *(further_on if not summary.is_replay else []),
        ("start another from it", f"scramjet train --fork {checkpoint} --learning-rate 1e-4{further}"),
    ]


def hint_commands(summary: Summary) -> list[tuple[str, str]]:
    """What to type after a run because of its hints, as (hint, command); the line to write where only Python can."""
    return [(f"hint: {hint.finding}; {_aim(hint)}", _hint_command(hint, summary)) for hint in summary.hints]


def _aim(hint: Hint) -> str:
    return "evaluate with drawn actions" if hint.setting == "eval.samples" else "try another setting in a new run"


def _hint_command(hint: Hint, summary: Summary) -> str:
    run = short_path(summary.run_path)
    config = f"{run}/config.toml"
    if _is_for_python(summary):
        if hint.setting == "eval.samples":
            return f"scramjet.evaluate({', '.join([repr(run), *_given(summary), 'samples=True'])})"
        table, _, name = hint.setting.rpartition(".")
        setting = f"{table}={{{name!r}: {hint.value!r}}}" if table else f"{name}={hint.value!r}"
        return f"scramjet.train({', '.join([repr(config), *_given(summary), setting])})"
    if hint.setting == "eval.samples":
        return f"scramjet eval {shlex.quote(run)} --samples"
    return f"scramjet train --config {shlex.quote(config)} --{hint.setting} {hint.value}"


def _is_for_python(summary: Summary) -> bool:
    """Whether only a program can go on with a run: it alone knows the network or the world."""
    return summary.is_own_network or must_be_given(summary.env) or bool(registration(summary.env))


def _next_in_python(summary: Summary, run: str) -> list[tuple[str, str]]:
    """The Python lines to write after a run whose network or world is only known in a program, as (purpose, line)."""
    given = _given(summary)
    longer = [f"total_timesteps={2 * summary.step}"] * (summary.stopped_by is None)
    registered = registration(summary.env)
    where = f", from Python after {registered}" if registered else ", from Python"
    further = "finish it" if summary.stopped_by else "train it further"
    return [
        (f"evaluate it{where}", f"scramjet.evaluate({', '.join([repr(run), *given])})"),
        (f"{further}{where}", f"scramjet.train({', '.join([f'resume={run!r}', *given, *longer])})"),
    ]


def _given(summary: Summary) -> list[str]:
    """The arguments that such a program has to give again."""
    return ["network=..."] * summary.is_own_network + [f"env={name_to_give(summary.env)}"] * must_be_given(summary.env)


def shell_lines(command: str, width: int) -> list[str]:
    """A command in lines of at most `width` characters, broken before flags with a backslash as shells allow."""
    lines = [f"  {command}"]
    while len(lines[-1]) > width:
        last, first_cut = lines[-1], 5  # past the indent, whose end looks like a cut too
        cut = max(last.rfind(" --", first_cut, width + 1), 0) or last.find(" --", first_cut)
        if cut < 0:
            break
        lines[-1:] = [last[:cut] + " \\", "   " + last[cut:]]
    return lines


def summary_rows(summary: Summary, glyphs: Glyphs) -> list[tuple[str, str]]:
    """The result of a run, as (label, value)."""
    rows = _result_rows(summary, glyphs)
    if summary.search:
        rows.append(("search", ", ".join(_first_that_fit(summary.search))))
    if summary.statistics:
        rows.append(("statistics", ", ".join(_first_that_fit(summary.statistics))))
    pace = f"{human_count(summary.steps_per_second)} steps/s{' between evaluations' * bool(summary.evaluation)}"
    took = f"in {human_duration(summary.seconds)}"
    now = "" if summary.trained == summary.step else f"; {summary.trained:,} now,"
    rows.append(("steps", f"{summary.step:,}{now} {took} ({pace})"))
    if summary.num_restarts:
        rows.append(("restarts", f"{summary.num_restarts:,} of envs that failed"))
    rows.append(("run", short_path(summary.run_path)))
    return rows


def _result_rows(summary: Summary, glyphs: Glyphs) -> list[tuple[str, str]]:
    """What a run has reached: returns, or in games for several, where these say nothing, rating and win rates."""
    is_told = summary.return_100 is not None
    how = ", played by search" if summary.search else ""
    told = "fewer episodes finished than play at once" if summary.recent_episodes else "no episode finished"
    over = f"{human_number(summary.return_100)} over the last {summary.recent_episodes} episodes{how}"
    rows = [] if summary.versus is not None and is_told else [("return", over if is_told else told)]
    if summary.rating is not None:
        best = "" if summary.best_return is None else f", best {human_number(summary.best_return)}"
        rows = [("rating", f"{human_number(summary.rating)} by recent games against the pool{best}")]
    elif summary.best_return is not None and summary.versus is None:
        judged = " in an evaluation" if summary.evaluation else ""
        rows.append(("best return", f"{human_number(summary.best_return)}{judged}"))
    alone = " (network alone)" if summary.search else ""
    if summary.versus is not None:
        rows += [("win rate", f"{part}{alone}") for part in versus_lines(summary.versus, glyphs)]
    elif summary.evaluation:
        rows.append(("evaluation", f"{evaluation_line(summary.evaluation, glyphs)}{alone}"))
    return rows


def versus_lines(record: Record, glyphs: Glyphs) -> list[str]:
    """The win rates of a record in words, each with its 95 % interval."""
    games = int(record["versus/games"])
    texts = []
    for key, opponent in (("versus/random", "random moves"), ("versus/first", "its first self")):
        share, over = record[key], f"over {games:,} games"
        width = human_number(share_half_width(share, games))
        texts.append(f"{human_number(share)} {glyphs.plus_minus} {width} vs {opponent} {over}")
    return texts


def _first_that_fit(statistics: Mapping[str, float], width: int = 60) -> list[str]:
    """Statistics as "solved 0.97", as many from the first on as one line takes."""
    texts: list[str] = []
    for name, value in statistics.items():
        text = f"{name} {human_number(value)}"
        if len(", ".join([*texts, text])) > width:
            break
        texts.append(text)
    return texts


def summary_title(summary: Summary) -> str:
    """Such as "cartpole-7: finished", "cartpole-7: stopped by Ctrl-C"."""
    reasons = {
        "ctrl-c": "stopped by Ctrl-C",
        "sigterm": "stopped by SIGTERM",
        "sighup": "stopped when its terminal closed",
        "time limit": "time limit reached",
        "callback": f"stopped by a callback{': ' * bool(summary.stop_reason)}{summary.stop_reason}",
    }
    return f"{summary.run_name}: {reasons[summary.stopped_by] if summary.stopped_by else 'finished'}"


def evaluation_line(evaluation: Record, glyphs: Glyphs) -> str:
    """An evaluation in one line, from a result or from a record's "eval/" keys; ± is a 95 % interval of the mean."""
    mean, std, length, episodes = (
        evaluation.get(f"eval/{key}", evaluation.get(key))
        for key in ("mean_return", "std_return", "mean_length", "episodes")
    )
    text = human_number(mean)
    if mean is not None and std is not None and episodes is not None and episodes > 1:
        std = 0.0 if std < 1e-9 * abs(mean) else std  # what rounding left of equal returns
        text += f" {glyphs.plus_minus} {human_number(mean_half_width(std, int(episodes)))}"
    if episodes is not None:
        text += f" over {episodes:.0f} episode{'s' * (episodes != 1)}"
    if length is not None:
        text += f", length {human_number(length)}"
    cut = evaluation.get("eval/cut_episodes", evaluation.get("cut_episodes"))
    return f"{text}, {cut:.0f} cut" if cut else text


def size_of(info: RunInfo, glyphs: Glyphs) -> list[str]:
    """The run's size in words: envs and steps, parameters, threads."""
    threads = f"{info.num_threads} thread{'s' if info.num_threads != 1 else ''}"
    sizes = f"{info.num_envs:,} envs {glyphs.times} {info.num_steps:,} steps"
    return [sizes, f"{human_count(info.num_parameters)} parameters", threads]
