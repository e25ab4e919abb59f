"""Our tree search is mctx's `gumbel_muzero_policy`: the same visits, q-values, improved policy and action.

Both search the same tables of random numbers with the same Gumbel noise. mctx knows no ends: below one it adds nodes
that pay nothing, which changes nothing above. A time limit is a place that leads to itself; in a game of two, an end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scramjet.engine import NativePool
from scramjet.search.tree_kernels import CAN_STEP
from tests.helpers.search_worlds import (
    ALLOWS,
    ENDS,
    GAMMA,
    LEADS_TO,
    LOGITS,
    MOVER,
    PAYS,
    TIME_LIMIT,
    VALUES,
    SeatedTableWorld,
    TableNetwork,
    TableWorld,
    search_from,
    tree_search,
)  # fmt: skip

pytestmark = pytest.mark.rest

mctx = pytest.importorskip("mctx", reason="another Gumbel AlphaZero: pip install mctx")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

NUM_ROOTS = 96


def masked(places: Any) -> Any:
    """Logits of places as mctx takes them, with its floor for illegal actions."""
    logits = jnp.asarray(LOGITS)[places]
    logits = logits - logits.max(-1, keepdims=True)
    return jnp.where(jnp.asarray(ALLOWS)[places], logits, jnp.finfo(jnp.float32).min)


def lookup(has_seats: bool) -> Any:
    """mctx's model of the table world; a state is (place, steps so far)."""

    def step(params: Any, key: Any, action: Any, state: Any) -> Any:
        place, steps = state
        has_ended = jnp.asarray(ENDS)[place]
        is_cut = ~has_ended & (steps >= TIME_LIMIT)
        after = jnp.where(has_ended | is_cut, place, jnp.asarray(LEADS_TO)[place, action])
        ends = jnp.asarray(ENDS)[after] | (has_seats & (steps + 1 >= TIME_LIMIT))
        turned = jnp.where(jnp.asarray(MOVER)[place] == jnp.asarray(MOVER)[after], 1.0, -1.0) if has_seats else 1.0
        return mctx.RecurrentFnOutput(
            reward=jnp.where(has_ended | is_cut, 0.0, jnp.asarray(PAYS)[place, action]).astype(jnp.float32),
            discount=jnp.where(ends, 0.0, jnp.where(is_cut, 1.0, GAMMA * turned)).astype(jnp.float32),
            prior_logits=masked(after),
            value=jnp.where(ends, 0.0, jnp.asarray(VALUES)[after]),
        ), (after, steps + 1)

    return step


def searched_by_mctx(places: Any, steps: Any, has_seats: bool, simulations: int, considered: int) -> Any:
    return mctx.gumbel_muzero_policy(
        (),
        jax.random.key(simulations),
        mctx.RootFnOutput(prior_logits=masked(places), value=jnp.asarray(VALUES)[places], embedding=(places, steps)),
        lookup(has_seats),
        simulations,
        invalid_actions=~jnp.asarray(ALLOWS)[places],
        max_num_considered_actions=considered,
    )


@pytest.mark.parametrize(("world", "simulations", "considered"), [(TableWorld, 50, 3), (SeatedTableWorld, 32, 16)])
def test_visits_values_and_the_improved_policy_are_those_of_mctx(world, simulations: int, considered: int) -> None:
    pool = NativePool(world(), NUM_ROOTS, num_threads=1)
    out = pool.reset(1)
    for _ in range(3):  # so that the time limit is near
        legal = np.array([np.flatnonzero(row)[0] for row in out.mask])
        out = pool.step(legal)
    places, steps = pool.states()["place"].astype(np.int32), pool.states()["_steps"].astype(np.int32)
    theirs = jax.jit(searched_by_mctx, static_argnums=(2, 3, 4))(
        places, steps, world is SeatedTableWorld, simulations, considered
    )
    noise = torch.from_numpy(np.array(theirs.search_tree.extra_data.root_gumbel))

    search = tree_search(pool, TableNetwork(), simulations=simulations, considered=considered)
    search._draw = lambda generator: search._gumbel.copy_(noise)  # type: ignore[assignment, return-value]
    ours = search_from(search, out)

    summary = theirs.search_tree.summary()
    np.testing.assert_array_equal(ours.visits, summary.visit_counts)
    np.testing.assert_array_equal(ours.action, theirs.action)
    is_visited = ours.visits.numpy() > 0
    np.testing.assert_allclose(ours.q.numpy()[is_visited], np.asarray(summary.qvalues)[is_visited], atol=1e-5)
    np.testing.assert_allclose(ours.policy, theirs.action_weights, atol=1e-4)
    assert (search.trees.whole[:, :, CAN_STEP] == 0).any()
