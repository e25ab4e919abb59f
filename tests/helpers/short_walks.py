"""Rollouts along a line of places, as bonuses of curiosity see them."""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.training.curiosity.bonus import Transitions

NUM_PLACES = 6


def walk(num_steps: int, num_rows: int, *, ends: float = 0.1, seed: int = 0) -> Transitions:
    """Random walkers on a ring of places, one-hot [T, R, places]; action 1 goes right, 0 left.

    Where an episode ends, the next begins at a random place.
    """
    generator = torch.Generator().manual_seed(seed)
    action = torch.randint(2, (num_steps, num_rows), generator=generator)
    ended = torch.rand(num_steps, num_rows, generator=generator) < ends
    begins = torch.randint(NUM_PLACES, (num_steps, num_rows), generator=generator)
    places = [torch.zeros(num_rows, dtype=torch.int64)]
    for t in range(num_steps):
        places.append(torch.where(ended[t], begins[t], (places[-1] + 2 * action[t] - 1) % NUM_PLACES))
    return along(torch.stack(places), action, ended)


def along(places: Tensor, action: Tensor, ended: Tensor, counts: Tensor | None = None) -> Transitions:
    """Steps between places [T + 1, R]; action, ended and counts [T, R]."""
    seen = torch.eye(NUM_PLACES)[places]
    return Transitions(seen[:-1], seen[1:], action, ended, counts)


def flat(steps: Transitions) -> Transitions:
    """A rollout [T, R] as one minibatch [T * R]."""
    return steps.select(torch.arange(steps.ended.numel()))
