"""Hints while a run trains: each is said once, where what a user sees has a cause that another setting removes.

Those that still hold when the run ends stand in its summary.
"""

from __future__ import annotations

from scramjet.adapters.world_code import code_of
from scramjet.engine.layout import PlayedBy
from scramjet.telemetry.metrics import Record
from scramjet.telemetry.readable import human_number
from scramjet.training.display.interface import Display, Hint
from scramjet.training.evaluation.results import Evaluation
from scramjet.training.session import Session

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
    """Looks at each update of a run and says what it finds to its display."""

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
