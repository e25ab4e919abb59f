"""Memory cores and networks with memory that a user writes himself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import scramjet
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.recurrent.cores import Core
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.learner import Learner
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import play, run_config

pytestmark = pytest.mark.usefixtures("one_thread")


class Latch(Core):
    """A core of a user's own: keeps the largest of each feature seen in the episode."""

    def __init__(self, num_inputs: int) -> None:
        super().__init__()
        self.num_features = self.state_size = num_inputs

    def forward(self, features: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs = []
        for t in range(len(features)):
            if begins is not None:
                state = state.masked_fill(begins[t].unsqueeze(1), 0.0)
            state = torch.maximum(state, features[t])
            outputs.append(state)
        return torch.stack(outputs), state


@pytest.mark.parametrize("shared_trunk", [False, True])
def test_a_core_of_ones_own_collects_learns_and_is_exact(shared_trunk):
    env = choosing_world(obs="dict", action="multi", players="agents", masked=True)
    config = PolicyConfig(hidden=(8,), shared_trunk=shared_trunk)
    spaces = env.observation_space, env.action_space
    network = default_network(*spaces, config, core=lambda num_inputs, _: Latch(num_inputs))
    policy = Policy(network, *spaces, config)
    assert policy.state_size == (8 if shared_trunk else 16)
    _, rollout = play(policy, env, num_envs=3, num_steps=6, horizon=3, rollouts=2)
    learner = Learner.for_rollout(rollout, TorchExecutor(policy), PPOConfig(num_minibatches=2), total_steps=100, seed=0)
    before = [weight.clone() for weight in policy.parameters()]
    learner.update(learner.prepare(rollout), 0)
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


class Careless(Latch):
    """A core with one mistake."""

    def __init__(self, num_inputs: int, mistake: str) -> None:
        super().__init__(num_inputs)
        self.mistake = mistake
        if mistake == "no size":
            self.state_size = "8"

    def forward(self, features: Tensor, state: Tensor, begins: Tensor | None) -> Any:
        outputs, state = super().forward(features, state, None if self.mistake == "leaks" else begins)
        if self.mistake == "turned":
            return outputs.transpose(0, 1), state
        return (outputs, state.double()) if self.mistake == "double" else (outputs, state)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("no size", "the memory core Careless has state_size='8'"),
        ("turned", r"does not give for 2 steps of 3 rows .*: steps are laid out time-major"),
        ("leaks", r"does not give for 2 steps of 3 rows .*: where begins\[t, row\] is set"),
        ("double", r"returned a state float64 \[2, 8\] for 2 rows; it must be float32"),
    ],
)
def test_a_core_with_a_mistake_is_refused_before_training(mistake, message):
    env = choosing_world(obs="box", action="discrete", players="one")
    config, spaces = PolicyConfig(hidden=(8,), shared_trunk=True), (env.observation_space, env.action_space)

    def make() -> Policy:
        network = default_network(*spaces, config, core=lambda num_inputs, _: Careless(num_inputs, mistake))
        return Policy(network, *spaces, config)

    with pytest.raises(ConfigError, match=message):
        make()


def test_a_run_with_a_core_of_ones_own_asks_for_it_and_says_how_to_go_on(tmp_path, capsys):
    world, shape = "cartpole", PolicyConfig(hidden=(8,), shared_trunk=True)
    pool = scramjet.make(world, num_envs=1)
    spaces = pool.observation_space, pool.action_space
    network = default_network(*spaces, shape, core=lambda num_inputs, _: Latch(num_inputs))
    result = scramjet.train(run_config(world, policy=shape), runs_dir=tmp_path, network=network, display="plain")
    assert "scramjet.evaluate(" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match=r"a network of its own, .*Latch; load it from Python"):
        scramjet.evaluate(result.run_path)
    assert scramjet.evaluate(result.run_path, 3, network=network).episodes == 3


class Counting(torch.nn.Module):
    """A network of a user's own with memory: counts its steps, in one number."""

    state_size = 1

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(5, 3)

    def forward(self, obs: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        steps, counts = obs.unflatten(0, (-1, len(state))), []
        for t in range(len(steps)):
            if begins is not None:
                state = state.masked_fill(begins[t].unsqueeze(1), 0.0)
            state = state + 1
            counts.append(state)
        out = self.head(torch.cat([obs, torch.cat(counts)], dim=1))
        return out[:, :2], out[:, 2], state


def test_a_network_of_ones_own_may_remember_and_resumes(tmp_path):
    quiet = {"env": "cartpole", "num_envs": 4, "num_steps": 8, "num_threads": 1, "total_timesteps": 96}
    config = RunConfig(**quiet, eval=EvaluationConfig(every=0, final_episodes=0))
    torch.manual_seed(0)
    network = Counting()
    result = scramjet.train(config, runs_dir=tmp_path, network=network, display="quiet")
    state = result.policy.initial_state(2)
    result.policy.act(torch.zeros(2, 4), state)
    result.policy.act(torch.zeros(2, 4), state)
    assert state.tolist() == [[2.0], [2.0]]
