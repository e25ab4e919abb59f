"""Adam's clipped steps over flat memory against torch's own, interpreted on the CPU or on a CUDA device."""

import copy

import pytest
import torch
from torch import nn

from scramjet.accelerate.triton import flat_adam
from scramjet.accelerate.triton.flat_adam import FlatAdam, can_be_flat
from tests.helpers.triton_cases import adam, of_device

pytestmark = pytest.mark.rest


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


def assert_same(parameters, optimizer, others, their_optimizer):
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
        assert_same(parameters, optimizer, others, theirs)


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
    assert_same(parameters, optimizer, others, theirs)
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


@pytest.mark.gpu
def test_a_recorded_step_gives_the_bits_of_the_step_that_it_was_recorded_from():
    _, optimizer, ours = flat_adam_on(torch.device("cuda"))
    ours.can_take(optimizer)
    ours.step(optimizer, 0.5)
    kept, graph = ours.flat.snapshot(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        norm = ours.step(optimizer, 0.5)
    ours.flat.restore(kept)
    expected = ours.step(optimizer, 0.5), *ours.flat.snapshot()
    ours.flat.restore(kept)
    graph.replay()
    assert all(torch.equal(*pair) for pair in zip((norm, *ours.flat.snapshot()), expected, strict=True))


def test_weights_that_were_moved_elsewhere_are_left_to_torch(triton_device):
    parameters, optimizer, ours = flat_adam_on(triton_device)
    assert ours.can_take(optimizer)
    parameters[1].data = parameters[1].data.clone()
    assert not ours.can_take(optimizer)
    assert ours.is_left
