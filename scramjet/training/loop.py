"""Training, from start to end. `train_session` is the whole of it; everything it calls is one stage."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium
from torch import nn

from scramjet.accelerate import own_losses
from scramjet.engine.worlds.hanging import what_hangs
from scramjet.envs.registry import stop_if_being_read
from scramjet.errors import ScramjetError
from scramjet.policies.networks import count_parameters
from scramjet.runtime.background import Background
from scramjet.runtime.machine.devices import memory_errors_explained
from scramjet.runtime.signals import StopSignal
from scramjet.settings import coerce
from scramjet.training import start
from scramjet.training.best import Best, is_new_best
from scramjet.training.callbacks import Callbacks
from scramjet.training.config.run_config import RunConfig
from scramjet.training.display import Display, Mode, RunInfo, StoppedBy, Summary, make_display
from scramjet.training.display.compilation import compilation_shown
from scramjet.training.display.statistics import statistics_of
from scramjet.training.evaluation import Evaluation
from scramjet.training.evaluation_limits import SHORT_EVALUATION, GraceTime, ProgressLine, cuts_text
from scramjet.training.persistence.state import DEFAULT_NETWORK, checkpoint_of, network_name
from scramjet.training.result import TrainResult, result_of
from scramjet.training.seeds import evaluation_episodes
from scramjet.training.session import Session, make_evaluator
from scramjet.training.telemetry.progress import PhaseClock
from scramjet.training.worlds.notes import world_note
from scramjet.training.worlds.places import shown_name

_STOPPED_BY: dict[signal.Signals, StoppedBy] = {
    signal.SIGINT: "ctrl-c",
    signal.SIGTERM: "sigterm",
    signal.SIGHUP: "sighup",
}


def train(
    config: RunConfig | str | Path | None = None,
    *,
    env: str | Callable[[], gymnasium.Env] | None = None,
    resume: str | Path | None = None,
    fork: str | Path | None = None,
    runs_dir: str | Path = "runs",
    run_name: str | None = None,
    network: nn.Module | None = None,
    display: Mode = "auto",
    total_timesteps: int | str | None = None,
    time_limit: str | None = None,
    trust: bool = False,
    callbacks: Iterable[Any] = (),
    **settings: Any,
) -> TrainResult:
    """Train an agent: the command `scramjet train` from Python.

    `config` is a RunConfig, the name or file of a world (trained with its preset), or a TOML or YAML file. `env` is the
    world in its place: a name, or a function that makes a Gymnasium env, to be given again when such a run is resumed
    and the function is not in a module. `resume` goes on with a run exactly where it stopped; `total_timesteps` and
    `time_limit` may change then, nothing else. `fork` starts a new run from a checkpoint. `network` replaces the
    default network. `trust` lets a run, checkpoint or file of somebody else name a world in a file or module, which
    runs it. `callbacks` are called while it trains (see `Callback`). `settings` are laid over the config, by the names
    of the flags: `seed=2, learning_rate=1e-3, policy={"hidden": [32]}, env_parameters={"gravity": 12}`.
    """
    stop_if_being_read()
    display, called = coerce("display", display, Mode), Callbacks(callbacks)
    with contextlib.closing(make_display(display)) as screen, compilation_shown(screen), memory_errors_explained():
        session = start.begin(
            config,
            env=env,
            resume=resume,
            fork=fork,
            runs_dir=coerce("runs_dir", runs_dir, Path),
            run_name=run_name,
            network=network,
            total_timesteps=total_timesteps,
            time_limit=time_limit,
            trust=trust,
            settings=settings,
        )
        with session.run, session.metrics_log, contextlib.closing(session):
            try:
                return train_session(session, screen, called)
            finally:
                _tell_news(session, screen)


def train_session(session: Session, display: Display, callbacks: Callbacks) -> TrainResult:
    """The loop: collect a rollout, learn from it, tell, save; until the end, a signal, a callback or the time limit."""
    config, learner, collector = session.config, session.learner, session.collector
    clock, started = PhaseClock(session.elapsed_seconds), time.perf_counter()
    num_updates = start.num_updates(session)
    stopped_by: StoppedBy | None = None
    evaluation: Evaluation | None = None
    record: dict[str, Any] = {}
    display.start(_run_info(session))
    callbacks.start(session)
    signals = StopSignal(notify=display.event, before_exit=display.close, describe=what_hangs)
    with signals as stop, Background[str]() as saves:
        for update in range(session.first_update + 1, num_updates + 1):
            step = session.first_step + update * config.batch_size
            with clock.phase("rollout"):
                rollout = collector.collect(stop.was_requested if record else None)
            if rollout is None:  # asked to stop while it waited for envs
                stopped_by = _reason_to_stop(session, stop, started)
                done = update - 1, step - config.batch_size
                _save_if_due(session, *done, clock, display, None, saves, is_last=True)
                break
            with clock.phase("prepare"):
                batch = learner.prepare(rollout)
            with clock.phase("learn"):
                metrics = learner.update(batch, step - config.batch_size)
                collector.learned()
            with clock.phase("evaluate"):
                ends_at = _deadline(started, config)
                evaluation = _evaluate_if_due(session, update, step, num_updates, display, stop, ends_at)
            record = {"update": update, "step": step, **session.progress.add(collector.episodes()), **metrics}
            _hint_at_samples(session, evaluation, display)
            record.update(collector.metrics())
            record.update(_evaluation_metrics(evaluation), time=clock.read(config.batch_size))
            record.update(callbacks.update(record, evaluation, session))
            session.metrics_log.append(record)
            _tell_news(session, display)
            display.record(record)
            stopped_by = _reason_to_stop(session, stop, started) if update < num_updates else None
            with clock.phase("checkpoint"):
                is_last = update == num_updates or stopped_by is not None
                _save_if_due(session, update, step, clock, display, evaluation, saves, is_last=is_last)
            if stopped_by:
                break
        callbacks.saved(session)
        callbacks.raise_failure(session, is_finished=stopped_by is None)
        display.finish(_summary(session, record, evaluation, clock, stopped_by))
        result = result_of(session, record, evaluation, stopped_by, stop.exit_code)
        callbacks.end(result, session)
        return result


def _tell_news(session: Session, display: Display) -> None:
    while session.news:  # other threads may add to it
        display.event(session.news.popleft())


def _evaluate_if_due(
    session: Session, update: int, step: int, num_updates: int, display: Display, stop: StopSignal, ends_at: float
) -> Evaluation | None:
    """An evaluation every so many updates, and a longer one after the last; a signal or the time limit ends either."""
    settings = session.config.eval
    is_final = update == num_updates and settings.final_episodes > 0
    if not is_final and not (settings.every and update % settings.every == 0):
        return None
    seeds = evaluation_episodes(session.config.seed, step)
    with contextlib.ExitStack() as afterwards:
        evaluator = session.evaluator
        if is_final:
            display.event(f"evaluating over {settings.final_episodes:,} episodes")
            evaluator = make_evaluator(session.config, episodes=settings.final_episodes, beside=session.pool)
            evaluator.pool.tell(session.news.append)
            afterwards.callback(evaluator.pool.close)
        # One within a run goes on for a moment, so that a run stopped in a short one is the run that was never stopped.
        asked = GraceTime(stop.was_requested, ends_at, seconds=0.0 if is_final else SHORT_EVALUATION)
        report = afterwards.enter_context(contextlib.closing(ProgressLine(display.progress)))
        evaluation = evaluator.unless(asked, session.policy, seeds, report)
    if evaluation is None:
        display.event(f"the evaluation at step {step:,} was ended before its last episode, and counts for nothing")
    elif evaluation.cut_episodes and (is_final or not session.has_told_of_cuts):
        session.has_told_of_cuts = True
        display.event(cuts_text(evaluation, evaluator.max_steps))
    return evaluation


def _hint_at_samples(session: Session, evaluation: Evaluation | None, display: Display) -> None:
    """Say once that the most likely actions do far worse than drawn ones: they may run in circles."""
    progress = session.progress
    if evaluation is None or session.has_hinted_at_samples or session.config.eval.samples or not progress.is_settled:
        return
    if evaluation.is_far_below(progress.mean_return, progress.std_return, len(progress.returns)):
        session.has_hinted_at_samples = True
        display.event(
            f"the most likely actions return {evaluation.mean_return:.2f} and drawn ones {progress.mean_return:.2f}: "
            f"greedy play may run in circles; --eval.samples evaluates with drawn actions"
        )


def _evaluation_metrics(evaluation: Evaluation | None) -> dict[str, Any]:
    if evaluation is None:
        return {}
    plain = evaluation.as_dict()
    stats = {f"eval/stat/{name}": value for name, value in plain.pop("stats").items()}
    return {f"eval/{name}": value for name, value in plain.items()} | stats


def _save_if_due(
    session: Session,
    update: int,
    step: int,
    clock: PhaseClock,
    display: Display,
    evaluation: Evaluation | None,
    saves: Background[str],
    *,
    is_last: bool,
) -> None:
    """A checkpoint every so many updates, at a new best, and at the end; written while training goes on.

    One that cannot be written is told, and the next one tried when it is due; the last one must be written.
    """
    settings, progress = session.config.checkpoint, session.progress
    is_due = is_last or (settings.every > 0 and update % settings.every == 0)
    judged_by_episodes = session.config.eval.every == 0 and is_due and progress.is_settled
    judged = evaluation or (progress if judged_by_episodes else None)
    candidate = None if judged is None else Best(judged.mean_return, judged.lower_bound)
    is_best = candidate is not None and is_new_best(candidate, session.best)
    best_before = session.best
    if candidate is not None and is_best:
        session.best = candidate
        display.event(f"new best: mean return {candidate.mean_text} at step {step:,}")
    news = saves.finished()
    if is_due or is_best:
        save = checkpoint_of(session, update=update, step=step, elapsed_seconds=clock.elapsed, is_best=is_best)
        best_now = session.best
        news += saves.start(lambda: _outcome(session, save, best_before, best_now, is_last=is_last))
    if is_last:
        news += saves.wait()
    for text in news:
        display.event(text)


def _outcome(
    session: Session, save: Callable[[], Path], best_before: Best | None, best_now: Best | None, *, is_last: bool
) -> str:
    """Save a checkpoint and say how it went; one that could not be saved is not the best."""
    try:
        path = save()
        session.saved.append(path)
        return f"saved {path.name}"
    except ScramjetError as error:
        if is_last:
            raise
        if session.best is best_now:
            session.best = best_before  # no checkpoint holds the new one
        return f"not saved: {error} (training goes on, and the next checkpoint is tried when it is due)"


def _reason_to_stop(session: Session, stop: StopSignal, started: float) -> StoppedBy | None:
    if stop.requested is not None:
        return _STOPPED_BY[signal.Signals(stop.requested)]
    if session.stop_reason is not None:
        return "callback"
    return "time limit" if time.perf_counter() >= _deadline(started, session.config) else None


def _deadline(started: float, config: RunConfig) -> float:
    """When the time limit is reached, by `time.perf_counter`."""
    limit = config.time_limit_seconds
    return math.inf if limit is None else started + limit


def _run_info(session: Session) -> RunInfo:
    config = session.config
    about_world, losses = world_note(session.pool, config.policy), own_losses.note(session.policy.network)
    notes = _mode_note(config), session.pool.processes, about_world, losses, session.note, session.run.lock_note
    return RunInfo(
        run_name=session.run.name,
        run_path=session.run.path,
        env=shown_name(config.env),
        num_envs=session.pool.num_envs,
        num_steps=session.rollout.num_steps,
        num_threads=int(config.num_threads),
        first_step=session.first_step + session.first_update * config.batch_size,
        total_steps=session.first_step + start.num_updates(session) * config.batch_size,
        num_parameters=count_parameters(session.policy),
        note="; ".join(part for part in notes if part),
        device=str(config.device),
    )


def _mode_note(config: RunConfig) -> str:
    if config.mode == "sync":
        return ""
    actors = f"{config.num_actors} actor{'s' if config.num_actors != 1 else ''}"
    return f"asynchronous, {actors}, {'APPO' if config.ppo.loss == 'ppo' else 'IMPALA'}"


def _summary(
    session: Session,
    record: dict[str, Any],
    evaluation: Evaluation | None,
    clock: PhaseClock,
    stopped_by: StoppedBy | None,
) -> Summary:
    trained = record["step"] - session.first_step - session.first_update * session.config.batch_size
    seconds = clock.elapsed - session.elapsed_seconds
    return Summary(
        run_path=session.run.path,
        run_name=session.run.name,
        step=record["step"],
        seconds=seconds,
        trained=trained,
        steps_per_second=trained / max(seconds - clock.evaluating, 1e-9),
        return_100=record["return_100"],
        recent_episodes=len(session.progress.returns),
        best_return=None if session.best is None else session.best.mean_return,
        evaluation=evaluation.as_dict() if evaluation else None,
        stopped_by=stopped_by,
        stop_reason=session.stop_reason or "",
        env=session.config.env,
        is_own_network=network_name(session.policy.network) != DEFAULT_NETWORK,
        is_replay=session.config.replay_schedule is not None,
        num_restarts=session.pool.restarts,
        statistics=evaluation.stats if evaluation else statistics_of(record),
    )
