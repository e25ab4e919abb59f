"""Compiled acting and learning on the CPU: what torch's operators and autograd give, for every kind of network."""

import copy
import itertools

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import nn

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.minibatches import Minibatches
from scramjet.accelerate.numba import network as native_module
from scramjet.accelerate.numba.executor import UnsupportedPolicyError, numba_network
from scramjet.accelerate.numba.gradient_kernels import TERMS
from scramjet.accelerate.numba.network import NumbaStep
from scramjet.accelerate.samples import Samples
from scramjet.algorithms.ppo import normalize, ppo_loss
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy

VECTOR = Box(-1, 1, (5,), np.float32)
ACTIONS = {
    "choice": Discrete(3),
    "choices": MultiDiscrete([2, 4, 3]),
    "points": Box(-1, 1, (3,), np.float32),
}
NUM_UNITS, NUM_STEPS = 300, 6


def random_policy(space=VECTOR, action="choice", **settings):
    """A policy whose every weight is random: zero biases hide mistakes."""
    config = PolicyConfig(**({"hidden": (16, 24), "memory_size": 12} | settings))
    network = default_network(space, ACTIONS[action], config)
    policy = Policy(network, space, ACTIONS[action], config)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return policy


class Case:
    """Samples that a policy has played, with and without memory; old probabilities are a little off."""

    def __init__(self, policy, masked=False):
        steps = NUM_STEPS if policy.state_size else 1
        units = 40 if policy.state_size else NUM_UNITS
        self.steps, self.units, count = steps, units, steps * units
        distribution = policy.distribution
        self.obs = torch.randn(count, 5)
        self.state = torch.randn(units, policy.state_size) if policy.state_size else None
        self.begins = torch.rand(steps, units) < 0.2 if policy.state_size else None
        self.mask = None
        if masked:
            self.mask = torch.rand(count, distribution.num_inputs) < 0.6
            self.mask[:, getattr(distribution, "offsets", torch.zeros(2, dtype=int))[:-1]] = True
        with torch.no_grad():
            output = policy(self.obs, self.state, self.begins)
        self.noise = distribution.noise(1, count, torch.Generator().manual_seed(0))[0]
        self.action = torch.zeros(count, *distribution.action_shape, dtype=distribution.action_dtype)
        self.log_prob = torch.zeros(count)
        distribution.sample(output.logits, self.mask, self.noise, self.action, self.log_prob)
        self.old_log_prob = self.log_prob + 0.2 * torch.randn(count)
        self.value = output.value + 0.3 * torch.randn(count)
        self.advantage, self.returns = 2 * torch.randn(count) + 1, torch.randn(count)

    def give(self, network):
        samples = Samples(
            obs=self.obs, mask=self.mask, action=self.action, log_prob=self.old_log_prob, value=self.value,
            advantage=self.advantage, returns=self.returns, place=torch.arange(len(self.action)), state=self.state,
            begins=self.begins,
        )  # fmt: skip
        network.use_samples(samples)

    def by_autograd(self, policy, taken, *, normalizes, value_clip, max_norm):
        """Terms, the norm, and gradients by name."""
        index = (torch.arange(self.steps)[:, None] * self.units + taken).flatten()
        state = None if self.state is None else self.state[taken]
        begins = None if self.begins is None else self.begins[:, taken]
        policy.zero_grad(set_to_none=True)
        output = policy(self.obs[index], state, begins)
        mask = None if self.mask is None else self.mask[index]
        log_prob, entropy = policy.distribution.log_prob_and_entropy(output.logits, self.action[index], mask)
        advantage = normalize(self.advantage[index]) if normalizes else self.advantage[index]
        terms = ppo_loss(
            log_prob, entropy, output.value, old_log_prob=self.old_log_prob[index], old_value=self.value[index],
            advantage=advantage, returns=self.returns[index], clip=0.2, value_clip=value_clip, entropy_coef=0.01,
            value_coef=0.5,
        )  # fmt: skip
        terms.total.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), max_norm or torch.inf)
        grads = {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}
        return [float(getattr(terms, name).detach()) for name in TERMS] + [float(norm)], grads


def loss_of(*, normalizes, value_clip, max_norm):
    return LossSettings(
        clip=0.2, entropy_coef=0.01, value_coef=0.5, value_clip=value_clip, max_grad_norm=max_norm,
        normalizes_advantages=normalizes,
    )  # fmt: skip


def check_gradients(policy, case, num_threads=2, **options):
    options = {"normalizes": True, "value_clip": None, "max_norm": 0.5} | options
    taken = torch.randperm(case.units)[: case.units // 2]
    expected, grads = case.by_autograd(policy, taken, **options)
    network = numba_network(policy)
    case.give(network)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        found = network.gradients(taken, loss_of(**options))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for name, parameter in policy.named_parameters():
        largest = float(grads[name].abs().max())
        torch.testing.assert_close(parameter.grad, grads[name], rtol=1e-4, atol=1e-5 * (largest + 1e-3))
    return found, {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}


@pytest.mark.parametrize(
    ("action", "memory", "shared"), list(itertools.product(ACTIONS, [None, "lstm", "gru", "mingru"], [False, True]))
)
def test_gradients_and_terms_are_those_of_autograd(action, memory, shared):
    policy = random_policy(action=action, memory=memory, shared_trunk=shared)
    check_gradients(policy, Case(policy, masked=action != "points"))


@pytest.mark.parametrize("value_clip", [None, 0.2])
@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_every_option_of_the_loss(value_clip, max_norm, normalizes, activation):
    policy = random_policy(activation=activation)
    check_gradients(policy, Case(policy), value_clip=value_clip, max_norm=max_norm, normalizes=normalizes)


@pytest.mark.parametrize("hidden", [(1,), (7,), (64, 64), (16, 8, 40, 3)])
def test_any_number_and_width_of_layers(hidden):
    policy = random_policy(hidden=hidden)
    check_gradients(policy, Case(policy))


@pytest.mark.parametrize("log_std", [-30.0, 0.3, 30.0])
def test_deviations_out_of_their_range_are_pulled_back_as_torch_pulls_them(log_std):
    policy = random_policy(action="points")
    with torch.no_grad():
        policy.network.actor_head.log_std.fill_(log_std)
        for parameter in policy.network.actor_head.mean.parameters():
            parameter.zero_()  # a mean that rounds in no way: the distance to it is huge in tiny deviations
    case = Case(policy)
    if log_std > 1:
        case.action = case.action.clamp(-1e6, 1e6)
    policy_grads = check_gradients(policy, case, max_norm=None)[1]
    assert torch.isfinite(policy_grads["network.actor_head.log_std"]).all()


def test_deviations_that_depend_on_the_state():
    policy = random_policy(action="points", state_dependent_std=True)
    check_gradients(policy, Case(policy))


@pytest.mark.parametrize("memory", [None, "lstm"])
def test_the_number_of_threads_changes_no_more_than_rounding_and_the_same_number_nothing(memory):
    policy = random_policy(memory=memory)
    case = Case(policy)
    torch.manual_seed(1)
    one = check_gradients(policy, case, num_threads=1)
    torch.manual_seed(1)
    many = check_gradients(policy, case, num_threads=5)
    torch.manual_seed(1)
    again = check_gradients(policy, case, num_threads=5)
    np.testing.assert_allclose(one[0], many[0], rtol=1e-4, atol=1e-6)
    assert many[0] == again[0]
    assert all(torch.equal(grad, again[1][name]) for name, grad in many[1].items())


@pytest.mark.parametrize("hidden", [(16,), (200,)])  # inputs few beside the layer's outputs or not
@pytest.mark.parametrize("memory", [None, "lstm"])
def test_parts_are_shared_out_and_whoever_does_them_the_result_is_the_same(memory, hidden, monkeypatch):
    for name, small in {
        "SAMPLES_TO_SHARE": 8,
        "SAMPLES_PER_PART": 8,
        "SAMPLES_PER_PART_SQUARED": 1,
        "BLOCK": 4,
    }.items():
        monkeypatch.setattr(native_module, name, small)
    monkeypatch.setattr(native_module.memory_kernels, "ROWS_PER_BLOCK", 1)
    take_steps, taken_in_parts = native_module.step_kernels.take_steps, []

    def watched(address, num_workers, num_parts, *others):
        taken_in_parts.append(num_parts)
        take_steps(address, num_workers, num_parts, *others)

    monkeypatch.setattr(native_module.step_kernels, "take_steps", watched)
    policy = random_policy(memory=memory, hidden=hidden)
    case, results = Case(policy), []
    for _ in range(20):
        torch.manual_seed(1)
        results.append(check_gradients(policy, case, num_threads=3))
    assert max(taken_in_parts) > 3
    assert all(terms == results[0][0] for terms, _ in results)
    assert all(torch.equal(grad, grads[name]) for _, grads in results for name, grad in results[0][1].items())


def test_blocks_are_only_a_matter_of_speed(monkeypatch):
    policy = random_policy()
    case = Case(policy)
    monkeypatch.setattr(native_module, "BLOCK", 7)
    check_gradients(policy, case)


@pytest.mark.parametrize(
    ("action", "memory", "shared"), list(itertools.product(ACTIONS, [None, "lstm", "gru", "mingru"], [False, True]))
)
def test_acting_and_valuing_are_those_of_the_network(action, memory, shared):
    policy = random_policy(action=action, memory=memory, shared_trunk=shared)
    case = Case(policy, masked=action != "points")
    rows = slice(0, case.units)
    mask = None if case.mask is None else case.mask[rows]
    state = None if case.state is None else case.state.clone()
    found = torch.zeros_like(case.action[rows]), torch.zeros(case.units), torch.zeros(case.units)
    network = numba_network(policy)
    network.refresh()
    (act,) = network.acts([NumbaStep(case.obs[rows], mask, case.noise[rows], *found)], state)
    act()
    with torch.no_grad():
        output = policy(case.obs[rows], case.state, None)
    action_, log_prob = torch.zeros_like(found[0]), torch.zeros(case.units)
    policy.distribution.sample(output.logits, mask, case.noise[rows], action_, log_prob)
    for mine, other in zip(found, (action_, log_prob, output.value), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    if memory:
        torch.testing.assert_close(state, output.state, rtol=1e-4, atol=1e-5)
    values = torch.zeros(case.units)
    network.values(case.obs[rows], case.state, values)
    torch.testing.assert_close(values, output.value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("memory", [None, "lstm", "gru", "mingru"])
def test_minibatches_of_gradient_steps_move_weights_and_moments_as_torchs_adam_does(memory):
    ours = random_policy(memory=memory)
    theirs = copy.deepcopy(ours)
    case = Case(ours)
    order, options = (
        torch.randperm(case.units)[: case.units - 1],
        {"normalizes": True, "value_clip": None, "max_norm": 0.5},
    )
    optimizers = [torch.optim.Adam(policy.parameters(), lr=0.01, eps=1e-5) for policy in (ours, theirs)]
    network = numba_network(ours)
    for _ in range(2):
        case.give(network)
        network.use_optimizer(optimizers[0])
        found = network.learn(Minibatches.even(order, 4), loss_of(**options))
        for k, taken in enumerate(order.tensor_split(4)):
            expected, _ = case.by_autograd(theirs, taken, **options)
            optimizers[1].step()
            np.testing.assert_allclose(found[k], expected, rtol=1e-2, atol=1e-3)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-2, atol=2e-3)
    for name, mine in optimizers[0].state_dict()["state"].items():
        other = optimizers[1].state_dict()["state"][name]
        assert list(mine) == list(other)
        assert mine["step"] == other["step"] == 8
        torch.testing.assert_close(mine["exp_avg"], other["exp_avg"], rtol=1e-2, atol=1e-3)
    optimizers[1].load_state_dict(optimizers[0].state_dict())


def test_weights_may_move_to_another_place():
    policy = random_policy()
    case, network = Case(policy), numba_network(policy)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.data = parameter.data.clone() * 0.5
    network.refresh()
    values = torch.zeros(NUM_UNITS)
    network.values(case.obs, None, values)
    torch.testing.assert_close(values, policy.value(case.obs).detach(), rtol=1e-4, atol=1e-5)


def test_what_is_not_a_number_is_seen_in_norm_and_gradients():
    policy = random_policy()
    case, network = Case(policy), numba_network(policy)
    case.advantage[3] = torch.nan
    case.give(network)
    terms = network.gradients(torch.arange(NUM_UNITS), loss_of(normalizes=False, value_clip=None, max_norm=0.5))
    assert np.isnan(terms[-1])
    assert any(parameter.grad.isnan().any() for parameter in policy.parameters())


def test_encoders_without_weights_stand_before_the_first_layer():
    space = Dict({"a": Box(0, 5, (2, 3), np.int8), "b": Discrete(4), "c": MultiBinary(3)})
    policy = random_policy(space)
    network = numba_network(policy)
    obs = {"a": torch.randint(0, 5, (9, 2, 3)).to(torch.int8), "b": torch.randint(0, 4, (9, 1)), "c": torch.ones(9, 3)}
    inputs = network.encode(obs)
    assert inputs.shape == (9, 6 + 4 + 3)
    assert inputs.dtype == torch.float32


@pytest.mark.parametrize(
    "settings",
    [{"memory": "lstm", "memory_layers": 2}, {"action": "points", "bounded_actions": "tanh"}],
)
def test_what_it_does_not_take_is_left_to_torch(settings):
    with pytest.raises(UnsupportedPolicyError):
        numba_network(random_policy(**settings))


def change_class(network):
    class Own(type(network)):
        pass

    network.__class__ = Own


@pytest.mark.parametrize(
    "change",
    [
        change_class,
        lambda network: network.actor[0].weight.requires_grad_(False),
        lambda network: setattr(network, "critic", network.actor),
        lambda network: network.actor.append(nn.Dropout(0.1)),
        lambda network: setattr(network, "critic_head", nn.Linear(24, 1, bias=False)),
        lambda network: setattr(network, "actor_head", nn.Sequential(nn.Linear(24, 3))),
        lambda network: network.actor.__setitem__(1, nn.GELU()),
        lambda network: network.double(),
        lambda network: network.critic[0].register_forward_hook(lambda *_: None),
        lambda network: network.critic[0].register_full_backward_pre_hook(lambda *_: None),
        lambda network: network.critic[0].weight.register_hook(lambda grad: grad),
        lambda network: network.critic[0].weight.register_post_accumulate_grad_hook(lambda weight: None),
        lambda network: setattr(network.actor[0], "forward", lambda x: x),
        lambda network: setattr(network.actor[0].weight, "data", network.actor[0].weight.data.t().contiguous().t()),
    ],
    ids=[
        "class",
        "frozen",
        "shared",
        "dropout",
        "no bias",
        "head",
        "activation",
        "double",
        "hook",
        "backward hook",
        "hook of a weight",
        "hook after gradients",
        "own forward",
        "not contiguous",
    ],
)
def test_a_default_network_that_was_changed_is_left_to_torch(change):
    policy = random_policy()
    numba_network(policy)
    change(policy.network)
    with pytest.raises(UnsupportedPolicyError):
        numba_network(policy)


def test_a_users_network_is_left_to_torch():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(5, 4)

        def forward(self, obs):
            out = self.body(obs)
            return out[:, :3], out[:, 3]

    with pytest.raises(UnsupportedPolicyError):
        numba_network(Policy(Own(), VECTOR, ACTIONS["choice"]))
