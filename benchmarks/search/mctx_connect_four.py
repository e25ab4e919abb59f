"""Gumbel AlphaZero by public packages: the search of `mctx` over the Connect Four of `pgx`, as one XLA program.

It is the self-play of pgx's own AlphaZero example with another network: every move the network on the root, a search
by `mctx.gumbel_muzero_policy` with the settings of its defaults, and a step of the env with auto-reset. One difference:
pgx marks the first state of a new game as ended, and a state so marked does not move; here the mark is taken off before
the search, which would find nothing otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mctx
import pgx
from pgx.experimental import auto_reset
from search.jax_networks import JaxNetwork
from search.network import Network

PACKAGES = ("mctx", "pgx", "chex", "jax", "jaxlib")
ENV = pgx.make("connect_four")


def masked(logits: Any, legal: Any) -> Any:
    """Logits [B, A] with the lowest finite number for illegal actions, as mctx has it."""
    return jnp.where(legal, logits - logits.max(-1, keepdims=True), jnp.finfo(logits.dtype).min)


def make_model(network: JaxNetwork) -> Callable[..., Any]:
    """What mctx calls at a leaf: a step of the envs [B] and the network on the states it leads to."""

    def model(weights: Any, key: Any, action: Any, state: Any) -> tuple[Any, Any]:
        mover = state.current_player
        state = jax.vmap(ENV.step)(state, action)
        output = mctx.RecurrentFnOutput(
            reward=jnp.take_along_axis(state.rewards, mover[:, None], axis=1)[:, 0],
            discount=jnp.where(state.terminated, 0.0, -1.0),  # the other side moves next
            prior_logits=masked(network.logits(weights, state.observation), state.legal_action_mask),
            value=jnp.where(state.terminated, 0.0, network.value(weights, state.observation)),
        )
        return output, state

    return model


def make_play(
    network: Network, num_simulations: int, *, num_envs: int, num_moves: int, seed: int
) -> Callable[[], object]:
    """A function that plays the next `num_moves` searched moves of each env and waits for them."""
    functions = JaxNetwork(network)
    model, step = make_model(functions), jax.vmap(auto_reset(ENV.step, ENV.init))
    env_key, weight_key, key = jax.random.split(jax.random.key(seed), 3)
    state = jax.jit(jax.vmap(ENV.init))(jax.random.split(env_key, num_envs))
    weights = functions.weights(weight_key, ENV.observation_shape, ENV.num_actions)

    def move(carry: Any, key: Any) -> tuple[Any, Any]:
        weights, state = carry
        state = state.replace(terminated=jnp.zeros_like(state.terminated))
        search_key, step_key = jax.random.split(key)
        root = mctx.RootFnOutput(
            prior_logits=functions.logits(weights, state.observation),
            value=functions.value(weights, state.observation),
            embedding=state,
        )
        illegal = ~state.legal_action_mask
        found = mctx.gumbel_muzero_policy(weights, search_key, root, model, num_simulations, invalid_actions=illegal)
        after = step(state, found.action, jax.random.split(step_key, num_envs))
        kept = (state.observation, found.action_weights, after.rewards, after.terminated)
        return (weights, after), kept

    play = jax.jit(lambda weights, state, keys: jax.lax.scan(move, (weights, state), keys))

    def run() -> object:
        nonlocal state, key
        key, moves_key = jax.random.split(key)
        (_, state), kept = jax.block_until_ready(play(weights, state, jax.random.split(moves_key, num_moves)))
        return kept

    return run
