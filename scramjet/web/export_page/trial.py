"""Runs a page's rules and network in a JavaScript engine before it is written, where one is installed."""

from __future__ import annotations

import importlib.util

from scramjet.errors import WorldError
from scramjet.web.export_page.literals import text
from scramjet.web.export_page.page import SharedPage

_CHECK = """
const trialBytes = new Uint8Array(ENCODED.length / 2);
for (let k = 0; k < trialBytes.length; k++) trialBytes[k] = parseInt(ENCODED.slice(2 * k, 2 * k + 2), 16);
const trialNetwork = new Network(data.policy, new Float32Array(trialBytes.buffer));
gameDifference(new Game(data.world, rules), trialNetwork, data.recorded);
"""


def can_try() -> bool:
    """Whether mini-racer, a JavaScript engine for Python, is installed."""
    return importlib.util.find_spec("py_mini_racer") is not None


def try_page(page: SharedPage, world: str) -> None:
    """Play the recorded game in JavaScript; a WorldError where it goes another way than in Python."""
    from py_mini_racer import JSEvalException, MiniRacer

    engine = MiniRacer()
    try:
        difference = engine.eval(f"{page.engine}\nconst ENCODED = {text(page.weights.hex())};\n{_CHECK}")
    except JSEvalException as error:
        difference = str(error).strip().splitlines()[0]
    if difference is not None:
        raise WorldError(
            f"export-page cannot take {world}: its rules or network give another game in JavaScript than in Python "
            f"({difference}); nothing was written"
        )
