"""Lays out the samples of a rollout: flat, or with memory as sequences that begin from a kept recurrent state."""

from __future__ import annotations

import functools
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from scramjet.accelerate.samples import Samples
from scramjet.compile.jit import compiled
from scramjet.engine.trees import map_optional
from scramjet.training.rollout.recurrent_states import begins
from scramjet.training.rollout.rollout import Rollout


def lay_out(rollout: Rollout, advantage: Tensor, returns: Tensor, counts: Tensor | None = None) -> Samples:
    """The samples of a rollout, without those of dead agents and opponents and those with `counts` [T, R] False.

    Where shapes are fixed or sequences are padded, such samples stay and are marked in `Samples.counts`.
    """
    alive = None if rollout.alive is None else rollout.alive[:-1].bool()
    valid = _all_of(counts, alive, rollout.mine)
    everywhere = torch.arange(rollout.log_prob.numel(), device=rollout.log_prob.device)
    if not rollout.recurrent.is_used:
        return _lay_flat(rollout, advantage, returns, valid, everywhere)
    ended = rollout.terminated | rollout.truncated
    states = rollout.states.flatten(0, 1)
    if rollout.seat is not None:
        place, first = _turns_of_seats(rollout.seat[:-1], ended, rollout.horizon, len(states))
    else:
        place = _segments(everywhere.view(ended.shape), rollout.horizon)
        first = _segments(begins(ended, alive), rollout.horizon)
    if rollout.seat is None and alive is None:  # every step is valid
        samples = _gather(rollout, advantage, returns, place.flatten(), is_whole=rollout.horizon == rollout.num_steps)
        samples.state, samples.begins = states, first
        return samples
    assert valid is not None
    is_valid = (place >= 0) & valid.flatten()[place]
    played = is_valid.any(0).nonzero().squeeze(1)  # sequences with at least one valid step
    unit = played if len(played) < len(states) else None
    if unit is not None:
        place, first, is_valid, states = place[:, played], first[:, played], is_valid[:, played], states[played]
    is_whole = torch.equal(place.flatten(), everywhere)
    samples = _gather(rollout, advantage, returns, place.flatten(), is_whole=is_whole)
    samples.state, samples.begins = states, first
    samples.counts = None if bool(is_valid.all()) else is_valid.flatten()
    samples.unit = unit
    return samples


def _all_of(*conditions: Tensor | None) -> Tensor | None:
    """Where all of these conditions hold; None, which always holds, where there is none."""
    given = [condition for condition in conditions if condition is not None]
    return functools.reduce(torch.logical_and, given) if given else None


def every_step(rollout: Rollout) -> Samples:
    """All steps of a rollout of a policy without memory, whether or not they count; targets are not filled in."""
    place = torch.arange(rollout.log_prob.numel(), device=rollout.log_prob.device)
    return _gather(rollout, rollout.log_prob, rollout.log_prob, place, is_whole=True)


def _lay_flat(
    rollout: Rollout, advantage: Tensor, returns: Tensor, valid: Tensor | None, everywhere: Tensor
) -> Samples:
    """Samples without memory. Invalid ones are left out; for seats on the GPU they are marked instead, because CUDA
    graphs need fixed shapes."""
    if valid is not None and rollout.seat is not None and valid.is_cuda:
        samples = _gather(rollout, advantage, returns, everywhere, is_whole=True)
        samples.counts = valid.flatten()
        return samples
    is_whole = valid is None or bool(valid.all())
    place = everywhere if valid is None or is_whole else valid.flatten().nonzero().squeeze(1)
    samples = _gather(rollout, advantage, returns, place, is_whole=is_whole)
    samples.unit = None if is_whole else place
    return samples


def _gather(rollout: Rollout, advantage: Tensor, returns: Tensor, place: Tensor, *, is_whole: bool) -> Samples:
    """The samples at `place` in the flattened rollout; with `is_whole`, all of them in order, as views."""

    index = place.clamp(min=0)

    def take(data: Tensor) -> Tensor:
        flat = data.flatten(0, 1)
        return flat if is_whole else flat.index_select(0, index)

    num_steps = len(rollout.action)
    played = {name: map_optional(lambda leaf: take(leaf[:num_steps]), getattr(rollout, name)) for name in _PLAYED}
    num_rows = rollout.action.shape[1] if is_whole else 1
    return Samples(**played, advantage=take(advantage), returns=take(returns), place=place, num_rows=num_rows)


_PLAYED = tuple({field.name for field in fields(Samples)} & {field.name for field in fields(Rollout)})
"""What samples take from a rollout as it is: fields of the same name."""


def _segments(data: Tensor, horizon: int) -> Tensor:
    """Reshape [T, R] to [horizon, T / horizon * R]: sequences between kept states, in the order of these states."""
    return data.unflatten(0, (-1, horizon)).transpose(0, 1).flatten(1).contiguous()


def _turns_of_seats(seat: Tensor, ended: Tensor, horizon: int, num_sequences: int) -> tuple[Tensor, Tensor]:
    """Sequences of each seat's own turns.

    Returns their places in the flattened rollout and which turns are an episode's first, [L, sequences] each. Sequences
    shorter than the longest are padded with places of -1.
    """
    place = np.full((horizon, num_sequences), -1, np.int64)
    first = np.zeros((horizon, num_sequences), np.bool_)
    longest = _list_turns(seat.cpu().numpy(), ended.cpu().numpy(), horizon, place, first)
    return torch.from_numpy(place[:longest]).to(seat.device), torch.from_numpy(first[:longest]).to(seat.device)


@compiled
def _list_turns(seat: np.ndarray, ended: np.ndarray, horizon: int, place: np.ndarray, first: np.ndarray) -> int:
    """Fill `place` and `first` of `_turns_of_seats`; returns the number of turns of the longest sequence."""
    num_steps, num_rows = seat.shape
    num_seats = place.shape[1] // (num_rows * (num_steps // horizon))
    num_turns = np.zeros(place.shape[1], np.int64)
    is_new = np.zeros(place.shape[1], np.bool_)  # an episode began since this sequence's last turn
    for t in range(num_steps):
        for n in range(num_rows):
            start = ((t // horizon) * num_rows + n) * num_seats
            sequence = start + seat[t, n]
            turn = num_turns[sequence]
            place[turn, sequence] = t * num_rows + n
            first[turn, sequence] = is_new[sequence]
            num_turns[sequence] += 1
            is_new[sequence] = False
            if ended[t, n]:
                is_new[start : start + num_seats] = True
    return int(num_turns.max())
