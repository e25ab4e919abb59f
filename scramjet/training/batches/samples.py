"""Lays out the samples of a rollout: flat, or with memory as sequences that begin from a kept recurrent state.

On the CPU, samples that are not learned from are left out, so their number varies from rollout to rollout. CUDA graphs
need the same shapes every time and may not wait for the host, so on the GPU such samples stay and are marked.
"""

from __future__ import annotations

import functools
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.jit import RowKernel
from scramjet.engine.trees import map_optional
from scramjet.executors.samples import Samples
from scramjet.training.rollout.recurrent_states import begins
from scramjet.training.rollout.rollout import Rollout


def lay_out(
    rollout: Rollout, advantage: Tensor, returns: Tensor, counts: Tensor | None = None, *, fixed: bool = False
) -> Samples:
    """The samples of a rollout, without those of dead agents and opponents and those with `counts` [T, R] False.

    Where sequences are padded, such samples stay and are marked in `Samples.counts`. With `fixed` shapes all of them
    stay, and sequences of seats are padded to the horizon, the most turns that one seat can have.
    """
    alive = None if rollout.alive is None else rollout.alive[:-1].bool()
    valid = _all_of(counts, alive, rollout.mine)
    if not rollout.recurrent.is_used:
        return _lay_flat(rollout, advantage, returns, valid, fixed=fixed)
    place, first = _sequences(rollout, alive, fixed=fixed)
    states = rollout.states.flatten(0, 1)
    is_one_stretch = rollout.seat is None and rollout.horizon == rollout.num_steps
    if rollout.seat is None and alive is None:  # every step is valid
        samples = _gather(rollout, advantage, returns, place.flatten(), is_whole=is_one_stretch)
        samples.state, samples.begins = states, first
        return samples
    assert valid is not None
    is_valid = (place >= 0) & valid.flatten()[place]
    unit = None if fixed else _played(is_valid)
    if unit is not None:
        place, first, is_valid, states = place[:, unit], first[:, unit], is_valid[:, unit], states[unit]
    is_whole = is_one_stretch if fixed else torch.equal(place.flatten(), _everywhere(rollout))
    samples = _gather(rollout, advantage, returns, place.flatten(), is_whole=is_whole)
    samples.state, samples.begins = states, first
    samples.counts = None if not fixed and bool(is_valid.all()) else is_valid.flatten()
    samples.unit = unit
    return samples


def _sequences(rollout: Rollout, alive: Tensor | None, *, fixed: bool) -> tuple[Tensor, Tensor]:
    """The places of each sequence's steps in the flattened rollout, -1 for padding, and which steps are an episode's
    first: [L, sequences] each."""
    ended = rollout.terminated | rollout.truncated
    if rollout.seat is not None:
        num_sequences = rollout.states.shape[0] * rollout.states.shape[1]
        return _turns_of_seats(rollout.seat[:-1], ended, rollout.horizon, num_sequences, fixed=fixed)
    place = _segments(_everywhere(rollout).view(ended.shape), rollout.horizon)
    return place, _segments(begins(ended, alive), rollout.horizon)


def _played(is_valid: Tensor) -> Tensor | None:
    """The numbers of sequences with at least one valid step [L, sequences]; None if all have one."""
    played = is_valid.any(0).nonzero().squeeze(1)
    return played if len(played) < is_valid.shape[1] else None


def _everywhere(rollout: Rollout) -> Tensor:
    """The places of all steps and rows, [T * R]."""
    return torch.arange(rollout.log_prob.numel(), device=rollout.log_prob.device)


def _all_of(*conditions: Tensor | None) -> Tensor | None:
    """Where all of these conditions hold; None, which always holds, where there is none."""
    given = [condition for condition in conditions if condition is not None]
    return functools.reduce(torch.logical_and, given) if given else None


def every_step(rollout: Rollout) -> Samples:
    """All steps of a rollout of a policy without memory, whether or not they count; targets are not filled in."""
    return _gather(rollout, rollout.log_prob, rollout.log_prob, _everywhere(rollout), is_whole=True)


def _lay_flat(rollout: Rollout, advantage: Tensor, returns: Tensor, valid: Tensor | None, *, fixed: bool) -> Samples:
    """Samples without memory. Invalid ones are left out, or with `fixed` shapes marked."""
    everywhere = _everywhere(rollout)
    is_whole = valid is None or fixed or bool(valid.all())
    place = everywhere if valid is None or is_whole else valid.flatten().nonzero().squeeze(1)
    samples = _gather(rollout, advantage, returns, place, is_whole=is_whole)
    samples.counts = valid.flatten() if fixed and valid is not None else None
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


def _turns_of_seats(
    seat: Tensor, ended: Tensor, horizon: int, num_sequences: int, *, fixed: bool
) -> tuple[Tensor, Tensor]:
    """Sequences of each seat's own turns.

    Returns their places in the flattened rollout and which turns are an episode's first, [L, sequences] each. L is the
    horizon where shapes are `fixed`, else the length of the longest. Shorter ones are padded with places of -1.
    """
    place = torch.full((horizon, num_sequences), -1, device=seat.device)
    first = torch.zeros(horizon, num_sequences, dtype=torch.bool, device=seat.device)
    num_turns = torch.zeros(num_sequences, dtype=torch.int64, device=seat.device)
    is_new = torch.zeros(num_sequences, dtype=torch.bool, device=seat.device)
    _list_turns.on(seat.shape[1], seat, ended, horizon, place, first, num_turns, is_new)
    length = horizon if fixed else int(num_turns.max())
    return place[:length], first[:length]


@RowKernel
def _list_turns(
    start: int, stop: int,
    seat: np.ndarray, ended: np.ndarray, horizon: int, place: np.ndarray, first: np.ndarray, num_turns: np.ndarray,
    is_new: np.ndarray,
) -> None:  # fmt: skip
    """Fill `place` and `first` of `_turns_of_seats` for the envs start to stop.

    `num_turns` [sequences] are those listed so far, at the end all; `is_new` [sequences] says whether an episode began
    since a sequence's last turn.
    """
    num_steps, num_rows = seat.shape
    num_seats = place.shape[1] // (num_rows * (num_steps // horizon))
    for n in range(start, stop):
        for t in range(num_steps):
            first_seat = ((t // horizon) * num_rows + n) * num_seats
            sequence = first_seat + seat[t, n]
            turn = num_turns[sequence]
            place[turn, sequence] = t * num_rows + n
            first[turn, sequence] = is_new[sequence]
            num_turns[sequence] += 1
            is_new[sequence] = False
            if ended[t, n]:
                for each in range(first_seat, first_seat + num_seats):
                    is_new[each] = True
