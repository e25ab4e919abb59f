"""Which episodes a pool plays: a key that no other seed, purpose or env shares.

Counting seeds up from env to env would give runs with neighbouring seeds most of their episodes in common. So a pool's
key is a hash of its seed and of what the episodes are for, and an env's index stands beside the key, not in it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scramjet.errors import ConfigError

_HALF_BITS = 15
_HALF_MASK = (1 << _HALF_BITS) - 1
_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class EpisodeSeed:
    """What a pool is reset with: env i plays the episodes of (key, first_env + i)."""

    key: int  # 64 bits, signed
    first_env: int = 0  # index of the pool's env 0, where the pool is a part of a larger one

    @classmethod
    def of(cls, seed: Any, purpose: str = "pool") -> EpisodeSeed:
        """The episodes of `seed` that are for `purpose`; an EpisodeSeed is returned as it is.

        Two seeds or two purposes never share an episode, but for a chance of 2**-64.
        """
        if isinstance(seed, EpisodeSeed):
            return seed
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
            raise ConfigError(f"seed={seed!r} must be a whole number")
        return cls(_hash64(f"{purpose}/{int(seed)}"))

    def after(self, *events: object) -> EpisodeSeed:
        """Fresh episodes that follow from this key and what has happened since, for example a restart."""
        return replace(self, key=_hash64("/".join(map(str, ("after", self.key, *events)))))

    def part(self, first_env: int) -> EpisodeSeed:
        """For a pool whose env 0 is env `first_env` here."""
        return replace(self, first_env=self.first_env + first_env)

    def of_env(self, i: int) -> int:
        """A seed below 2**30 for env i of another library, which may hold it in 32 bits.

        No two envs of a key have the same one: the index is permuted by a Feistel network keyed by `key`.
        """
        left, right = divmod(self.first_env + i, 1 << _HALF_BITS)
        if left > _HALF_MASK:
            raise ConfigError(f"env {self.first_env + i} has no seed: at most 2**{2 * _HALF_BITS} envs are told apart")
        for round_number in range(_ROUNDS):
            mixed = _hash64(f"{self.key}/{round_number}/{right}") & _HALF_MASK
            left, right = right, left ^ mixed
        return (left << _HALF_BITS) | right

    def of_envs(self, num_envs: int) -> list[int]:
        """`of_env` of the first `num_envs` envs."""
        return [self.of_env(i) for i in range(num_envs)]


def _hash64(text: str) -> int:
    """The first 8 bytes of the text's SHA-256, as a signed number."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)
