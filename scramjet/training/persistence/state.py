"""The state of a run as tensors: gathered into a checkpoint, and restored from one on resume and fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scramjet.algorithms.target_entropy import EntropyTuner
from scramjet.errors import CheckpointError, ScramjetError
from scramjet.policies.observations import torch_generator
from scramjet.policies.policy import Policy
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learning import Learning
from scramjet.training.parallel.exchange import gathered_tensors, tensors_of_rank
from scramjet.training.persistence.metadata import policy_metadata
from scramjet.training.persistence.weights import load_weights, optimizer_tensors, restore_optimizer
from scramjet.training.session import Session

_OF_OTHERS = "has_records_of_others"
"""The name under which a rank's tensors say that its envs came from somebody else; of rank 0 the metadata says it."""


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
    strength = {} if session.strength is None else {"strength": session.strength.described()}
    return {
        "update": update,
        "elapsed_seconds": elapsed_seconds,
        "best_return": None if session.best is None else session.best.mean_return,
        "best_lower_bound": None if session.best is None else session.best.lower_bound,
        "lineage": session.lineage,
        "has_records_of_others": session.pool.has_records_of_others,
        **policy_metadata(session.config, session.run.path, session.pool, session.policy, session.rules),
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
    tensors = {**local_tensors(session), **optimizer_tensors(session.learner), **session.progress.tensors()}
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


def begin_as_fork(learner: Learning[Any], checkpoint: Checkpoint) -> None:
    """Have a learner take over what forks may, beside what `restore_learning` restores."""
    with _misfits_explained(checkpoint):
        learner.begin_as_fork(checkpoint.trainer)


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
        restore_optimizer(learner, checkpoint.trainer, checkpoint.path)
        moments = checkpoint.trainer.get("reward_scaler/moments")
        if learner.reward_scaler is not None and moments is not None:
            learner.reward_scaler.moments.copy_(moments)
        learner.restore_shared(checkpoint.trainer)
