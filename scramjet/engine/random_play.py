"""Random legal actions, for checks and benchmarks: a world may rely on its mask."""

from __future__ import annotations

import numpy as np

from scramjet.engine.layout import Transition
from scramjet.engine.pool import Pool
from scramjet.errors import WorldError


def random_actions(pool: Pool, out: Transition, random: np.random.Generator) -> np.ndarray:
    """One action for each env [N], drawn evenly from those that are legal after `out`."""
    if not out.mask.shape[1]:
        return random.integers(pool.action_space.n, size=len(out.mask))
    legal = out.mask.sum(1)
    if not legal.all():
        stuck = int(np.flatnonzero(legal == 0)[0])
        raise WorldError(f"{pool.name}.mask leaves no legal action in env {stuck}; end the episode instead")
    chosen = random.integers(legal)  # the chosen-th legal action of each row
    return np.argmax(out.mask.cumsum(1) > chosen[:, None], axis=1)
