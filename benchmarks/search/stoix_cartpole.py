"""SPO's search as Stoix has it, over CartPole, as one XLA program.

Stoix's own root function, recurrent function and `SPO.search` run, imported from a copy of its source; what is ours is
the network (scramjet's layers in JAX), a categorical distribution in place of TensorFlow Probability's, and CartPole
(Gymnasium's rules, 500 steps). Every move is what Stoix does when it collects: root, search, env step, and the record
of it that goes to replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from search.jax_networks import JaxNetwork
from search.network import Network
from search.stoix_source import load_spo

PACKAGES = ("mctx", "chex", "jax", "jaxlib")
NUM_ACTIONS, NUM_FEATURES, LONGEST_EPISODE = 2, 4, 500
LOG_TEMPERATURE = 3.0
"""Stoix's first value; softplus of it is the temperature."""


@dataclass(frozen=True)
class Search:
    """Settings of the search, by Stoix's names where it has one."""

    num_particles: int = 16
    depth: int = 4
    resampling_period: int = 4
    dirichlet_alpha: float = 0.03
    dirichlet_fraction: float = 0.25

    @property
    def config(self) -> SimpleNamespace:
        """As Stoix reads it."""
        system = SimpleNamespace(
            num_particles=self.num_particles,
            search_depth=self.depth,
            root_exploration_dirichlet_alpha=self.dirichlet_alpha,
            root_exploration_dirichlet_fraction=self.dirichlet_fraction,
            resampling=SimpleNamespace(mode="period", period=self.resampling_period),
            temperature=SimpleNamespace(adaptive=True),
            search_gamma=1.0,
            search_gae_lambda=1.0,
        )
        return SimpleNamespace(system=system)


class CartPole(NamedTuple):
    """The state of one env."""

    physics: Any  # [4] position, speed, angle, spin
    age: Any  # steps of this episode


class TimeStep(NamedTuple):
    """What Stoix reads of a step."""

    observation: Any  # [4]
    reward: Any
    discount: Any  # 0 where the pole fell
    is_last: Any

    def last(self) -> Any:
        """Whether the episode has ended, by a fall or by its time limit."""
        return self.is_last


def begin(key: Any) -> CartPole:
    """A new episode."""
    return CartPole(jax.random.uniform(key, (NUM_FEATURES,), minval=-0.05, maxval=0.05), jnp.int32(0))


def step(state: CartPole, action: Any) -> tuple[CartPole, TimeStep]:
    """One step of one env; an ended episode moves on as if it had not (Barto, Sutton and Anderson 1983)."""
    _, speed, angle, spin = state.physics
    force = jnp.where(action == 1, 10.0, -10.0)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin**2 * sine) / 1.1
    angular = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    change = jnp.stack([speed, push - 0.05 * angular * cosine / 1.1, spin, angular])
    after = CartPole(state.physics + 0.02 * change, state.age + 1)
    fell = (jnp.abs(after.physics[0]) > 2.4) | (jnp.abs(after.physics[2]) > 12 * 2 * jnp.pi / 360)
    is_last = fell | (after.age >= LONGEST_EPISODE)
    return after, TimeStep(after.physics, jnp.float32(1.0), jnp.where(fell, 0.0, 1.0), is_last)


def begin_anew(state: CartPole, is_last: Any, key: Any) -> CartPole:
    """The state after auto-reset."""
    return jax.tree.map(lambda new, old: jnp.where(is_last, new, old), begin(key), state)


class Categorical:
    """The part of TensorFlow Probability's class that the search calls."""

    def __init__(self, logits: Any) -> None:
        self.logits = logits  # [B, A]

    def sample(self, seed: Any, sample_shape: int | None = None) -> Any:
        """Actions [B], or [sample_shape, B]."""
        batch = self.logits.shape[:-1]
        shape = batch if sample_shape is None else (sample_shape, *batch)
        return jax.random.categorical(seed, self.logits, shape=shape)

    def log_prob(self, action: Any) -> Any:
        """[B] of actions [B]."""
        return jnp.take_along_axis(jax.nn.log_softmax(self.logits), action[..., None], axis=-1)[..., 0]


def make_play(
    network: Network, search: Search, stoix: Path, *, num_envs: int, num_moves: int, seed: int
) -> Callable[[], object]:
    """A function that plays the next `num_moves` searched moves of each env and waits for them."""
    spo, config, functions = load_spo(stoix), search.config, JaxNetwork(network)

    def policy_of(weights: Any, obs: Any) -> Categorical:
        return Categorical(functions.logits(weights, obs))

    find_root = spo.make_root_fn(policy_of, functions.value, config)
    searcher = spo.SPO(config, spo.make_recurrent_fn(jax.vmap(step), policy_of, functions.value, config))
    env_key, weight_key, key = jax.random.split(jax.random.key(seed), 3)
    state = jax.vmap(begin)(jax.random.split(env_key, num_envs))
    weights = functions.weights(weight_key, (NUM_FEATURES,), NUM_ACTIONS)

    def move(carry: Any, key: Any) -> tuple[Any, Any]:
        weights, state = carry
        root_key, search_key, reset_key = jax.random.split(key, 3)
        duals = spo.CategoricalDualParams(jnp.full(1, LOG_TEMPERATURE), jnp.full(1, LOG_TEMPERATURE))
        both = spo.OnlineAndTarget(weights, weights)
        params = spo.SPOParams(both, both, duals)
        found = searcher.search(params, search_key, find_root(params, state.physics, state, root_key))
        after, seen = jax.vmap(step)(state, found.action)
        after = jax.vmap(begin_anew)(after, seen.is_last, jax.random.split(reset_key, num_envs))
        kept = (state.physics, found._replace(rollout_metrics={}), seen)
        return (weights, after), kept

    play = jax.jit(lambda weights, state, keys: jax.lax.scan(move, (weights, state), keys))

    def run() -> object:
        nonlocal state, key
        key, moves_key = jax.random.split(key)
        (_, state), kept = jax.block_until_ready(play(weights, state, jax.random.split(moves_key, num_moves)))
        return kept

    return run
