"""Checks a rollout for NaN, infinity and choices outside their space before the weights see them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from scramjet.engine.pool import Pool
from scramjet.engine.privileged import own_name
from scramjet.engine.trees import leaves, named_leaves, space_tree
from scramjet.envs.api import Discrete, MultiDiscrete
from scramjet.errors import TrainingError
from scramjet.training.rollout.rollout import Rollout


@contextmanager
def errors_explained(pool: Pool, obs: Any, num_steps: int) -> Iterator[None]:
    """Explain errors in the body that come from an observed choice outside its space.

    `obs` [T + 1, R, ...] is what the envs wrote. After such an error on the GPU it cannot be read any more.
    """
    try:
        yield
    except (IndexError, RuntimeError) as error:
        if not any(leaf.is_cuda for leaf in leaves(obs)):
            check_choices(pool, obs, num_steps)
        elif "device-side assert" in str(error):
            raise TrainingError(
                f"something in {pool.name} or its network is out of range, most likely an observed choice outside its "
                f"space; the GPU cannot say which: the same run with --device cpu names the env and the step"
            ) from error
        raise


def check(pool: Pool, rollout: Rollout) -> None:
    """Raise a TrainingError if a rollout must not be learned from; see `check_finite` and `check_choices`."""
    check_finite(pool, rollout)
    check_choices(pool, rollout.obs, rollout.num_steps)


class Glance:
    """Looks at a rollout as `check` does, without waiting for its device: a CUDA graph can record it."""

    def __init__(self, pool: Pool, rollout: Rollout) -> None:
        self._numbers = [data for _, data, _ in _numbers(rollout)]
        self._choices = list(_choices(pool, rollout.obs))

    def is_fine(self) -> Tensor:
        """A scalar, bool: whether the rollout may be learned from. If not, `check` says why, or finds that it may."""
        found = [((leaf >= 0) & (leaf < most)).all() for _, leaf, most in self._choices]
        return torch.stack([_are_finite(self._numbers), *found]).all()


def _numbers(rollout: Rollout) -> Iterator[tuple[str, Tensor, int]]:
    """The floats that envs gave: in words what they are, the data [T or T + 1, R, ...] and the step of the first."""
    looked_at = [("a reward", rollout.reward, 1), *(("an observation", leaf, 0) for leaf in leaves(rollout.obs))]
    looked_at.append(("a last observation with a value", rollout.final_value, 1))
    yield from (each for each in looked_at if each[1].is_floating_point())


def _are_finite(looked_at: Iterable[Tensor]) -> Tensor:
    """Whether all numbers are finite, a scalar; False also where a sum overflows, which is the cheapest way to look."""
    return torch.isfinite(torch.stack([data.sum().float() for data in looked_at])).all()


def _choices(pool: Pool, obs: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The observed choices: name, data [T + 1, R, ...] and the number of options of each."""
    spaces = leaves(space_tree(pool.observation_space))
    for (name, leaf), space in zip(named_leaves(obs), spaces, strict=True):
        if isinstance(space, Discrete | MultiDiscrete):
            most = space.n if isinstance(space, Discrete) else space.nvec
            yield name, leaf, torch.as_tensor(most, device=leaf.device)


def check_finite(pool: Pool, rollout: Rollout) -> None:
    """Raise a TrainingError for NaN or infinity in rewards and observations; it names the env and the step."""
    steps_before = pool.steps_taken - rollout.num_steps
    looked_at = list(_numbers(rollout))
    if bool(_are_finite(data for _, data, _ in looked_at)):
        return
    for name, data, first in looked_at:
        bad = ~torch.isfinite(data.float())  # as the network sees it
        if bool(bad.any()):
            t, row = (int(i) for i in bad.nonzero()[0][:2])
            raise bad_number(pool, name, float(data[bad][0]), row, steps_before + first + t)


def check_choices(pool: Pool, obs: Any, num_steps: int) -> None:
    """Raise a TrainingError for an observed choice outside its space, which would be encoded as another or none."""
    for name, leaf, most in _choices(pool, obs):
        bad = (leaf < 0) | (leaf >= most)
        if bool(bad.any()):
            t, row = (int(i) for i in bad.nonzero()[0][:2])
            step = pool.steps_taken - (pool.steps_taken - 1) % num_steps - 1 + t
            raise bad_number(pool, f"{own_name(name)} =", int(leaf[bad][0]), row, max(0, step))


def bad_number(pool: Pool, name: str, value: float, row: int, step: int) -> TrainingError:
    """The error for a number at a row and a step of the pool."""
    env = row * pool.num_envs // pool.num_rows
    said = f"{name} {value}, outside its space," if name.endswith("=") else f"{name} of {value}"
    if math.isfinite(value) and not name.endswith("="):
        said += ", too large for the float32 that networks calculate with,"
    return TrainingError(
        f"{pool.name} gave {said} in env {env} at step {step}; look for it with `scramjet check`. "
        f"The weights have not seen it, and the checkpoints are kept"
    )
