"""BinPack: spaces are the maximal boxes of air, items never overlap, and the container can always be filled."""

import itertools
import pickle
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scramjet.envs.games.binpack import BinPack, back_to_front, pick_item
from tests.helpers.playing import begun, episode_stats, legal, observation

seeds = st.integers(0, 2**40)
small_worlds = st.builds(
    lambda lengths, same: BinPack(
        max_items=9, max_spaces=60, split_num_same_items=same, length=lengths[0], width=lengths[1], height=lengths[2]
    ),
    st.tuples(st.integers(3, 6), st.integers(2, 5), st.integers(2, 4)),
    st.integers(2, 4),
)


def given_items(env: BinPack, *lengths: tuple[int, int, int]) -> SimpleNamespace:
    s = begun(env)
    s.num_items = len(lengths)
    s.lengths[:] = 0
    s.lengths[: len(lengths)] = lengths
    return s


def shown_spaces(s: SimpleNamespace) -> np.ndarray:
    """Spaces as the policy sees them, a row each, in millimetres."""
    return s.spaces[:, s.order[: s.num_spaces]].T


def random_game(env: BinPack, seed: int, choices: int = 0) -> Iterator[SimpleNamespace]:
    """The states of a game of random legal actions, each before the next action is taken."""
    s = begun(env, seed)
    random = np.random.default_rng(choices)
    is_over = False
    while not is_over:
        yield s
        _, is_over = env.step(s, int(random.choice(legal(env, s))))
    yield s


def boxes_of(corners: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.stack([corners, corners + lengths], axis=-1).reshape(-1, 6)


def placed_boxes(s: SimpleNamespace) -> np.ndarray:
    is_placed = s.placed == 1
    return boxes_of(s.location[is_placed], s.lengths[is_placed])


def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    low = np.maximum(first[:, None, ::2], second[None, :, ::2])
    return (low < np.minimum(first[:, None, 1::2], second[None, :, 1::2])).all(axis=-1)


def holds(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    low = outer[:, None, ::2] <= inner[None, :, ::2]
    high = outer[:, None, 1::2] >= inner[None, :, 1::2]
    return (low & high).all(axis=-1)


def assert_packed_without_overlap(env: BinPack, boxes: np.ndarray) -> None:
    assert holds(np.array([[0, env.length, 0, env.width, 0, env.height]]), boxes).all()
    np.testing.assert_array_equal(overlap(boxes, boxes), np.eye(len(boxes), dtype=bool))


def maximal_boxes_of_air(env: BinPack, s: SimpleNamespace) -> set[tuple[int, ...]]:
    """By trying every box: those that no item reaches into and that would meet an item or a wall if they grew."""
    filled = np.ones((env.length + 2, env.width + 2, env.height + 2), int)  # with walls one cell thick
    filled[1:-1, 1:-1, 1:-1] = 0
    for x1, x2, y1, y2, z1, z2 in placed_boxes(s) + 1:
        filled[x1:x2, y1:y2, z1:z2] = 1
    sums = np.pad(filled, ((1, 0), (1, 0), (1, 0))).cumsum(0).cumsum(1).cumsum(2)

    def is_air(x1, x2, y1, y2, z1, z2) -> np.ndarray:
        total = 0
        for (x, sign_x), (y, sign_y), (z, sign_z) in itertools.product(
            ((x1, -1), (x2, 1)), ((y1, -1), (y2, 1)), ((z1, -1), (z2, 1))
        ):
            total = total + sign_x * sign_y * sign_z * sums[x, y, z]
        return total == 0

    sides = [np.array(list(itertools.combinations(range(1, n + 2), 2))) for n in env.container]
    number = [grid.ravel() for grid in np.meshgrid(*[np.arange(len(pairs)) for pairs in sides], indexing="ij")]
    edges = [sides[axis][number[axis], end] for axis in range(3) for end in (0, 1)]
    is_maximal = is_air(*edges)
    for i in range(6):
        grown = list(edges)
        grown[i] = edges[i] + (1 if i % 2 else -1)
        is_maximal &= ~is_air(*grown)
    return {tuple(box) for box in (np.stack(edges, axis=1)[is_maximal] - 1).tolist()}


# --- instances --------------------------------------------------------------------------------------------------


large_worlds = st.builds(
    lambda same, eps, prob: BinPack(split_num_same_items=same, split_eps=eps, prob_split_one_item=prob),
    st.integers(2, 7),
    st.floats(0, 0.5),
    st.floats(0, 1),
)


@settings(max_examples=60)
@given(seeds, small_worlds | large_worlds)
def test_the_items_of_an_instance_fill_the_container_exactly(seed, env) -> None:
    s = begun(env, seed)
    items = boxes_of(s.solution, s.lengths)
    assert env.max_items - env.split_num_same_items < s.num_items <= env.max_items
    assert (items[s.num_items :] == 0).all()
    assert_packed_without_overlap(env, items[: s.num_items])
    assert s.lengths.astype(np.int64).prod(axis=1).sum() == env.length * env.width * env.height


def test_an_item_cut_in_two_is_cut_at_a_distance_from_its_ends() -> None:
    env = BinPack(max_items=3, split_num_same_items=2, prob_split_one_item=1, length=1000, width=1000, height=1000)
    shares = np.array([begun(env, seed).lengths[0].min() for seed in range(200)])
    assert 300 <= shares.min() < 320
    assert 680 < shares.max() < 700


def test_an_item_cut_evenly_gives_parts_alike_to_a_millimetre() -> None:
    env = BinPack(max_items=7, split_num_same_items=6, prob_split_one_item=0, length=1000, width=1000, height=1000)
    counts = set()
    for seed in range(60):
        s = begun(env, seed)
        assert np.ptp(s.lengths[: s.num_items].min(axis=1)) <= 1
        counts.add(s.num_items)
    assert counts == {2, 3, 4, 5, 6}


def test_a_longer_item_is_cut_more_often() -> None:
    s = given_items(BinPack(), (100, 300, 5), (300, 100, 5))
    picks = np.array([[pick_item(s, axis) for axis in range(3)] for _ in range(1500)])
    np.testing.assert_allclose(picks.mean(axis=0), [3 / 4, 1 / 4, 1 / 2], atol=0.06)


@settings(max_examples=12)
@given(seeds, st.permutations(range(3)))
def test_items_put_back_corner_after_corner_fill_the_whole_container(seed, axes) -> None:
    """Whatever touches a low side of an item at its corner comes before it in this order, so a space begins there."""
    env = BinPack()
    s = begun(env, seed)
    solution = s.solution
    in_order = sorted(range(s.num_items), key=lambda item: [solution[item, axis] for axis in axes])
    total = 0.0
    for number, item in enumerate(in_order):
        spaces = shown_spaces(s)
        rank = np.flatnonzero(
            (spaces[:, ::2] == solution[item]).all(axis=1)
            & (spaces[:, 1::2] >= solution[item] + s.lengths[item]).all(axis=1)
        )[0]
        reward, is_over = env.step(s, int(rank) * env.max_items + item)
        assert is_over == (number == s.num_items - 1)
        total += reward
    np.testing.assert_array_equal(s.location, s.solution)
    assert episode_stats(env, s) == {"volume_used": 1.0, "items_placed": s.num_items}
    assert total == pytest.approx(1)
    assert s.num_spaces == 0


# --- spaces -----------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(small_worlds, seeds, seeds)
def test_the_spaces_are_exactly_the_maximal_boxes_of_air(env, seed, choices) -> None:
    for s in random_game(env, seed, choices):
        spaces = [tuple(space) for space in shown_spaces(s).tolist()]
        assert len(set(spaces)) == len(spaces) < env.max_spaces
        assert set(spaces) == maximal_boxes_of_air(env, s)


def test_an_item_in_the_middle_leaves_six_spaces() -> None:
    env = BinPack(max_items=3, max_spaces=6, split_num_same_items=2, length=9, width=8, height=7)
    s = given_items(env, (2, 3, 3), (1, 1, 1))
    s.spaces[:, 1] = (3, 9, 2, 8, 1, 7)  # made up: only from the low corner of such a space can an item float
    s.volumes[1] = 6 * 6 * 6
    s.num_spaces = s.num_slots = 2
    s.order[:2] = (0, 1)
    assert env.step(s, env.max_items) == (18 / 504, False)
    before_and_behind = [[0, 3, 0, 8, 0, 7], [5, 9, 0, 8, 0, 7]]
    beside = [[0, 9, 0, 2, 0, 7], [0, 9, 5, 8, 0, 7]]
    below_and_above = [[0, 9, 0, 8, 0, 1], [0, 9, 0, 8, 4, 7]]
    assert sorted(shown_spaces(s).tolist()) == sorted([*before_and_behind, *beside, *below_and_above])


def test_when_no_slot_is_free_the_space_in_the_first_gives_way() -> None:
    env = BinPack(max_items=3, max_spaces=2, split_num_same_items=2, length=4, width=2, height=2)
    s = given_items(env, (1, 1, 1), (1, 1, 1))
    assert env.step(s, 0) == (1 / 16, False)
    assert s.spaces.T.tolist() == [[0, 4, 0, 2, 1, 2], [0, 4, 1, 2, 0, 2]]
    assert s.num_spaces == 2


# --- playing ----------------------------------------------------------------------------------------------------


@settings(max_examples=8)
@given(st.sampled_from([(3, 2), (8, 2), (40, 2), (40, 5)]), seeds)
def test_in_every_state_spaces_are_air_the_mask_says_what_fits_and_rewards_add_up(sizes, seed) -> None:
    """Also where slots for spaces run out."""
    max_spaces, same = sizes
    env = BinPack(max_spaces=max_spaces, split_num_same_items=same)
    room, random = np.array([[0, env.length, 0, env.width, 0, env.height]]), np.random.default_rng(seed)
    s, is_over, total, most_spaces = begun(env, seed), False, 0.0, 0
    while not is_over:
        spaces, obs = shown_spaces(s), observation(env, s)
        most_spaces = max(most_spaces, len(spaces))
        assert (spaces[:, ::2] < spaces[:, 1::2]).all()
        assert holds(room, spaces).all()
        assert not overlap(spaces, placed_boxes(s)).any()
        np.testing.assert_array_equal(holds(spaces, spaces), np.eye(len(spaces), dtype=bool))
        assert len(placed_boxes(s)) == s.num_placed
        assert_packed_without_overlap(env, placed_boxes(s))
        assert env.observation_space.contains(obs)
        ems = np.rint(obs["ems"] * np.repeat(env.container, 2))
        items = np.rint(obs["items"] * np.array(env.container))
        np.testing.assert_array_equal(ems[: s.num_spaces], spaces)
        np.testing.assert_array_equal(items, s.lengths)
        assert (np.diff((ems[:, 1::2] - ems[:, ::2]).prod(axis=1)) <= 0).all()
        np.testing.assert_array_equal(obs["items_placed"], s.placed)
        np.testing.assert_array_equal(obs["items_mask"], np.arange(20) < s.num_items)
        np.testing.assert_array_equal(obs["ems_mask"], np.arange(max_spaces) < s.num_spaces)
        is_open = (obs["ems_mask"] == 1)[:, None] & (obs["items_mask"] == 1) & (obs["items_placed"] == 0)
        fits = is_open & (items[None] <= (ems[:, 1::2] - ems[:, ::2])[:, None]).all(axis=-1)
        np.testing.assert_array_equal(np.flatnonzero(fits), legal(env, s))
        action = int(random.choice(legal(env, s)))
        reward, is_over = env.step(s, action)
        assert reward == items[action % 20].prod() / (5870 * 2330 * 2200)
        assert is_over == (len(legal(env, s)) == 0)
        total += reward
    assert episode_stats(env, s) == {"volume_used": pytest.approx(total), "items_placed": s.placed.sum()}
    assert most_spaces == max_spaces or max_spaces == 40


@settings(max_examples=3)
@given(seeds)
@example(1959962)  # fills all 40 slots
def test_an_illegal_choice_ends_the_game_without_reward_and_changes_nothing(seed) -> None:
    env = BinPack()
    for number, s in enumerate(random_game(env, seed)):
        if number % 4 != 2:
            continue
        before = pickle.dumps(s)
        illegal = np.setdiff1d(np.arange(800), legal(env, s))
        for action in illegal.tolist():
            assert env.step(s, action) == (0.0, True)
        assert pickle.dumps(s) == before
        ranks, items = np.divmod(illegal, 20)
        assert (ranks >= s.num_spaces).any() == (s.num_spaces < 40)  # all slots may be taken
        assert (items >= s.num_items).any() == (s.num_items < 20)
        assert s.placed[items].any()


def test_the_sizes_of_the_spaces_follow_the_parameters() -> None:
    env = BinPack(max_items=12, max_spaces=7)
    assert env.action_space.n == 84
    shapes = {name: space.shape for name, space in env.observation_space.items()}
    assert shapes == {"ems": (7, 6), "ems_mask": (7,), "items": (12, 3), "items_mask": (12,), "items_placed": (12,)}


# --- pictures ---------------------------------------------------------------------------------------------------


def test_far_and_low_boxes_are_painted_before_those_that_hide_them() -> None:
    def box(x: int, y: int, z: int) -> np.ndarray:
        return np.array([(x, y, z), (x + 1, y + 1, z + 1)])

    boxes = {0: box(1, 0, 1), 1: box(1, 0, 0), 2: box(0, 0, 0), 3: box(0, 1, 0), 4: box(0, 0, 1)}
    order = back_to_front(boxes)
    for behind, in_front in ((3, 2), (2, 1), (1, 0), (2, 4), (4, 0)):
        assert order.index(behind) < order.index(in_front)


def test_the_pictures_show_the_items_where_they_are() -> None:
    env = BinPack(max_items=3, max_spaces=5, split_num_same_items=2, length=44, width=12, height=10)
    s = given_items(env, (11, 12, 10), (22, 6, 4), (40, 1, 1))
    empty = env.render(s)
    env.step(s, 0)
    env.step(s, 1)
    image = env.render(s)
    assert image.shape == empty.shape == (340, 600, 3)
    assert image.dtype == np.uint8
    assert (image != empty).any(axis=-1).mean() > 0.05
    lines = env.ascii(s).split("\n")
    assert lines[1] == "A" * 11 + "." * 33 + "   " + "9" * 11 + "." * 33
    assert lines[12] == "A" * 11 + "B" * 22 + "." * 11 + "   " + "9" * 11 + "3" * 22 + "." * 11
    assert lines[15:18] == [
        "  0 A       11     12     10        0      0      0",
        "  1 B       22      6      4       11      0      0",
        "  2 C       40      1      1        -      -      -",
    ]
    assert lines[-1] == "2 of 3 items placed   35.0% of the volume used"
