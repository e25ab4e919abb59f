"""Puts a world, its rules, a network and the scripts that run them into one HTML file.

Nothing in the file is loaded from elsewhere: its content policy forbids every request and names the one script and the
one style that may run by their hashes, so that no text of a run can become code.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass
from typing import Any

from scramjet.engine.layout import num_players
from scramjet.envs.api import Env
from scramjet.policies.policy import Policy
from scramjet.web.export_page.assets import RUNTIME, asset, scripts
from scramjet.web.export_page.network import describe_policy
from scramjet.web.export_page.program import world_program
from scramjet.web.export_page.recorded_game import recorded_game
from scramjet.web.export_page.world_data import world_data

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
