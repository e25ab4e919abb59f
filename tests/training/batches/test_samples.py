"""Samples: a rollout laid out for gradient steps, in which what does not count is as if it were not there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig, explained_variance, normalize
from scramjet.envs import Box, Discrete
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.batches.samples import lay_out
from scramjet.training.learner import Learner, RolloutSize, loss_settings

pytestmark = pytest.mark.usefixtures("one_thread")

NUM = 24


def some_samples() -> Samples:
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randn(5, NUM, generator=generator)
    return Samples(
        obs=torch.rand(NUM, 3, generator=generator),
        mask=None,
        action=torch.randint(4, (NUM,), generator=generator),
        log_prob=numbers[0] - 1.5,
        value=numbers[1],
        advantage=numbers[2],
        returns=numbers[3],
        place=torch.arange(NUM),
        counts=torch.rand(NUM, generator=generator) < 0.6,
    )


@pytest.mark.parametrize("loss", ["ppo", "impala"])
@pytest.mark.parametrize("value_clip", [None, 0.1])
@pytest.mark.parametrize("normalizes", ["minibatch", "off"])
def test_the_loss_and_its_gradient_are_those_of_the_samples_that_count(loss, value_clip, normalizes):
    space, actions = Box(0, 1, (3,)), Discrete(4)
    policy = Policy(default_network(space, actions, PolicyConfig(hidden=(8,))), space, actions)
    config = PPOConfig(loss=loss, value_clip=value_clip, normalize_advantages=normalizes, num_minibatches=1)
    learner = Learner(TorchExecutor(policy), config, RolloutSize(1, NUM), total_steps=100, seed=0)
    marked = some_samples()
    marked.log_prob[~marked.counts] = -1e4  # a ratio beyond all numbers, which must not be looked at
    marked.advantage[~marked.counts] = torch.nan
    chosen = replace(marked, counts=None).select(marked.counts.nonzero().squeeze(1))
    results = []
    for samples in (marked, chosen):
        terms = minibatch_loss(policy, samples, loss_settings(learner.config, clip=0.2, entropy_coef=0.01))
        learner.optimizer.zero_grad()
        terms.total.backward()
        results.append([getattr(terms, name) for name in terms.__slots__] + [p.grad for p in policy.parameters()])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_advantages_are_normalized_over_what_counts():
    samples = some_samples()
    ours = normalize(samples.advantage, samples.counts)
    torch.testing.assert_close(ours[samples.counts], normalize(samples.advantage[samples.counts]))
    assert not ours[~samples.counts].any()


def test_explained_variance_is_of_what_counts():
    samples = some_samples()
    kept = samples.counts
    ours = explained_variance(samples.value, samples.returns, kept)
    torch.testing.assert_close(ours, explained_variance(samples.value[kept], samples.returns[kept]))


# --- a rollout laid out ----------------------------------------------------------------------------------------------


def a_rollout(num_steps: int, num_rows: int, **changes: Any) -> Any:
    """Steps whose numbers say where they are: step t of row r has observation, value and action 10 t + r."""
    places = 10 * torch.arange(num_steps + 1).unsqueeze(1) + torch.arange(num_rows)
    nothing = torch.zeros(num_steps, num_rows, dtype=torch.bool)
    rollout = SimpleNamespace(
        obs=places.unsqueeze(-1).float(),
        mask=None,
        action=places[:-1],
        log_prob=-places[:-1].float(),
        value=places.float(),
        terminated=nothing,
        truncated=nothing,
        alive=None,
        seat=None,
        num_steps=num_steps,
        horizon=num_steps,
        recurrent=SimpleNamespace(is_used=False),
        states=torch.zeros(0, 0, 0),
        mine=None,
    )
    for name, data in changes.items():
        setattr(rollout, name, data)
    return rollout


def laid_out(rollout: Any, counts: Tensor | None = None) -> Samples:
    """Its samples, with advantages and returns that say where they are too."""
    return lay_out(rollout, rollout.value[:-1] + 0.25, rollout.value[:-1] + 0.5, counts)


def remembering(num_slots: int, num_steps: int, horizon: int) -> dict[str, Any]:
    """What a rollout of a policy with memory has more: the state of slot s before stretch k is 100 k + s."""
    stretches = 100 * torch.arange(num_steps // horizon).unsqueeze(1) + torch.arange(num_slots)
    return {
        "horizon": horizon,
        "recurrent": SimpleNamespace(is_used=True),
        "states": stretches.unsqueeze(-1).float(),
    }


def test_all_steps_of_all_envs_are_samples_and_none_is_copied():
    rollout = a_rollout(2, 3)
    samples = laid_out(rollout)
    assert samples.action.tolist() == [0, 1, 2, 10, 11, 12]
    assert samples.obs.flatten().tolist() == samples.value.tolist() == [0, 1, 2, 10, 11, 12]
    assert samples.advantage.tolist() == [0.25, 1.25, 2.25, 10.25, 11.25, 12.25]
    assert samples.obs.data_ptr() == rollout.obs.data_ptr()
    assert samples.is_plain
    assert samples.num_units == 6


def test_steps_of_agents_that_were_dead_are_left_out():
    alive = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 1]])
    samples = laid_out(a_rollout(2, 3, alive=alive))
    assert samples.action.tolist() == [0, 1, 2, 10, 12]
    assert samples.place.tolist() == [0, 1, 2, 3, 5]
    assert samples.returns.tolist() == [0.5, 1.5, 2.5, 10.5, 12.5]


def test_turns_that_do_not_count_are_left_out():
    seats = torch.tensor([[0, 1], [1, 0], [0, 0]], dtype=torch.int8)
    counts = torch.tensor([[True, True], [False, True]])
    assert laid_out(a_rollout(2, 2, seat=seats), counts).action.tolist() == [0, 1, 11]


def test_with_memory_the_stretches_between_kept_states_stand_side_by_side():
    ended = torch.tensor([[False], [True], [False], [False]])
    samples = laid_out(a_rollout(4, 1, terminated=ended, **remembering(1, 4, 2)))
    assert samples.action.view(2, 2).T.tolist() == [[0, 10], [20, 30]]
    assert samples.state.flatten().tolist() == [0, 100]
    assert samples.num_units == 2
    ended = torch.tensor([[True], [False], [False], [False]])
    samples = laid_out(a_rollout(4, 1, terminated=ended, **remembering(1, 4, 4)))
    assert samples.begins.flatten().tolist() == [False, True, False, False]


def test_with_memory_each_seat_has_its_own_turns_and_short_ones_are_filled_up_and_do_not_count():
    seats = torch.tensor([[0], [1], [0], [0], [1]], dtype=torch.int8)
    rollout = a_rollout(4, 1, seat=seats, **remembering(2, 4, 4))
    samples = laid_out(rollout, torch.ones(4, 1, dtype=torch.bool))
    assert samples.place.view(3, 2).T.tolist() == [[0, 2, 3], [1, -1, -1]]
    assert samples.counts.view(3, 2).T.tolist() == [[True, True, True], [True, False, False]]
    assert samples.state.flatten().tolist() == [0, 1]
    assert samples.select(torch.tensor([1])).action[0] == 10


def test_with_memory_a_sequence_of_an_agent_that_is_dead_throughout_is_left_out():
    alive = torch.tensor([[1, 0], [1, 0], [1, 0]])
    samples = laid_out(a_rollout(2, 2, alive=alive, **remembering(2, 2, 2)))
    assert samples.action.tolist() == [0, 10]
    assert samples.state.flatten().tolist() == [0]


def test_data_goes_back_to_where_it_was_played():
    seats = torch.tensor([[0], [1], [0], [0], [1]], dtype=torch.int8)
    samples = laid_out(a_rollout(4, 1, seat=seats, **remembering(2, 4, 4)), torch.ones(4, 1, dtype=torch.bool))
    target = torch.full((4, 1), -1.0)
    samples.write_back(target, samples.value)
    assert target.flatten().tolist() == [0, 10, 20, 30]


def test_new_targets_are_taken_from_where_each_sample_was_played():
    alive = torch.tensor([[1, 1], [0, 1], [0, 1]])
    samples = laid_out(a_rollout(2, 2, alive=alive))
    samples.set_targets(torch.tensor([[5.0, 6.0], [7.0, 8.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert samples.advantage.tolist() == [5, 6, 8]
    assert samples.returns.tolist() == [1, 2, 4]
