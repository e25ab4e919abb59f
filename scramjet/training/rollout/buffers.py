"""Allocates a rollout, and the buffers that envs write to, which may be on another device than the policy."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.policies.policy import Policy
from scramjet.training.rollout.final_observations import final_obs_buffers
from scramjet.training.rollout.rollout import Rollout, allocate_rollout, check_memory
from scramjet.training.rollout.step_buffers import StepBuffers


@dataclass(frozen=True, slots=True)
class RolloutBuffers:
    """A rollout and the buffers that a pool's envs write to."""

    rollout: Rollout  # on the policy's device
    policy_steps: StepBuffers  # the part of the rollout that comes from envs
    env_steps: StepBuffers  # where envs write: `policy_steps` itself, or buffers that are copied to it
    transitions: list[Transition]  # T views of `env_steps`: where step t is written

    @classmethod
    def allocate(
        cls,
        pool: Pool,
        policy: Policy,
        num_steps: int,
        horizon: int | None = None,
        *,
        apart: bool | None = None,
        pinned: bool = False,
        has_opponents: bool = False,
    ) -> RolloutBuffers:
        """Buffers of `num_steps` steps that fit a pool and a policy; `horizon` divides `num_steps`.

        `apart`: whether envs write to separate buffers, which are copied to the policy's; None: if they are on
        different devices. `pinned`: whether the rollout is in pinned memory of the CPU. `has_opponents`: whether
        opponents play in some envs.
        """
        device, like = policy.device, pool.allocate()
        are_envs_on_gpu = isinstance(like.reward, Tensor)
        if not are_envs_on_gpu:  # the GPU raises an error itself when it is full
            check_memory(pool, policy, num_steps)
        policy_steps = env_steps = StepBuffers.allocate(like, num_steps, device, pinned=pinned)
        if apart or (apart is None and device.type == "cuda" and not are_envs_on_gpu):
            env_steps = StepBuffers.allocate(like, num_steps, "cpu", pinned=device.type == "cuda")
        return cls(
            rollout=allocate_rollout(pool, policy, policy_steps, num_steps, horizon, has_opponents=has_opponents),
            policy_steps=policy_steps,
            env_steps=env_steps,
            transitions=env_steps.transitions(final_obs_buffers(pool, like, num_steps)),
        )

    @property
    def is_apart(self) -> bool:
        """Whether envs write to separate buffers, which are copied to the policy's."""
        return self.env_steps is not self.policy_steps

    @property
    def last(self) -> Transition:
        """Where the last step is written. The next rollout begins from it, so `reset` and `restore` write here too."""
        return self.transitions[-1]

    def begin_after(self, before: RolloutBuffers) -> None:
        """Begin where the last rollout, in the buffers `before`, ended; `before` may be these buffers."""
        self.env_steps.begin_after(before.env_steps)
        if before is not self and self.rollout.recurrent.is_used:
            self.rollout.recurrent.states.copy_(before.rollout.recurrent.states)
