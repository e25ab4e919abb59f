"""Scramjet's own part of the comparison of searches: rollouts as `scramjet train --algorithm alphazero|spo` plays them.

Every move is a search from every env and a step of all envs, and what the search found is kept for a learner, but
nothing is learned. On the GPU a search is one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from search.network import Network

from scramjet.algorithms.config import AlphaZeroConfig, SPOConfig
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env
from scramjet.executors.choice import choose_executor
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.runtime.devices import set_precision, set_threads
from scramjet.runtime.machine import available_cores
from scramjet.search.particles import ParticleSearch
from scramjet.search.search import Rewards
from scramjet.search.tree import TreeSearch
from scramjet.training.search.alphazero_learner import TreeFindings
from scramjet.training.search.player import SearchingPlayer
from scramjet.training.search.spo_learner import ParticleFindings

PACKAGES = ("torch", "numba")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def policy_config(network: Network) -> PolicyConfig:
    """The settings of a network, as a config file would have them."""
    layers = {"hidden": network.hidden, "activation": network.activation, "shared_trunk": network.shared_trunk}
    if not network.channels:
        return PolicyConfig(encoder="mlp", **layers)
    return PolicyConfig(encoder="grid_cnn", grid_channels=(network.channels,), grid_blocks=network.blocks, **layers)


def make_policy(network: Network, pool: CudaPool | NativePool) -> Policy:
    """A policy with initial weights."""
    config = policy_config(network)
    layers = default_network(pool.observation_space, pool.action_space, config)
    policy = Policy(layers, pool.observation_space, pool.action_space, config).to(DEVICE)
    if DEVICE == "cuda":  # as training has it
        policy = policy.to(memory_format=torch.channels_last)
    policy.uses_bfloat16 = network.dtype == "bfloat16"
    return policy


def make_play(
    network: Network, world: str, search: AlphaZeroConfig | SPOConfig, *, num_envs: int, num_moves: int, seed: int
) -> Callable[[], object]:
    """A function that plays the next `num_moves` searched moves of each env and waits for them."""
    set_precision("tf32")
    set_threads(available_cores())
    torch.manual_seed(seed)
    env = load_env(world)
    pool = CudaPool(env, num_envs) if DEVICE == "cuda" else NativePool(env, num_envs, num_threads=available_cores())
    policy = make_policy(network, pool)
    player = make_player(pool, policy, search, num_moves)
    pool.reset(seed, out=player.buffers.last)
    generator = torch.Generator(DEVICE).manual_seed(seed)

    def run() -> object:
        rollout = player.play(generator)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return rollout

    return run


def make_player(
    pool: CudaPool | NativePool, policy: Policy, search: AlphaZeroConfig | SPOConfig, num_moves: int
) -> SearchingPlayer:
    """What plays rollouts of `num_moves` steps."""
    rewards = Rewards(gamma=1.0, scale=torch.ones(1, device=DEVICE))
    precision = "tf32" if DEVICE == "cuda" else "float32"
    executor = choose_executor(policy, pool, fused=True, precision=precision)
    if isinstance(search, SPOConfig):
        particles = ParticleSearch(pool, policy, pool.num_envs, rewards, search, executor)
        findings = ParticleFindings.allocate(particles, num_moves, search)
        return SearchingPlayer(pool, executor, particles, findings, num_moves)
    trees = TreeSearch(pool, policy, pool.num_envs, rewards, search)
    return SearchingPlayer(pool, executor, trees, TreeFindings.allocate(trees, num_moves), num_moves)
