"""The components of a run, made from its config."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import torch

from scramjet.training.components import make_policy
from scramjet.training.config.run_config import RunConfig


def test_policies_made_by_several_threads_at_once_have_the_weights_of_their_seeds() -> None:
    """Torch draws weights from one generator for the whole process."""
    seeds = [1, 2, 3, 4] * 4
    expected = [make_policy(RunConfig(seed=seed)).state_dict() for seed in seeds]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            made = list(threads.map(lambda seed: make_policy(RunConfig(seed=seed)).state_dict(), seeds))
    finally:
        sys.setswitchinterval(interval)
    for one, other in zip(made, expected, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)
