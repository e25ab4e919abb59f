"""One training to measure: a policy, a pool and a learner on a device, and how long each part of an update takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from scramjet.algorithms.config import PPOConfig
from scramjet.commands.bench import REPEATS, measure_env_rate
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from scramjet.executors.choice import choose_executor
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.policies.symmetries import tables_of_world, with_symmetries
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer

PPO = PPOConfig(num_epochs=4, num_minibatches=4, normalize_observations=False, normalize_rewards=False)
WARM_UPS = 4


@dataclass(frozen=True)
class Machine:
    """Where to train, and how exactly."""

    device: str = "cuda"
    precision: str = "tf32"
    env_device: str | None = None
    """Where the envs step; by default on `device`."""
    num_threads: int | None = None
    """Threads of envs on the CPU."""


@dataclass(frozen=True)
class Parts:
    """The medians of a measurement."""

    steps_per_second: float
    """Steps trained, everything counted."""
    rollout: float
    """Seconds of a rollout."""
    learning: float
    """Seconds of advantages and gradient steps."""
    episodes: float
    """Seconds to read which episodes ended."""


class Training:
    """A policy, a learner and a pool, ready to train."""

    def __init__(
        self, world: str, num_envs: int, num_steps: int, policy: PolicyConfig, ppo: PPOConfig, machine: Machine
    ) -> None:
        torch.manual_seed(0)
        env = load_env(world)
        spaces = env.observation_space, env.action_space
        network = default_network(*spaces, policy)
        if policy.symmetry != "none":
            network = with_symmetries(network, policy.symmetry, tables_of_world(env, *spaces))
        on_gpu = (machine.env_device or machine.device) == "cuda"
        self.pool = CudaPool(env, num_envs) if on_gpu else NativePool(env, num_envs, num_threads=machine.num_threads)
        self.policy = Policy(network, *spaces, policy).to(machine.device)
        self.policy.uses_bfloat16 = machine.precision == "bfloat16"
        self.executor = choose_executor(self.policy, self.pool, fused=True, precision=machine.precision)
        self.player = RolloutPlayer(self.pool, self.executor, num_steps)
        self.pool.reset(0, out=self.player.buffers.last)
        self.learner = Learner.for_rollout(self.player.rollout, self.executor, ppo, total_steps=10**9, seed=0)
        self.generator = torch.Generator(machine.device).manual_seed(0)

    def env_rate(self, seconds: float) -> float:
        """Env steps per second with random actions, measured for about `seconds`; training begins anew after it."""
        rate = measure_env_rate(self.pool, seconds).median
        self.pool.reset(0, out=self.player.buffers.last)
        return rate

    def update(self) -> np.ndarray:
        """One update; the seconds of rollout, learning and reading of episodes, each of which waits for the GPU."""
        times = [time.perf_counter()]
        rollout = self.player.play(self.generator)
        times.append(time.perf_counter())
        self.learner.update(self.learner.prepare(rollout), 0)
        times.append(time.perf_counter())
        self.pool.episodes()
        times.append(time.perf_counter())
        return np.diff(times)

    def measure(self, seconds: float) -> Parts:
        """The speed of training, measured for about `seconds` after a warm-up."""
        last = np.stack([self.update() for _ in range(WARM_UPS)])[-1].sum()
        num_updates = max(1, round(seconds / REPEATS / last))
        parts, rates = [], []
        for _ in range(REPEATS):
            started = time.perf_counter()
            parts += [self.update() for _ in range(num_updates)]
            rates.append(num_updates * self.player.rollout.log_prob.numel() / (time.perf_counter() - started))
        return Parts(float(np.median(rates)), *np.median(parts, axis=0).tolist())
