"""The state of a run in checkpoints: when one is due and how it is written, what it holds, how it is taken in again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from scramjet.algorithms.target_entropy import EntropyTuner
from scramjet.algorithms.value_scaling import PopArt, rescale
from scramjet.distributed.exchange import gathered_tensors, tensors_of_rank
from scramjet.distributed.ranks import failing_together
from scramjet.errors import CheckpointError, ConfigError, ScramjetError
from scramjet.policies.observations import torch_generator
from scramjet.policies.policy import Policy, check_value_layer, value_layer
from scramjet.runs.metadata import policy_metadata
from scramjet.runs.results import Best, Evaluation, is_new_best
from scramjet.runs.weights import give_returns, load_weights, optimizer_tensors, restore_optimizer
from scramjet.runtime.checkpoints import Background, Checkpoint
from scramjet.telemetry.progress import PhaseClock
from scramjet.training.checkpoint_config import reward_divisor_of
from scramjet.training.config import files as config_files
from scramjet.training.config.run_config import RunConfig
from scramjet.training.display.interface import Display
from scramjet.training.learning import Learning
from scramjet.training.session import Session

_OF_OTHERS = "has_records_of_others"
"""The name under which a rank's tensors say that its envs came from somebody else; of rank 0 the metadata says it."""
MOST_ENLARGED = 32.0
"""How many times values that were learned beside bonuses are made larger. Where rewards are so small that it would take
more, the errors of the critic are larger than what it learned of them, and would take long to unlearn."""


# --- saving while training goes on


class Saver:
    """Saves a run's checkpoints: every so many updates, at a new best, and at the end.

    Their contents are copied at once and written on a thread while training goes on. One that cannot be written is told
    to the user, and the next one tried when it is due; the last one of a run must be written.
    """

    def __init__(self, session: Session, display: Display, clock: PhaseClock) -> None:
        """`clock` knows how long the run has trained, which a checkpoint records."""
        self._session, self._display, self._clock = session, display, clock
        self._writing = Background[str]()
        self._best_before: Best | None = None  # the one that the newest best replaced

    def save_if_due(self, update: int, evaluation: Evaluation | None, *, is_last: bool) -> None:
        """Save the session as it is after `update`, if that is due; returns once the last checkpoint is written."""
        session, step = self._session, self._session.step_after(update)
        every, is_first = session.config.checkpoint.every, session.ranks.is_first
        is_due = is_last or (every > 0 and update % every == 0)
        is_best = is_first and self._choose_best(step, evaluation, is_due=is_due)
        self._tell(self._writing.finished())
        if is_due or self._all_save(evaluation, is_best=is_best):
            elapsed = self._clock.elapsed
            save = checkpoint_of(session, update=update, step=step, elapsed_seconds=elapsed, is_best=is_best)
            if is_first:
                self._tell(self._writing.start(lambda: self._written(save, is_best=is_best, is_last=is_last)))
        if is_last:
            with failing_together(session.ranks):
                self._tell(self._writing.wait())

    def _all_save(self, evaluation: Evaluation | None, *, is_best: bool) -> bool:
        """Whether rank 0 found a new best in the evaluation, which all ranks then save together."""
        if evaluation is None:
            return False
        return self._session.ranks.from_first(b"+" if is_best else b"-") == b"+"

    def _tell(self, texts: list[str]) -> None:
        """Show how earlier saves went, before a later one may raise."""
        for text in texts:
            self._display.event(text)

    def _choose_best(self, step: int, evaluation: Evaluation | None, *, is_due: bool) -> bool:
        """Whether the policy now is the best so far, which the session then remembers.

        It is judged by the evaluation of this update; in a run that never evaluates by its last hundred episodes, when
        a checkpoint is due. In games for several returns do not tell strength: with a pool of opponents it is judged by
        its rating, else by its games against random moves and its first self.
        """
        session, progress = self._session, self._session.progress
        if session.league is not None:
            rated = session.league.strength if is_due or evaluation is not None else None
            return rated is not None and self._is_new_best(Best(*rated), step, f"rating {rated[0]:.0f}")
        if session.strength is not None:
            won = session.strength.latest if session.strength.measured_at == step else None
            text = "" if won is None else f"win rate {won.random:.2f} vs random, {won.first:.2f} vs its first self"
            return won is not None and self._is_new_best(won.as_best, step, text)
        by_episodes = session.config.eval.every == 0 and is_due and progress.is_settled
        judged = evaluation or (progress if by_episodes else None)
        if judged is None:
            return False
        candidate = Best(judged.mean_return, judged.lower_bound)
        return self._is_new_best(candidate, step, f"mean return {candidate.mean_text}")

    def _is_new_best(self, candidate: Best, step: int, text: str) -> bool:
        """Whether this is better than the best so far, which the session then remembers; `text` is for the message."""
        session = self._session
        self._tell(self._writing.wait())  # the best before counts only if it could be written
        before = session.best
        if not is_new_best(candidate, before):
            return False
        self._best_before, session.best = before, candidate
        why = ""
        if before is not None and candidate.mean_return < before.mean_return:  # the last best may have had luck
            why = f" (exceeds {candidate.bound_text} with 95 % confidence, {before.bound_text} before)"
        self._display.event(f"new best: {text} at step {step:,}{why}")
        return True

    def _written(self, save: Callable[[], Path], *, is_best: bool, is_last: bool) -> str:
        """Write a checkpoint, on the thread, and say how it went; one that could not be written is not the best."""
        session = self._session
        try:
            path = save()
            session.saved.append(path)
            return f"saved {path.name}"
        except ScramjetError as error:
            if is_last:
                raise
            if is_best:
                session.best = self._best_before  # no checkpoint holds the new one
            return f"not saved: {error} (training goes on, and the next checkpoint is tried when it is due)"

    def __enter__(self) -> Saver:
        self._writing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writing.__exit__(kind, error, trace)


# --- gathered


def checkpoint_of(
    session: Session, *, update: int, step: int, elapsed_seconds: float, is_best: bool = False
) -> Callable[[], Path]:
    """Copy the session's state; returns a function that writes it as a checkpoint, later or on another thread.

    The function returns the checkpoint's folder. It writes the metrics log to the disk first, so that a checkpoint is
    never ahead of it. Whatever goes wrong, in the copying too, it raises as a ScramjetError; earlier checkpoints stay.
    All ranks call this together; only rank 0 calls the function, and its checkpoint holds the state of all ranks.
    """
    try:
        own = _copied_or_problem(session)
        of_others = gathered_tensors(session.ranks, own)
        if isinstance(own, Exception):
            raise own
        metadata = session_metadata(session, update, elapsed_seconds)
        metadata["has_records_of_others"] |= any(name.endswith(f"/{_OF_OTHERS}") for name in of_others)
        model, trainer = _copies(session.policy.state_dict()), own | of_others
    except Exception as error:
        problem: Exception = error

        def fail() -> Path:
            raise _save_failed(step, problem) from problem

        return fail

    def save() -> Path:
        try:
            session.metrics_log.sync()
            path = session.store.save(step, model, trainer, metadata, is_best=is_best)
            if session.league is not None:
                session.league.files.remove_unused()
            return path
        except Exception as error:
            raise _save_failed(step, error) from error

    return save


def session_metadata(session: Session, update: int, elapsed_seconds: float) -> dict[str, Any]:
    """The metadata of a checkpoint of this session, as plain values for JSON."""
    league = {} if session.league is None else {"self_play": session.league.described()}
    config = config_files.to_dict(session.config, session.run.path)
    strength = {} if session.strength is None else {"strength": session.strength.described()}
    return {
        "update": update,
        "elapsed_seconds": elapsed_seconds,
        "best_return": None if session.best is None else session.best.mean_return,
        "best_lower_bound": None if session.best is None else session.best.lower_bound,
        "lineage": session.lineage,
        "has_records_of_others": session.pool.has_records_of_others,
        **policy_metadata(config, session.pool, session.policy, session.rules),
        **league,
        **strength,
    }


def _save_failed(step: int, error: Exception) -> ScramjetError:
    if isinstance(error, ScramjetError):
        return error
    return CheckpointError(
        f"the checkpoint of step {step:,} could not be made ({type(error).__name__}: {error}); earlier ones are kept"
    )


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    plain = torch.contiguous_format  # whatever order the GPU wants them in
    return {name: tensor.detach().to("cpu", copy=True, memory_format=plain) for name, tensor in tensors.items()}


def _copied_or_problem(session: Session) -> dict[str, Tensor] | Exception:
    """Copies of what this rank adds to a checkpoint beside the weights, or what a user's env raised meanwhile."""
    try:
        return _copies(trainer_tensors(session) if session.ranks.is_first else local_tensors(session))
    except Exception as error:
        return error


def trainer_tensors(session: Session) -> dict[str, Tensor]:
    """Everything beside the weights that the next update depends on."""
    tensors = {
        **local_tensors(session),
        **optimizer_tensors(session.policy, session.learner.optimizer),
        **session.progress.tensors(),
    }
    if session.league is not None:
        tensors |= session.league.tensors()
    if session.learner.reward_scaler is not None:
        tensors["reward_scaler/moments"] = session.learner.reward_scaler.moments
    return tensors | session.learner.shared_tensors()


def local_tensors(session: Session) -> dict[str, Tensor]:
    """What the next update depends on that each rank has of its own: its envs, generators, memory and returns."""
    tensors = {
        "rng/action": session.generator.get_state(),
        "rng/shuffle": session.learner.shuffle_generator.get_state(),
        **{name: generator.get_state() for name, generator in _torch_generators(session.policy.device).items()},
        **{f"pool/{name}": torch.from_numpy(array) for name, array in session.pool.snapshot().items()},
        **session.learner.tensors(),
    }
    if session.policy.state_size:
        tensors["memory"] = session.rollout.recurrent.states
    if session.learner.reward_scaler is not None:
        tensors["reward_scaler/running_return"] = session.learner.reward_scaler.running_return
    if session.pool.has_records_of_others and not session.ranks.is_first:
        tensors[_OF_OTHERS] = torch.ones(1)
    return tensors


def _torch_generators(device: torch.device) -> dict[str, torch.Generator]:
    """Torch's own generators, which a user's network may draw from (dropout), by their name in a checkpoint."""
    on_gpu = {"rng/torch_cuda": torch_generator(device)} if device.type == "cuda" else {}
    return {"rng/torch": torch.default_generator, **on_gpu}


# --- restored on a resume


@contextmanager
def _misfits_explained(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what torch and NumPy raise for a tensor that does not fit into a CheckpointError."""
    try:
        yield
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"'{checkpoint.path}' does not hold the state of this run: {error}") from error


def restore_everything(session: Session, checkpoint: Checkpoint, *, is_own: bool) -> None:
    """Put a session exactly where a checkpoint of its own run was.

    `is_own`: the checkpoint was written by this user, or is trusted; only then may it hold pickled env states.
    """
    with _misfits_explained(checkpoint):
        _restore_everything(session, checkpoint, is_own=is_own)


def _restore_everything(session: Session, checkpoint: Checkpoint, *, is_own: bool) -> None:
    tensors = tensors_of_rank(checkpoint.trainer, session.ranks.rank)
    restore_learning(session.policy, session.learner, checkpoint)
    session.generator.set_state(tensors["rng/action"])
    session.learner.shuffle_generator.set_state(tensors["rng/shuffle"])
    for name, generator in _torch_generators(session.policy.device).items():
        if name in tensors:  # older checkpoints lack it
            generator.set_state(tensors[name])
    snapshot = {name.removeprefix("pool/"): t.numpy() for name, t in tensors.items() if name.startswith("pool/")}
    session.pool.restore(snapshot, out=session.player.buffers.last, is_own=is_own)
    session.progress.restore(tensors)
    session.learner.restore(tensors)
    if session.policy.state_size:
        session.rollout.recurrent.states.copy_(tensors["memory"])
    if session.league is not None:
        data = checkpoint.metadata.get("self_play")
        games_go_on = session.config.mode == "sync"
        session.league.restore(data, tensors, checkpoint.path, games_go_on=games_go_on, is_own=is_own)
    measured = checkpoint.metadata.get("strength")  # None in checkpoints from before it was measured
    if session.strength is not None and measured is not None:
        note = session.strength.restore(measured, session.policy)
        session.news.extend([note] if note else [])
    scaler = session.learner.reward_scaler
    if scaler is not None:
        scaler.running_return.copy_(tensors["reward_scaler/running_return"])


# --- taken over by a fork


def inherited(checkpoint: Checkpoint, before: RunConfig, now: RunConfig) -> Checkpoint:
    """What a fork with the settings `now` restores of a checkpoint, whose run had the settings `before`.

    The weight that was found for the entropy bonus is left out where the fork says another to begin with.
    """
    if now.ppo.entropy_coef == before.ppo.entropy_coef:
        return checkpoint
    trainer = {name: tensor for name, tensor in checkpoint.trainer.items() if name != EntropyTuner.LOG_COEF}
    return replace(checkpoint, trainer=trainer)


def restore_learning(policy: Policy, learner: Learning[Any], checkpoint: Checkpoint) -> None:
    """Restore what a fork takes from its parent: weights, optimizer and normalizers."""
    with _misfits_explained(checkpoint):
        load_weights(policy, checkpoint)
        moves_all = learner.executor.moves_every_weight
        restore_optimizer(policy, learner.optimizer, checkpoint.trainer, checkpoint.path, of_every_weight=moves_all)
        moments = checkpoint.trainer.get("reward_scaler/moments")
        if learner.reward_scaler is not None and moments is not None:
            learner.reward_scaler.moments.copy_(moments)
        learner.restore_shared(checkpoint.trainer)


def begin_as_fork(learner: Learning[Any], checkpoint: Checkpoint) -> None:
    """Have a learner take over what forks may, beside what `restore_learning` restores."""
    with _misfits_explained(checkpoint):
        learner.begin_as_fork(checkpoint.trainer)


# --- values of a fork's policy, brought to the scale of its own rewards


def take_over_values(
    learner: Learning[Any], observation_space: Any, checkpoint: Checkpoint, before: RunConfig, now: RunConfig
) -> str:
    """Bring the values of a fork's policy from the scale of its parent, with settings `before`, to its own.

    `observation_space` is what the policy sees. Returns a note for the user where the values cannot be brought to the
    scale of the fork's rewards; else an empty text. The optimizer's moments stay as they are.
    """
    if before.ppo.value_scale == "popart" != now.ppo.value_scale:
        give_returns(learner.policy, checkpoint, before.ppo.value_scale)
    divisors = _divisor(checkpoint, before), _divisor(checkpoint, now)
    if divisors[0] == divisors[1]:
        return ""
    factor = divisors[0] / divisors[1]
    if before.curiosity is not None and factor > MOST_ENLARGED:
        obstacle = "from numbers so small"
    else:
        obstacle = _multiply_values(learner, observation_space, factor, now)
    if not obstacle:
        return ""
    return (
        f"rewards are divided by {divisors[1]:.3g} and no longer by {divisors[0]:.3g}, and values cannot be brought to "
        f"that {obstacle}: the critic learns them anew"
    )


def _divisor(checkpoint: Checkpoint, settings: RunConfig) -> float:
    """What a run with these settings divides rewards by when it begins from a checkpoint; 1 where that is not known."""
    divisor = reward_divisor_of(checkpoint, settings) if settings.ppo.normalize_rewards else None
    return 1.0 if divisor is None else divisor


def _multiply_values(learner: Learning[Any], observation_space: Any, factor: float, now: RunConfig) -> str:
    """Multiply all values of a policy by a factor; returns what is in the way, an empty text where nothing is."""
    if isinstance(learner.value_scale, PopArt):
        learner.value_scale.multiply_returns(factor)
        return ""
    if now.ppo.value_scale == "symlog":
        return "with value_scale='symlog'"
    if now.policy.value_bins is not None:
        return f"with policy.value_bins={now.policy.value_bins}"
    try:
        check_value_layer(learner.policy, observation_space)
    except ConfigError:
        return "in a network without a layer critic_head = nn.Linear(..., 1) that gives them"
    rescale(value_layer(learner.policy), *torch.tensor([factor, 0.0], dtype=torch.float64))
    return ""
