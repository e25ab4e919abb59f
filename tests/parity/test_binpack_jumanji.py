"""Our BinPack is Jumanji's BinPack-v2: the same spaces in the same order, masks, rewards and ends.

Both are given the same items. Jumanji keeps its spaces in 40 slots, fills the first free one, and writes to the first
of all when none is free; it shows them by volume. Ours does the same, so actions need no translation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env

jax = pytest.importorskip("jax")
pytest.importorskip("jumanji")
import jax.numpy as jnp  # noqa: E402
import jumanji  # noqa: E402
from jumanji.environments import BinPack  # noqa: E402
from jumanji.environments.packing.bin_pack import generator as generators  # noqa: E402
from jumanji.environments.packing.bin_pack.types import EMS, Item, Location, State  # noqa: E402

WORLD = "scramjet.envs.games.binpack:BinPack"
NUM_ENVS = 64
MAX_ITEMS = 20
MAX_SPACES = 40
EDGES = ("x1", "x2", "y1", "y2", "z1", "z2")


class GivenItems(generators.Generator):
    """Instances of given items; they come in place of the random key."""

    def __init__(self) -> None:
        super().__init__(MAX_ITEMS, MAX_SPACES, generators.TWENTY_FOOT_DIMS)

    def __call__(self, key: Any) -> State:
        lengths, exists = key  # [max_items, 3], [max_items]
        nowhere = jnp.zeros(MAX_ITEMS, jnp.int32)
        container = generators.make_container(self.container_dims)
        spaces = {edge: jnp.zeros(MAX_SPACES, jnp.int32).at[0].set(getattr(container, edge)) for edge in EDGES}
        return State(
            container=container,
            ems=EMS(**spaces),
            ems_mask=jnp.arange(MAX_SPACES) == 0,
            items=Item(lengths[:, 0], lengths[:, 1], lengths[:, 2]),
            items_mask=exists,
            items_placed=jnp.zeros(MAX_ITEMS, bool),
            items_location=Location(nowhere, nowhere, nowhere),
            action_mask=None,
            sorted_ems_indexes=jnp.arange(MAX_SPACES),
            key=jnp.zeros(2, jnp.uint32),
        )


class Theirs:
    """Jumanji's envs beside our pool."""

    def __init__(self, pool: NativePool) -> None:
        self.pool = pool
        shapes = jax.eval_shape(jax.vmap(THEIR_ENV.reset), self.instances())
        nothing = jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        self.state, self.timestep = RESET_SOME(np.ones(NUM_ENVS, bool), self.instances(), nothing)

    def instances(self) -> tuple[np.ndarray, np.ndarray]:
        states = self.pool.states()
        return states["lengths"].copy(), np.arange(MAX_ITEMS) < states["num_items"][:, None]

    def step(self, actions: np.ndarray) -> None:
        pairs = np.stack(np.divmod(actions, MAX_ITEMS), axis=1).astype(np.int32)
        self.state, self.timestep = STEP(self.state, pairs)

    def begin_again(self, ended: np.ndarray) -> None:
        """Where an episode ended, take the instance that our pool has moved on to."""
        self.state, self.timestep = RESET_SOME(ended, self.instances(), (self.state, self.timestep))

    def spaces(self) -> np.ndarray:
        """Sorted as shown, in millimetres, [N, max_spaces, 6]."""
        slots = np.stack([np.asarray(getattr(self.state.ems, edge)) for edge in EDGES], axis=-1)
        return np.take_along_axis(slots, np.asarray(self.state.sorted_ems_indexes)[:, :, None], axis=1)


def reset_some(ended: Any, instance: Any, old: Any) -> Any:
    return jax.tree_util.tree_map(lambda a, b: jnp.where(ended, a, b), THEIR_ENV.reset(instance), old)


THEIR_ENV = BinPack(GivenItems(), obs_num_ems=MAX_SPACES)
RESET_SOME = jax.jit(jax.vmap(reset_some))
STEP = jax.jit(jax.vmap(THEIR_ENV.step))


def assert_same_obs(ours: dict[str, np.ndarray], theirs: Any, rows: np.ndarray, where: str) -> None:
    ems_mask, items_mask = np.asarray(theirs.ems_mask), np.asarray(theirs.items_mask)
    np.testing.assert_array_equal(ours["ems_mask"][rows], ems_mask[rows], err_msg=where)
    np.testing.assert_array_equal(ours["items_mask"][rows], items_mask[rows], err_msg=where)
    np.testing.assert_array_equal(ours["items_placed"][rows], np.asarray(theirs.items_placed)[rows], err_msg=where)
    ems = np.stack([np.asarray(getattr(theirs.ems, edge)) for edge in EDGES], axis=-1) * ems_mask[..., None]
    items = np.stack([np.asarray(lengths) for lengths in theirs.items], axis=-1) * items_mask[..., None]
    np.testing.assert_allclose(
        ours["ems"][rows], ems[rows], rtol=2e-7, err_msg=where
    )  # theirs are not 0 beyond the mask
    np.testing.assert_allclose(ours["items"][rows], items[rows], rtol=2e-7, err_msg=where)


def mixed_actions(random: np.random.Generator, mask: np.ndarray) -> np.ndarray:
    """Legal ones at random; now and then any action at all, most of which are illegal."""
    legal = np.where(mask, random.random(mask.shape), -1).argmax(axis=1)
    return np.where(random.random(len(mask)) < 0.02, random.integers(mask.shape[1], size=len(mask)), legal)


def test_binpack_equals_jumanji_transition_for_transition() -> None:
    pool = NativePool(load_env(WORLD), NUM_ENVS, num_threads=1)
    out = pool.reset(3)
    theirs = Theirs(pool)
    random = np.random.default_rng(0)
    num_ended = num_illegal = num_full = 0
    for t in range(120):
        where = f"step {t}"
        mask = np.asarray(theirs.timestep.observation.action_mask).reshape(NUM_ENVS, -1)
        np.testing.assert_array_equal(out.mask, mask, err_msg=where)
        actions = mixed_actions(random, mask)
        out = pool.step(actions)
        theirs.step(actions)
        ended = np.asarray(theirs.timestep.step_type) == 2
        np.testing.assert_array_equal(out.terminated, ended, err_msg=where)
        np.testing.assert_allclose(out.reward, theirs.timestep.reward, rtol=1e-6, err_msg=where)
        assert_same_obs(out.obs, theirs.timestep.observation, ~ended, where)
        assert_same_obs(out.final_obs, theirs.timestep.observation, ended, where)
        states, their_spaces = pool.states(), theirs.spaces()
        for i in np.flatnonzero(~ended):
            order = states["order"][i, : states["num_spaces"][i]]
            np.testing.assert_array_equal(states["spaces"][i][:, order].T, their_spaces[i, : len(order)], err_msg=where)
        episodes, extras = pool.episodes(), theirs.timestep.extras
        np.testing.assert_allclose(episodes.stats["volume_used"], extras["volume_utilization"][ended], rtol=1e-6)
        np.testing.assert_array_equal(episodes.stats["items_placed"], extras["packed_items"][ended])
        num_ended += int(ended.sum())
        num_illegal += int(np.asarray(extras["invalid_action"]).sum())
        num_full += int((np.asarray(extras["active_ems"]) == MAX_SPACES).sum())
        theirs.begin_again(ended)
    assert num_ended > 300
    assert num_illegal > 50
    assert num_full > 20  # slots run out, and the first one is written over


def largest_gap(first: np.ndarray, second: np.ndarray) -> float:
    """Kolmogorov and Smirnov's: how far the two samples' distribution functions lie apart."""
    points = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def summaries(lengths: np.ndarray, exists: np.ndarray) -> dict[str, np.ndarray]:
    """One number an instance for each of several views of it."""
    volumes = lengths.prod(axis=-1, dtype=np.float64)
    count = exists.sum(axis=1)
    return {
        "items": count,
        "largest": np.where(exists, volumes, 0).max(axis=1),
        "smallest": np.where(exists, volumes, np.inf).min(axis=1),
        "first": volumes[:, 0],
        "last": volumes[np.arange(len(count)), count - 1],
        "mean x": (lengths[..., 0] * exists).sum(axis=1) / count,
        "mean y": (lengths[..., 1] * exists).sum(axis=1) / count,
        "flattest": np.where(exists, lengths[..., 2], np.inf).min(axis=1),
    }


def test_instances_are_distributed_as_those_of_jumanji() -> None:
    count = 2000
    pool = NativePool(load_env(WORLD), count, num_threads=1)
    pool.reset(0)
    ours = pool.states()
    generator = generators.RandomGenerator(MAX_ITEMS, MAX_SPACES)
    theirs = jax.jit(jax.vmap(generator))(jax.random.split(jax.random.PRNGKey(0), count))
    first = summaries(ours["lengths"], np.arange(MAX_ITEMS) < ours["num_items"][:, None])
    second = summaries(np.stack([np.asarray(x) for x in theirs.items], axis=-1), np.asarray(theirs.items_mask))
    for name in first:
        assert largest_gap(first[name], second[name]) < 2.2 * np.sqrt(2 / count), name  # 1 in 10 000 by chance


def test_the_defaults_are_those_of_jumanji() -> None:
    ours, theirs = load_env(WORLD), jumanji.make("BinPack-v2")
    assert (ours.max_items, ours.max_spaces) == (theirs.generator.max_num_items, theirs.generator.max_num_ems)
    assert ours.max_spaces == theirs.obs_num_ems
    assert ours.container == theirs.generator.container_dims
    assert ours.action_space.n == np.prod(theirs.action_spec.num_values)
    defaults = vars(generators.RandomGenerator(MAX_ITEMS, MAX_SPACES))
    for name in ("split_eps", "prob_split_one_item", "split_num_same_items"):
        assert getattr(ours, name) == defaults[f"_{name}"], name
