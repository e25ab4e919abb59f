"""All that a run is, as plain tensors: gathered for a checkpoint, put back on resume and fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.adapters.env_spaces import EnvSpaces, their_spaces
from scramjet.adapters.spaces import adapted_action_space, adapted_observation_space
from scramjet.engine.wrappers.frame_stack import unstacked_space
from scramjet.errors import CheckpointError, ScramjetError, WorldError, shortened
from scramjet.policies.env_terms import torch_generator
from scramjet.policies.policy import Policy
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.training.config import files as config_files
from scramjet.training.evaluation.best import Best
from scramjet.training.learner import Learner
from scramjet.training.persistence.space_files import space_from_data, space_to_data
from scramjet.training.session import Session

DEFAULT_NETWORK = "default"
"""What a checkpoint calls a network that scramjet can build by itself."""


def checkpoint_of(
    session: Session, *, update: int, step: int, elapsed_seconds: float, is_best: bool = False
) -> Callable[[], Path]:
    """A function that saves the session as it is now, whenever and on whatever thread it is called.

    It writes the metrics log to the disk first: that is never behind a checkpoint. Whatever goes wrong, now or then, it
    raises as a ScramjetError with one message; earlier checkpoints stay as they are.
    """
    try:
        metadata = _metadata(session, update, elapsed_seconds)
        model, trainer = _copies(session.policy.state_dict()), _copies(trainer_tensors(session))
    except Exception as error:
        problem: Exception = error

        def fail() -> Path:
            raise _save_failed(step, problem) from problem

        return fail

    def save() -> Path:
        try:
            session.metrics_log.sync()
            return session.store.save(step, model, trainer, metadata, is_best=is_best)
        except Exception as error:
            raise _save_failed(step, error) from error

    return save


def _save_failed(step: int, error: Exception) -> ScramjetError:
    if isinstance(error, ScramjetError):
        return error
    return CheckpointError(
        f"the checkpoint of step {step:,} could not be made ({type(error).__name__}: {error}); earlier ones are kept"
    )


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _metadata(session: Session, update: int, elapsed_seconds: float) -> dict[str, Any]:
    """What a checkpoint says of itself, beside its tensors."""
    env = session.pool.env
    network = session.policy.network
    spaces = [space_to_data(space) for space in (session.pool.observation_space, session.pool.action_space)]
    of_env = [space_to_data(space) for space in their_spaces(session.pool)]
    return {
        "update": update,
        "elapsed_seconds": elapsed_seconds,
        "best_return": None if session.best is None else session.best.mean_return,
        "best_lower_bound": None if session.best is None else session.best.lower_bound,
        "lineage": session.lineage,
        "rules": session.rules,
        "has_records_of_others": session.pool.has_records_of_others,
        "network": network_name(network),
        "observation_space": repr(env.observation_space),
        "action_space": repr(env.action_space),
        "policy_spaces": None if None in spaces else spaces,
        "env_spaces": None if None in of_env else of_env,
        "config": config_files.to_dict(session.config, session.run.path),
    }


def network_name(network: nn.Module) -> str:
    """What a checkpoint calls a network: by the first module in it that is a user's own, if there is one."""
    for module in network.modules():
        if not type(module).__module__.startswith(("scramjet.", "torch.")):
            return f"{type(module).__module__}.{type(module).__qualname__}"
    return DEFAULT_NETWORK


def trainer_tensors(session: Session) -> dict[str, Tensor]:
    """Everything beside the weights that the next update depends on."""
    tensors = {
        "rng/action": session.generator.get_state(),
        "rng/shuffle": session.learner.shuffle_generator.get_state(),
        **{name: generator.get_state() for name, generator in _torch_generators(session.policy.device).items()},
        **optimizer_tensors(session.learner),
        **{f"pool/{name}": torch.from_numpy(array) for name, array in session.pool.snapshot().items()},
        **session.progress.tensors(),
    }
    if session.policy.state_size:
        tensors["memory"] = session.rollout.memories.states
    scaler = session.learner.reward_scaler
    if scaler is not None:
        tensors["reward_scaler/running_return"] = scaler.running_return
        tensors["reward_scaler/moments"] = scaler.moments
    return tensors


def _torch_generators(device: torch.device) -> dict[str, torch.Generator]:
    """Torch's own, which dropout and losses of a user's network draw from, by what a checkpoint calls their states."""
    on_gpu = {"rng/torch_cuda": torch_generator(device)} if device.type == "cuda" else {}
    return {"rng/torch": torch.default_generator, **on_gpu}


_METADATA_TYPES: dict[str, Any] = {
    "update": int,
    "elapsed_seconds": int | float,
    "best_return": int | float | None,
    "best_lower_bound": int | float | None,
    "lineage": dict | None,
    "network": str,
    "rules": str,
    "observation_space": str,
    "action_space": str,
    "config": dict,
}


def best_of(checkpoint: Checkpoint) -> Best | None:
    """What chose the best checkpoint so far; before lower bounds were kept, the mean alone did."""
    mean, bound = checkpoint.metadata["best_return"], checkpoint.metadata.get("best_lower_bound")
    return None if mean is None else Best(mean, mean if bound is None else bound)


def check_metadata(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose metadata is not what `checkpoint_of` writes."""
    for name, kind in _METADATA_TYPES.items():
        value = checkpoint.metadata.get(name, None if name == "best_lower_bound" else _MISSING)  # older ones lack it
        low, high = _METADATA_RANGES.get(name, (0, 0))
        is_number = name in _METADATA_RANGES and value is not None
        if not isinstance(value, kind) or isinstance(value, bool) or (is_number and not low <= value <= high):
            shown = "absent" if value is _MISSING else shortened(value)
            raise CheckpointError(f"'{checkpoint.path}' is no checkpoint of a training run: its {name} is {shown}")


_MISSING = object()
_METADATA_RANGES = {
    "update": (0, 2**63 - 1),
    "elapsed_seconds": (0.0, 1e10),
    "best_return": (-1e300, 1e300),
    "best_lower_bound": (-1e300, 1e300),
}


@contextmanager
def _misfits_explained(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what torch and NumPy raise for a tensor that does not fit into a CheckpointError."""
    try:
        yield
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"'{checkpoint.path}' does not hold the state of this run: {error}") from error


def restore_everything(session: Session, checkpoint: Checkpoint, *, is_own: bool) -> None:
    """Go on exactly from a checkpoint of this very run; `is_own`: nobody else can have written it, or is trusted."""
    with _misfits_explained(checkpoint):
        _restore_everything(session, checkpoint, is_own=is_own)


def _restore_everything(session: Session, checkpoint: Checkpoint, *, is_own: bool) -> None:
    tensors = checkpoint.trainer
    restore_learning(session.policy, session.learner, checkpoint)
    session.generator.set_state(tensors["rng/action"])
    session.learner.shuffle_generator.set_state(tensors["rng/shuffle"])
    for name, generator in _torch_generators(session.policy.device).items():
        if name in tensors:  # older checkpoints lack it
            generator.set_state(tensors[name])
    snapshot = {name.removeprefix("pool/"): t.numpy() for name, t in tensors.items() if name.startswith("pool/")}
    session.pool.restore(snapshot, out=session.rollout.rows[-1], is_own=is_own)
    session.progress.restore(tensors)
    if session.policy.state_size:
        session.rollout.memories.states.copy_(tensors["memory"])
    scaler = session.learner.reward_scaler
    if scaler is not None:
        scaler.running_return.copy_(tensors["reward_scaler/running_return"])


def restore_learning(policy: Policy, learner: Learner, checkpoint: Checkpoint) -> None:
    """Weights, optimizer and normalizers: what a fork takes along."""
    with _misfits_explained(checkpoint):
        load_weights(policy, checkpoint)
        _restore_optimizer(learner, checkpoint)
        moments = checkpoint.trainer.get("reward_scaler/moments")
        if learner.reward_scaler is not None and moments is not None:
            learner.reward_scaler.moments.copy_(moments)


def load_weights(policy: Policy, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's weights into a policy, or say what does not fit."""
    check_weights(policy.state_dict(), checkpoint)
    policy.load_state_dict(checkpoint.model)


def check_weights(own: Mapping[str, Tensor], checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose tensors are not those of a policy, `own`, by their names and shapes."""
    for name in dict.fromkeys([*own, *checkpoint.model]):
        here, there = _shape(own, name), _shape(checkpoint.model, name)
        if here != there:
            raise CheckpointError(
                f"'{checkpoint.path}' holds another network: {name} is {there} there and {here} here; "
                f"use the --policy and --normalize-observations settings it was trained with"
            )


def policy_spaces(checkpoint: Checkpoint) -> tuple[Any, Any] | None:
    """The spaces a checkpoint's policy observes and acts in; None in older checkpoints, which do not say."""
    return _spaces_in(checkpoint, "policy_spaces")


def env_terms(checkpoint: Checkpoint, policy: tuple[Any, Any], num_frames: int) -> EnvSpaces:
    """The terms of `predict`: the spaces of the env that a checkpoint's policy was trained on, beside the policy's.

    An older checkpoint, which does not say what they were, has the policy's own, of one frame.
    """
    try:
        seen = unstacked_space(policy[0], num_frames) if num_frames > 1 else policy[0]
        theirs = _spaces_in(checkpoint, "env_spaces") or (seen, policy[1])
        adapted = (adapted_observation_space("env", theirs[0]), adapted_action_space("env", theirs[1]))
    except (ValueError, WorldError) as error:
        raise CheckpointError(f"'{checkpoint.path}' does not say what its env observes: {error}") from error
    for own, converted, expected in zip(theirs, adapted, (seen, policy[1]), strict=True):
        if repr(expected) not in (repr(own), repr(converted)) or expected not in (own, converted):
            raise CheckpointError(f"'{checkpoint.path}' is of an env with {own}, and its policy is for {expected}")
    return EnvSpaces(*theirs, seen, policy[1], num_frames)


def _spaces_in(checkpoint: Checkpoint, entry: str) -> tuple[Any, Any] | None:
    saved = checkpoint.metadata.get(entry)
    if saved is None:
        return None
    try:
        observation_space, action_space = map(space_from_data, saved)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"'{checkpoint.path}' does not say what its policy observes: {error}") from error
    return observation_space, action_space


def _shape(tensors: Mapping[str, Tensor], name: str) -> str:
    if name not in tensors:
        return "absent"
    kind = "" if tensors[name].dtype == torch.float32 else f" of {str(tensors[name].dtype).removeprefix('torch.')}"
    return f"{list(tensors[name].shape)}{kind}"


def optimizer_tensors(learner: Learner) -> dict[str, Tensor]:
    """Adam's moments and step counts, by parameter name; a parameter that never had a gradient has none."""
    state: dict[int, dict[str, Any]] = learner.optimizer.state_dict()["state"]
    names = [name for name, _ in learner.policy.named_parameters()]
    return {f"optimizer/{names[i]}/{entry}": value for i, values in state.items() for entry, value in values.items()}


def _restore_optimizer(learner: Learner, checkpoint: Checkpoint) -> None:
    shapes = {name: parameter.shape for name, parameter in learner.policy.named_parameters()}
    numbers = {name: i for i, name in enumerate(shapes)}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in checkpoint.trainer.items():
        if not key.startswith("optimizer/"):
            continue
        name, _, entry = key.removeprefix("optimizer/").rpartition("/")
        expected = () if entry == "step" else shapes.get(name)
        if tuple(tensor.shape) != expected or tensor.dtype != torch.float32:
            raise CheckpointError(f"'{checkpoint.path}' does not fit this network: {key} is {list(tensor.shape)}")
        state.setdefault(numbers[name], {})[entry] = tensor.clone()
    if state and any(set(entries) != {"step", "exp_avg", "exp_avg_sq"} for entries in state.values()):
        raise CheckpointError(f"'{checkpoint.path}' holds only a part of the optimizer's state")
    # Weights that never had a gradient, frozen or unused, have no state yet; the compiled functions move all of them.
    if state and learner.native is not None and len(state) != len(numbers):
        raise CheckpointError(f"'{checkpoint.path}' holds the optimizer's state of another network")
    groups = learner.optimizer.state_dict()["param_groups"]
    learner.optimizer.load_state_dict({"state": state, "param_groups": groups})
