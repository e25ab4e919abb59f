"""What a display is told of a session: facts before the first update, hints while it trains, a summary at the end."""

from __future__ import annotations

from typing import Any

from scramjet.adapters.library import TEXT_MODES
from scramjet.adapters.registry import ForeignWorld
from scramjet.adapters.world_code import code_of
from scramjet.engine.layout import PlayedBy
from scramjet.engine.privileged import is_privileged
from scramjet.executors import losses as own_losses
from scramjet.policies.networks import count_parameters
from scramjet.runs.metadata import DEFAULT_NETWORK, network_name
from scramjet.runs.results import Evaluation
from scramjet.runs.world_files import shown_name
from scramjet.telemetry.metrics import VERSUS_RANDOM, Record
from scramjet.telemetry.progress import PhaseClock
from scramjet.telemetry.readable import human_number
from scramjet.training.components import world_note
from scramjet.training.config.run_config import RunConfig
from scramjet.training.display.history import search_findings, statistics_of
from scramjet.training.display.interface import Display, Hint, RunInfo, StoppedBy, Summary
from scramjet.training.session import Session


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


# --- hints while a run trains: what a user sees has a cause that another setting removes


UPDATES_WITHOUT_REWARD = 20
"""Updates without any reward before it is said."""
STEPS_OF_NEW = 1_000
"""Steps before it is said that they led to nothing but new observations: play by chance comes back sooner than that."""
FEW = 0.001
"""Share of visits to what an episode has seen before up to which a bonus for first visits tells nothing."""
UPDATES_OF_CUTS = 20
"""Updates in which an episode ended, and all of them were cut by the time limit, before it is said."""
LONGER = 1.2
"""How many times as long as training episodes those of an evaluation are, at least, if play runs in circles."""


class Hints:
    """Looks at each update of a run and says each hint once; those that still hold stand in the summary."""

    def __init__(self, session: Session, display: Display) -> None:
        self._session, self._display = session, display
        self._said: set[str] = set()
        self._holding: dict[str, Hint] = {}  # by setting
        self._updates_without_reward = 0
        self._visits = self._visits_again = 0.0
        self._updates_of_cuts: int | None = 0  # None once an episode has ended by itself, or it was said

    @property
    def holding(self) -> tuple[Hint, ...]:
        """The hints that were given and still hold, for the summary."""
        return tuple(self._holding.values())

    def give(self, record: Record, evaluation: Evaluation | None) -> None:
        """Say what is found in an update's record, and in its evaluation if there was one."""
        self._on_samples(evaluation)
        self._on_rare_rewards(record)
        self._on_counts()
        self._on_cuts(record)

    def _judge(self, holds: bool, hint: Hint, advice: str) -> None:
        """Keep a hint while it holds, and say it once in a run; short enough for a line of the view at 80 columns."""
        if not holds:
            self._holding.pop(hint.setting, None)
            return
        self._holding[hint.setting] = hint
        if hint.setting not in self._said:
            self._said.add(hint.setting)
            self._display.event(f"{hint.finding}: {advice}")

    def _on_samples(self, evaluation: Evaluation | None) -> None:
        """The most likely actions do far worse than drawn ones, in longer episodes: they may run in circles."""
        progress, config = self._session.progress, self._session.config
        if evaluation is None or config.eval.samples or not progress.is_settled:
            return
        greedy, drawn = human_number(evaluation.mean_return), human_number(progress.mean_return)
        is_longer = evaluation.mean_length >= LONGER * progress.mean_length
        is_worse = evaluation.is_far_below(progress.mean_return, progress.std_return, len(progress.returns))
        finding = f"greedy returns {greedy}, drawn actions {drawn}"
        self._judge(is_longer and is_worse, Hint(finding, "eval.samples"), "try --eval.samples")

    def _on_rare_rewards(self, record: Record) -> None:
        """No episode has earned any reward for a while, and nothing pays for what is new."""
        session, config = self._session, self._session.config
        is_for_curiosity = config.traits.has_ppo_loss and session.pool.played_by is not PlayedBy.SEATS
        if config.curiosity is not None or not is_for_curiosity or not session.progress.is_settled:
            return
        has_earned = bool(record.get("return_max"))  # the lowest may be below 0: costs are no reward
        self._updates_without_reward = 0 if has_earned else self._updates_without_reward + 1
        self._judge(
            self._updates_without_reward >= UPDATES_WITHOUT_REWARD,
            Hint("no reward yet", "curiosity", "noveld"),
            "--curiosity noveld or rnd pays for what is new",
        )

    def _on_counts(self) -> None:
        """Visits are counted where no observation comes twice in an episode: the count says nothing.

        noveld counts too, and does not need it: without, it is still a bonus at the frontier.
        """
        session, config = self._session, self._session.config
        again = None if session.curiosity is None else session.curiosity.revisited
        if again is None or config.curiosity == "noveld":
            return
        self._visits += config.batch_size
        self._visits_again += again * config.batch_size
        is_all_new = self._visits >= STEPS_OF_NEW and self._visits_again <= FEW * self._visits
        finding = "no observation comes twice"
        if config.bonus.episodic is None:
            self._judge(is_all_new, Hint(finding, "curiosity", "e3b"), "try --curiosity e3b or rnd")
        else:
            hint = Hint(finding, "bonus.episodic", "elliptical")
            self._judge(is_all_new, hint, "try --bonus.episodic elliptical")

    def _on_cuts(self, record: Record) -> None:
        """No episode of this process has ended by itself: the limit may be too short, or the rules never say "over"."""
        if self._updates_of_cuts is None or not record.get("episodes"):
            return
        session, rollout = self._session, self._session.rollout
        varies = record["return_min"] != record["return_max"]
        if varies and not code_of(session.config.env):  # a world of a library that has no end, as most of MuJoCo's
            return
        if bool(rollout.terminated.any()):
            self._updates_of_cuts = None
            return
        self._updates_of_cuts += int(bool(rollout.truncated.any()))
        if self._updates_of_cuts >= UPDATES_OF_CUTS:
            self._updates_of_cuts = None
            length = human_number(session.progress.mean_length)
            self._display.event(
                f"the time limit cut every episode so far (length {length}), none ended by itself; if your world has "
                f"an end, raise max_episode_steps or look at what step() returns as terminated"
            )
