"""Policies with the Triton kernels that run them, and rollouts laid flat that another policy made."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import Tensor

from scramjet.engine.trees import map_leaves
from scramjet.executors.losses import LossSettings
from scramjet.executors.samples import Samples
from scramjet.executors.triton_mlp import TritonMLP, fitted_mlp
from scramjet.executors.triton_plan import Tuning, plan_of
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.policies.observations import lowest_observations

NUM_SAMPLES, MINIBATCH = 150, 50  # no number of blocks
SMALL, WHOLE = Tuning(32, 4, 1, 4), Tuning(128, 4, 1, 2)
"""Launches of two blocks and more, and of one block: Triton's interpreter takes its time for each."""
CLIP, ENTROPY_COEF, VALUE_COEF = 0.2, 0.05, 0.7
ACTIONS = {
    "two": Discrete(2),
    "seven": Discrete(7),
    "sixteen": Discrete(16),
    "many": Discrete(31),
    "several": MultiDiscrete([3, 2, 5]),
    "one number": Box(-2, 2, (1,), np.float32),
    "three numbers": Box(-1, 1, (3,), np.float32),
}


@dataclass
class Case:
    """A policy, samples that it did not make itself, and the kernels for it."""

    policy: Policy
    samples: Samples
    indices: Tensor
    fused: TritonMLP

    @property
    def parameters(self) -> list[Tensor]:
        """In the order of the kernels."""
        return list(self.fused.plan.parameters)

    @property
    def inputs(self) -> Tensor:
        """The observations as kernels read them."""
        encode = self.fused.plan.encode
        return self.samples.obs.flatten(1) if encode is None else encode(self.samples.obs).contiguous()

    def statistics(self) -> Tensor:
        """Of the one minibatch there is."""
        out = torch.empty(1, 2, device=self.indices.device)
        self.fused.advantage_statistics(self.samples.advantage, self.indices, 1, out)
        return out[0]


def make_policy(
    device: torch.device,
    *,
    space: Any = None,
    inputs: int = 4,
    actions: str = "seven",
    normalized: bool = False,
    **shape: Any,
) -> Policy:
    """A policy with random weights, also where a new one has zeros; `normalized` with statistics of some rows."""
    space = Box(-5, 5, (inputs,), np.float32) if space is None else space
    config = PolicyConfig(**{"hidden": (32, 32)} | shape)
    network = default_network(space, ACTIONS[actions], config)
    policy = Policy(network, space, ACTIONS[actions], config, normalize_observations=normalized).to(device)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    if policy.normalizer is not None:
        policy.normalizer.update(random_observations(space, 50, device))
    return policy


def random_observations(space: Any, number: int, device: torch.device) -> Any:
    """Observations of a space at random, floats around 0.5 with a deviation of 2."""
    if isinstance(space, Dict):
        return {name: random_observations(entry, number, device) for name, entry in space.spaces.items()}
    if isinstance(space, Discrete):
        return torch.randint(int(space.n), (number, 1), device=device)
    lowest = lowest_observations(space, number).to(device)
    return (2 * torch.randn(lowest.shape, device=device) + 0.5).to(lowest.dtype)


def random_mask(policy: Policy, number: int) -> Tensor:
    """Legal choices at random, the first of each component always."""
    mask = torch.rand(number, policy.distribution.mask_size, device=policy.device) < 0.6
    offsets = getattr(policy.distribution, "offsets", torch.zeros(2, dtype=torch.int64))
    mask[:, offsets[:-1].to(mask.device)] = True
    return mask


def make_case(
    device: torch.device,
    *,
    masked: bool = False,
    counted: bool = False,
    precision: str = "float32",
    launch: Tuning | None = None,
    **policy: Any,
) -> Case:
    """A policy as `make_policy` makes it, and samples of which about half have a clipped ratio.

    Without a `launch`, kernels are launched as in training; interpreted, in one block.
    """
    made = make_policy(device, **policy)
    distribution = made.distribution
    with torch.no_grad():
        obs = random_observations(made.observation_space, NUM_SAMPLES, device)
        mask = random_mask(made, NUM_SAMPLES) if masked else None
        logits, value, _ = made(obs)
        noise = distribution.noise(1, NUM_SAMPLES, torch.Generator(device).manual_seed(1))[0]
        action = torch.empty(NUM_SAMPLES, *distribution.action_shape, dtype=distribution.action_dtype, device=device)
        log_prob = torch.empty(NUM_SAMPLES, device=device)
        distribution.sample(logits, mask, noise, action, log_prob)
    noise = torch.randn(4, NUM_SAMPLES, device=device)
    samples = Samples(
        obs=map_leaves(lambda leaf: leaf.contiguous(), obs),
        mask=mask,
        action=action,
        log_prob=log_prob + _off_the_clip(0.3 * noise[0]),
        value=value + _off_the_clip(0.3 * noise[1]),
        advantage=2 * noise[2] + 1,
        returns=value + noise[3],
        place=torch.arange(NUM_SAMPLES, device=device),
        counts=torch.rand(NUM_SAMPLES, device=device) < 0.7 if counted else None,
    )
    if launch is None and device.type == "cuda":
        fused = fitted_mlp(plan_of(made), precision)
        assert isinstance(fused, TritonMLP), fused
    else:
        fused = TritonMLP(plan_of(made), precision=precision, launch=launch or WHOLE)
    return Case(made, samples, torch.randperm(NUM_SAMPLES, device=device)[:MINIBATCH], fused)


def _off_the_clip(shift: Tensor) -> Tensor:
    """Shifts of which none is near a clip of 0.2: there rounding would decide on which side a sample is."""
    return torch.where(shift.abs() < CLIP, shift / 2, shift + CLIP / 2 * shift.sign())


def loss_of(
    device: torch.device,
    value_clip: float | None = None,
    *,
    normalizes: bool = False,
    max_grad_norm: float | None = None,
) -> LossSettings:
    """The loss of all tests; coefficients with schedules are on the device."""
    return LossSettings(
        clip=torch.tensor(CLIP, device=device), entropy_coef=torch.tensor([ENTROPY_COEF], device=device),
        value_coef=VALUE_COEF, value_clip=value_clip, max_grad_norm=max_grad_norm, normalizes_advantages=normalizes,
    )  # fmt: skip
