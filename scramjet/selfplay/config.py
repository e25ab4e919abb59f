"""The settings of self-play against a pool of opponents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scramjet.errors import ConfigError
from scramjet.settings import require, require_counts, settle

MAX_OPPONENTS = 256
"""Maximum number of opponents at once, and of those that may be given."""
MAX_POOL = 10_000

Selection = Literal["prioritized", "uniform", "newest"]


@dataclass(frozen=True)
class SelfPlayConfig:
    """Games against earlier selves, policies of other runs and scripted players, in some of the envs."""

    pool_fraction: float = 0.0
    """Share of the envs in which one seat or agent learns and an opponent from the pool plays the others; in the rest
    the newest policy plays all of them."""
    pool_size: int = 20
    """Earlier selves that the pool holds at most; those that stay are spread over the run."""
    snapshot_every: int = 20
    """Updates between two snapshots that enter the pool; 0: only at snapshot_win_rate."""
    snapshot_win_rate: float | None = None
    """Snapshots enter only while the policy wins at least this share of its games against the pool, draws counted
    half; none: whatever it wins."""
    opponents: tuple[str, ...] = ()
    """Opponents in the pool from the start: runs, checkpoints, and players: random, greedy, minimax:2, module:Name."""
    fixed_fraction: float = 0.0
    """Share of the envs that always play against `opponents`, divided evenly among them."""
    opponents_at_once: int = 4
    """Opponents from the pool that play at the same time, each in as many envs."""
    change_every: int = 4
    """Updates after which other opponents are drawn; each takes over when a game ends."""
    selection: Selection = "prioritized"
    """How opponents are drawn; prioritized: in proportion to (1 - win rate against them)^priority_exponent; uniform;
    newest: the last snapshots."""
    priority_exponent: float = 1.0
    """prioritized: 0 draws all alike, 2 and more nearly always those that beat us."""
    uniform_share: float = 0.1
    """prioritized: share of uniform draws, so that nobody is forgotten."""
    memory: int = 200
    """Games after which an old result counts 1/e in a win rate."""
    exploiters: int = 0
    """Further learners in the same run, each of which only has to beat the present policy; their snapshots enter the
    pool."""

    def __post_init__(self) -> None:
        settle(self, "self_play.")
        share = "must be from 0 to 1"
        names = ("pool_fraction", "fixed_fraction", "uniform_share", "snapshot_win_rate")
        require(self, names, lambda x: x is None or 0 <= x <= 1, share, "self_play.")
        require_counts(self, ("pool_size",), most=MAX_POOL, prefix="self_play.")
        require_counts(self, ("opponents_at_once",), most=MAX_OPPONENTS, prefix="self_play.")
        require_counts(self, ("change_every", "memory"), prefix="self_play.")
        require_counts(self, ("snapshot_every",), least=0, prefix="self_play.")
        require_counts(self, ("exploiters",), least=0, most=1, prefix="self_play.")
        require(self, ("priority_exponent",), lambda x: 0 <= x <= 100, "must be from 0 to 100", "self_play.")
        self._check_together()

    def _check_together(self) -> None:
        """Refuse settings that contradict each other."""
        if self.pool_fraction + self.fixed_fraction > 1:
            raise ConfigError(
                f"self_play.pool_fraction={self.pool_fraction:g} and self_play.fixed_fraction={self.fixed_fraction:g} "
                f"are more than all envs together; try --self-play.pool-fraction {1 - self.fixed_fraction:g}"
            )
        if self.fixed_fraction and not self.opponents:
            raise ConfigError(
                f"self_play.fixed_fraction={self.fixed_fraction:g} of the envs play against the given opponents, and "
                f"none is given; add --self-play.opponents random, or leave it out"
            )
        if self.opponents and not self.is_used:
            raise ConfigError(
                f"self_play.opponents are given ({', '.join(self.opponents)}), and no env plays against them; add "
                f"--self-play.pool-fraction 0.25, or --self-play.fixed-fraction 0.05"
            )
        if len(set(self.opponents)) < len(self.opponents):
            raise ConfigError(f"self_play.opponents names one twice ({', '.join(self.opponents)}); name each once")
        if len(self.opponents) > MAX_OPPONENTS:
            raise ConfigError(f"self_play.opponents are {len(self.opponents)}; {MAX_OPPONENTS} are the most")
        if self.exploiters and not self.pool_fraction:
            raise ConfigError(
                "self_play.exploiters enter the pool, and no env plays against it; add --self-play.pool-fraction 0.25"
            )
        if self.pool_fraction and not self.snapshot_every and self.snapshot_win_rate is None and not self.opponents:
            raise ConfigError(
                "self_play.snapshot_every=0 without a snapshot_win_rate leaves the pool empty; use "
                "--self-play.snapshot-every 20"
            )

    @property
    def is_used(self) -> bool:
        """Whether any env plays against opponents."""
        return self.pool_fraction > 0 or self.fixed_fraction > 0
