"""What the policy does in a rollout: it draws actions, and it values what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from scramjet.accelerate.numba.network import NumbaNetwork
from scramjet.accelerate.triton.mlp import TritonMLP
from scramjet.engine.trees import leaves, map_leaves
from scramjet.policies.policy import Policy

if TYPE_CHECKING:
    from scramjet.training.rollout.rollout import Rollout

VALUE_CHUNK = 4096
"""Observations valued at a time: small enough that activations stay in cache."""
VALUE_CHUNK_ON_GPU = 1 << 20
"""On the GPU: enough to fill it."""
VALUED_NUMBERS = 1 << 26
"""Observed numbers at a time on the GPU: of large observations fewer are valued at once, but never under a chunk."""


def act(policy: Policy, rollout: Rollout, t: int) -> Tensor:
    """Draw the actions of step t and take in what the policy remembers after it; returns them as envs receive them."""
    distribution, memories = policy.distribution, rollout.memories
    if memories.is_used and t % rollout.horizon == 0:
        rollout.states[t // rollout.horizon] = memories.states
    if rollout.native is not None:
        return rollout.native.act(t)
    turn = rollout.turn(t)
    mask = None if rollout.mask is None else rollout.mask[t]
    drawn = rollout.noise[t], rollout.action[t], rollout.log_prob[t]
    if rollout.fused is not None:
        rollout.fused.act(rollout.steps_obs[t], mask, *drawn)
    elif policy.splits:
        distribution.sample(policy.logits(rollout.steps_obs[t]), mask, *drawn)
    else:
        logits, rollout.value[t], state = policy(rollout.steps_obs[t], memories.of_movers(turn))
        memories.keep(turn, state)
        distribution.sample(logits, mask, *drawn)
    return distribution.env_action(rollout.action[t])


def value_rows(policy: Policy, rollout: Rollout) -> None:
    """Fill in the values that the steps left open: all of them, or only those after the rollout."""
    if policy.splits:
        flat_obs = map_leaves(lambda leaf: leaf.flatten(0, 1), rollout.obs)
        value_into(policy, rollout.fast, flat_obs, None, rollout.value.flatten())
    else:
        state = rollout.memories.of_movers(rollout.turn(-1))
        value_into(policy, rollout.fast, rollout.steps_obs[-1], state, rollout.value[-1])


def value_into(
    policy: Policy, fast: TritonMLP | NumbaNetwork | None, obs: Any, state: Tensor | None, value: Tensor
) -> None:
    """The values [B] of observations [B, ...] and, with memory, states [B, state_size], a chunk at a time."""
    if isinstance(fast, TritonMLP):
        fast.values(obs, value)
        return
    if fast is not None:
        fast.values(obs, state, value)
        return
    chunk = VALUE_CHUNK
    if value.is_cuda:
        size = sum(leaf[0].numel() for leaf in leaves(obs))
        chunk = max(VALUE_CHUNK, min(VALUE_CHUNK_ON_GPU, VALUED_NUMBERS // size))
    for start in range(0, len(value), chunk):
        part = slice(start, start + chunk)
        part_state = None if state is None else state[part]
        value[part] = policy.value(map_leaves(lambda leaf, part=part: leaf[part], obs), part_state)
