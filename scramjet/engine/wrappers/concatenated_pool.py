"""Several pools of one world as one pool, for actors that step independently of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Episodes, Pool
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError


class ConcatenatedPool(Pool):
    """Pools of one size whose rows follow each other. `step` steps all; actors step each pool by itself."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        first = pools[0]
        self.pools = list(pools)
        self.name, self.env = first.name, first.env
        self.num_envs = sum(pool.num_envs for pool in pools)
        self.num_rows = sum(pool.num_rows for pool in pools)
        self.played_by, self.num_players, self.mask_size = first.played_by, first.num_players, first.mask_size
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.is_guarded, self.has_time_limit = first.is_guarded, first.has_time_limit
        self.draws_every_step, self.render_modes = first.draws_every_step, first.render_modes
        self._seeds = EpisodeSeed(0)
        self.shown = self.allocate()
        """What all envs showed after the last reset."""

    @property
    def restarts(self) -> int:  # type: ignore[override]
        return sum(pool.restarts for pool in self.pools)

    @property
    def steps_taken(self) -> int:
        """Steps of each env in the pool that took most."""
        return max(pool.steps_taken for pool in self.pools)

    def rows_of(self, i: int) -> slice:
        """The rows of pool i."""
        size = self.pools[i].num_rows
        return slice(i * size, (i + 1) * size)

    def tell(self, say: Callable[[str], None]) -> None:
        for i, pool in enumerate(self.pools):
            pool.tell(lambda text, i=i: say(f"actor {i}: {text}"))  # type: ignore[misc]

    def prepare(self) -> None:
        for pool in self.pools:
            pool.prepare()

    def close(self) -> None:
        with ThreadPoolExecutor(len(self.pools)) as closers:  # an env may take its time
            list(closers.map(lambda pool: pool.close(), self.pools))

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        """Begin the episodes that one pool of all these envs would play."""
        self._seeds, self._actions_sent = EpisodeSeed.of(seed), None
        for i, pool in enumerate(self.pools):
            pool.reset(self._seeds.part(i * pool.num_envs), out=self.shown.part(self.rows_of(i)))
        return self.shown

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        self._refuse_while_sent("step()")
        out = self.allocate() if out is None else out
        for i, pool in enumerate(self.pools):
            rows = self.rows_of(i)
            pool.step(actions[rows], out=out.part(rows))
        return out

    def episodes(self) -> Episodes:
        return concatenate_episodes([pool.episodes() for pool in self.pools], self.pools[0].num_envs)

    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        returns, lengths = zip(*(pool.unfinished() for pool in self.pools), strict=True)
        return np.concatenate(returns), np.concatenate(lengths)

    def snapshot(self) -> dict[str, np.ndarray]:
        """What `restore` needs to begin fresh episodes; without the envs' states, as some are always being stepped."""
        return {"seed": np.array([self._seeds.key]), "ticks": np.array([pool.steps_taken for pool in self.pools])}

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        """Begin episodes that were not played before; writes them to `shown`."""
        before = EpisodeSeed(int(snapshot["seed"][0]), self._seeds.first_env)
        self.resume_note = "asynchronous: resumed with fresh episodes"
        return self.reset(before.after("resumed at", *snapshot["ticks"].tolist()), out)

    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        raise ConfigError("pools that are joined cannot simulate: ask one of them")

    def views(self) -> Any:
        raise ConfigError("pools that are joined have no views: ask one of them")


def concatenate_episodes(parts: Sequence[Episodes], num_envs: int, pools: Sequence[int] | None = None) -> Episodes:
    """The episodes of several pools of `num_envs` envs as those of one; `pools` says which each part is from."""
    numbers = range(len(parts)) if pools is None else pools
    names = list(dict.fromkeys(name for part in parts for name in part.stats))
    return Episodes(
        num_ended=sum(part.num_ended for part in parts),
        returns=np.concatenate([part.returns for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        env_ids=np.concatenate([part.env_ids + i * num_envs for i, part in zip(numbers, parts, strict=True)]),
        players=np.concatenate([part.players for part in parts]),
        stats={
            name: np.concatenate([part.stats.get(name, np.full(len(part), np.nan)) for part in parts]) for name in names
        },
    )
