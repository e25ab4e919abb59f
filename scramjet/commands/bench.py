"""`scramjet bench`: measures env steps, rollouts and training in steps per second, and prints a table."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from scramjet.adapters.make import pool_choices
from scramjet.adapters.registry import ForeignWorld, is_foreign, load_world
from scramjet.algorithms.config import PPOConfig
from scramjet.commands.arguments.bench import Arguments
from scramjet.compile.cuda import require_cuda
from scramjet.engine.actions import random_actions
from scramjet.engine.pool import Pool
from scramjet.engine.worlds.cuda_pool import CudaPool, random_actions_on_gpu
from scramjet.engine.worlds.native_pool import ENVS_PER_THREAD, NativePool
from scramjet.envs.api import Env
from scramjet.envs.registry import canonical_name, load_env, registrations
from scramjet.errors import ConfigError
from scramjet.executors.choice import choose_executor
from scramjet.kernels.operations import allow_kernels
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import check_network_memory, default_network
from scramjet.policies.policy import Policy
from scramjet.runs.world_trust import name_of
from scramjet.runtime.devices import describe_gpu, keep_freed_memory, set_precision, set_threads
from scramjet.runtime.machine import available_cores
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import BYTES_PER_WEIGHT


@dataclass(frozen=True)
class Row:
    """The measured speeds of one number of envs and threads: medians, and for env steps the best repeat too."""

    env: str
    device: str
    num_envs: int
    num_threads: int
    env_steps_per_second: float
    env_steps_per_second_best: float
    rollout_steps_per_second: float
    train_steps_per_second: float
    rollout_share: float
    """Share of the time of training that rollouts take; the rest is learning."""
    executor: str
    """The executor, and why it was chosen."""


def bench_command(arguments: Arguments) -> int:
    """Run `scramjet bench ...`; returns the exit code."""
    arguments = replace(arguments, env=name_of(arguments.env))
    keep_freed_memory()
    if is_foreign(arguments.env):
        return _bench_foreign(arguments)
    on_gpu = arguments.device == "cuda"
    if on_gpu:
        require_cuda()
        set_precision(arguments.precision)
    if arguments.env == "all":
        return _bench_all(arguments)
    load_env(arguments.env)  # raises now if the world cannot be loaded
    threads = (1,) if on_gpu else arguments.num_threads or tuple(sorted({1, available_cores()}))
    rows: list[Row] = []
    if not arguments.json:
        print(f"{arguments.env}, {_machine(arguments.device)}; steps per second")
        print(
            f"{'envs':>7} {'threads':>8} {'env steps (best)':>20} {'rollout':>12} {'training':>12} {'in rollouts':>12}"
        )
    for num_envs in arguments.num_envs or (GPU_NUM_ENVS if on_gpu else CPU_NUM_ENVS):
        for num_threads in threads:
            row = measure(arguments, num_envs, num_threads)
            rows.append(row)
            if not arguments.json:
                env_rate = Rate(row.env_steps_per_second, row.env_steps_per_second_best)
                rollout, training = format_rate(row.rollout_steps_per_second), format_rate(row.train_steps_per_second)
                line = f"{num_envs:>7} {num_threads:>8} {env_rate!s:>20} {rollout:>12} {training:>12}"
                print(f"{line} {row.rollout_share:>12.0%}", flush=True)
    if not arguments.json:
        print("acting and learning: " + ", ".join(dict.fromkeys(row.executor for row in rows)))
    if arguments.json:
        print(
            json.dumps(
                {"machine": _machine(arguments.device), "versions": _versions(), "rows": [asdict(row) for row in rows]}
            )
        )
    return 0


FOREIGN_NUM_ENVS = (8,)
CPU_NUM_ENVS = (64, 256, 1024, 4096)
GPU_NUM_ENVS = (1024, 4096, 16384, 65536)
ALL_NUM_ENVS = 1024
ALL_NUM_ENVS_ON_GPU = 1 << 18


def _bench_foreign(arguments: Arguments) -> int:
    """Measure the env steps of another library's world with each pool that can step it; returns the exit code."""
    if arguments.device == "cuda":
        raise ConfigError(f"--device cuda is for native worlds, and {arguments.env} steps on the CPU; leave it out")
    world = load_world(arguments.env, {})
    assert isinstance(world, ForeignWorld)
    rows: list[dict[str, Any]] = []
    if not arguments.json:
        print(f"{arguments.env}, {_machine()}; env steps per second")
        print(f"{'envs':>7}  {'pool':<36} {'env steps (best)':>20}")
    for num_envs in arguments.num_envs or FOREIGN_NUM_ENVS:
        for label, pool in pool_choices(world, num_envs):
            rate = measure_env_rate(pool, arguments.seconds)
            speeds = {"env_steps_per_second": rate.median, "env_steps_per_second_best": rate.best}
            rows.append({"env": arguments.env, "num_envs": num_envs, "pool": label, **speeds})
            if not arguments.json:
                print(f"{num_envs:>7}  {label:<36} {rate!s:>20}", flush=True)
    if arguments.json:
        print(json.dumps({"machine": _machine(), "versions": _versions(), "rows": rows}))
    return 0


def _bench_all(arguments: Arguments) -> int:
    """Measure the env steps of every world and print a line for each; returns the exit code."""
    on_gpu = arguments.device == "cuda"
    num_envs = ALL_NUM_ENVS_ON_GPU if on_gpu else ALL_NUM_ENVS
    threads = (1,) if on_gpu else arguments.num_threads or tuple(sorted({1, available_cores()}))
    names = [entry.name for entry in registrations() if not entry.name.startswith("probe_")]
    rates: dict[str, dict[int, Rate]] = {}
    if not arguments.json:
        print(f"env steps per second (best) at {num_envs} envs, {_machine(arguments.device)}")
        print(f"{'world':<23}" + "".join(f"{f'{count} threads' if count > 1 else '1 thread':>19}" for count in threads))
    for name in names:
        rates[name] = {
            count: measure_env_rate(_make_pool(load_env(name), num_envs, count, arguments.device), arguments.seconds)
            for count in threads
        }
        if not arguments.json:
            print(f"{name:<23}" + "".join(f"{rate!s:>19}" for rate in rates[name].values()), flush=True)
    if arguments.json:
        medians = {name: {count: rate.median for count, rate in row.items()} for name, row in rates.items()}
        bests = {name: {count: rate.best for count, rate in row.items()} for name, row in rates.items()}
        speeds = {"env_steps_per_second": medians, "env_steps_per_second_best": bests}
        print(json.dumps({"machine": _machine(arguments.device), "versions": _versions(), **speeds}))
    return 0


def measure(arguments: Arguments, num_envs: int, num_threads: int) -> Row:
    """Measure env steps, rollouts and training with `num_envs` envs and `num_threads` threads."""
    set_threads(num_threads)
    torch.manual_seed(0)
    env = load_env(arguments.env)
    pool = _make_pool(env, num_envs, num_threads, arguments.device)
    policy_settings = PolicyConfig(
        hidden=arguments.hidden,
        shared_trunk=arguments.shared_trunk,
        memory=arguments.memory,
        memory_size=arguments.memory_size,
    )
    each = BYTES_PER_WEIGHT if arguments.device == "cpu" else 4
    spaces = pool.observation_space, pool.action_space
    check_network_memory(*spaces, policy_settings, bytes_per_weight=each)
    network = default_network(*spaces, policy_settings)
    policy = Policy(network, *spaces, policy_settings).to(arguments.device)
    policy.uses_bfloat16 = arguments.precision == "bfloat16"
    settings = PPOConfig(
        num_epochs=arguments.num_epochs,
        num_minibatches=arguments.num_minibatches,
        normalize_observations=False,
        normalize_rewards=False,
    )
    batch_size = num_envs * arguments.num_steps
    allow_kernels(arguments.fused)
    executor = choose_executor(policy, pool, fused=arguments.fused, precision=arguments.precision)
    player = RolloutPlayer(pool, executor, arguments.num_steps)
    learner = Learner.for_rollout(player.rollout, executor, settings, total_steps=10**9, seed=0)
    generator = torch.Generator(arguments.device).manual_seed(0)
    env_rate = measure_env_rate(pool, arguments.seconds)
    pool.reset(0, out=player.buffers.last)

    def rollouts() -> None:
        player.play(generator)

    def training() -> None:
        learner.update(learner.prepare(player.play(generator)), 0)

    rollout_rate = median_rate(rollouts, batch_size, arguments.seconds)
    train_rate = median_rate(training, batch_size, arguments.seconds)
    return Row(
        env=canonical_name(arguments.env),
        device=arguments.device,
        num_envs=num_envs,
        num_threads=num_threads,
        env_steps_per_second=env_rate.median,
        env_steps_per_second_best=env_rate.best,
        rollout_steps_per_second=rollout_rate,
        train_steps_per_second=train_rate,
        rollout_share=train_rate / rollout_rate,
        executor=executor.note,
    )


def _make_pool(env: Env, num_envs: int, num_threads: int, device: str) -> NativePool | CudaPool:
    """The pool that a run would use; few envs use fewer than `num_threads` threads."""
    if device == "cuda":
        return CudaPool(env, num_envs)
    return NativePool(env, num_envs, num_threads=min(num_threads, max(1, num_envs // ENVS_PER_THREAD)))


def _machine(device: str = "cpu") -> str:
    """The GPU, or the number and type of cores, in words."""
    if device == "cuda":
        return describe_gpu()
    return f"{available_cores()} cores ({platform.machine()})"


def _versions() -> dict[str, Any]:
    """The versions of scramjet, Python and the libraries that matter for speed, by name."""
    import numba

    from scramjet.version import __version__

    return {
        "scramjet": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


# --- steps a second of envs on the CPU, envs on the GPU, or any function


REPEATS = 5
"""Times that each rate is measured."""
STEPS_RECORDED = 32
"""Env steps in one CUDA graph."""


@dataclass(frozen=True)
class Rate:
    """The median and the best of several measurements, in steps per second."""

    median: float
    best: float

    @classmethod
    def of(cls, rates: list[float]) -> Rate:
        """Summarize one rate for each repeat."""
        return cls(float(np.median(rates)), max(rates))

    def __str__(self) -> str:
        return f"{format_rate(self.median)} ({format_rate(self.best)})"


def measure_env_rate(pool: Pool, seconds: float) -> Rate:
    """Play random legal actions for about `seconds` and return the env steps per second.

    The time to choose the actions is not counted.
    """
    if isinstance(pool, CudaPool):
        return measure_gpu_env_rate(pool, seconds)
    out, random = pool.reset(0), np.random.default_rng(0)
    ready = [random_actions(pool, out, random) for _ in range(64)]
    rates: list[float] = []
    for _ in range(REPEATS):
        stepped, spent = 0, 0.0
        while spent < seconds / REPEATS:
            if pool.mask_size:  # what is legal depends on the step before
                ready = [random_actions(pool, out, random)]
            started = time.perf_counter()
            for actions in ready:
                out = pool.step(actions)
            spent += time.perf_counter() - started
            stepped += len(ready) * pool.num_envs
        rates.append(stepped / spent)
    return Rate.of(rates)


def measure_gpu_env_rate(pool: CudaPool, seconds: float) -> Rate:
    """Measure the env steps per second of a pool on the GPU, for about `seconds`.

    Random legal actions are chosen step by step; then these steps are recorded as a CUDA graph, which is replayed
    again and again from the same states.
    """
    random = torch.Generator("cuda").manual_seed(0)
    out = pool.reset(0)
    for _ in range(2 * STEPS_RECORDED):  # away from where all episodes begin
        out = pool.step(random_actions_on_gpu(pool, out, random))
    states = pool.copied_states()
    actions = []
    for _ in range(STEPS_RECORDED):
        actions.append(random_actions_on_gpu(pool, out, random))
        out = pool.step(actions[-1])
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with pool.recording(), torch.cuda.graph(graph):
        pool.put_states(states)
        for action in actions:
            pool.step(action, out=out)

    def replay() -> None:
        for _ in range(8):
            graph.replay()
        torch.cuda.synchronize()

    return Rate.of(_rates(replay, 8 * STEPS_RECORDED * pool.num_envs, seconds))


def median_rate(work: Callable[[], None], steps: int, seconds: float) -> float:
    """Repeat `work`, which takes `steps` steps, for about `seconds`; returns the median steps per second."""
    return float(np.median(_rates(work, steps, seconds)))


def _rates(work: Callable[[], None], steps: int, seconds: float) -> list[float]:
    """Run `work`, which takes `steps` steps, for about `seconds`; returns the steps per second of each repeat."""
    for _ in range(3):  # compile, record and warm up
        work()
    rates: list[float] = []
    share = seconds / REPEATS
    for _ in range(REPEATS):
        count, started = 0, time.perf_counter()
        while True:
            work()
            count += 1
            elapsed = time.perf_counter() - started
            if elapsed >= share:
                break
        rates.append(count * steps / elapsed)
    return rates


def format_rate(rate: float) -> str:
    """A rate such as `1.25 M`, in at most seven characters so that columns of tables stay aligned."""
    if rate < 1e6:
        return f"{rate / 1e3:.1f} K"
    if rate >= 1e9:
        return f"{rate / 1e9:.2f} G"
    return f"{rate / 1e6:.2f} M" if rate < 1e8 else f"{rate / 1e6:.1f} M"
