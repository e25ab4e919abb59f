"""One update by several ranks is the update that one rank would make, and the same bits on all of them."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scramjet.training import learner as learner_module
from tests.helpers.shared_updates import Case, Learned
from tests.helpers.thread_ranks import on_ranks

pytestmark = pytest.mark.usefixtures("one_thread")

LSTM: dict[str, Any] = {"hidden": (8,), "memory": "lstm", "memory_size": 8}
GRU: dict[str, Any] = {"hidden": (8,), "memory": "gru", "memory_size": 8}
AGENTS, SEATS = ("box", "multi", "agents"), ("box", "discrete", "seats")


class Guessing(nn.Module):
    """A policy for worlds of three numbers that also guesses what it sees, and keeps its weights small."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
        self.actor, self.critic, self.guess = nn.Linear(8, 3), nn.Linear(8, 1), nn.Linear(8, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(obs)
        return self.actor(features), self.critic(features).squeeze(-1)

    def loss(self, batch: Any) -> dict[str, Tensor]:
        wrong = (self.guess(self.trunk(batch.obs)) - batch.obs).square().mean(1)
        return {"guess": (wrong * batch.advantage.abs()).mean(), "size": 0.1 * self.guess.weight.square().sum()}


CASES: dict[str, dict[str, Any]] = {
    "mlp": {},
    "mlp_torch": {"is_fused": False},
    "not_normalized": {"ppo": {"normalize_advantages": "off", "normalize_observations": False, "max_grad_norm": None}},
    "normalized_by_batch": {"ppo": {"normalize_advantages": "batch", "normalize_rewards": False, "value_clip": 0.1}},
    "value_clip_torch": {"is_fused": False, "ppo": {"value_clip": 0.1, "reward_clip": 0.5}},
    "popart": {"ppo": {"value_scale": "popart"}},
    "popart_agents_vtrace": {"world": AGENTS, "ppo": {"value_scale": "popart", "advantage": "vtrace"}},
    "two_hot_agents": {"world": AGENTS, "is_fused": False, "policy": {"value_bins": 11}},
    "target_entropy": {"ppo": {"target_entropy": 0.5}},
    "lstm": {"policy": LSTM},
    "lstm_torch": {"policy": LSTM, "is_fused": False},
    "gru_bptt": {"policy": GRU, "ppo": {"bptt_horizon": 4}},
    "masked_dict": {"world": ("dict", "multi", "one"), "masked": True},
    "continuous": {"world": ("box", "box", "one")},
    "agents": {"world": AGENTS, "masked": True},
    "agents_batch": {"world": AGENTS, "ppo": {"normalize_advantages": "batch"}},
    "agents_lstm": {"world": AGENTS, "policy": LSTM, "ppo": {"bptt_horizon": 3}},
    "agents_fixed": {"world": AGENTS, "fixed_shapes": True, "is_fused": False},
    "agents_lstm_fixed": {"world": AGENTS, "policy": LSTM, "fixed_shapes": True, "ppo": {"bptt_horizon": 3}},
    "seats_gru_fixed": {"world": SEATS, "policy": GRU, "fixed_shapes": True, "ppo": {"bptt_horizon": 6}},
    "seats": {"world": SEATS},
    "seats_gru": {"world": SEATS, "policy": GRU, "ppo": {"bptt_horizon": 6}},
    "small_minibatches": {"num_envs": 4, "num_steps": 6, "ppo": {"num_minibatches": 12}},
    "small_minibatches_torch": {"num_envs": 4, "num_steps": 6, "ppo": {"num_minibatches": 8}, "is_fused": False},
    "own_losses": {"network": Guessing, "is_fused": False, "num_steps": 6, "ppo": {"num_minibatches": 16}},
    "impala": {"ppo": {"loss": "impala", "advantage": "vtrace", "num_epochs": 1}, "is_behind": True},
    "vtrace_seats": {"world": SEATS, "ppo": {"advantage": "vtrace", "normalize_advantages": "batch"}},
}


def assert_same(found: Learned, expected: Learned) -> None:
    tensors = {name: found.tensors[name] for name in expected.tensors}
    torch.testing.assert_close(tensors, expected.tensors, rtol=2e-4, atol=2e-5)
    for ours, theirs in zip(found.metrics, expected.metrics, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)


def assert_ranks_learn_what_one_learns(case: Case, sizes: tuple[int, ...] = (2,)) -> None:
    """Ranks end with the same bits, which are, up to rounding, those of one rank."""
    (expected,) = case.learned_together(1)
    for size in sizes:
        first, *others = case.learned_together(size)
        assert_same(first, expected)
        for other in others:
            assert all(torch.equal(tensor, first.tensors[key]) for key, tensor in other.tensors.items())
            assert other.metrics == first.metrics


CORE = ("mlp", "normalized_by_batch", "popart", "agents_fixed", "own_losses", "impala")


@pytest.mark.parametrize("name", [*CORE, *(pytest.param(n, marks=pytest.mark.rest) for n in CASES if n not in CORE)])
def test_ranks_learn_together_what_one_rank_learns_from_the_same_rollouts(name):
    assert_ranks_learn_what_one_learns(Case(**CASES[name]), (2, 4))


def test_a_kl_that_only_one_rank_would_stop_at_stops_all_or_none():
    case = Case(is_fused=False, ppo={"num_epochs": 6, "normalize_rewards": False, "target_kl": 1e9})
    for rollout in case.rollouts:
        rollout.log_prob[:, :2] += 1.0  # of rank 0 of 4: its samples alone are far from the policy
    own_kl = [metrics["approx_kl"] for metrics in case.learned_together(1)[0].metrics]
    for target, num_epochs in ((0.5 * own_kl[0], 1), (2 * own_kl[0], 6)):
        case.config = type(case.config)(**{**vars(case.config), "target_kl": target})
        for size in (1, 4):
            assert [each.metrics[0]["epochs"] for each in case.learned_together(size)] == [num_epochs] * size


def test_ranks_with_more_samples_than_are_shuffled_together_shuffle_their_own(monkeypatch):
    monkeypatch.setattr(learner_module, "MOST_SHUFFLED_TOGETHER", 10)
    assert_ranks_learn_what_one_learns(Case(ppo={"num_minibatches": 1}))  # which holds everything in any order
    case = Case()
    first, second = case.learned_together(2)
    assert first.metrics == second.metrics
    assert all(torch.equal(tensor, second.tensors[name]) for name, tensor in first.tensors.items())

    def order_on(ranks: Any) -> list[int]:
        given = {"total_steps": 1, "seed": 3, "ranks": ranks}
        learner = learner_module.Learner.for_rollout(case.rollouts[0], case.executor(), case.config, **given)
        return torch.randperm(20, generator=learner.shuffle_generator).tolist()

    assert len({tuple(order) for order in on_ranks(4, order_on)}) == 4


@pytest.mark.parametrize(
    ("are_alive", "settings"),
    [
        (False, {}),
        (False, {"fixed_shapes": True}),
        # Compiled functions could learn all samples of rank 0.
        pytest.param(True, {"policy": LSTM, "ppo": {"bptt_horizon": 3}}, marks=pytest.mark.rest),
    ],
    ids=["all dead", "all dead, fixed shapes", "all alive, memory"],
)
def test_ranks_learn_alike_where_agents_die_on_one_of_them_only(are_alive, settings):
    case = Case(world=AGENTS, **settings)
    for rollout in case.rollouts:
        rollout.alive[:, :8] = are_alive  # of rank 0 of 2
    assert_ranks_learn_what_one_learns(case)


def test_what_is_not_a_number_on_one_rank_ends_all():
    case = Case()
    case.rollouts[1].reward[3, 7] = math.nan
    with pytest.raises(learner_module.TrainingError, match="diverged"):
        case.learned_together(2)
