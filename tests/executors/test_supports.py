"""What is not what kernels were written for is run by plain torch: own classes, replaced methods, other optimizers."""

from __future__ import annotations

import types
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from scramjet.executors.numba_executor import UnsupportedPolicyError, numba_network
from scramjet.executors.supports import (
    ACTIVATIONS,
    ANY_MEMORY,
    MEMORIES,
    NETWORKS,
    are_alike,
    what_learns,
    why_not,
    why_not_adam,
    why_torch,
)
from scramjet.executors.triton_plan import UnsupportedMLPError, plan_of
from scramjet.policies import Categorical, DiagonalGaussian, Policy, PolicyConfig, default_network
from scramjet.policies.config import MemoryName
from scramjet.policies.recurrent import Layer

OBS, CHOICES, POINTS = Box(-1, 1, (3,)), Discrete(2), Box(-1, 1, (2,), np.float32)


def policy_of(space: Any = CHOICES, kind: type[Policy] = Policy, **settings: Any) -> Any:
    config = PolicyConfig(**{"hidden": (8, 8)} | settings)
    return kind(default_network(OBS, space, config), OBS, space, config)


def own(thing: Any, **methods: Any) -> None:
    """Make an object one of a subclass with these methods."""
    thing.__class__ = type("Own", (type(thing),), methods)


def changed_policies() -> dict[str, tuple[Any, str]]:
    """Policies that kernels may not stand for, by what was changed; and the words that the reason has."""
    cases: dict[str, tuple[Any, str]] = {}

    def case(name: str, words: str, **settings: Any) -> Any:
        cases[name] = policy_of(**settings), words
        return cases[name][0]

    own(case("own categorical", "Own").distribution, log_probs=Categorical.log_probs)
    own(case("own normal", "Own", space=POINTS).distribution, sample=DiagonalGaussian.sample)
    own(case("own policy", "Own"), value=Policy.value)
    own(case("own trunk", "Own").network.actor, forward=lambda self, obs: obs)
    network = case("replaced logits", "logits was replaced").network
    network.logits = types.MethodType(lambda self, obs: 2 * type(self).logits(self, obs), network)
    network = case("replaced value", "value was replaced").network
    network.value = types.MethodType(lambda self, obs: 0 * type(self).value(self, obs), network)
    distribution = case("replaced sample", "sample was replaced").distribution
    distribution.sample = lambda *arguments: None
    network = case("replaced forward of a layer", "forward was replaced|hooks").network
    network.actor[0].forward = lambda obs: obs
    core = case("own layer of a core", "core|memory", memory="gru", memory_size=4).network.actor_core
    own(core.layers[0], weights=lambda self: tuple(weight.clone() for weight in Layer.weights(self)))
    case("hook on a gradient", "listens").network.actor[0].weight.register_hook(lambda gradient: 0.5 * gradient)
    case("other encoder", "two ways|shape").network.critic_encoder = nn.Flatten()
    case("swapped activation", "tanh or ReLU").network.actor[1] = nn.GELU()
    return cases


def test_no_kernel_stands_for_a_policy_that_was_changed() -> None:
    for make, error in ((numba_network, UnsupportedPolicyError), (plan_of, UnsupportedMLPError)):
        for settings in ({}, {"space": POINTS}, {"shared_trunk": True}, {"activation": "relu"}):
            make(policy_of(**settings))
        for name, (policy, words) in changed_policies().items():
            with pytest.raises(error) as raised:
                make(policy)
            is_explained = any(word in str(raised.value) for word in words.split("|"))
            assert is_explained, f"{make.__name__}, {name}: {raised.value}"
    assert why_torch(policy_of()) == ""


def test_all_that_a_config_can_ask_for_is_on_the_table() -> None:
    for memory in get_args(MemoryName):
        network = policy_of(memory=memory, memory_size=4).network
        assert why_not("numba", network.actor_core, MEMORIES) == "" == why_not("numba", network, NETWORKS)
        assert why_not("triton", network.actor_core, MEMORIES) == ANY_MEMORY.triton
    for activation in get_args(get_type_hints(PolicyConfig)["activation"]):
        assert ACTIVATIONS[type(policy_of(activation=activation).network.actor[1])] == activation
    assert why_not("numba", nn.GRU(1, 1), MEMORIES) == "compiled functions do not run a GRU"  # torch's own


def test_encoders_without_weights_are_alike_if_class_settings_and_numbers_are() -> None:
    scaled, shifted = nn.Module(), nn.Module()
    for module, shift in ((scaled, 0.0), (shifted, 1.0)):
        module.register_buffer("shift", torch.full((2,), shift))
    for one, other, expected in (
        (None, None, True),
        (None, nn.Flatten(), False),
        (nn.Flatten(), nn.Flatten(), True),
        (nn.Flatten(), nn.Flatten(2), False),
        (nn.Flatten(), nn.Identity(), False),
        (nn.Sequential(nn.Flatten()), nn.Sequential(nn.Flatten(2)), False),
        (nn.Sequential(nn.Flatten()), nn.Sequential(nn.Flatten(), nn.Tanh()), False),
        (scaled, scaled, True),
        (scaled, shifted, False),
    ):
        assert are_alike(one, other) == expected, (one, other)


def test_kernels_take_the_steps_of_plain_adam_alone() -> None:
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))]
    assert why_not_adam(torch.optim.Adam(weights, eps=1e-5)) == ""
    hooked, patched = torch.optim.Adam(weights), torch.optim.Adam(weights)
    hooked.register_step_pre_hook(lambda *_: None)
    patched.step = lambda *_: None  # type: ignore[method-assign]
    changed = torch.optim.Adam(weights)
    changed.param_groups[0]["maximize"] = True  # as a callback may
    for optimizer, words in (
        (torch.optim.AdamW(weights), "AdamW"),
        (torch.optim.NAdam(weights), "NAdam"),
        (torch.optim.Adam(weights, weight_decay=0.1), "weight_decay"),
        (torch.optim.Adam(weights, amsgrad=True), "amsgrad"),
        (torch.optim.Adam([{"params": weights[:1]}, {"params": weights[1:]}]), "one group"),
        (changed, "maximize"),
        (hooked, "listened to"),
        (patched, "replaced"),
    ):
        assert words in why_not_adam(optimizer), words


def test_a_recorded_gradient_step_holds_until_a_weight_or_the_optimizer_is_changed() -> None:
    network = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    last = what_learns(network, optimizer)
    for change, is_another in (
        (lambda: optimizer.param_groups[0].update(lr=0.2), False),  # read where it lies
        (lambda: network.weight.requires_grad_(False), True),
        (lambda: network.weight.requires_grad_(True), True),
        (lambda: optimizer.param_groups[0].update(weight_decay=0.1), True),
        (lambda: optimizer.param_groups[0].update(betas=(0.8, 0.9)), True),
        (lambda: optimizer.register_step_pre_hook(lambda *_: None), True),
        (lambda: setattr(optimizer, "step", lambda: None), True),
        (lambda: None, False),
    ):
        change()  # type: ignore[operator]
        found = what_learns(network, optimizer)
        assert (found != last) == is_another
        last = found
