"""Makes the records that a display is given from a session: facts before the first update, a summary at the end."""

from __future__ import annotations

from typing import Any

from scramjet.adapters.library import TEXT_MODES
from scramjet.adapters.registry import ForeignWorld
from scramjet.engine.layout import PlayedBy
from scramjet.engine.privileged import is_privileged
from scramjet.executors import losses as own_losses
from scramjet.policies.networks import count_parameters
from scramjet.telemetry.metrics import VERSUS_RANDOM, Record
from scramjet.telemetry.progress import PhaseClock
from scramjet.training.components import world_note
from scramjet.training.config.run_config import RunConfig
from scramjet.training.display.interface import Hint, RunInfo, StoppedBy, Summary
from scramjet.training.display.statistics import search_findings, statistics_of
from scramjet.training.evaluation.results import Evaluation
from scramjet.training.persistence.metadata import DEFAULT_NETWORK, network_name
from scramjet.training.session import Session
from scramjet.training.worlds.world_files import shown_name


def run_info(session: Session) -> RunInfo:
    """The header of a run: its name, world, sizes and remarks."""
    config = session.config
    about_world, losses = world_note(session.pool, config.policy), own_losses.note(session.policy.network)
    processes = "" if session.ranks.is_alone else f"{session.ranks.size} processes"
    about_links = session.ranks.note if config.device == "cuda" else ""
    how = (
        processes,
        about_links,
        _mode_note(config),
        *_extras(session),
        session.learner.executor.note,
        session.pool.processes,
    )
    notes = *how, about_world, losses, session.note, session.run.lock_note
    return RunInfo(
        run_name=session.run.name,
        run_path=session.run.path,
        env=shown_name(config.env),
        num_envs=session.pool.num_envs * session.ranks.size,
        num_steps=session.rollout.num_steps,
        num_threads=int(config.num_threads),
        first_step=session.step_after(session.first_update),
        total_steps=session.step_after(session.num_updates),
        num_parameters=count_parameters(session.policy),
        note="; ".join(part for part in notes if part),
        device=str(config.device),
    )


def _extras(session: Session) -> list[str]:
    """What the run learns from, or by, beside what every run does, each in a few words."""
    config, notes = session.config, []
    if config.curiosity is not None:
        episodic = config.bonus.episodic
        notes.append(f"curiosity {config.curiosity}{f' times {episodic} within the episode' if episodic else ''}")
    if config.ppo.value_scale != "none":
        notes.append(f"{config.ppo.value_scale} values")
    if config.policy.value_bins is not None:
        notes.append(f"values in {config.policy.value_bins} bins")
    if config.ppo.target_entropy is not None:
        notes.append(f"target entropy {config.ppo.target_entropy:g}")
    if config.policy.noise_color:
        notes.append(f"noise color {config.policy.noise_color:g}")
    if is_privileged(session.pool.observation_space):
        notes.append("the critic sees more than the policy")
    return notes


def _mode_note(config: RunConfig) -> str:
    """How a run trains that searches or is asynchronous, in a few words; empty for others."""
    if config.traits.search:
        return f"{config.algorithm}: returns are by search, evaluations by the network alone"
    if config.mode == "sync":
        return ""
    actors = f"{config.num_actors} actor{'s' if config.num_actors != 1 else ''}{' each' * (config.num_processes > 1)}"
    actors += " of Ray" if config.actors == "ray" else ""
    return f"asynchronous, {actors}, {'APPO' if config.algorithm == 'ppo' else config.algorithm.upper()}"


def summary_of(
    session: Session,
    record: dict[str, Any],
    evaluation: Evaluation | None,
    clock: PhaseClock,
    stopped_by: StoppedBy | None,
    hints: tuple[Hint, ...],
) -> Summary:
    """The summary of a session that has ended; `record` is the last line of its metrics, `hints` still hold."""
    trained = record["step"] - session.step_after(session.first_update)
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
        versus=record if record.get(VERSUS_RANDOM) is not None else None,
        rating=record.get("self_play/rating"),
        evaluation=evaluation.as_dict() if evaluation else None,
        stopped_by=stopped_by,
        stop_reason=session.stop_reason or "",
        env=session.config.env,
        is_own_network=network_name(session.policy.network) != DEFAULT_NETWORK,
        is_replay=session.config.replay_schedule is not None,
        num_restarts=session.pool.restarts,
        statistics=evaluation.stats if evaluation else _recent_statistics(session, record),
        search=search_findings(record),
        hints=hints,
        can_be_watched=_can_be_watched(session),
        is_game=session.pool.played_by is PlayedBy.SEATS and session.pool.num_players > 1,
    )


def _can_be_watched(session: Session) -> bool:
    """Whether `scramjet eval --render` draws the world of a run: a native one, or single envs that can be told how."""
    world = session.config.make_env()
    if not isinstance(world, ForeignWorld):
        return True
    can_be_told = world.makes_single_envs and world.takes_render_mode
    return can_be_told and not set(TEXT_MODES).isdisjoint(session.pool.render_modes)


def _recent_statistics(session: Session, record: Record) -> dict[str, float]:
    """The statistics that a display showed last, but for a search's, which has a line of its own."""
    others = {key: value for key, value in record.items() if not key.startswith(("search/", "versus/"))}
    shown = statistics_of(others, session.progress.statistics)
    return {name: value for name, value in shown.items() if value is not None}
