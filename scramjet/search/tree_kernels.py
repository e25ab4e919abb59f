"""The kernels of tree search: each walks one tree per row, through nodes that are joined in lists.

Node 0 is the root, node t + 1 the one that simulation t adds. A node is a row of whole numbers and a row of floats, and
knows its parent, its first child and its next sibling: what a simulation costs does not grow with the number of
actions, save for one scan of the parent's untried ones. A node's visits are those of the edge that leads to it.

Selection among a node's actions depends on that node alone, so it is decided when a backup passes: the next simulation
only follows. Formulas are those of `scramjet.algorithms.alphazero`.
"""

from __future__ import annotations

import math

import numpy as np

from scramjet.algorithms.alphazero import SMALLEST_PRIOR, SMALLEST_RANGE
from scramjet.compile.jit import RowKernel

PARENT, ACTION, SIBLING, FIRST_CHILD, NUM_CHILDREN, VISITS, NEXT, UNTRIED, TURN, CAN_STEP = range(10)
"""Columns of whole numbers. NEXT: the child that the next simulation goes to, or NOBODY to try the action UNTRIED, the
best of those without a child (NOBODY if there is none). CAN_STEP: 0 where the episode has ended or was cut."""
NUM_WHOLE = 10
REWARD, DISCOUNT, VALUE, RAW_VALUE, Q, PRIOR, UNTRIED_MASS, UNTRIED_PRIOR, WEIGHT = range(9)
"""Columns of floats. REWARD, DISCOUNT and PRIOR belong to the edge to the node, and Q = REWARD + DISCOUNT * VALUE; the
sign of DISCOUNT turns the value to the parent's seat. VALUE is the mean of all that was backed up, RAW_VALUE the
network's. UNTRIED_MASS is the prior of all untried actions together. WEIGHT is the edge's, before normalization."""
NUM_REAL = 9
NOBODY = -1


@RowKernel
def set_priors(
    start: int, stop: int, whole: np.ndarray, real: np.ndarray, untried: np.ndarray,
    logits: np.ndarray, mask: np.ndarray, node: int,
) -> None:  # fmt: skip
    """Write a node's prior and its likeliest action, from the policy's `logits` [N, A] and the `mask` of legal actions.

    `untried` [N, nodes, A] holds the prior of legal actions without a child, else 0.
    """
    for row in range(start, stop):
        highest, total = -math.inf, 0.0
        for a in range(logits.shape[1]):
            if mask[row, a]:
                highest = max(highest, logits[row, a])
        for a in range(logits.shape[1]):
            weight = math.exp(logits[row, a] - highest) if mask[row, a] else 0.0
            untried[row, node, a] = weight
            total += weight
        best, best_prior = NOBODY, 0.0
        for a in range(logits.shape[1]):
            prior = max(untried[row, node, a] / total, SMALLEST_PRIOR) if mask[row, a] else 0.0
            untried[row, node, a] = prior
            if prior > best_prior:
                best, best_prior = a, prior
        whole[row, node, UNTRIED] = best
        real[row, node, UNTRIED_MASS] = 1.0
        real[row, node, UNTRIED_PRIOR] = best_prior


@RowKernel
def plant(
    start: int, stop: int, whole: np.ndarray, real: np.ndarray, untried: np.ndarray, root_score: np.ndarray,
    value: np.ndarray, turn: np.ndarray, root_q: np.ndarray, root_visits: np.ndarray,
) -> None:  # fmt: skip
    """Begin each tree with its root, whose priors are set; clear what `backup` writes."""
    for row in range(start, stop):
        whole[row, 0, PARENT] = whole[row, 0, FIRST_CHILD] = whole[row, 0, NEXT] = NOBODY
        whole[row, 0, NUM_CHILDREN] = 0
        whole[row, 0, VISITS] = whole[row, 0, CAN_STEP] = 1
        whole[row, 0, TURN] = turn[row]
        real[row, 0, VALUE] = real[row, 0, RAW_VALUE] = value[row]
        best, highest = NOBODY, -math.inf
        for a in range(untried.shape[2]):
            root_q[row, a] = root_visits[row, a] = 0.0
            if untried[row, 0, a] > 0.0 and root_score[row, a] > highest:
                best, highest = a, root_score[row, a]
        whole[row, 0, UNTRIED] = best


@RowKernel
def select(
    start: int, stop: int, whole: np.ndarray, simulation: int,
    leaf: np.ndarray, source: np.ndarray, action: np.ndarray, mover: np.ndarray, can_step: np.ndarray,
) -> None:  # fmt: skip
    """Follow the decisions of the nodes down to an untried action, or to a node that cannot be stepped.

    Writes for each tree [N]: the `leaf`, a new node or one that cannot be stepped; `source`, the number among all nodes
    of all trees of the node to step; the `action` there, who moves, and whether it can be stepped.
    """
    for row in range(start, stop):
        node = 0
        while whole[row, node, NEXT] != NOBODY:
            node = whole[row, node, NEXT]
        source[row] = row * whole.shape[1] + node
        action[row] = max(whole[row, node, UNTRIED], 0)
        mover[row] = whole[row, node, TURN]
        can_step[row] = whole[row, node, CAN_STEP] != 0
        leaf[row] = simulation + 1 if can_step[row] else node


@RowKernel
def expand(
    start: int, stop: int, whole: np.ndarray, real: np.ndarray, untried: np.ndarray, root_score: np.ndarray,
    leaf: np.ndarray, source: np.ndarray, action: np.ndarray,
    gain: np.ndarray, value: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, turn: np.ndarray,
    simulation: int, gamma: float,
) -> None:  # fmt: skip
    """Join the new nodes, whose priors are set, to their parents; find the parents' best untried action."""
    node = simulation + 1
    for row in range(start, stop):
        if leaf[row] == node:
            parent, tried = source[row] - row * whole.shape[1], action[row]
            whole[row, node, PARENT] = parent
            whole[row, node, ACTION] = tried
            whole[row, node, SIBLING] = whole[row, parent, FIRST_CHILD]
            whole[row, parent, FIRST_CHILD] = node
            whole[row, parent, NUM_CHILDREN] += 1
            whole[row, node, FIRST_CHILD] = whole[row, node, NEXT] = NOBODY
            whole[row, node, NUM_CHILDREN] = whole[row, node, VISITS] = 0
            whole[row, node, TURN] = turn[row]
            whole[row, node, CAN_STEP] = 0 if terminated[row] or truncated[row] else 1
            sign = 1.0 if turn[row] == whole[row, parent, TURN] else -1.0
            real[row, node, REWARD] = gain[row]
            real[row, node, DISCOUNT] = 0.0 if terminated[row] else sign * gamma
            # Nothing comes after an end, whatever the network says of it: 0 times a NaN would be a NaN.
            real[row, node, VALUE] = real[row, node, RAW_VALUE] = 0.0 if terminated[row] else value[row]
            real[row, node, PRIOR] = untried[row, parent, tried]
            untried[row, parent, tried] = 0.0
            best, highest, mass = NOBODY, -math.inf, 0.0
            for a in range(untried.shape[2]):
                prior = untried[row, parent, a]
                mass += prior
                score = root_score[row, a] if parent == 0 else prior
                if prior > 0.0 and score > highest:
                    best, highest = a, score
            whole[row, parent, UNTRIED] = best
            real[row, parent, UNTRIED_MASS] = mass
            real[row, parent, UNTRIED_PRIOR] = untried[row, parent, max(best, 0)]


@RowKernel
def backup(
    start: int, stop: int, whole: np.ndarray, real: np.ndarray, leaf: np.ndarray,
    root_q: np.ndarray, root_visits: np.ndarray,
) -> None:  # fmt: skip
    """Carry the leaf's value up to the root; write the q-values and visits of the root's actions, [N, A] each."""
    for row in range(start, stop):
        node = leaf[row]
        whole[row, node, VISITS] += 1
        returned = float(real[row, node, VALUE])
        while node != 0:
            reward, discount = real[row, node, REWARD], real[row, node, DISCOUNT]
            returned = reward + discount * returned
            real[row, node, Q] = reward + discount * real[row, node, VALUE]
            parent = whole[row, node, PARENT]
            if parent == 0:
                root_q[row, whole[row, node, ACTION]] = real[row, node, Q]
                root_visits[row, whole[row, node, ACTION]] = whole[row, node, VISITS]
            visits = whole[row, parent, VISITS]
            real[row, parent, VALUE] = (real[row, parent, VALUE] * visits + returned) / (visits + 1)
            whole[row, parent, VISITS] = visits + 1
            node = parent


@RowKernel
def decide(
    start: int, stop: int, whole: np.ndarray, real: np.ndarray, leaf: np.ndarray, root_score: np.ndarray,
    schedule: np.ndarray, simulation: int, value_scale: float, visit_offset: float,
) -> None:  # fmt: skip
    """Decide at each node that a backup has passed where the next simulation goes.

    `root_score` [N, A] is the Gumbel noise plus the logits; `schedule` [N, simulations] says how many visits the action
    has that a simulation takes at the root.
    """
    num_actions = root_score.shape[1]
    for row in range(start, stop):
        node = leaf[row]
        wanted = schedule[row, min(simulation + 1, schedule.shape[1] - 1)]
        while node != 0:
            node = whole[row, node, PARENT]
            total = whole[row, node, VISITS] - 1  # of its children; the first visit made the node itself
            has_untried = whole[row, node, UNTRIED] != NOBODY

            # The mixed value, and the range of completed q-values.
            mass, weighted, low, high, most = 0.0, 0.0, math.inf, -math.inf, 0
            child = whole[row, node, FIRST_CHILD]
            while child != NOBODY:
                prior, q = real[row, child, PRIOR], real[row, child, Q]
                mass += prior
                weighted += prior * q
                low, high = min(low, q), max(high, q)
                most = max(most, whole[row, child, VISITS])
                child = whole[row, child, SIBLING]
            mixed = (real[row, node, RAW_VALUE] + total * (weighted / mass)) / (total + 1)
            peak = max(high, mixed) if has_untried else high
            if whole[row, node, NUM_CHILDREN] < num_actions:  # illegal actions count as untried
                low, high = min(low, mixed), max(high, mixed)
            stretch = (visit_offset + most) * value_scale / max(high - low, SMALLEST_RANGE)

            best, best_action, highest, sum_of_weights = NOBODY, num_actions, -math.inf, 1.0
            if node != 0:  # the weights of the improved policy are prior * exp(sigma(q))
                untried_weight = math.exp(stretch * (mixed - peak)) if has_untried else 0.0
                sum_of_weights = real[row, node, UNTRIED_MASS] * untried_weight
                child = whole[row, node, FIRST_CHILD]
                while child != NOBODY:
                    weight = real[row, child, PRIOR] * math.exp(stretch * (real[row, child, Q] - peak))
                    real[row, child, WEIGHT] = weight
                    sum_of_weights += weight
                    child = whole[row, child, SIBLING]
                if has_untried:
                    best_action = whole[row, node, UNTRIED]
                    highest = real[row, node, UNTRIED_PRIOR] * untried_weight / sum_of_weights

            child = whole[row, node, FIRST_CHILD]
            while child != NOBODY:
                action, visits = whole[row, child, ACTION], whole[row, child, VISITS]
                if node != 0:  # the improved policy less the share of visits (eq. 14)
                    score = real[row, child, WEIGHT] / sum_of_weights - visits / (total + 1)
                elif visits == wanted:  # sequential halving
                    score = root_score[row, action] + stretch * (real[row, child, Q] - low)
                else:
                    score = -math.inf
                if score > highest or (score == highest and action < best_action and score > -math.inf):
                    best, best_action, highest = child, action, score  # of equals, the lowest action
                child = whole[row, child, SIBLING]
            whole[row, node, NEXT] = best
