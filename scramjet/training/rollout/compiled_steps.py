"""Plays the steps of a rollout in one compiled function: with few envs, Python takes longer than the steps do.

The function draws actions and steps envs until an episode is truncated, whose last observation must be kept before the
next step; then it goes on. What is played is the same to the last bit as step by step.
"""

from __future__ import annotations

from scramjet.compile.addresses import StepCalls
from scramjet.engine.pool import Pool
from scramjet.engine.transition import kernel_obs
from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.training.rollout.buffers import RolloutBuffers
from scramjet.training.rollout.final_observations import are_valued
from scramjet.training.rollout.parts import DecidedPart

MOST_ENVS = 16
"""Envs up to which it pays to compile one more function for each world."""
STEPS_AT_ONCE = 64
"""Steps after which Python has its turn, so that Ctrl-C is heard."""


class CompiledSteps:
    """The steps of all envs of a native world, which nobody but the policy has to see one by one."""

    def __init__(self, pool: NativePool, buffers: RolloutBuffers, part: DecidedPart, draw: StepCalls) -> None:
        """`part` has all rows; `draw` writes their actions where the envs read them."""
        self._pool, self._part, self._draw = pool, part, draw
        steps = buffers.env_steps
        stacked = (steps.obs, steps.mask, steps.turn, steps.reward, steps.terminated, steps.truncated)
        self._num_steps = buffers.rollout.num_steps
        self._arrays = [
            buffers.rollout.action.numpy(),
            *(kernel_obs(map_leaves(lambda leaf: leaf.numpy(), tree)) for tree in stacked),
            kernel_obs(buffers.last.final_obs),
        ]
        self._until_cut = are_valued(pool)

    @classmethod
    def of(cls, pool: Pool, buffers: RolloutBuffers, parts: list[DecidedPart]) -> CompiledSteps | None:
        """Those of a rollout; None if its steps have to be played one by one, or if that is as fast."""
        if type(pool) is not NativePool or pool.num_envs > MOST_ENVS or len(parts) > 1 or not pool.can_play_steps:
            return None
        draw = parts[0].calls()
        return None if draw is None else cls(pool, buffers, parts[0], draw)

    @property
    def can_play(self) -> bool:
        """Whether the pool can play this way now; not while it watches records that came from a file."""
        return self._pool.can_play_steps

    def play(self) -> None:
        """Play all steps."""
        self._part.begin()
        t = 0
        while t < self._num_steps:
            stop = min(t + STEPS_AT_ONCE, self._num_steps)
            t = self._pool.play_steps(t, stop, self._draw, self._arrays, until_cut=self._until_cut)
            self._part.take_in(t - 1)
