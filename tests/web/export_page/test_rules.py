"""Python in JavaScript: constructs on the same values, and worlds by the same rules position by position."""

import json
import math
import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scramjet.engine.actions import random_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Env, load_env, registrations
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.envs.rng import normal, philox4x32
from tests.helpers.javascript import interpreted_game, javascript, translated_function, words_of, world_source

STEPS = (-1, 0, 1, 0)
TABLE = np.array([[1, 2, 3], [4, 5, 6]], np.int8)
NAMES = {"up": 0, (1, 2): "pair"}


def arithmetic(a: int, b: int) -> Any:
    parts = [a + b, a - b, a * b, -a, +a, abs(a - b), a**2, 2 ** abs(b % 5)]
    if b != 0:
        parts += [a / b, a // b, a % b, divmod(a, b)]
    return parts


def bits(a: int, b: int) -> Any:
    wide = (a & 255) << 30
    return [a & b, a | b, a ^ b, ~a, a << (b & 7), a >> (b & 7), wide | 1, wide >> 3, (wide ^ 5) & 0xFFFFFFFF]


def truth_values(a: int, b: int) -> Any:
    count = 0
    count += a > b
    count += (a < 0) & (b < 0)
    either = a or b
    both = a and b
    return [count, either, both, not a, a > 0 and b > 0, (a > 0) ^ (b > 0), bool(a), True + True, a == True]  # noqa: E712


def comparisons(a: int, b: int) -> Any:
    chained = 0 <= a < b < 5, -3 < a + 1 <= b + 2
    tuples = (a, b) < (b, a), (a, b) == (b, a), [a] == [b], (a, 1) <= (a, b)
    return [*chained, *tuples, a in (1, 2, 3), a not in STEPS, a is None, b in {1, 2}]


def loops(a: int, b: int) -> Any:
    seen, total, k = [], 0, -1
    for k in range(a, b, 2):
        if k % 3 == 0:
            continue
        total += k
        if total > 20:
            break
    for j in range(5, -5, -3):
        seen.append(j)
        j = 100
    while total > 3:
        total //= 2
    return [seen, total, k]


def assignments(a: int, b: int) -> Any:
    x = y = a
    x, y = y + 1, x + b
    (p, q), *rest = (a, b), x, y, 3
    values = [0, 0, 0]
    values[-1], values[0] = p, q
    values[1] += x if (z := a + b) > 0 else -x
    a, b = b, a
    return [x, y, p, q, rest, values, z, a, b]


def conversions(a: int, b: int) -> Any:
    half = a + b / 4
    return [int(half), float(a), round(half), round(a / 2), math.floor(half), math.ceil(half), min(a, b), max(a, b, 3)]


def trigonometry(a: int, b: int) -> Any:
    lengths = math.sqrt(a * a + b * b), math.hypot(a, b), math.copysign(1, b)
    return [lengths, math.pi * a, math.atan2(a, b), math.degrees(a)]


def collections(a: int, b: int) -> Any:
    squares = [k * k for k in range(abs(a) % 6) if k != 2]
    pairs = [(i, j) for i in range(3) for j in range(i)]
    counts = {k: k + a for k in range(3)}
    counts[7] = b
    found = sorted([a, b, 0], key=lambda one: -one)
    ends = squares[:2], squares[-1:], "abcdef"[::-1], [1, 2, 3][1:]
    sums = sum(squares), len(pairs), any(squares), all(squares), list(zip(found, "xyz", strict=False))
    looked_up = NAMES["up"], NAMES[1, 2], 7 in counts
    return [squares, pairs, list(counts.items()), found, ends, sums, looked_up, list(enumerate("ab", 1))]


def texts(a: int, b: int) -> Any:
    signs = f"{a:+d}|{a / 3:.2f}|{a / 7:+.1f}|{abs(a) / 100:.1%}|{a:>5}|{b:<4}|{'x':^5}|{abs(b):03d}|{a * 1000:,}"
    joined = " ".join(str(one) for one in (a, b)), "ab" * 2 + "c", "a b ".rstrip(), "=" * 3
    return [signs, joined, "XO"[a % 2], f"{a:>{3 + b % 3}}"]


def arrays(a: int, b: int) -> Any:
    table = np.zeros((3, 4), np.int8)
    table[1, :] = a % 100
    table[:, -1] = [1, 2, 3]
    table[2, 0] -= 1
    table[0, ::2] = table[2, 1:3]
    row = table[1]
    row += 1
    total = TABLE[b % 2, a % 3] + TABLE[-1][0] + TABLE.shape[1]
    return [table.tolist(), int(total), bool(table.any()), int(table.sum()), (TABLE * 2 + 1).tolist(), len(table)]


def helper(value: int, times: int = 3, by: int = 1) -> int:
    """Has default values."""
    return value * times + by


def inner_functions(a: int, b: int) -> Any:
    offset = a * 10

    def moved(step: int) -> int:
        return offset + step

    return [moved(b), helper(b, by=a), helper(b), [moved(k) for k in range(2)]]


CONSTRUCTS = (
    arithmetic, bits, truth_values, comparisons, loops, assignments, conversions, trigonometry, collections, texts,
    arrays, inner_functions,
)  # fmt: skip


def test_a_construct_gives_in_javascript_what_it_gives_in_python() -> None:
    pairs, chance = [(0, 0), (1, 0), (0, -1), (-7, 2), (7, -2), (-7, -7)], random.Random(7)
    pairs += [(chance.randint(-50, 50), chance.randint(-9, 9)) for _ in range(60)]
    for function in CONSTRUCTS:
        translated = translated_function(function, TicTacToe())
        for a, b in pairs:
            assert as_lists(function(a, b)) == translated(a, b), (function, a, b)


def as_lists(value: Any) -> Any:
    """Tuples as lists and truth values as they are, as JSON has them."""
    if isinstance(value, tuple | list):
        return Nested([as_lists(one) for one in value])
    return value


class Nested(list):
    """A list that compares numbers nearly and everything else exactly."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and len(other) == len(self) and all(map(_is_same, self, other))

    __hash__ = None  # type: ignore[assignment]


def _is_same(mine: Any, other: Any) -> bool:
    if isinstance(mine, float) and not isinstance(other, str):
        return bool(other == pytest.approx(mine, rel=1e-14))
    return bool(mine == other)


def out_of_range(a: int) -> Any:
    return STEPS[a]


def too_large(a: int) -> Any:
    return a * a


def no_quotient(a: int) -> Any:
    return 1 // a


def test_what_python_refuses_or_javascript_cannot_count_is_an_error() -> None:
    for function, value in ((out_of_range, 4), (too_large, 2**40), (no_quotient, 0)):
        with pytest.raises(RuntimeError):
            translated_function(function, TicTacToe())(value)


BUILT_IN = [entry.name for entry in registrations() if str(entry.target).startswith("scramjet.")]
CHOSEN = ("snake", "cartpole", "kuhn")
"""Agents at once, one player and real numbers, seats and hidden cards."""
OTHER_KINDS: list[tuple[str, dict[str, Any]]] = [
    ("snake", {"snakes": 3, "size": 8}),
    ("connect_four", {"random_opponent": True, "opening_plies": 6}),
    ("connect_four", {"opening_plies": 30, "rows": 5, "cols": 8}),
    ("kuhn", {"players": 3}),
    ("othello", {"size": 4, "opening_plies": 5}),
    ("sliding_tiles", {"size": 4, "varied_scrambles": True}),
    ("identity_continuous", {"dims": 3, "num_targets": 4}),
]
DRAWN = sorted({*BUILT_IN} - {name for name in BUILT_IN if name.startswith("probe")} - {"mountain_car_continuous"})
"""Those with a picture; that of mountain_car_continuous is mountain_car's."""
SLOW = {"binpack": 15, "othello": 30, "game_2048": 60, "sokoban": 40}
"""Steps of worlds whose interpreted rules take long."""

USERS_WORLD = '''
"""A heap of stones."""

import numpy as np

from scramjet.envs import Box, Dict, Env, MultiDiscrete
from scramjet.envs.rng import randint, shuffle, uniform

LIMITS = np.array([3, 2], np.int16)


def taken(action):
    return min(1 + action[0], 3), action[1] == 1


class Heap(Env):
    """Take stones from a heap; who takes the last one loses. </script><script>alert(1)</script>"""

    stones: int = 21
    num_seats = 2
    max_episode_steps = 30
    action_space = MultiDiscrete([3, 2])
    observation_space = Dict({"left": Box(0, 30, (1,), np.float32), "own": Box(-9, 9, (2, 2), np.float32)})
    state = {
        "left": np.int64, "turn": np.uint8, "passed": np.bool_, "weight": np.float32, "drift": np.float64,
        "order": (np.int16, 4), "marks": (np.bool_, (2, 2)),
    }

    def reset(self, s):
        s.left = self.stones - randint(s, 3)
        s.weight = uniform(s, 0.5, 1.5)
        for k in range(len(s.order)):
            s.order[k] = k - 2
        shuffle(s, s.order)

    def step(self, s, action, reward):
        count, wants_pass = taken(action)
        s.marks[s.turn, count - 1 if count < 3 else 0] = wants_pass
        s.drift += s.weight * count / 3
        s.weight = s.weight * 0.99 + 0.1
        if wants_pass and not s.passed:
            s.passed = True
        else:
            s.left -= count
        s.turn = 1 - s.turn
        if s.left <= 0:
            reward[s.turn] = 1.0
            reward[1 - s.turn] = -1.0
        return s.left <= 0

    def seat(self, s):
        return int(s.turn)

    def observe(self, s, obs, player):
        obs.left[0] = s.left
        obs.own[:] = 0
        for k, mark in enumerate((s.drift, s.weight)):
            obs.own[player, k] = mark
        obs.own[1 - player, 0] = LIMITS[player] * s.order[-1]

    def mask(self, s, mask, player):
        mask[:] = True
        mask[3 + 1] = not s.passed

    def ascii(self, s):
        return f"{s.left} stones, {'first' if s.turn == 0 else 'second'} to move"
'''


def assert_same_game(env: Env, num_steps: int) -> None:
    """Play a random game by the interpreted rules, and the same actions in JavaScript."""
    wanted, actions, key = interpreted_game(env, num_steps)
    found = json.loads(javascript().eval(f"played({world_source(env)}, {json.dumps(key)}, {json.dumps(actions)})"))
    assert len(found) == num_steps + 1
    for number, (here, there) in enumerate(zip(wanted, found, strict=True)):
        if len(there["views"]) == len(here["views"]) > 1:  # agents: the dead have no mask that counts
            for own, other in zip(here["views"], there["views"], strict=True):
                other[1] = own[1] = [] if not own[1] or all(own[1]) else own[1]
        assert there == here, f"{type(env).__name__}, step {number}"


def test_worlds_of_every_kind_play_the_same_game_number_for_number(tmp_path: Path) -> None:
    for name in CHOSEN:
        assert_same_game(load_env(name), 40)
    assert_same_game(load_env("snake", snakes=3, size=8), 40)
    (tmp_path / "heap.py").write_text(USERS_WORLD)  # seats, and fields of every kind
    assert_same_game(load_env(str(tmp_path / "heap.py")), 200)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "parameters"), [*((name, {}) for name in BUILT_IN), *OTHER_KINDS], ids=lambda value: str(value)
)
def test_a_built_in_world_plays_the_same_game_number_for_number(name: str, parameters: dict[str, Any]) -> None:
    assert_same_game(load_env(name, **parameters), SLOW.get(name, 100))


def test_random_words_and_normal_draws_are_those_of_the_generator() -> None:
    engine, random = javascript(), np.random.default_rng(5)
    for _ in range(50):
        words = random.integers(0, 2**32, 6).tolist()
        words[random.integers(6)] = 2**32 - 1
        found = engine.eval(f"JSON.stringify($.philox({words[:4]}, {words[4:]}))")
        assert json.loads(found) == list(philox4x32(*words))
    key, drawn = 0x0123456789ABCDEF, Namespace(_seed=0x0123456789ABCDEF, _index=3, _episode=2, _draw=0)
    wanted = [normal(drawn, 1.0, 2.0) for _ in range(20)]
    record = f"{{ _draw: 0, _index: 3, _episode: 2, $key: [{key & 0xFFFFFFFF}, {key >> 32}] }}"
    found = javascript().eval(
        f"(() => {{ const s = {record}; return $.range(20).map(() => $.normal(s, 1, 2)).join(); }})()"
    )
    assert [float(text) for text in found.split(",")] == pytest.approx(wanted, rel=1e-12)


def assert_same_picture(name: str) -> None:
    env, seeds, actions = load_env(name), EpisodeSeed.of(3), []
    pool, random = NativePool(env, 1, backend="interpreted"), np.random.default_rng(1)
    out = pool.reset(seeds)
    for _ in range(4):
        action = random_actions(pool, out, random)
        actions.append(action.tolist())
        out = pool.step(action)
    wanted = env.render(pool.record(0))
    found = javascript().eval(
        f"(() => {{ const {{ world, rules }} = {world_source(env)}; const game = new Game(world, rules);"
        f" game.begin({words_of(seeds)});"
        f" for (const action of {actions}) {{ game.step(action); if (game.isOver) game.beginNext(); }}"
        " return pixelText(game.picture()); })()"
    )
    pixels = np.frombuffer(found.encode("latin-1"), np.uint8).reshape(wanted.shape)
    assert np.abs(pixels.astype(int) - wanted).max() <= 1, name


def test_pictures_are_drawn_the_same_to_a_shade() -> None:
    for name in CHOSEN:
        assert_same_picture(name)


@pytest.mark.rest
@pytest.mark.parametrize("name", sorted({*DRAWN} - {*CHOSEN}))
def test_a_picture_is_drawn_the_same_to_a_shade(name: str) -> None:
    assert_same_picture(name)
