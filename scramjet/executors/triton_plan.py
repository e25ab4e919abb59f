"""Reads from a policy, or a critic alone, what `TritonMLP` needs to run it, or the reason why it cannot; and
how its kernels are launched."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from scramjet.engine.privileged import is_privileged
from scramjet.executors.supports import (
    ACTIVATIONS,
    ANY_MEMORY,
    ENCODERS,
    NETWORKS,
    NORMALIZERS,
    SETTINGS,
    are_alike,
    no_linear,
    why_not,
    why_torch,
)
from scramjet.kernels.gpu.language import product_size
from scramjet.kernels.operations import has_hooks
from scramjet.policies.distributions import DiagonalGaussian, Distribution, MultiCategorical
from scramjet.policies.networks import GaussianHead, SeparateActorCritic, SharedActorCritic, encode
from scramjet.policies.normalization import ObservationNormalizer
from scramjet.policies.policy import Policy

ALIGNMENT = 16
"""Each network's weights begin at a multiple of so many floats."""


class UnsupportedMLPError(Exception):
    """A network that the kernels cannot run; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Tower:
    """One network: two hidden layers, then outputs."""

    hidden: tuple[nn.Linear, nn.Linear]
    activation: str
    weights: list[Tensor]  # of the outputs, [some outputs, units] each
    biases: list[Tensor]  # of the outputs, [some outputs] each; the first have weights, but for the value

    @property
    def parameters(self) -> list[Tensor]:
        """All weights in the order in which kernels read them."""
        first, second = self.hidden
        return [first.weight, first.bias, second.weight, second.bias, *self.weights, *self.biases]


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy, or a critic alone, as the kernels see it."""

    towers: list[Tower]
    """The actor and the critic; with a shared trunk, one network whose last output is the value; or a critic alone."""
    num_logits: int
    """Numbers that the distribution needs."""
    num_weighted: int
    """The first so many of them have weights; the others are a bias."""
    is_normal: bool
    """Whether actions are normal numbers; else they are choices."""
    num_components: int
    """Numbers or choices in an action."""
    offsets: Tensor
    """Where the logits of each component of a choice begin, and where the last ones end, int32 [components + 1]."""
    bounds: Tensor | None
    """How normal numbers become actions of the env, float32 [4, components]: centre and half width that [-1, 1] is
    stretched to, lowest and highest. None where actions are choices, or no float32 numbers for the env."""
    scales: bool
    """Whether they are stretched, see `DiagonalGaussian`; else they are only kept within bounds."""
    normalizer: ObservationNormalizer | None
    """The normalizer that kernels apply; None if there is none or `encode` applies it."""
    encode: Callable[[Any], Tensor] | None
    """Turns observations into inputs, float32 [B, D]; None where they are that already but for their shape."""
    has_policy: bool = True
    """Whether there is an actor; a critic alone only computes and learns values."""

    @property
    def is_one_network(self) -> bool:
        """Whether there is one network, whose last output is the value."""
        return len(self.towers) == 1

    @property
    def parameters(self) -> list[Tensor]:
        """All weights, the actor's first."""
        return [parameter for tower in self.towers for parameter in tower.parameters]

    def places(self) -> tuple[list[int], list[int], int]:
        """Where each parameter, and each network, begins in a row of all weights; and the length of that row."""
        places, begins, place = [], [], 0
        for tower in self.towers:
            place = -(-place // ALIGNMENT) * ALIGNMENT
            begins.append(place)
            for parameter in tower.parameters:
                places.append(place)
                place += parameter.numel()
        return places, begins, place


def plan_of(policy: Policy) -> Plan:
    """How the kernels run a policy; raises `UnsupportedMLPError` if they cannot."""
    network, distribution = policy.network, policy.distribution
    # A user's own class may do anything, share weights or exclude some from learning.
    if reason := why_not("triton", network, NETWORKS):
        raise UnsupportedMLPError(reason)
    assert isinstance(network, SeparateActorCritic | SharedActorCritic)
    if network.state_size:
        raise UnsupportedMLPError(ANY_MEMORY.triton)
    if is_privileged(policy.observation_space):
        raise UnsupportedMLPError(SETTINGS["more for the critic"].triton)
    if policy.two_hot_head is not None:
        raise UnsupportedMLPError(SETTINGS["distribution of values"].triton)
    if reason := why_torch(policy):
        raise UnsupportedMLPError(reason)
    if type(distribution) is DiagonalGaussian and distribution.squashes:
        raise UnsupportedMLPError(SETTINGS["squashed actions"].triton)
    encoder = network.encoder if isinstance(network, SharedActorCritic) else network.actor_encoder
    if encoder is not None and any(True for _ in encoder.parameters()):
        raise UnsupportedMLPError(why_not("triton", encoder, ENCODERS))
    if isinstance(network, SeparateActorCritic) and not are_alike(encoder, network.critic_encoder):
        raise UnsupportedMLPError("actor and critic encode observations in two ways")
    check_weights(network)
    towers, num_weighted = _towers(network, distribution)
    _check_sizes(towers[0], distribution.num_inputs + (len(towers) == 1))
    space, normalizer = policy.observation_space, policy.normalizer
    reads_directly = encoder is None and isinstance(space, Box) and space.dtype == np.float32
    assert not reads_directly or normalizer is None or isinstance(normalizer, ObservationNormalizer)
    return Plan(
        towers,
        num_logits=distribution.num_inputs,
        num_weighted=num_weighted,
        is_normal=isinstance(distribution, DiagonalGaussian),
        num_components=math.prod(distribution.action_shape),
        offsets=_offsets(distribution).to(policy.device, torch.int32),
        bounds=_bounds(distribution, policy.device),
        scales=isinstance(distribution, DiagonalGaussian) and distribution.scales,
        normalizer=normalizer if reads_directly else None,  # type: ignore[arg-type]
        encode=None if reads_directly else lambda obs: encode(encoder, policy.prepare(obs)),
    )


def plan_of_critic(network: nn.Module, trunk: nn.Sequential, head: nn.Module, normalizer: nn.Module | None) -> Plan:
    """How the kernels run a network of one value, which reads vectors of float32 after an observation normalizer.

    `network` is all of it, its hidden layers `trunk` and its output `head`. Raises as `plan_of` does.
    """
    check_weights(network)
    if normalizer is not None and (reason := why_not("triton", normalizer, NORMALIZERS)):
        raise UnsupportedMLPError(reason)
    value = _linear(head)
    tower = _tower(trunk, [value.weight], [value.bias])
    _check_sizes(tower, 1)
    return Plan(
        [tower],
        num_logits=0,
        num_weighted=0,
        is_normal=False,
        num_components=1,
        offsets=torch.zeros(1, dtype=torch.int32, device=value.weight.device),
        bounds=None,
        scales=False,
        normalizer=normalizer,  # type: ignore[arg-type]
        encode=None,
        has_policy=False,
    )


def check_weights(network: nn.Module) -> None:
    """Raise unless all weights are float32, contiguous, learn and are not shared, and no module has hooks."""
    parameters: list[Any] = [parameter for _, parameter in network.named_parameters(remove_duplicate=False)]
    if not all(p.dtype == torch.float32 and p.requires_grad and p.is_contiguous() for p in parameters):
        raise UnsupportedMLPError("not all weights are contiguous float32 and learn")
    if len({id(p) for p in parameters}) < len(parameters):
        raise UnsupportedMLPError("the network shares weights")
    if has_hooks(network.modules()) or any(p._backward_hooks or p._post_accumulate_grad_hooks for p in parameters):
        raise UnsupportedMLPError("the network has hooks")


def _towers(network: SeparateActorCritic | SharedActorCritic, distribution: Distribution) -> tuple[list[Tower], int]:
    """The networks, and how many of the distribution's numbers have weights."""
    weights, biases = _policy_outputs(network.actor_head)
    num_weighted = sum(len(weight) for weight in weights)
    value = _linear(network.critic_head)
    if isinstance(network, SharedActorCritic):
        return [_tower(network.trunk, [*weights, value.weight], [*biases, value.bias])], num_weighted
    actor, critic = _tower(network.actor, weights, biases), _tower(network.critic, [value.weight], [value.bias])
    shapes = [[parameter.shape for parameter in tower.parameters[:4]] for tower in (actor, critic)]
    if shapes[0] != shapes[1] or actor.activation != critic.activation:
        raise UnsupportedMLPError("the critic's hidden layers are not those of the actor")
    return [actor, critic], num_weighted


def _policy_outputs(head: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The weights and biases that give the distribution's numbers; those without weights come last."""
    if type(head) is not GaussianHead:
        linear = _linear(head)
        return [linear.weight], [linear.bias]
    mean, log_std = _linear(head.mean), head.log_std
    if isinstance(log_std, nn.Parameter):
        return [mean.weight], [mean.bias, log_std]
    return [mean.weight, _linear(log_std).weight], [mean.bias, log_std.bias]


def _tower(trunk: nn.Sequential, weights: list[Tensor], biases: list[Tensor]) -> Tower:
    linears = [layer for layer in trunk if isinstance(layer, nn.Linear)]
    kinds = {type(layer) for layer in trunk if not isinstance(layer, nn.Linear)}
    if len(linears) != 2:
        raise UnsupportedMLPError(f"{len(linears)} hidden layers: Triton kernels take two")
    if len(trunk) != 4 or len(kinds) != 1 or (kind := kinds.pop()) not in ACTIVATIONS:
        raise UnsupportedMLPError("Triton kernels take hidden layers that are linear with tanh or ReLU after each")
    return Tower((_linear(linears[0]), _linear(linears[1])), ACTIVATIONS[kind], weights, biases)


def _linear(module: nn.Module) -> nn.Linear:
    """Return the module if it is a plain linear layer with a bias; raises if it is not."""
    if type(module) is not nn.Linear or module.bias is None:
        raise UnsupportedMLPError(f"Triton kernels do not run {no_linear(module)}")
    return module


def _check_sizes(tower: Tower, num_outputs: int) -> None:
    """Raise if a layer is too wide for the chip."""
    first, second = tower.hidden
    widest = max(first.out_features, second.out_features)
    if widest > WIDTHS[-1]:
        raise UnsupportedMLPError(
            f"hidden layers of {first.out_features} and {second.out_features} units: at most {WIDTHS[-1]}, since the "
            f"gradients of the weights between them are kept in a multiprocessor's registers"
        )
    if product_size(first.in_features) > INPUTS[-1]:
        raise UnsupportedMLPError(f"{first.in_features} inputs: Triton kernels take at most {INPUTS[-1]}")
    if num_outputs > OUTPUTS[-1]:
        raise UnsupportedMLPError(
            f"{num_outputs} outputs (logits, means and deviations; with a shared trunk the value): Triton kernels take "
            f"at most {OUTPUTS[-1]}"
        )


def _bounds(distribution: Distribution, device: torch.device) -> Tensor | None:
    if not isinstance(distribution, DiagonalGaussian) or distribution.env_dtype != torch.float32:
        return None
    parts = (distribution.centre, distribution.half_width, distribution.low, distribution.high)
    return torch.stack([part.to(device) for part in parts])


def _offsets(distribution: Distribution) -> Tensor:
    if isinstance(distribution, MultiCategorical):
        return distribution.offsets
    return torch.tensor([0, distribution.num_inputs])


# --- numbers that decide the speed of `TritonMLP`, and of what it computes only the order of sums
#
# They were chosen for an H200: 256 KB of registers and 227 KB of shared memory for each of 132 multiprocessors. Widths
# and inputs are those of blocks on chip, padded to powers of two.


WIDTHS = (16, 32, 64, 128)
"""Units of a hidden layer, padded. The gradients of 256 x 256 weights alone would fill all registers."""
INPUTS = (16, 32, 64, 128)
"""Inputs, padded."""
OUTPUTS = (16, 32)
"""Columns of the last layer, padded. Matrix products cannot be narrower than 16."""


class Tuning(NamedTuple):
    """How the kernel that computes gradients is launched."""

    block: int  # samples that a program takes at a time
    warps: int
    stages: int  # of the pipeline that loads blocks while others are computed; with 1 each load is waited for
    programs: int  # most programs for each multiprocessor: as many as fit on it at a time, of all networks together


GRADIENTS: dict[str, dict[tuple[int, int], Tuning]] = {
    "float32": {
        (64, 128): Tuning(32, 8, 1, 4),
        (128, 128): Tuning(16, 8, 1, 2),
    },
    "tf32": {
        (64, 32): Tuning(64, 4, 2, 2), (64, 64): Tuning(128, 8, 1, 1), (64, 128): Tuning(64, 8, 1, 1),
        (128, 32): Tuning(32, 8, 2, 1), (128, 128): Tuning(32, 8, 1, 1),
    },
    "bfloat16": {
        (64, 32): Tuning(64, 4, 2, 2), (64, 64): Tuning(64, 4, 2, 2), (64, 128): Tuning(64, 8, 1, 1),
        (128, 32): Tuning(32, 8, 2, 1), (128, 128): Tuning(32, 8, 1, 1),
    },
}  # fmt: skip
"""By precision, then by most units and most inputs: the first entry that is large enough counts."""
PROVEN = {"float32": (16, 0), "tf32": (32, 16), "bfloat16": (64, 64)}
"""By precision: the most inputs of 64 and of 128 units whose compiled kernels need no more shared memory than an H200
has. For more, a launch is tried before training begins, with smaller blocks if need be."""
SMALLEST_BLOCK = 16
FORWARD_BLOCKS = {"float32": (16,), "tf32": (64, 32, 16), "bfloat16": (64, 32, 16)}
"""By precision: samples of a program that only runs the forward pass. The first that leaves no multiprocessor without a
program counts, else the last."""
FORWARD_WARPS = {16: 4, 32: 4, 64: 4, 128: 8}
"""By most units: warps of a program that only runs the forward pass."""
FAST_TANH = True
"""Whether tanh is one instruction, exact to 11 bits, where products are rounded to 10 bits or fewer as well."""
REDUCE_ROWS, REDUCE_COLUMNS, REDUCE_WARPS = 64, 32, 4
"""Rows of partial gradients that a program of the reduction adds at a time, and columns that it adds them for."""
STEP_COLUMNS, STEP_SQUARES, STEP_WARPS = 256, 512, 4
"""Parameters that a program of the optimizer moves, and squares that it adds at a time."""
STATISTICS_BLOCK, STATISTICS_CHUNKS = 1024, 64
"""Advantages that a program reads at a time, and the most chunks that a minibatch is split into."""


def gradients_tuning(precision: str, width: int, inputs: int) -> Tuning:
    """How to launch the gradients of networks with at most `width` units in a layer and `inputs` inputs, padded."""
    return next(
        tuning
        for (most, most_inputs), tuning in GRADIENTS[precision].items()
        if width <= most and inputs <= most_inputs
    )


def is_proven(precision: str, width: int, inputs: int, outputs: int) -> bool:
    """Whether these sizes are known to fit on the chip."""
    is_wide = width > 64
    return inputs <= PROVEN[precision][is_wide] and not (is_wide and outputs > OUTPUTS[0])


def forward_block(precision: str, num_rows: int, multiprocessors: int) -> int:
    """Samples of a program that runs the forward pass on `num_rows` rows."""
    sizes = FORWARD_BLOCKS[precision]
    return next((size for size in sizes if num_rows >= size * multiprocessors), sizes[-1])
