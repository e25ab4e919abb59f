"""Observations for networks."""

import numpy as np
import torch
from gymnasium.spaces import Dict, Discrete


def batch_of(space, rows, seed=0):
    """Random observations of a space as a pool lays them out."""
    if isinstance(space, Dict):
        return {name: batch_of(entry, rows, seed + i) for i, (name, entry) in enumerate(space.spaces.items())}
    space.seed(seed)
    drawn = torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(rows)]))
    return drawn.long().unsqueeze(1) if isinstance(space, Discrete) else drawn
