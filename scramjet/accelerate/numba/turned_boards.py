"""Turns the logits of turned boards back, as `CanonicalNetwork` does: compiled functions for symmetric policies.

The last of a row's inputs is the number of the symmetry by which its board was turned.
"""

from __future__ import annotations

import numpy as np

from scramjet.accelerate.numba.towers import FLOAT, work_at
from scramjet.compile.addresses import AddressedFunction, floats, words
from scramjet.compile.jit import callable_from_compiled
from scramjet.compile.vector_maths import copy


@callable_from_compiled
def _sources(work, x, row):  # type: ignore[no-untyped-def]
    """For each action of the board as it was, the number of its logit for the turned board."""
    turn = np.int64(floats(x + FLOAT * (row + 1) * work.num_inputs - FLOAT, 1)[0])
    size = work.num_outputs - 1
    return words(work.turns + 8 * turn * size, size)


@AddressedFunction
def turn_outputs(address, x, rows, outputs):  # type: ignore[no-untyped-def]
    """Put the logits in `outputs` [rows, A + 1] in the order of the actions of the boards as they were."""
    work = work_at(address)
    turned = np.empty(work.num_outputs - 1, np.float32)
    for row in range(rows):
        logits, sources = floats(outputs + FLOAT * row * work.num_outputs, len(turned)), _sources(work, x, row)
        copy(turned, logits)
        for a in range(len(turned)):
            logits[a] = turned[sources[a]]


@AddressedFunction
def turn_back(address, x, rows, to_outputs):  # type: ignore[no-untyped-def]
    """The backward pass of `turn_outputs`."""
    work = work_at(address)
    given = np.empty(work.num_outputs - 1, np.float32)
    for row in range(rows):
        to_logits, sources = floats(to_outputs + FLOAT * row * work.num_outputs, len(given)), _sources(work, x, row)
        copy(given, to_logits)
        for a in range(len(given)):
            to_logits[sources[a]] = given[a]
