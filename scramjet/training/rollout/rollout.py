"""Rollouts: T steps of N envs, written by the pool straight into one buffer, on the CPU or on the GPU.

On the GPU the same steps are recorded as one CUDA graph, and nothing in them waits for the CPU. Where only the policy
is there, `host_rollout` plays them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scramjet.accelerate.cuda_graphs import Recorder
from scramjet.accelerate.numba.executor import NativePlay
from scramjet.accelerate.numba.network import NumbaNetwork
from scramjet.accelerate.triton.mlp import TritonMLP
from scramjet.engine.layout import PlayedBy, obs_bytes
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.policies.layers import count_parameters
from scramjet.policies.policy import Policy
from scramjet.runtime.machine.memory import require_memory
from scramjet.training.rollout import checks as soundness
from scramjet.training.rollout import host_rollout
from scramjet.training.rollout.acting import act, value_into, value_rows
from scramjet.training.rollout.final_observations import FinalsOnCPU, final_observations
from scramjet.training.rollout.host_rollout import Host
from scramjet.training.rollout.recurrent_states import Memories
from scramjet.training.rollout.step_buffers import StepBuffers


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
    final_value: Tensor  # [T, R], the value of a truncated episode's own last observation, else 0; seats have none
    memories: Memories  # what the policy remembers after the last step
    states: Tensor  # [T / horizon, slots, state_size], what it remembered before every horizon-th step
    noise: Tensor  # [T, R, ...], the random numbers that actions are drawn with
    rows: list[Transition]  # T views: where step t is written
    steps_obs: list[Any]  # T + 1 views: the observations before step t
    first_row: int = 0  # of the pool, where this is a part of a rollout
    host: Host | None = field(default=None, repr=False)  # what envs write, where that is not this
    recorder: Recorder[None] | None = field(default=None, repr=False)  # replays all steps; None for envs on the CPU
    fused: TritonMLP | None = field(default=None, repr=False)  # acts and values in place of the policy's network
    native: NativePlay | None = field(default=None, repr=False)  # the same on the CPU
    halves: list[Rollout] = field(default_factory=list, repr=False)  # of envs that step in processes of their own

    @property
    def num_steps(self) -> int:
        """T."""
        return self.action.shape[0]

    def turn(self, t: int) -> Tensor | None:
        """Who is alive, or whose turn it is, before step t; None where one plays alone."""
        turns = self.seat if self.alive is None else self.alive
        return None if turns is None else turns[t]

    @property
    def fast(self) -> TritonMLP | NumbaNetwork | None:
        """What acts and values in place of the policy's network, where something does."""
        return self.native.network if self.native is not None else self.fused

    @property
    def is_on_gpu(self) -> bool:
        """Whether the envs and the policy play on the GPU."""
        return isinstance(self.rows[0].reward, Tensor)

    @property
    def horizon(self) -> int:
        """Steps from one kept state to the next: how far gradients go back."""
        return self.num_steps // len(self.states)

    def part(self, rows: slice) -> Rollout:
        """Views of some rows, whole envs of them."""

        def view(tensor: Tensor | None) -> Any:
            return None if tensor is None else tensor[:, rows]

        obs = map_leaves(view, self.obs)
        return Rollout(
            obs=obs,
            mask=view(self.mask),
            alive=view(self.alive),
            seat=view(self.seat),
            action=view(self.action),
            log_prob=view(self.log_prob),
            value=view(self.value),
            reward=view(self.reward),
            terminated=view(self.terminated),
            truncated=view(self.truncated),
            final_value=view(self.final_value),
            memories=self.memories.part(rows),
            states=self.states[:, self.memories.slots(rows)],
            noise=view(self.noise),
            rows=[row.part(rows) for row in self.rows],
            steps_obs=_by_step(obs, self.num_steps + 1),
            first_row=self.first_row + rows.start,
        )


def allocate_rollout(
    pool: Pool, policy: Policy, num_steps: int, horizon: int | None = None, *, apart: bool | None = None,
    pinned: bool = False,
) -> Rollout:  # fmt: skip
    """A rollout buffer that fits the pool and the actions and memory of a policy; `horizon` divides `num_steps`.

    `apart`: envs write to buffers of their own, from which the policy's are copied; None: where the two are on
    different devices. `pinned`: on the CPU, in memory that the GPU copies by itself.
    """
    device, envs_on_gpu = policy.device, isinstance(pool, CudaPool)
    if not envs_on_gpu:  # a GPU says by itself that it is full
        _check_memory(pool, policy, num_steps)
    like, num_rows, distribution = pool.allocate(), pool.num_rows, policy.distribution
    memories = Memories.of(policy, pool)
    by_seats, by_agents = pool.played_by is PlayedBy.SEATS, pool.played_by is PlayedBy.AGENTS
    steps = written = StepBuffers.allocate(pool, like, num_steps, device, pinned=pinned)
    if apart or (apart is None and device.type == "cuda" and not envs_on_gpu):
        written = StepBuffers.allocate(pool, like, num_steps, "cpu", pinned=device.type == "cuda")
    rollout = Rollout(
        obs=steps.obs,
        mask=steps.mask if pool.mask_size else None,
        alive=steps.turn if by_agents else None,
        seat=steps.turn if by_seats else None,
        action=torch.zeros(
            num_steps, num_rows, *distribution.action_shape, dtype=distribution.action_dtype, device=device
        ),
        log_prob=torch.zeros(num_steps, num_rows, device=device),
        value=torch.zeros(num_steps + 1, num_rows, device=device),
        reward=steps.reward,
        terminated=steps.terminated,
        truncated=steps.truncated,
        final_value=torch.zeros(num_steps, num_rows, device=device),
        memories=memories,
        states=torch.zeros(num_steps // (horizon or num_steps), *memories.states.shape, device=device),
        noise=distribution.noise(num_steps, num_rows, torch.Generator(device)),
        rows=written.rows(_final_obs(pool, like, num_steps)),
        steps_obs=_by_step(steps.obs, num_steps + 1),
        recorder=Recorder("a rollout") if envs_on_gpu else None,
    )
    if written is not steps:
        rollout.host = Host(pool, policy, rollout, written, steps)
    elif pool.steps_beside and pool.num_envs > 1:
        rollout.halves = [rollout.part(rows) for rows in host_rollout.parts(pool)]
    return rollout


def _check_memory(pool: Pool, policy: Policy, num_steps: int) -> None:
    """Refuse to learn from rollouts that memory does not hold; what is counted are the largest parts."""
    distribution = policy.distribution
    action = math.prod(distribution.action_shape) * (distribution.action_dtype.itemsize + 4)  # and the noise
    rewards = 4 * pool.num_players if pool.played_by is PlayedBy.SEATS else 4
    sample = obs_bytes(pool.observation_space) + pool.mask_size + action + rewards + _OTHER_BYTES
    num_weights = count_parameters(policy) if policy.device.type == "cpu" else 0
    num_bytes = num_steps * (pool.num_rows * sample + _BYTES_PER_STEP) + BYTES_PER_WEIGHT * num_weights
    what = f"a rollout of num_envs={pool.num_envs} x num_steps={num_steps}, {sample:,} bytes a sample,"
    what += f" and a network of {num_weights:,} weights" if num_weights else ""
    require_memory(num_bytes, what, "lower --num-envs, --num-steps, --policy.hidden or the size of observations")


_OTHER_BYTES = 22
"""Of each sample: log-probability, value, final value, advantage, return, and how the episode ended."""
BYTES_PER_WEIGHT = 16
"""Of each number that is learned: itself, its gradient, and two moments."""
_BYTES_PER_STEP = 4096
"""Of the views that each step is written to, whatever the number of envs."""


def _by_step(obs: Any, num_steps: int) -> list[Any]:
    return [map_leaves(lambda leaf, t=t: leaf[t], obs) for t in range(num_steps)]


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
        host = rollout.host
        play = host_rollout.play if host is not None else _play_in_halves if rollout.halves else _play
        try:
            play(pool, policy, rollout)
        except (IndexError, RuntimeError):  # an encoder may stumble over a choice that is none: tell whose it is
            soundness.check_choices(pool, rollout if host is None else replace(rollout, obs=host.steps.obs))
            raise
        soundness.check(pool, rollout)
    else:
        assert isinstance(pool, CudaPool)
        with soundness.gpu_errors_explained(pool):
            rollout.recorder.run(
                lambda: _play(pool, policy, rollout),
                recording=pool.recording,
                before_replay=lambda: pool.before_replay(rollout.num_steps),
            )
            soundness.check(pool, rollout)
    return rollout


def _play(pool: Pool, policy: Policy, rollout: Rollout) -> None:
    """All steps, and the values of what was seen."""
    _go_on(rollout)
    finals = final_observations(pool, rollout, partial(value_into, policy, rollout.fast))
    if rollout.native is not None:
        rollout.native.network.refresh()
    has_memory = rollout.memories.is_used
    draw = rollout.native.act if rollout.native is not None and not has_memory else partial(act, policy, rollout)
    for t, row in enumerate(rollout.rows):
        _step(pool, draw(t), row)
        finals.keep(t)
        if has_memory:
            rollout.memories.forget_ended(rollout.turn(t), row.terminated, row.truncated)
    finals.value_all()
    value_rows(policy, rollout)


def _play_in_halves(pool: Pool, policy: Policy, rollout: Rollout) -> None:
    """The same for envs in processes of their own: while those of one half step, the policy decides for the other."""
    _go_on(rollout)
    value, has_memory = partial(value_into, policy, rollout.fast), rollout.memories.is_used
    given = torch.zeros_like(policy.distribution.env_action(rollout.action[0]))  # [R, ...], as envs receive them
    halves = [
        (half, slice(half.first_row, half.first_row + half.action.shape[1]), FinalsOnCPU(pool, half, value))
        for half in rollout.halves
    ]
    for part in (rollout, *rollout.halves):
        if part.native is not None:
            part.native.network.refresh()
    for half, rows, _ in halves:
        given[rows] = act(policy, half, 0)
        pool.begin_part(given.numpy(), rows)
    for t, row in enumerate(rollout.rows):
        for half, rows, cut_short in halves:
            pool.finish_part(rows, row)
            cut_short.keep(t)
            if has_memory:
                half.memories.forget_ended(half.turn(t), half.rows[t].terminated, half.rows[t].truncated)
            if t + 1 < rollout.num_steps:
                given[rows] = act(policy, half, t + 1)
                pool.begin_part(given.numpy(), rows)
    for _, _, cut_short in halves:
        cut_short.value_all()
    value_rows(policy, rollout)


def _go_on(rollout: Rollout) -> None:
    """Begin with what the last rollout ended with."""
    for part in (rollout.obs, rollout.mask, rollout.alive, rollout.seat):
        for leaf in leaves(part) if part is not None else ():
            leaf[0] = leaf[-1]


def _step(pool: Pool, action: Tensor, out: Transition) -> None:
    if isinstance(pool, NativePool):
        pool.step_unchecked(action.numpy(), out)
    elif isinstance(pool, CudaPool):
        pool.step(action, out=out, of_terminated=False)
    else:
        pool.step(action.numpy(), out=out)
