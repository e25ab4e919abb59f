"""Triton's kernels around a network that torch runs: minibatches, PPO's loss and Adam against torch's operators,
interpreted on the CPU or on a CUDA device."""

import copy
import itertools
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor, nn

from scramjet.engine.trees import leaves
from scramjet.executors import flat_adam
from scramjet.executors import torch_with_kernels as fused_loss
from scramjet.executors.flat_adam import FlatAdam, can_be_flat
from scramjet.executors.losses import LossSettings, minibatch_loss
from scramjet.executors.samples import Minibatches, Samples
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.executors.torch_with_kernels import TorchWithKernels, fused_minibatch_loss, fused_select, fused_terms
from scramjet.kernels.gpu.selection import select_rows
from scramjet.policies import Distribution, Policy, PolicyConfig, PolicyOutput, default_network, make_distribution
from tests.helpers.triton_cases import adam, few_interpreted, of_device

pytestmark = pytest.mark.rest


KINDS = ["choice, marked", "choices, masked", "numbers"]


def test_the_samples_of_a_minibatch_are_the_same(triton_device) -> None:
    for kind, steps in of_device(list(itertools.product(KINDS, (7, 1))), triton_device):
        units, is_choice = 150, kind == "choice, marked"
        size, shape = steps * units, () if is_choice else (2,)
        numbers = torch.randn(4, size, device=triton_device)
        action = torch.randn(size, 2, device=triton_device)
        samples = Samples(
            obs={"a": torch.randn(size, 3, device=triton_device), "b": torch.randn(size, 2, 150, device=triton_device)},
            mask=torch.rand(size, 4, device=triton_device) < 0.5 if kind == "choices, masked" else None,
            action=action if kind == "numbers" else torch.randint(4, (size, *shape), device=triton_device),
            log_prob=numbers[0], value=numbers[1], advantage=numbers[2], returns=numbers[3],
            place=torch.arange(size, device=triton_device),
            counts=torch.rand(size, device=triton_device) < 0.5 if is_choice else None,
            state=torch.randn(units, 5, device=triton_device) if steps > 1 else None,
            begins=torch.rand(steps, units, device=triton_device) < 0.1 if steps > 1 else None,
            num_rows=30,
        )  # fmt: skip
        chosen = torch.randperm(units, device=triton_device)[:77]
        ours, expected = fused_select(samples, chosen), samples.select(chosen)
        for name in (field.name for field in fields(Samples) if field.name != "place"):  # no gradient step needs that
            mine, theirs = leaves(getattr(ours, name)), leaves(getattr(expected, name))
            for one, other in zip(mine, theirs, strict=True):
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other, (kind, steps, name)


SHAPES = [(7, 7, 3), (), (1,), (4,), (0,)]
DTYPES = [torch.uint8, torch.float32, torch.bool, torch.int64, torch.float16]


def test_rows_of_any_numbers_are_the_same(triton_device) -> None:
    for shape, dtype in of_device(list(itertools.product(SHAPES, DTYPES)), triton_device):
        source = torch.randint(0, 200, (50, *shape), device=triton_device).to(dtype)
        places = torch.randint(1, 50, (33,), device=triton_device)
        assert torch.equal(select_rows(source, places[1:]), source.index_select(0, places[1:])), (shape, dtype)
        assert torch.equal(select_rows(source[1:], places - 1), source.index_select(0, places)), (shape, dtype)


def test_rows_need_not_begin_where_four_bytes_do(triton_device) -> None:
    source = torch.randint(0, 200, (201,), dtype=torch.uint8, device=triton_device)[1:].view(50, 4)
    places = torch.randint(50, (33,), device=triton_device)
    assert torch.equal(select_rows(source, places), source.index_select(0, places))


# --- the loss


SPACES: dict[str, Any] = {
    "components": MultiDiscrete([3, 5]),
    "numbers": Box(-2, 5, (5,), np.float32),
    "2 choices": Discrete(2),
    "7 choices": Discrete(7),
    "100 choices": Discrete(100),
    "equal components": MultiDiscrete([[4, 4], [4, 4]]),
    "one number": Box(-1, 1, (1,), np.float32),
    "squashed": Box(-2, 5, (3,), np.float32),
}


class Case:
    """Outputs of a network, and a minibatch that another policy played; about half the ratios are clipped."""

    def __init__(
        self, device: torch.device, space: Any, *, bounded: Any = "clip", size: int = 150, masked: bool, marked: bool
    ) -> None:
        self.distribution = make_distribution(space, PolicyConfig(bounded_actions=bounded))
        self.distribution.apply(lambda tensor: tensor.to(device))
        num_inputs, is_box = self.distribution.num_inputs, isinstance(space, Box)
        logits = torch.randn(size, num_inputs, device=device)
        if is_box:
            logits[: size // 4, num_inputs // 2 :] *= 20  # some deviations out of their range
        mask = None
        if masked:
            mask = torch.rand(size, num_inputs, device=device) < 0.6
            first = [0] if isinstance(space, Discrete) else self.distribution.offsets[:-1].tolist()
            mask[:, first] = True
        action = torch.empty(size, *self.distribution.action_shape, dtype=self.distribution.action_dtype, device=device)
        log_prob = torch.empty(size, device=device)
        generator = torch.Generator(device).manual_seed(1)
        noise = self.distribution.noise(1, size, generator)[0]
        self.distribution.sample(logits, mask, noise, action, log_prob)
        numbers = torch.randn(6, size, device=device)
        counts = torch.rand(size, device=device) < 0.6 if marked else None
        self.logits, self.value = logits + 0.1 * torch.randn_like(logits), numbers[0]
        self.samples = Samples(
            obs=None, mask=mask, action=action, log_prob=log_prob + 0.3 * numbers[1],
            value=numbers[0] + 0.3 * numbers[2], advantage=2 * numbers[3] + 1, returns=numbers[4],
            place=torch.arange(size, device=device), counts=counts,
        )  # fmt: skip
        if counts is not None:  # numbers that must not be looked at
            self.samples.log_prob[~counts] = -1e4
            self.samples.advantage[~counts] = torch.nan

    def found(self, loss: LossSettings, *, fused: bool, statistics: Tensor | None = None) -> list[Tensor]:
        """The total, the terms and the gradients with respect to logits and values, of half the loss."""
        logits, value = self.logits.clone().requires_grad_(), self.value.clone().requires_grad_()
        if fused:
            terms = fused_terms(self.distribution, logits, value, self.samples, loss, statistics)
        else:
            policy: Any = _Outputs(self.distribution, PolicyOutput(logits, value))
            terms = minibatch_loss(policy, self.samples, loss, None, statistics)
        (0.5 * terms.total).backward()
        assert logits.grad is not None
        assert value.grad is not None
        return [*(getattr(terms, name).detach() for name in terms.__slots__), logits.grad, value.grad]


@dataclass
class _Outputs:
    """A policy that gives the same outputs whatever it sees."""

    distribution: Distribution
    output: PolicyOutput
    two_hot_head: None = None

    def __call__(self, *seen: Any) -> PolicyOutput:
        return self.output


def settings(device: torch.device, **changes: Any) -> LossSettings:
    usual = LossSettings(
        clip=torch.tensor(0.2, device=device), entropy_coef=torch.tensor(0.05, device=device), value_coef=0.7,
        value_clip=None, max_grad_norm=None, normalizes_advantages=True,
    )  # fmt: skip
    return replace(usual, **changes)


def assert_fused_is_torch(case: Case, loss: LossSettings, statistics: Tensor | None = None) -> None:
    found = (case.found(loss, fused=fused, statistics=statistics) for fused in (True, False))
    for mine, theirs in zip(*found, strict=True):
        least = 2e-7 if theirs.dim() == 0 else 1e-8  # terms are means of numbers around 1, which cancel each other
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-6 * float(theirs.abs().max()) + least)


@few_interpreted("name", list(SPACES), 2)
def test_terms_and_gradients_are_those_of_torch(triton_device, name: str) -> None:
    is_box = isinstance(SPACES[name], Box)
    for marked in of_device([True, False], triton_device):
        bounded = "tanh" if name == "squashed" else "clip"
        case = Case(triton_device, SPACES[name], bounded=bounded, masked=marked and not is_box, marked=marked)
        assert_fused_is_torch(case, settings(triton_device, value_clip=0.2 if marked else None))


def test_any_number_of_samples_and_ways_to_normalize_advantages_will_do(triton_device, monkeypatch) -> None:
    given = torch.tensor([0.3, 1.7], device=triton_device)
    for size in of_device([150, 1, 2, 1100], triton_device):
        case = Case(triton_device, Discrete(3), size=size, masked=True, marked=size > 100)
        assert_fused_is_torch(case, settings(triton_device), given)
        assert_fused_is_torch(case, settings(triton_device, normalizes_advantages=False))
        assert_fused_is_torch(case, settings(triton_device))
        case.samples.advantage[case.samples.advantage.isfinite()] = 0.010278369  # alike: 0, not a mean's rounding error
        assert_fused_is_torch(case, settings(triton_device))
    for name, small in {"MAX_PROGRAMS": 3, "MAX_ROWS": 16, "MOMENTS_BLOCK": 16, "MAX_CHUNKS": 4}.items():
        monkeypatch.setattr(fused_loss, name, small)
    case = Case(triton_device, Discrete(5), masked=True, marked=True)  # beyond one block of each program
    assert_fused_is_torch(case, settings(triton_device))


def test_what_does_not_count_moves_nothing_and_what_is_no_number_shows_in_the_losses(triton_device) -> None:
    loss = settings(triton_device, value_clip=0.2)
    case = Case(triton_device, Discrete(4), masked=False, marked=True)
    for first, second in zip(case.found(loss, fused=True), case.found(loss, fused=True), strict=True):
        assert torch.equal(first, second)  # the same bits
    case.samples.counts.zero_()
    assert not any(bool(found.any()) for found in case.found(loss, fused=True))
    case = Case(triton_device, Discrete(4), masked=False, marked=False)
    case.logits[7, 1] = case.value[5] = torch.nan
    for ours, expected in zip(case.found(loss, fused=True), case.found(loss, fused=False), strict=True):
        assert bool(ours.isnan().any()) == bool(expected.isnan().any())


def test_an_executor_learns_the_same_with_the_kernels_as_with_the_operators(triton_device, monkeypatch) -> None:
    space, actions, config = Box(-1, 1, (6,), np.float32), Discrete(3), PolicyConfig(hidden=(8,))
    policies = [Policy(default_network(space, actions, config), space, actions).to(triton_device) for _ in range(2)]
    policies[1].load_state_dict(policies[0].state_dict())
    case = Case(triton_device, actions, masked=True, marked=True)
    case.samples.obs = torch.randn(len(case.value), 6, device=triton_device)
    minibatches = Minibatches.even(torch.randperm(len(case.value), device=triton_device), 2)
    loss, found = settings(triton_device, max_grad_norm=0.02), []
    for policy, kind in zip(policies, (TorchExecutor, TorchWithKernels), strict=True):
        optimizer, executor = torch.optim.Adam(policy.parameters(), eps=0.1, fused=True), kind(policy)
        if kind is TorchWithKernels:
            monkeypatch.setattr(torch.optim.Adam, "step", None)  # the kernels take the steps
        executor.begin_update(case.samples, optimizer)
        found.append(executor.learn(case.samples, minibatches, loss, optimizer).table)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)
    for name, weight in policies[0].state_dict().items():
        torch.testing.assert_close(policies[1].state_dict()[name], weight, rtol=1e-4, atol=1e-5)


def test_a_total_that_is_weighed_gives_gradients_that_are(triton_device) -> None:
    case = Case(triton_device, Discrete(4), masked=False, marked=False)
    logits, loss, found = case.logits.clone().requires_grad_(), settings(triton_device), []
    for weight in (fused_loss.one_on(triton_device), torch.tensor(1.0), torch.tensor(0.5)):
        terms = fused_terms(case.distribution, logits, case.value, case.samples, loss)
        (gradient,) = torch.autograd.grad(terms.total, logits, weight.to(triton_device))
        found.append(gradient.clone())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], 2 * found[2])
    assert found[0].any()


def test_what_the_kernels_do_not_compute_goes_through_the_operators(monkeypatch) -> None:
    monkeypatch.setattr(fused_loss, "fused_terms", None)
    space, actions, config = Box(-1, 1, (6,), np.float32), Discrete(3), PolicyConfig(hidden=(8,))
    policy = Policy(default_network(space, actions, config), space, actions)
    case = Case(torch.device("cpu"), actions, masked=False, marked=False)
    case.samples.obs = torch.randn(len(case.value), 6)
    usual = settings(torch.device("cpu"))
    for loss in (replace(usual, is_impala=True), replace(usual, clip=0.2)):  # the other: numbers on the host
        ours, expected = (each(policy, case.samples, loss).total for each in (fused_minibatch_loss, minibatch_loss))
        assert torch.equal(ours, expected), loss


# --- Adam


def parameters_on(device):
    """Parameters of several sizes, one of them a convolution's whose channels lie together."""
    shapes = [(30, 40), (40,), (1, 7), (3,), (4, 6, 3, 3)]
    numbers = [torch.randn(shape, device=device) for shape in shapes]
    numbers[-1] = numbers[-1].to(memory_format=torch.channels_last)
    return [nn.Parameter(each) for each in numbers]


def flat_adam_of(parameters, optimizer):
    ours = FlatAdam(parameters)
    ours.use_optimizer(optimizer)
    return ours


def draw_gradients(parameters, scale=1.0):
    for parameter in parameters:
        parameter.grad = scale * torch.randn_like(parameter)


def flat_adam_on(device):
    """Parameters with gradients, the optimizer that a learner makes, and ours with its state."""
    parameters = parameters_on(device)
    optimizer = adam(parameters, device)
    ours = flat_adam_of(parameters, optimizer)
    draw_gradients(parameters)
    return parameters, optimizer, ours


def torch_step(parameters, optimizer, max_norm):
    norm = nn.utils.clip_grad_norm_(parameters, torch.inf if max_norm is None else max_norm)
    optimizer.step()
    return norm


def assert_adam_same(parameters, optimizer, others, their_optimizer):
    for parameter, other in zip(parameters, others, strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-6)
        for name, expected in their_optimizer.state[other].items():
            torch.testing.assert_close(optimizer.state[parameter][name], expected, rtol=1e-5, atol=2e-9)


def test_steps_are_those_of_torch_whether_gradients_are_clipped_or_not(triton_device, monkeypatch):
    monkeypatch.setattr(flat_adam, "COLUMNS", 256)
    for max_norm, eps, programs in of_device([(0.5, 1e-8, 2), (None, 1e-5, 256)], triton_device):
        monkeypatch.setattr(flat_adam, "NORM_PROGRAMS", programs)
        parameters = parameters_on(triton_device)
        others = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
        optimizer, theirs = (adam(each, triton_device, eps=eps) for each in (parameters, others))
        ours = flat_adam_of(parameters, optimizer)
        for step in range(6):
            draw_gradients(parameters, scale=0.03 / (1 + step % 3) ** 3)
            parameters[0].grad = parameters[0].grad.t().contiguous().t()  # laid out in another way than its parameter
            for parameter, other in zip(parameters, others, strict=True):
                other.grad = torch.empty_like(other).copy_(parameter.grad)
            expected = torch_step(others, theirs, max_norm)
            assert ours.can_take(optimizer)
            torch.testing.assert_close(ours.step(optimizer, max_norm), expected, rtol=1e-5, atol=0)
            assert (expected > 0.5) == (step % 3 == 0)
        assert parameters[-1].is_contiguous(memory_format=torch.channels_last)
        assert_adam_same(parameters, optimizer, others, theirs)


def test_an_optimizer_whose_state_was_loaded_goes_on_bit_for_bit(triton_device):
    parameters, optimizer, ours = flat_adam_on(triton_device)
    ours.can_take(optimizer)
    ours.step(optimizer, 0.5)
    moments, weights = copy.deepcopy(optimizer.state_dict()), [each.detach().clone() for each in parameters]
    ours.step(optimizer, 0.5)
    expected = ours.flat.snapshot()
    optimizer.load_state_dict(moments)
    for parameter, weight in zip(parameters, weights, strict=True):
        parameter.data = weight  # in other memory now
    ours.flat.refresh()
    ours.use_optimizer(optimizer)
    assert ours.can_take(optimizer)
    ours.step(optimizer, 0.5)
    assert all(torch.equal(*pair) for pair in zip(ours.flat.snapshot(), expected, strict=True))


def test_once_a_parameter_has_no_gradient_torch_takes_all_steps_in_this_process_and_the_next(triton_device):
    parameters = parameters_on(triton_device)
    others = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    optimizer, theirs = (adam(each, triton_device) for each in (parameters, others))
    ours = flat_adam_of(parameters, optimizer)
    for step in range(3):
        draw_gradients(parameters)
        if step == 1:
            parameters[1].grad = None
        for parameter, other in zip(parameters, others, strict=True):
            other.grad = None if parameter.grad is None else parameter.grad.clone()
        torch_step(others, theirs, 0.5)
        assert ours.can_take(optimizer) == (step == 0)
        if step == 0:
            ours.step(optimizer, 0.5)
        else:
            torch_step(parameters, optimizer, 0.5)
    assert_adam_same(parameters, optimizer, others, theirs)
    loaded = adam(parameters, triton_device)
    loaded.load_state_dict(optimizer.state_dict())
    assert not flat_adam_of(parameters, loaded).can_take(loaded)


def test_a_gradient_that_is_no_number_shows_in_the_norm_and_in_its_weight(triton_device):
    parameters, optimizer, ours = flat_adam_on(triton_device)
    parameters[2].grad[0, 3] = torch.inf
    parameters[3].grad[1] = torch.nan
    assert ours.step(optimizer, 0.5).isnan()
    assert parameters[3][1].isnan()


def test_weights_that_cannot_lie_in_flat_memory_are_left_where_they_are():
    parameters = parameters_on(torch.device("cpu"))
    assert can_be_flat(nn.ParameterList(parameters), parameters)
    for numbers in (torch.zeros(8, 8)[:, ::2], torch.zeros(4, dtype=torch.float64)):  # with gaps, too precise
        others = [*parameters, nn.Parameter(numbers)]
        assert not can_be_flat(nn.ParameterList(others), others), numbers
    parameters[1].requires_grad_(False)
    assert not can_be_flat(nn.ParameterList(parameters), parameters)


def test_weights_that_were_moved_elsewhere_are_left_to_torch(triton_device):
    parameters, optimizer, ours = flat_adam_on(triton_device)
    assert ours.can_take(optimizer)
    parameters[1].data = parameters[1].data.clone()
    assert not ours.can_take(optimizer)
    assert ours.is_left
