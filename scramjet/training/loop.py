"""Training, from start to end. Read `train_session` first: its body is the training loop, every call in it one stage.

collect   play a rollout with the policy                          collector.py
prepare   advantages and returns of the rollout, as a batch       learner.py
update    gradient steps on minibatches of the batch              learner.py, algorithms/ppo.py
evaluate  play episodes with the policy, if due                   evaluations.py
record    metrics.jsonl and the display                           telemetry/, display/
save      a checkpoint, if due                                    state.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from torch import nn

from scramjet.distributed.ranks import failing_together
from scramjet.envs.registry import stop_if_being_read
from scramjet.runs.results import Evaluation
from scramjet.runtime.devices import memory_errors_explained
from scramjet.runtime.logs import RunLog
from scramjet.runtime.ranks.environment import RANK_TIMEOUT, is_first_rank
from scramjet.runtime.ranks.joining import joined
from scramjet.settings import coerce
from scramjet.telemetry.progress import PhaseClock
from scramjet.telemetry.tracking.background import Tracking
from scramjet.training import start
from scramjet.training.agreement import Together
from scramjet.training.callbacks import Callbacks
from scramjet.training.config.keyword_types import Settings
from scramjet.training.config.run_config import RunConfig
from scramjet.training.display import (
    Display,
    LoggedDisplay,
    Mode,
    QuietDisplay,
    Screen,
    StoppedBy,
    compilation_shown,
    make_display,
)
from scramjet.training.display.summary import Hints, run_info, summary_of
from scramjet.training.evaluations import RunEvaluations
from scramjet.training.pictures.recording import RunVideos
from scramjet.training.result import TrainResult, result_of
from scramjet.training.resume import joined_notes
from scramjet.training.session import Session
from scramjet.training.start import after_restart
from scramjet.training.state import Saver
from scramjet.training.stopping import Stopping

if TYPE_CHECKING:
    from scramjet.adapters.objects import World


def train(
    config: RunConfig | World | None = None,
    *,
    env: World | None = None,
    resume: str | PathLike[str] | None = None,
    fork: str | PathLike[str] | None = None,
    runs_dir: str | Path = "runs",
    run_name: str | None = None,
    network: nn.Module | None = None,
    display: Mode = "auto",
    total_timesteps: int | float | str | None = None,
    time_limit: str | None = None,
    trust: bool = False,
    callbacks: Iterable[Any] = (),
    rank_timeout: float = RANK_TIMEOUT,
    **settings: Unpack[Settings],
) -> TrainResult:
    """Train an agent, as `scramjet train` does, and return what came of it.

        train("cartpole", seed=2, learning_rate=1e-3, policy={"hidden": [32]})
        train(MyWorld, total_timesteps="2M", env_parameters={"gravity": 12})
        train(resume="runs/cartpole-1", total_timesteps="2M")
        train(fork="runs/cartpole-1/checkpoints/best", learning_rate=1e-4)

    config: A world, trained with its preset; or a TOML or YAML file; or a RunConfig. A world is a name, a file or an
        object: a class or instance of `scramjet.Env`, a Gymnasium env, its class, or a function that makes one.
    env: The world, where `config` says the rest; or that of a run that is resumed, where it is in no file or module,
        as a notebook's is.
    resume: Go on with this run exactly where it stopped; only `total_timesteps`, `time_limit`, `track` and
        `ray_address` may change then.
    fork: Start a new run from this checkpoint, or from a run's newest one.
    runs_dir: The folder that holds the runs.
    run_name: The name of the run's folder; by default the world's name and a number.
    network: A torch module of your own in place of the default network.
    display: What to show: "live", "plain", "quiet", or "auto": live in a terminal, plain lines elsewhere.
    total_timesteps: Env steps to train for: a number, or text such as "500K".
    time_limit: Stop after this much time, such as "30s", "5m" or "2h"; the run can be resumed.
    trust: Let a run, checkpoint or file of somebody else name a world in a file or module, which runs it.
    callbacks: Objects that are called while it trains, see `scramjet.Callback`.
    rank_timeout: Under a launcher such as torchrun, where all processes train one run: seconds without a sign of life
        after which one of them counts as lost.
    settings: All other settings by the names of their flags, see `scramjet.Settings`. They are laid over the config.
    """
    stop_if_being_read()
    mode, called = coerce("display", display, Mode), Callbacks(callbacks)
    with contextlib.ExitStack() as stack:
        screen = stack.enter_context(contextlib.closing(make_display(mode if is_first_rank() else "quiet")))
        stack.enter_context(compilation_shown(screen))
        stack.enter_context(memory_errors_explained())
        limit = coerce("rank_timeout", rank_timeout, float)
        ranks = stack.enter_context(joined(timeout=limit, before_exit=screen.close))
        request = start.StartRequest(
            config=config,
            env=env,
            resume=coerce("resume", resume, Path | None),
            fork=coerce("fork", fork, Path | None),
            runs_dir=coerce("runs_dir", runs_dir, Path),
            run_name=coerce("run_name", run_name, str | None),
            network=coerce("network", network, nn.Module | None),
            total_timesteps=total_timesteps,
            time_limit=time_limit,
            trust=coerce("trust", trust, bool),
            settings=settings,
            ranks=ranks,
        )
        session = start.begin(after_restart(request))
        ranks.began(session.run.shared_path)
        session.note = joined_notes(session.note, ranks.note if session.config.device == "cuda" else "")
        with session.run, contextlib.closing(session):
            return train_session(session, LoggedDisplay(screen, RunLog(session.run.path)), called)


def train_session(session: Session, display: Display, callbacks: Callbacks) -> TrainResult:
    """Train a session until its last update, or until a signal, a callback or the time limit stops it.

    Where several ranks train it, each runs this loop on its own envs: they exchange gradients as they learn, and what
    `together` tells. Rank 0 alone writes the run's folder, shows it, evaluates and calls callbacks.
    """
    config, learner, collector = session.config, session.learner, session.collector
    if not session.ranks.is_first:
        display, callbacks = QuietDisplay(), Callbacks()
    together = Together(session)
    clock, stopping = PhaseClock(session.elapsed_seconds), Stopping(session, display)
    evaluations, hints = RunEvaluations(session, display, stopping), Hints(session, display)
    stopped_by: StoppedBy | None = None
    evaluation: Evaluation | None = None
    record: dict[str, Any] = {}
    if session.ranks.is_first:
        session.sinks.append(Screen(display, session.news))
    if config.track:  # after the screen, so that it is closed before, and its last messages are shown
        steps = session.step_after(session.first_update), session.step_after(session.num_updates)
        session.sinks.append(Tracking(config.track, session.run, *steps, session.news.append, display.event))
    display.start(run_info(session))
    callbacks.start(session)
    with stopping, Saver(session, display, clock) as saver, RunVideos(session, display, clock) as videos:
        for update in range(session.first_update + 1, session.num_updates + 1):
            step = session.step_after(update)
            with clock.phase("rollout"):
                rollout = together.collect(stopping.breaks_off if record else None)
            if rollout is None:  # asked to stop while it waited for envs
                stopped_by = stopping.reason()
                saver.save_if_due(update - 1, None, is_last=True)
                break
            with clock.phase("prepare"):
                batch = learner.prepare(rollout)
            with clock.phase("learn"):
                metrics = learner.update(batch, step - config.batch_size)
                collector.learned(update, step)
                episodes, collected = together.report(update)
            with clock.phase("evaluate"):
                evaluation = evaluations.evaluate_if_due(update)
            record = {"update": update, "step": step, **session.progress.add(episodes), **metrics, **collected}
            record |= evaluations.metrics(evaluation) | {"time": clock.read(config.batch_size)}
            record |= callbacks.update(record, evaluation, session)
            for sink in session.sinks:
                callbacks.give(sink, record, session)
            hints.give(record, evaluation)
            stopped_by = stopping.reason() if update < session.num_updates else None
            with clock.phase("checkpoint"):
                is_last = update == session.num_updates or stopped_by is not None
                saver.save_if_due(update, evaluation, is_last=is_last)
                videos.record_if_due(update)
            if stopped_by:
                break
        with failing_together(session.ranks):
            videos.finish(is_stopped=stopped_by is not None)
            callbacks.saved(session)
            callbacks.raise_failure(session, is_finished=stopped_by is None)
            display.finish(summary_of(session, record, evaluation, clock, stopped_by, hints.holding))
            result = result_of(session, record, evaluation, stopped_by, stopping.exit_code)
            callbacks.end(result, session)
        return result
