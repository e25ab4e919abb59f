"""Rollouts: T steps of N envs, written by the pool straight into one buffer, on the CPU or on the GPU.

On the GPU the same steps are recorded as one CUDA graph, and nothing in them waits for the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.algorithms.fused_mlp import FusedMLP
from scramjet.engine.cuda_pool import CudaPool
from scramjet.engine.layout import PlayedBy, Transition, allocate_obs
from scramjet.engine.pool import Pool
from scramjet.engine.trees import leaves, map_leaves
from scramjet.policies.policy import Policy
from scramjet.runtime.graphs import Recorder
from scramjet.training import soundness
from scramjet.training.final_observations import final_observations
from scramjet.training.memories import Memories

VALUE_CHUNK = 4096
"""Observations valued at a time: small enough that activations stay in cache."""
VALUE_CHUNK_ON_GPU = 1 << 20
"""On the GPU: enough to fill it, and activations that fit."""


@dataclass(slots=True)
class Rollout:
    """T steps of R rows, time-major; allocated once and used again for every update.

    A row is an env, or one agent of an env. With S seats a row is an env, and what concerns each seat has a further
    axis. Observations are a tensor, or for a Dict space nested dicts of tensors.
    """

    obs: Any  # [T + 1, R, *obs_shape]; the last row is what the next rollout begins with
    mask: Tensor | None  # [T + 1, R, mask_size] bool, legal actions; None where the world has no mask
    alive: Tensor | None  # [T + 1, R] bool, which agents are; None but for agents
    seat: Tensor | None  # [T + 1, N] int8, whose turn it is; None but for seats
    action: Tensor  # [T, R, *action_shape]
    log_prob: Tensor  # [T, R], under the policy that acted
    value: Tensor  # [T + 1, R]
    reward: Tensor  # [T, R], or [T, N, S]
    terminated: Tensor  # [T, R] bool; never merged with truncated
    truncated: Tensor  # [T, R] bool
    final_value: Tensor  # [T, R] ([T, N, S]), the value of a truncated episode's own last observation, else 0
    last_value: Tensor | None  # [N, S], of each seat's own view after the rollout; None but for seats
    memories: Memories  # what the policy remembers after the last step
    states: Tensor  # [T / horizon, slots, state_size], what it remembered before every horizon-th step
    noise: Tensor  # [T, R, ...], the random numbers that actions are drawn with
    rows: list[Transition]  # T views: where step t is written
    steps_obs: list[Any]  # T + 1 views: the observations before step t
    recorder: Recorder[None] | None = field(default=None, repr=False)  # replays all steps; None on the CPU
    fused: FusedMLP | None = field(default=None, repr=False)  # acts and values in place of the policy's network

    @property
    def num_steps(self) -> int:
        """T."""
        return self.action.shape[0]

    def turn(self, t: int) -> Tensor | None:
        """Who is alive, or whose turn it is, before step t; None where one plays alone."""
        turns = self.seat if self.alive is None else self.alive
        return None if turns is None else turns[t]

    @property
    def is_on_gpu(self) -> bool:
        """Whether the envs and the policy play on the GPU."""
        return self.action.is_cuda

    @property
    def horizon(self) -> int:
        """Steps from one kept state to the next: how far gradients go back."""
        return self.num_steps // len(self.states)


def allocate_rollout(pool: Pool, policy: Policy, num_steps: int, horizon: int | None = None) -> Rollout:
    """A rollout buffer that fits the pool and the actions and memory of a policy; `horizon` divides `num_steps`."""
    device = policy.device
    like, num_rows, distribution = pool.allocate(), pool.num_rows, policy.distribution
    memories = Memories.of(policy, pool)
    reward_shape, turn_shape = tuple(like.reward.shape), tuple(like.turn.shape)
    obs = map_leaves(lambda leaf: _tensor(leaf, device), allocate_obs(pool.observation_space, num_steps + 1, num_rows))
    mask = torch.ones(num_steps + 1, num_rows, pool.mask_size, dtype=torch.bool, device=device)
    by_seats, by_agents = pool.played_by is PlayedBy.SEATS, pool.played_by is PlayedBy.AGENTS
    turn = torch.zeros(num_steps + 1, *turn_shape, dtype=torch.int8 if by_seats else torch.bool, device=device)
    reward = torch.zeros(num_steps, *reward_shape, device=device)
    terminated = torch.zeros(num_steps, num_rows, dtype=torch.bool, device=device)
    truncated = torch.zeros(num_steps, num_rows, dtype=torch.bool, device=device)
    final_obs = _final_obs(pool, like, num_steps)
    rows = [
        Transition(
            obs=map_leaves(lambda leaf, t=t: _array(leaf[t + 1]), obs),
            mask=_array(mask[t + 1]),
            turn=_array(turn[t + 1]),
            reward=_array(reward[t]),
            terminated=_array(terminated[t]),
            truncated=_array(truncated[t]),
            final_obs=final_obs[t],
        )
        for t in range(num_steps)
    ]
    return Rollout(
        obs=obs,
        mask=mask if pool.mask_size else None,
        alive=turn if by_agents else None,
        seat=turn if by_seats else None,
        action=torch.zeros(
            num_steps, num_rows, *distribution.action_shape, dtype=distribution.action_dtype, device=device
        ),
        log_prob=torch.zeros(num_steps, num_rows, device=device),
        value=torch.zeros(num_steps + 1, num_rows, device=device),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        final_value=torch.zeros(reward.shape, device=device),
        last_value=torch.zeros(num_rows, pool.num_players, device=device) if by_seats else None,
        memories=memories,
        states=torch.zeros(num_steps // (horizon or num_steps), *memories.states.shape, device=device),
        noise=distribution.noise(num_steps, num_rows, torch.Generator(device)),
        rows=rows,
        steps_obs=[map_leaves(lambda leaf, t=t: leaf[t], obs) for t in range(num_steps + 1)],
        recorder=Recorder("a rollout") if device.type == "cuda" else None,
    )


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)


def _array(tensor: Tensor) -> Any:
    """A tensor as a pool writes to it: NumPy's view of it, or on the GPU itself."""
    return tensor if tensor.is_cuda else tensor.numpy()


def _final_obs(pool: Pool, like: Transition, num_steps: int) -> list[Any]:
    """Where each step writes the last observations of episodes: on the CPU one place for all, read after each step.

    On the GPU nobody looks in between. But two episodes of one env that were cut short by the time limit are at least
    that many steps apart, so one place for every so many steps holds them all.
    """
    if not isinstance(like.reward, Tensor):
        return [like.final_obs] * num_steps
    limit = pool.env.max_episode_steps or num_steps
    windows = [map_leaves(torch.zeros_like, like.final_obs) for _ in range(0, num_steps, limit)]
    return [windows[t // limit] for t in range(num_steps)]


@torch.inference_mode()
def collect(pool: Pool, policy: Policy, rollout: Rollout, generator: torch.Generator) -> Rollout:
    """Play T steps with the policy's own random actions, going on where the last rollout ended."""
    policy.distribution.noise(rollout.num_steps, pool.num_rows, generator, out=rollout.noise)
    if rollout.recorder is None:
        try:
            _play(pool, policy, rollout)
        except (IndexError, RuntimeError):  # an encoder may stumble over a choice that is none: tell whose it is
            soundness.check_choices(pool, rollout)
            raise
    else:
        assert isinstance(pool, CudaPool)
        rollout.recorder.run(
            lambda: _play(pool, policy, rollout),
            recording=pool.recording,
            before_replay=lambda: pool.before_replay(rollout.num_steps),
        )
    soundness.check(pool, rollout)
    return rollout


def _play(pool: Pool, policy: Policy, rollout: Rollout) -> None:
    """All steps, and the values of what was seen."""
    for part in (rollout.obs, rollout.mask, rollout.alive, rollout.seat):
        for leaf in leaves(part) if part is not None else ():
            leaf[0] = leaf[-1]
    distribution, memories, horizon = policy.distribution, rollout.memories, rollout.horizon
    finals = final_observations(pool, rollout, partial(_value_into, policy, rollout.fused))
    for t in range(rollout.num_steps):
        turn = rollout.turn(t)
        if t % horizon == 0:
            rollout.states[t // horizon] = memories.states
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
        _step(pool, distribution.env_action(rollout.action[t]), rollout.rows[t])
        finals.keep(t)
        memories.forget_ended(turn, rollout.rows[t])
    finals.value_all()
    _value_rows(pool, policy, rollout)


def _step(pool: Pool, action: Tensor, out: Transition) -> None:
    if isinstance(pool, CudaPool):
        pool.step(action, out=out, of_terminated=False)
    else:
        pool.step(action.numpy(), out=out)


def _value_rows(pool: Pool, policy: Policy, rollout: Rollout) -> None:
    """Fill in the values that the steps left open: all of them, or only those after the rollout."""
    memories = rollout.memories
    if policy.splits:
        flat_obs = map_leaves(lambda leaf: leaf.flatten(0, 1), rollout.obs)
        _value_into(policy, rollout.fused, flat_obs, None, rollout.value.flatten())
    else:
        rollout.value[-1] = policy.value(rollout.steps_obs[-1], memories.of_movers(rollout.turn(-1)))
    if rollout.last_value is not None:
        views = map_leaves(torch.as_tensor, pool.views())
        states = memories.states if memories.is_used else None
        _value_into(policy, rollout.fused, views, states, rollout.last_value.flatten())


def _value_into(policy: Policy, fused: FusedMLP | None, obs: Any, state: Tensor | None, value: Tensor) -> None:
    """The values [B] of observations [B, ...] and, with memory, states [B, state_size], a chunk at a time."""
    if fused is not None:
        fused.values(obs, value)
        return
    chunk = VALUE_CHUNK_ON_GPU if value.is_cuda else VALUE_CHUNK
    for start in range(0, len(value), chunk):
        part = slice(start, start + chunk)
        part_state = None if state is None else state[part]
        value[part] = policy.value(map_leaves(lambda leaf, part=part: leaf[part], obs), part_state)
