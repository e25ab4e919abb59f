"""Worlds and functions translated for the shared page, run in a JavaScript engine (mini-racer)."""

import atexit
import functools
import json
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from scramjet.engine.actions import random_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Env
from scramjet.web.export_page.page import NETWORK, RUNTIME, scripts, world_data
from scramjet.web.export_page.program import Program, world_program

PLAY = """
function pixelText(picture) {
  const { data } = ofArrays.astype(picture, "uint8");
  let text = "";
  for (let k = 0; k < data.length; k += 8192) text += String.fromCharCode.apply(null, data.subarray(k, k + 8192));
  return text;
}
function numbersOf(value) {
  return value instanceof NdArray ? value.values().map($.pos) : Object.values(value).flatMap(numbersOf);
}
function shown(game) {
  const { world } = game;
  const fields = world.layout.fields.filter(({ name }) => name !== "_seed").flatMap(({ name }) =>
    game.record[name] instanceof NdArray ? game.record[name].values() : [game.record[name]]);
  const players = world.playedBy === "agents" ? $.range(world.numPlayers) : game.actors;
  const views = players.map((player) => [numbersOf(game.observation(player)), game.mask(player)?.values() ?? []]);
  return { fields: fields.map($.pos), views, turn: world.playedBy === "seats" ? players[0] : -1 };
}
function played({ world, rules }, key, actions) {
  const game = new Game(world, rules);
  game.begin(key);
  const steps = [shown(game)];
  for (const action of actions) {
    const result = game.step(action);
    if (game.isOver) game.beginNext();
    steps.push({ ...shown(game), ...result });
  }
  return JSON.stringify(steps);
}
"""


@functools.cache
def javascript() -> Any:
    """An engine with the page's runtime; skips the test where mini-racer is not installed."""
    racer = pytest.importorskip("py_mini_racer", reason="needs mini-racer: pip install 'scramjet[dev]'")
    engine = racer.MiniRacer()
    engine.eval(f'"use strict";\n{scripts((*RUNTIME, *NETWORK))}\n{PLAY}')
    atexit.register(javascript.cache_clear)  # while Python can still end it
    return engine


def translated_function(function: Callable[..., Any], env: Env) -> Callable[..., Any]:
    """A Python function as its translation computes it: lists for tuples, and errors as RuntimeError."""
    program = Program(env)
    assert isinstance(function, FunctionType)
    name = program.function(function)
    own = f"(() => {{ 'use strict'; {program.source({})}; return {name}; }})()"
    engine = javascript()

    def call(*arguments: Any) -> Any:
        given = ", ".join(map(json.dumps, arguments))
        text = engine.eval(
            f"(() => {{ try {{ return JSON.stringify({own}({given})); }} catch (e) {{ return 'E' + e; }} }})()"
        )
        if text.startswith("E"):
            raise RuntimeError(text)
        return json.loads(text)

    return call


def world_source(env: Env) -> str:
    """A JavaScript expression that makes `{ world, rules }` of a world."""
    program, _ = world_program(env)
    return f"(() => {{ 'use strict'; {program}\nreturn {{ world: {json.dumps(world_data(env))}, rules }}; }})()"


def words_of(seeds: EpisodeSeed) -> list[int]:
    """A generator's key as two words."""
    return [seeds.key & 0xFFFFFFFF, seeds.key >> 32 & 0xFFFFFFFF]


def interpreted_game(env: Env, num_steps: int, seed: int = 3) -> tuple[list[dict[str, Any]], list[Any], list[int]]:
    """A random game by the interpreted rules: each position in the form of `played`, the actions, and the key."""
    pool, random, seeds = NativePool(env, 1, backend="interpreted"), np.random.default_rng(seed), EpisodeSeed.of(seed)
    out = pool.reset(seeds)
    steps, actions = [_shown(pool, out)], []
    for _ in range(num_steps):
        action = random_actions(pool, out, random)
        actions.append(action.tolist())
        out = pool.step(action)
        ended = {"terminated": out.terminated.tolist(), "truncated": out.truncated.tolist()}
        steps.append({**_shown(pool, out), "rewards": out.reward.ravel().tolist(), **ended})
    return steps, actions, words_of(seeds)


def _shown(pool: NativePool, out: Any) -> dict[str, Any]:
    state = pool.states()[0]
    names = [name for name in state.dtype.names if name != "_seed"]
    fields = np.concatenate([np.ravel(state[name]).astype(float) for name in names])
    views = []
    for row in range(pool.num_rows):
        numbers = np.concatenate([np.ravel(leaf[row]).astype(float) for leaf in leaves(out.obs)])
        views.append([numbers.tolist(), out.mask[row].tolist()])
    return {
        "fields": fields.tolist(),
        "views": views,
        "turn": int(out.turn[0]) if pool.played_by is PlayedBy.SEATS else -1,
    }
