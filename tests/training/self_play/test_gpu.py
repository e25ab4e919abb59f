"""Self-play on the GPU: the whole rollout with its opponents is one graph, and runs resume bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import scramjet
from scramjet.accelerate.choice import choose_executor
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.envs import load_env
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.self_play.members import plain_weights
from scramjet.training.self_play.opponents import GroupSize, Opponent, Opponents

pytestmark = pytest.mark.gpu

STEPS, ENVS = 16, 64
BOARD = {"rows": 4, "cols": 4, "connect": 3}
KINDS: dict[str, dict[str, Any]] = {
    "mlp": {"encoder": "mlp"},
    "board": {"encoder": "grid_cnn", "grid_channels": (8,), "grid_blocks": 1, "shared_trunk": True},
    "memory": {"encoder": "mlp", "memory": "gru", "memory_size": 8},
}


def make_policy(pool: CudaPool, seed: int, settings: dict[str, Any]) -> Policy:
    torch.manual_seed(seed)
    config = PolicyConfig(hidden=(16,), **settings)
    network = default_network(pool.observation_space, pool.action_space, config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Policy(network, pool.observation_space, pool.action_space, config).to("cuda")


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_rollout_is_one_graph_and_opponents_choose_what_their_policies_draw(kind: str) -> None:
    pool = CudaPool(load_env("connect_four", **BOARD), ENVS)
    policy = make_policy(pool, 0, KINDS[kind])
    others = [make_policy(pool, seed, KINDS[kind]) for seed in (1, 2, 3, 4)]
    weights = [plain_weights(other.state_dict()) for other in others]
    opponents = Opponents(pool, policy, [GroupSize(0, 32, 2, 2)], STEPS, fused=True, seed=5)
    player = RolloutPlayer(pool, choose_executor(policy, pool, fused=True), STEPS, others=opponents)
    group = opponents.groups[0]
    group.seat_opponents(0, [Opponent(0, weights[0]), Opponent(1, weights[1])])
    pool.reset(3, out=player.buffers.last)
    generator, told = torch.Generator("cuda").manual_seed(7), set()
    for number in range(8):
        if number == 3:
            group.waiting = [Opponent(2, weights[2]), Opponent(3, None)]
        rollout = player.play(generator)
        assert rollout.mine is not None
        assert rollout.outcome is not None
        assert rollout.opponent is not None
        told |= set(rollout.opponent[rollout.outcome > 0].tolist())
        assert bool(rollout.mine[:, 32:].all())
        assert 0.2 < float(rollout.mine[:, :32].float().mean()) < 0.8
        if kind == "mlp" and number < 3:
            for slot in (0, 1):
                rows = slice(16 * slot, 16 * (slot + 1))
                for t in range(STEPS):
                    assert rollout.mask is not None
                    action, log_prob = torch.zeros(16, dtype=torch.int64, device="cuda"), torch.zeros(16, device="cuda")
                    with torch.no_grad():
                        logits = others[slot](rollout.obs[t, rows]).logits
                    others[slot].distribution.sample(
                        logits, rollout.mask[t, rows], group.noise[t, rows], action, log_prob
                    )
                    theirs = ~rollout.mine[t, rows]
                    same = (rollout.action[t, rows] == action)[theirs].float()
                    assert float(same.mean()) > 0.9 if len(same) else True  # rounding may move a draw at an edge
    assert player.is_recorded
    assert told == {0, 1, 2, 3}


RUNS: dict[str, dict[str, Any]] = {
    "graph": {},
    "envs on the CPU": {"env_device": "cpu"},
    "memory": {"policy": {"hidden": [16], "encoder": "mlp", "memory": "gru", "memory_size": 8}},
    "agents": {"env": "snake", "env_parameters": {"size": 6, "snakes": 2}},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_the_gpu_resumes_bit_for_bit(tmp_path: Path, name: str) -> None:
    settings: dict[str, Any] = {
        "num_envs": 32, "num_steps": 16, "minibatch_size": 128, "learning_rate": 0.01, "entropy_coef": 0.01,
        "policy": {"hidden": [16], "encoder": "grid_cnn", "grid_channels": [4]},
        "env_parameters": {**BOARD, "random_opponent": False}, "eval": {"every": 0, "final_episodes": 0},
        "self_play": {"pool_fraction": 0.5, "opponents_at_once": 2, "snapshot_every": 2, "pool_size": 3,
                      "change_every": 2, "fixed_fraction": 0.1, "opponents": ["random"]},
        "device": "cuda", "display": "quiet", "runs_dir": tmp_path,
    } | RUNS[name]  # fmt: skip
    env, update = settings.pop("env", "connect_four"), 32 * 16
    scramjet.train(env, run_name="whole", total_timesteps=14 * update, **settings)
    scramjet.train(env, run_name="parts", total_timesteps=6 * update, **settings)
    scramjet.train(resume=tmp_path / "parts", total_timesteps=14 * update, display="quiet")
    for file in ("model.safetensors", "trainer.safetensors"):
        ends = [tmp_path / run / "checkpoints" / f"step_{14 * update:08d}" / file for run in ("whole", "parts")]
        assert ends[0].read_bytes() == ends[1].read_bytes(), file
