"""The record of an algorithm, and the one list of all: flags, checks, presets, sizes and messages follow from it.

A record names the function that builds what trains, and that is imported when a run begins: the command line reads
this list without torch. A package adds one by an entry point in the group `scramjet.algorithms`, a script by
`scramjet.register_algorithm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from scramjet.algorithms.config import AlphaZeroConfig, SPOConfig
from scramjet.errors import ConfigError, did_you_mean, shortened

SHARED_SETTINGS = (
    *("gamma", "gae_lambda", "reward_clip", "normalize_observations", "normalize_rewards"),
    *("learning_rate", "num_epochs", "num_minibatches", "minibatch_size", "value_coef", "max_grad_norm", "adam_eps"),
)
"""Settings of `PPOConfig` that every algorithm uses; `advantage` stays at what it is by default."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of rollouts and minibatches for `auto`: the same on every machine."""

    num_envs: int = 64
    num_steps: int = 64
    """Maximum steps of each env in a rollout; a short training takes fewer."""
    minibatch_size: int = 256


@dataclass(frozen=True, slots=True)
class Materials:
    """What the player of rollouts and the learner of a run are made of."""

    config: Any
    """The RunConfig, resolved."""
    pool: Any
    policy: Any
    seed: int
    opponents: Any = ()
    """Those that play in each pool that steps; empty without self-play against others."""
    ranks: Any = None
    """The processes that train together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """All that the rest of scramjet asks of an algorithm."""

    name: str
    """What `--algorithm` takes."""
    summary: str
    """What it does, in a few words, for the help."""
    build: str | Callable[[Materials], tuple[Any, Any]]
    """Makes the player of rollouts and the learner: a function, or "module:function"."""
    loss: Literal["ppo", "impala", "own"] = "own"
    """The loss that its learner gives to the executor: kernels know PPO's, and `own` is torch's operators alone."""
    settings: type | None = None
    """Its own table of settings, a field of RunConfig by its name; None: it has those of `PPOConfig` that it uses."""
    uses: tuple[str, ...] = ()
    """The settings of `PPOConfig` that it uses beside the shared ones; for the loss of PPO and IMPALA, all."""
    search: Literal["spo", "alphazero"] | None = None
    """The search with the network that chooses the actions of rollouts; None: the policy draws them."""
    evaluations: Callable[[Any], int] | None = None
    """How often a search asks the network for a move, by the table of its settings."""
    sizes: Sizes = Sizes()
    num_epochs: int = 10
    """Passes over each rollout, or over as many samples of a replay, for `num_epochs` auto."""
    is_corrected: bool = False
    """Advantages are V-trace's for `advantage` auto, also where rollouts are played with the newest weights."""
    learns_in_ranks: bool = False
    """Several processes can learn together."""
    takes_late_rollouts: bool = False
    """It learns from rollouts that older weights have played, as `--mode async` has them."""
    is_tuned_as: str = ""
    """The algorithm whose presets and settings it takes over; empty: it has its own."""

    @property
    def has_ppo_loss(self) -> bool:
        """It learns by PPO's loss or IMPALA's: settings of V-trace, value bins and curiosity are for these."""
        return self.loss in ("ppo", "impala")

    def make(self, materials: Materials) -> tuple[Any, Any]:
        """The player of rollouts and the learner of a run."""
        if not isinstance(self.build, str):
            return self.build(materials)
        module, _, function = self.build.partition(":")
        made: tuple[Any, Any] = getattr(import_module(module), function)(materials)
        return made


ALGORITHMS: dict[str, Algorithm] = {
    record.name: record
    for record in (
        Algorithm(
            name="ppo", summary="policy gradients", build="scramjet.training.making:make_ppo", loss="ppo",
            learns_in_ranks=True, takes_late_rollouts=True,
        ),
        Algorithm(
            name="impala", summary="policy gradients for rollouts that are late, one pass over each",
            build="scramjet.training.making:make_ppo", loss="impala", num_epochs=1, is_corrected=True,
            learns_in_ranks=True, takes_late_rollouts=True, is_tuned_as="ppo",
        ),
        Algorithm(
            name="spo", summary="learn from a search by particles", build="scramjet.training.making:make_spo",
            settings=SPOConfig, search="spo", evaluations=lambda spo: spo.particles * spo.depth,
            sizes=Sizes(num_envs=768, num_steps=21, minibatch_size=4032), num_epochs=16,
        ),
        Algorithm(
            name="alphazero", summary="learn from a tree search", build="scramjet.training.making:make_alphazero",
            settings=AlphaZeroConfig, search="alphazero", evaluations=lambda alphazero: alphazero.simulations,
            sizes=Sizes(num_envs=256, num_steps=32, minibatch_size=1024), num_epochs=4,
        ),
    )
}  # fmt: skip
"""The one list."""
_GROUP = "scramjet.algorithms"
_OURS = frozenset(ALGORITHMS)


def register_algorithm(record: Algorithm) -> None:
    """Make an algorithm known by its name; one that was registered before is replaced, ours are not."""
    if not isinstance(record, Algorithm):
        raise ConfigError(f"register_algorithm takes a scramjet.Algorithm, not {shortened(record)}")
    if record.name in _OURS:
        raise ConfigError(f"{record.name} is an algorithm of scramjet's; give yours another name")
    if not record.name.isidentifier():
        raise ConfigError(f"an algorithm cannot be named {shortened(record.name)}; use letters, digits and _")
    if record.has_ppo_loss or record.settings is not None or record.search is not None:
        raise ConfigError(
            f"{record.name}: loss, settings and search are for scramjet's own algorithms; leave them out, and read "
            f"what it needs from PPO's settings, named in `uses`"
        )
    ALGORITHMS[record.name] = record


def algorithm_named(name: Any) -> Algorithm:
    """The record of an algorithm; installed packages are asked for a name that is not known yet."""
    if isinstance(name, str) and name not in ALGORITHMS:
        for entry in entry_points(group=_GROUP):
            if entry.name == name:
                register_algorithm(entry.load())
    if not isinstance(name, str) or name not in ALGORITHMS:
        meant = did_you_mean(name, ALGORITHMS) if isinstance(name, str) else ""
        raise ConfigError(f"algorithm={shortened(name)} must be one of {', '.join(ALGORITHMS)}.{meant}")
    return ALGORITHMS[name]


def suits(record: Algorithm, setting: str) -> bool:
    """Whether an algorithm uses a setting of `PPOConfig`."""
    return record.has_ppo_loss or setting in (*SHARED_SETTINGS, *record.uses)
