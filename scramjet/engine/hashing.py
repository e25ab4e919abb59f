"""Hashes of many rows of numbers at once, to tell games and positions apart."""

from __future__ import annotations

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15


def mixed(words: np.ndarray) -> np.ndarray:
    """Each uint64 turned into one of which every bit depends on all of its bits (splitmix64, Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))


def hash_rows(words: np.ndarray) -> np.ndarray:
    """A hash [N] of each row of uint64 [N, K]; two of a million rows share one with a probability of 3e-8."""
    places = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    return mixed(mixed(words + mixed(places)).sum(1, dtype=np.uint64))
