"""The transition of one env, written once, and the loops that run it over many.

`build` ties a world's rules to the engine's bookkeeping: time limit, episode statistics, auto-reset. It is called
with plain functions for the interpreted back-end and with compiled ones for the others; nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from scramjet.engine.layout import HEADER

HEADER_BYTES = HEADER.itemsize
NO_LIMIT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Rules:
    """A world's functions, each taking the parameters first, and what the engine must know of them."""

    parameters: Any
    reset: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any]
    mask: Callable[..., Any]
    stats: Callable[..., Any]
    max_episode_steps: int
    num_actions: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """The loops over envs; each takes a range of envs and the arrays it reads and writes."""

    reset: Callable[..., None]
    observe: Callable[..., None]
    step: Callable[..., None]
    step_threaded: Callable[..., None]
    simulate: Callable[..., None]


def no_mask(parameters: Any, s: Any, mask: Any) -> None:
    """Stands in where a world has no mask."""


def no_stats(parameters: Any, s: Any, stats: Any) -> None:
    """Stands in where a world has no stats."""


def build(
    rules: Rules,
    inner: Callable[[Callable[..., Any]], Callable[..., Any]],
    entry: Callable[[Callable[..., Any]], Callable[..., Any]],
    threaded_entry: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Kernels:
    """Make the kernels of a world. `inner`, `entry` and `threaded_entry` compile a function, or return it as is."""
    parameters = rules.parameters
    rules_reset, rules_step, rules_observe = rules.reset, rules.step, rules.observe
    rules_mask, rules_stats = rules.mask, rules.stats
    max_episode_steps, last_action = rules.max_episode_steps, rules.num_actions - 1

    @inner
    def begin_episode(s: Any, state_bytes: Any, i: Any) -> None:
        """Start the next episode from an all-zero record, so that nothing of the last one can leak into it."""
        for byte in range(HEADER_BYTES, state_bytes.shape[1]):
            state_bytes[i, np.uintp(byte)] = 0
        s._draw = 0
        s._steps = 0
        s._return = 0.0
        rules_reset(parameters, s)

    @inner
    def show(s: Any, obs_row: Any, mask_row: Any) -> None:
        """Write what the policy sees of `s`."""
        rules_observe(parameters, s, obs_row)
        for action in range(mask_row.shape[0]):
            mask_row[action] = True
        rules_mask(parameters, s, mask_row)

    @inner
    def advance(s: Any, action: Any) -> tuple[float, bool, bool]:
        """One step of the rules and the clock: reward, terminated, truncated. A wild action is brought into range."""
        reward, done = rules_step(parameters, s, min(max(action, 0), last_action))
        s._steps += 1
        s._return += reward
        terminated = bool(done)
        return reward, terminated, s._steps >= max_episode_steps and not terminated

    @entry
    def reset(start: int, stop: int, seed: int, states: Any, state_bytes: Any, obs: Any, mask: Any) -> None:
        """Begin episode 0 of each env; env i is keyed by seed + i."""
        for i in range(start, stop):
            s = states[i]
            s._seed = seed + i
            s._episode = 0
            begin_episode(s, state_bytes, i)
            show(s, obs[i], mask[i])

    @entry
    def observe(start: int, stop: int, states: Any, obs: Any, mask: Any) -> None:
        """Write the observations of states as they are."""
        for i in range(start, stop):
            show(states[i], obs[i], mask[i])

    @entry
    def step(
        start: int, stop: int, tick: int, states: Any, state_bytes: Any, actions: Any,
        obs: Any, mask: Any, reward: Any, terminated: Any, truncated: Any, final_obs: Any, log: Any, log_size: Any,
    ) -> None:  # fmt: skip
        """Step each env; where an episode ends, log it and begin the next in the same step."""
        for index in range(start, stop):
            i = np.uintp(index)  # unsigned: no look at whether it counts from the end
            s = states[i]
            gain, ended, cut = advance(s, actions[i])
            reward[i] = gain
            terminated[i] = ended
            truncated[i] = cut
            if ended or cut:
                rules_observe(parameters, s, final_obs[i])
                blank = log.shape[0] - 1  # the last row is never written: a stat the rules leave out is 0
                slot = log_size[1]
                log_size[0] += 1
                log_size[1] = slot + 1 if slot + 1 < blank else 0  # when nobody reads the log, the newest stay
                log[slot] = log[blank]
                episode = log[slot]
                episode._tick = tick
                episode._env = index
                episode._return = s._return
                episode._length = s._steps
                rules_stats(parameters, s, episode)
                s._episode += 1
                begin_episode(s, state_bytes, i)
            show(s, obs[i], mask[i])

    @threaded_entry
    def step_threaded(
        chunks: int, tick: int, states: Any, state_bytes: Any, actions: Any,
        obs: Any, mask: Any, reward: Any, terminated: Any, truncated: Any, final_obs: Any, log: Any, log_size: Any,
    ) -> None:  # fmt: skip
        """`step` over all envs, one chunk of neighbours a thread; each chunk has its own part of the log."""
        num_envs = states.shape[0]
        for chunk in prange(chunks):
            step(
                chunk * num_envs // chunks, (chunk + 1) * num_envs // chunks, tick, states, state_bytes, actions,
                obs, mask, reward, terminated, truncated, final_obs, log[chunk], log_size[chunk],
            )  # fmt: skip

    @entry
    def simulate(
        start: int, stop: int, states: Any, actions: Any,
        obs: Any, mask: Any, reward: Any, terminated: Any, truncated: Any,
    ) -> None:  # fmt: skip
        """Step loose states without auto-reset: what would happen if."""
        for i in range(start, stop):
            s = states[i]
            gain, ended, cut = advance(s, actions[i])
            reward[i] = gain
            terminated[i] = ended
            truncated[i] = cut
            show(s, obs[i], mask[i])

    return Kernels(reset, observe, step, step_threaded, simulate)
