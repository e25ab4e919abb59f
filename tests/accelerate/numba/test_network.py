"""Compiled acting and learning on the CPU: what torch's operators and autograd give, for every kind of network."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import nn

from scramjet.accelerate.numba import network as native_module
from scramjet.accelerate.numba.executor import UnsupportedPolicyError, numba_network
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from tests.helpers.numba_cases import (
    NUM_STEPS,
    Case,
    assert_close,
    check_acting,
    check_adam_steps,
    check_gradients,
    loss_of,
)

VECTOR = Box(-1, 1, (5,), np.float32)
ACTIONS = {
    "choice": Discrete(3),
    "choices": MultiDiscrete([2, 4, 3]),
    "points": Box(-1, 1, (3,), np.float32),
}
MEMORIES = [None, "lstm", "gru", "mingru"]


def random_policy(space=VECTOR, action="choice", **settings):
    """A policy whose every weight is random: zero biases hide mistakes."""
    config = PolicyConfig(**({"hidden": (16, 24), "memory_size": 12} | settings))
    policy = Policy(default_network(space, ACTIONS[action], config), space, ACTIONS[action], config)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return policy


def case_of(policy, *, masked=False):
    units = 40 if policy.state_size else 300
    return Case(policy, torch.randn(units * (NUM_STEPS if policy.state_size else 1), 5), units, masked=masked)


@pytest.mark.parametrize("memory", MEMORIES)
def test_gradients_actions_and_values_are_those_of_torch(memory):
    for action, shared in itertools.product(ACTIONS, [False, True]):
        policy = random_policy(action=action, memory=memory, shared_trunk=shared)
        case = case_of(policy, masked=action != "points")
        check_gradients(case, (action, shared))
        check_acting(case, (action, shared))
    check_adam_steps(case_of(random_policy(memory=memory)), memory)


def test_every_option_of_the_loss():
    for activation in ("tanh", "relu"):
        case = case_of(random_policy(activation=activation))
        for value_clip, max_norm, normalizes in itertools.product([None, 0.2], [None, 0.5], [False, True]):
            options = {"value_clip": value_clip, "max_norm": max_norm, "normalizes": normalizes}
            check_gradients(case, (activation, options), **options)


def test_any_number_and_width_of_layers():
    for hidden in ((1,), (7,), (64, 64), (16, 8, 40, 3)):
        check_gradients(case_of(random_policy(hidden=hidden)), hidden)


def test_deviations_out_of_their_range_are_pulled_back_as_torch_pulls_them():
    for log_std in (-30.0, 0.3, 30.0):
        policy = random_policy(action="points")
        with torch.no_grad():
            policy.network.actor_head.log_std.fill_(log_std)
            for parameter in policy.network.actor_head.mean.parameters():
                parameter.zero_()  # a mean that rounds in no way: the distance to it is huge in tiny deviations
        case = case_of(policy)
        if log_std > 1:
            case.action = case.action.clamp(-1e6, 1e6)
        gradients = check_gradients(case, log_std, max_norm=None)[1]
        assert torch.isfinite(gradients["network.actor_head.log_std"]).all(), log_std
    check_gradients(case_of(random_policy(action="points", state_dependent_std=True)), "of the state")


def test_the_number_of_threads_changes_no_more_than_rounding_and_the_same_number_nothing():
    for memory in (None, "lstm"):
        case, found = case_of(random_policy(memory=memory)), []
        for num_threads in (1, 5, 5):
            torch.manual_seed(1)
            found.append(check_gradients(case, memory, num_threads=num_threads))
        one, many, again = found
        np.testing.assert_allclose(one[0], many[0], rtol=1e-4, atol=1e-6)
        assert many[0] == again[0], memory
        assert all(torch.equal(grad, again[1][name]) for name, grad in many[1].items()), memory


def test_parts_are_shared_out_and_whoever_does_them_the_result_is_the_same(monkeypatch):
    small = {"SAMPLES_TO_SHARE": 8, "SAMPLES_PER_PART": 8, "SAMPLES_PER_PART_SQUARED": 1, "BLOCK": 4}
    for name, size in small.items():
        monkeypatch.setattr(native_module, name, size)
    monkeypatch.setattr(native_module.memory_kernels, "ROWS_PER_BLOCK", 1)
    take_steps, taken_in_parts = native_module.step_kernels.take_steps, []

    def watched(address, num_workers, num_parts, *others):
        taken_in_parts.append(num_parts)
        take_steps(address, num_workers, num_parts, *others)

    monkeypatch.setattr(native_module.step_kernels, "take_steps", watched)
    for memory, hidden in itertools.product((None, "lstm"), ((16,), (200,))):  # inputs few beside the outputs or not
        case, results = case_of(random_policy(memory=memory, hidden=hidden)), []
        for _ in range(10):
            torch.manual_seed(1)
            results.append(check_gradients(case, (memory, hidden), num_threads=3))
        assert max(taken_in_parts) > 3
        taken_in_parts.clear()
        for terms, gradients in results:
            assert terms == results[0][0], (memory, hidden)
            assert all(torch.equal(each, gradients[name]) for name, each in results[0][1].items()), (memory, hidden)


def test_blocks_are_only_a_matter_of_speed(monkeypatch):
    monkeypatch.setattr(native_module, "BLOCK", 7)
    check_gradients(case_of(random_policy()), "blocks of 7")


def test_weights_may_move_to_another_place():
    policy = random_policy()
    case, network = case_of(policy), numba_network(policy)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.data = parameter.data.clone() * 0.5
    network.refresh()
    values = torch.zeros(case.units)
    network.values(case.obs, None, values)
    assert_close(values, policy.value(case.obs).detach(), "moved")


def test_what_is_not_a_number_is_seen_in_norm_and_gradients():
    policy = random_policy()
    case, network = case_of(policy), numba_network(policy)
    case.advantage[3] = torch.nan
    network.use_samples(case.samples())
    terms = network.gradients(torch.arange(case.units), loss_of(normalizes=False))
    assert np.isnan(terms[-1])
    assert any(parameter.grad.isnan().any() for parameter in policy.parameters())


def test_encoders_without_weights_stand_before_the_first_layer():
    space = Dict({"a": Box(0, 5, (2, 3), np.int8), "b": Discrete(4), "c": MultiBinary(3)})
    obs = {"a": torch.randint(0, 5, (9, 2, 3)).to(torch.int8), "b": torch.randint(0, 4, (9, 1)), "c": torch.ones(9, 3)}
    inputs = numba_network(random_policy(space)).encode(obs)
    assert (inputs.shape, inputs.dtype) == ((9, 6 + 4 + 3), torch.float32)


def change_class(network):
    class Own(type(network)):
        pass

    network.__class__ = Own


CHANGES = {
    "class": change_class,
    "frozen": lambda network: network.actor[0].weight.requires_grad_(False),
    "shared": lambda network: setattr(network, "critic", network.actor),
    "dropout": lambda network: network.actor.append(nn.Dropout(0.1)),
    "no bias": lambda network: setattr(network, "critic_head", nn.Linear(24, 1, bias=False)),
    "head": lambda network: setattr(network, "actor_head", nn.Sequential(nn.Linear(24, 3))),
    "activation": lambda network: network.actor.__setitem__(1, nn.GELU()),
    "double": lambda network: network.double(),
    "hook": lambda network: network.critic[0].register_forward_hook(lambda *_: None),
    "backward hook": lambda network: network.critic[0].register_full_backward_pre_hook(lambda *_: None),
    "hook of a weight": lambda network: network.critic[0].weight.register_hook(lambda grad: grad),
    "hook after gradients": lambda network: network.critic[0].weight.register_post_accumulate_grad_hook(lambda _: None),
    "own forward": lambda network: setattr(network.actor[0], "forward", lambda x: x),
    "not contiguous": lambda network: setattr(
        network.actor[0].weight, "data", network.actor[0].weight.data.t().contiguous().t()
    ),
}


class OfTheUser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 4)

    def forward(self, obs):
        out = self.body(obs)
        return out[:, :3], out[:, 3]


def is_left_to_torch(policy):
    try:
        numba_network(policy)
    except UnsupportedPolicyError:
        return True
    return False


def test_what_it_does_not_take_is_left_to_torch():
    assert is_left_to_torch(random_policy(memory="lstm", memory_layers=2))
    assert is_left_to_torch(random_policy(action="points", bounded_actions="tanh"))
    assert is_left_to_torch(Policy(OfTheUser(), VECTOR, ACTIONS["choice"]))
    for name, change in CHANGES.items():
        policy = random_policy()
        assert not is_left_to_torch(policy)
        change(policy.network)
        assert is_left_to_torch(policy), name
