"""Puts a world, its rules, a network and the scripts that run them into one HTML file.

Nothing in the file is loaded from elsewhere: its content policy forbids every request and names the one script and the
one style that may run by their hashes, so that no text of a run can become code.
"""

from __future__ import annotations

import base64
import hashlib
import html
import inspect
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import torch

from scramjet.engine.actions import random_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import (
    PlayedBy,
    action_kind,
    action_layout,
    action_sizes,
    leaf_layout,
    mask_size,
    num_players,
    played_by,
    state_dtype,
)
from scramjet.engine.privileged import shown_space
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.worlds.transitions import NO_LIMIT
from scramjet.envs.api import Dict, Env
from scramjet.errors import WorldError
from scramjet.policies.policy import Policy
from scramjet.web.export_page.network import describe_policy
from scramjet.web.export_page.program import world_program
from scramjet.web.export_page.values import DTYPES

# --- the world


def world_data(env: Env) -> dict[str, Any]:
    """A world as a dictionary for JSON; refuses number types that the page's arrays do not have."""
    return {
        "name": type(env).__name__,
        "about": inspect.cleandoc(type(env).__doc__ or ""),
        "layout": _record_layout(env),
        "playedBy": played_by(env).value,
        "numPlayers": num_players(env),
        "maxSteps": env.max_episode_steps or NO_LIMIT,
        "observation": _observation_layout(shown_space(env)),
        "action": _action(env),
        "maskSize": mask_size(env),
        "hides": bool(env.hidden) and num_players(env) > 1,
        "moves": _moves(env),
        "actionNames": [str(name) for name in env.action_names],
    }


def _moves(env: Env) -> bool:
    """Whether the world is one of motion, to be played against the clock: places and speeds are single fractions."""
    state = state_dtype(env)
    return mask_size(env) == 0 and any(state[name].kind == "f" for name in env.state)


def _record_layout(env: Env) -> dict[str, Any]:
    dtype = state_dtype(env)
    fields = []
    for name in dtype.names or ():
        assert dtype.fields is not None
        field, offset = dtype.fields[name][:2]
        kind = field.base.name
        if kind not in DTYPES:
            raise WorldError(
                f"export-page cannot take {type(env).__name__}: state['{name}'] is {kind}, a number type that "
                f"JavaScript has no array for; use {', '.join(DTYPES[1:])}"
            )
        fields.append({"name": name, "dtype": kind, "shape": list(field.shape), "offset": offset})
    return {"size": dtype.itemsize, "fields": fields}


def _observation_layout(space: Any) -> dict[str, Any]:
    if isinstance(space, Dict):
        return {"entries": [[name, _observation_layout(inner)] for name, inner in space.spaces.items()]}
    shape, dtype = leaf_layout(space)
    if dtype.name not in DTYPES:
        raise WorldError(f"export-page cannot take observations of {dtype}: JavaScript has no array for it")
    return {"shape": list(shape), "dtype": dtype.name}


def _action(env: Env) -> dict[str, Any]:
    shape, _ = action_layout(env)
    space = env.action_space
    given: dict[str, Any] = {"kind": action_kind(env).value, "sizes": action_sizes(env).tolist(), "shape": list(shape)}
    if given["kind"] == "box":
        given["low"], given["high"] = (np.asarray(bound, float).ravel().tolist() for bound in (space.low, space.high))
    return given


# --- a recorded game

NUM_STEPS = 40
_PERIOD = 97


def recorded_game(env: Env, policy: Policy, *, seed: int = 0, num_steps: int = NUM_STEPS) -> dict[str, Any]:
    """Random legal actions, what the players saw, and what the policy thought of it; for JSON."""
    pool = NativePool(env, 1, backend="interpreted")
    seeds, random = EpisodeSeed.of(seed, "page"), np.random.default_rng(seed)
    out = pool.reset(seeds)
    state = torch.zeros(pool.num_players, policy.state_size)  # a memory for each player
    steps = []
    for _ in range(num_steps):
        step = {"record": _record_sum(pool), "players": _players(pool, policy, out, state)}
        actions = random_actions(pool, out, random)
        step["actions"] = actions.tolist()
        out = pool.step(actions)
        step["rewards"] = out.reward.ravel().tolist()
        step["terminated"], step["truncated"] = out.terminated.tolist(), out.truncated.tolist()
        if pool.states()["_steps"][0] == 0:  # another episode has begun
            state.zero_()
        steps.append(step)
    return {"key": [seeds.key & 0xFFFFFFFF, seeds.key >> 32 & 0xFFFFFFFF], "steps": steps}


def _players(pool: NativePool, policy: Policy, out: Transition, state: torch.Tensor) -> list[dict[str, Any]]:
    """What those who act see, and what the policy answers."""
    seen = []
    for row in range(pool.num_rows):
        if pool.played_by is PlayedBy.AGENTS and not out.turn[row]:
            continue
        player = int(out.turn[0]) if pool.played_by is PlayedBy.SEATS else row
        obs = map_leaves(lambda leaf, row=row: torch.from_numpy(leaf[row : row + 1].copy()), out.obs)
        with torch.inference_mode():
            output = policy(obs, state[player : player + 1] if policy.state_size else None)
        if output.state is not None:
            state[player] = output.state[0]
        numbers = [leaf[row].ravel().astype(np.float64) for leaf in leaves(out.obs)]
        mask = _weighted_sum(out.mask[row].astype(np.float64)) if out.mask.shape[1] else None
        answer = {"logits": output.logits[0].tolist(), "value": float(output.value[0])}
        seen.append({"player": player, "obs": _weighted_sum(np.concatenate(numbers)), "mask": mask, **answer})
    return seen


def _record_sum(pool: NativePool) -> float:
    state = pool.states()[0]
    names = [name for name in state.dtype.names if name != "_seed"]
    return _weighted_sum(np.concatenate([np.ravel(state[name]).astype(np.float64) for name in names]))


def _weighted_sum(values: np.ndarray) -> float:
    """As `weightedSum` in checking.js."""
    return float(np.sum(values * (np.arange(len(values)) % _PERIOD + 1)))


# --- scripts

RUNTIME = ("numbers", "arrays", "sequences", "numpy", "canvas", "rng", "game")
"""Scripts that translated rules need, in the order in which they are read."""


def asset(name: str) -> str:
    """The text of a file in `runtime/`."""
    return files("scramjet.web.export_page").joinpath("runtime", name).read_text("utf-8")


def scripts(names: tuple[str, ...]) -> str:
    """Several scripts one after the other."""
    return "\n".join(asset(f"{name}.js") for name in names)


# --- the page

NETWORK = ("network", "layers", "choosing", "checking")
"""Scripts that run and check a network."""
VIEW = ("session", "view", "page")
"""Scripts that a visitor sees at work."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the page says of where it comes from."""

    run: str
    num_steps: int
    """Steps that the policy was trained for."""
    value_scale: float = 1.0
    """What the policy's values are multiplied with to be returns."""


@dataclass(frozen=True, slots=True)
class SharedPage:
    """A page to share and what it is made of."""

    html: str
    engine: str
    """The part of its script without the page: the runtime, the rules as `rules`, and the data as `data`."""
    weights: bytes
    notes: list[str]
    """What the page goes without, such as a picture that has no translation."""


def shared_page(env: Env, policy: Policy, facts: Facts) -> SharedPage:
    """The page of a world and a policy; refuses what has no translation with a WorldError or ConfigError."""
    program, notes = world_program(env)
    described, weights = describe_policy(policy)
    data = {
        "world": world_data(env),
        "policy": described,
        "recorded": recorded_game(env, policy),
        "facts": {"valueScale": facts.value_scale},
    }
    engine = f'"use strict";\n{scripts((*RUNTIME, *NETWORK))}\n{program}\nconst data = {script_json(data)};\n'
    script = f"(() => {{\n{engine}{scripts(VIEW)}\nstartPage(data);\n}})();"
    return SharedPage(_filled(env, facts, script, weights), engine, weights, notes)


def script_json(value: Any) -> str:
    """JSON that stands in a script and cannot end it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _filled(env: Env, facts: Facts, script: str, weights: bytes) -> str:
    """The HTML with every text in its place."""
    style = asset("page.css")
    rules = {
        "default-src": "'none'",
        "script-src": _hash_source(script),
        "style-src": _hash_source(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    about = world_data(env)["about"]
    texts = {
        "policy": html.escape("; ".join(f"{name} {source}" for name, source in rules.items())),
        "title": html.escape(f"{_title(type(env).__name__)}: {facts.run}"),
        "name": html.escape(_title(type(env).__name__)),
        "about": html.escape(about),
        "footer": html.escape(f"Made with scramjet. Run {facts.run}, trained for {facts.num_steps:,} steps."),
        "speed": str(20 if world_data(env)["moves"] else 2 if num_players(env) > 1 else 5),
        "style": style,
        "weights": base64.b64encode(weights).decode(),
        "script": script,
    }
    parts = asset("page.html").split("{")  # not str.format: the texts have braces of their own
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}")
        filled.append(texts[name] + rest)
    return "".join(filled)


def _hash_source(text: str) -> str:
    """The source of a content policy that allows this text alone."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(name: str) -> str:
    """A class name as words: ConnectFour as Connect Four."""
    letters = [f" {letter}" if k and letter.isupper() and not name[k - 1].isupper() else letter
               for k, letter in enumerate(name)]  # fmt: skip
    return "".join(letters)
