"""Training with search on the GPU: searches and gradient steps are graphs, and runs resume bit for bit."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scramjet.algorithms.alphazero import AlphaZeroConfig
from scramjet.algorithms.spo import SPOConfig
from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.search.particles import ParticleSearch
from scramjet.search.search import Rewards, Search
from scramjet.search.tree import TreeSearch
from scramjet.training.persistence.state import trainer_tensors
from tests.helpers.run_files import last_checkpoint, train
from tests.helpers.search_training import BOARD, CONVOLUTIONS, RUNS, UPDATE
from tests.helpers.sessions import begun
from tests.helpers.sessions import train as train_session

pytestmark = pytest.mark.gpu


def on_gpu(kind: str) -> Any:
    return replace(RUNS[kind], device="cuda")


def shapes(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Shapes and types of what the learner owns: generators, episodes and records differ between devices."""
    others = ("rng/", "pool/", "progress/")
    return {name: (each.shape, each.dtype) for name, each in tensors.items() if not name.startswith(others)}


@pytest.mark.parametrize("kind", RUNS)
def test_searches_and_gradient_steps_are_recorded_and_keep_the_shapes_of_the_cpu(kind: str, tmp_path: Path) -> None:
    with begun(RUNS[kind], tmp_path, run_name="cpu") as session:
        train_session(session, 1)
        expected = shapes(trainer_tensors(session))
    with begun(on_gpu(kind), tmp_path, run_name="gpu") as session:
        train_session(session, 3)
        assert session.player._search._stage.is_recorded
        assert session.learner._stage.is_recorded
        assert shapes(trainer_tensors(session)) == expected
        assert all(bool(weight.isfinite().all()) for weight in session.policy.parameters())


@pytest.mark.parametrize("kind", RUNS)
def test_recorded_gradient_steps_learn_what_plain_ones_learn(kind: str, tmp_path: Path) -> None:
    weights = []
    for is_refused in (True, False):
        with begun(on_gpu(kind), tmp_path, run_name="plain" if is_refused else "graph") as session:
            session.learner._stage.is_refused = is_refused
            train_session(session, 1)  # of four gradient steps: executed, recorded, replayed
            assert session.learner._stage.is_recorded != is_refused
            weights.append({name: tensor.cpu().clone() for name, tensor in session.policy.state_dict().items()})
    for name, plain in weights[0].items():
        torch.testing.assert_close(weights[1][name], plain, rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.parametrize("kind", RUNS)
def test_a_resumed_run_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    config = on_gpu(kind)
    whole = train(config, tmp_path, run_name="whole")
    train(replace(config, total_timesteps=3 * UPDATE), tmp_path, run_name="half")
    resumed = train(None, tmp_path, resume="half", total_timesteps=6 * UPDATE)
    assert last_checkpoint(resumed.run_path) == last_checkpoint(whole.run_path)


NUM_ROOTS = 32
WORLDS: dict[str, tuple[Any, PolicyConfig]] = {
    "mlp": (load_env("tic_tac_toe"), PolicyConfig(hidden=(16,))),
    "convolutions": (load_env("connect_four", **BOARD), CONVOLUTIONS),
}


def make_search(kind: str, pool: Any, policy: Policy) -> Search[Any]:
    rewards = Rewards(0.97, torch.ones(1, device=policy.device))
    if kind == "spo":
        return ParticleSearch(pool, policy, NUM_ROOTS, rewards, SPOConfig(particles=8, resample_period=2))
    return TreeSearch(pool, policy, NUM_ROOTS, rewards, AlphaZeroConfig(simulations=12, considered=4))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", ["spo", "alphazero"])
def test_a_search_finds_what_the_cpu_finds_with_the_same_noise(kind: str, world: str) -> None:
    from scramjet.engine.worlds.cuda_pool import CudaPool

    env, config = WORLDS[world]
    torch.manual_seed(0)
    network = default_network(env.observation_space, env.action_space, config)
    pools = NativePool(env, NUM_ROOTS), CudaPool(env, NUM_ROOTS)
    searches = []
    for pool, device in zip(pools, ("cpu", "cuda"), strict=True):
        policy = Policy(copy.deepcopy(network), env.observation_space, env.action_space, config).to(device)
        searches.append(make_search(kind, pool, policy))
    on_cpu, on_gpu = searches
    names = ("_noise", "_log_gammas", "_uniform") if kind == "spo" else ("_gumbel",)

    def draw_same(generator: torch.Generator) -> None:
        for name in ("_key", *names):
            getattr(on_gpu, name).copy_(getattr(on_cpu, name))

    on_gpu._draw = draw_same  # type: ignore[method-assign]
    generators = torch.Generator().manual_seed(3), torch.Generator("cuda")
    out = pools[0].reset(1)
    for _ in range(4):  # executed, recorded, replayed
        records = torch.from_numpy(pools[0].states().view(np.uint8).reshape(NUM_ROOTS, -1))
        shown = [torch.from_numpy(each) for each in (out.obs, out.mask, out.turn)]
        expected = on_cpu.search(records, *shown, generators[0])
        got = on_gpu.search(records.cuda(), *[each.cuda() for each in shown], generators[1])
        for name in expected.__dataclass_fields__:
            theirs, ours = getattr(expected, name), getattr(got, name).cpu()
            agrees = torch.isclose(ours.float(), theirs.float(), rtol=1e-3, atol=1e-3).view(NUM_ROOTS, -1).all(1)
            # Rounding may turn a choice between two nearly equal actions, and with it all that follows there.
            assert agrees.float().mean() > 0.9, name
        out = pools[0].step(expected.action.numpy())
    assert on_gpu._stage.is_recorded
