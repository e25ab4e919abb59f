"""Gradient steps of the fused kernels against torch's Adam and clipping, interpreted or on a CUDA device."""

import copy

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="the fused kernels are written in Triton, which is not installed here")

from scramjet.accelerate.executor import Diagnostics
from tests.helpers.fused_mlps import loss_of, make_case


def adam(parameters, device, **settings):
    """The optimizer that a learner makes."""
    on_gpu = device.type == "cuda"
    rate = torch.tensor(0.01, device=device) if on_gpu else 0.01
    return torch.optim.Adam(parameters, lr=rate, fused=True, capturable=on_gpu, **settings)


def random_sums(case, scale):
    """Give the kernels random gradients instead of those of samples, and the loss terms 0 to 5."""
    for view in case.fused.gradients_of:
        view.copy_(scale * torch.randn_like(view))
    case.fused.terms.copy_(torch.arange(6.0))


@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("eps", [1e-5, 1e-8])
def test_twenty_steps_are_those_of_torch_whether_gradients_are_clipped_or_not(triton_device, max_norm, eps):
    case = make_case(triton_device, actions="three numbers", hidden=(16, 16))
    others = [nn.Parameter(parameter.detach().clone()) for parameter in case.parameters]
    ours, theirs = (adam(each, triton_device, eps=eps) for each in (case.parameters, others))
    case.fused.flat.use_optimizer(ours)
    for step in range(20):
        random_sums(case, scale=0.04 / (1 + step % 3) ** 3)  # norms of about 1.1, 0.14 and 0.04
        for parameter, view in zip(others, case.fused.gradients_of, strict=True):
            parameter.grad = view.clone()
        norm = nn.utils.clip_grad_norm_(others, torch.inf if max_norm is None else max_norm)
        theirs.step()
        case.fused._reduce(case.fused.sums, 1, increment=1)
        diagnostics = torch.full((7,), torch.nan, device=triton_device)
        case.fused.step(ours, max_norm, diagnostics=diagnostics)
        assert diagnostics.tolist() == pytest.approx([0, 1, 2, 3, 4, 5, norm.item()], rel=1e-5)
        assert (norm > 0.5) == (step % 3 == 0)
    for parameter, other in zip(case.parameters, others, strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-6)
        for name, expected in theirs.state[other].items():
            torch.testing.assert_close(ours.state[parameter][name], expected, rtol=1e-5, atol=2e-9)


def one_step(case, optimizer):
    loss = loss_of(case.indices.device, max_grad_norm=0.5)
    case.fused.gradients(case.inputs, case.samples, case.indices, None, loss)
    diagnostics = torch.zeros(len(Diagnostics.NAMES), device=case.indices.device)
    case.fused.step(optimizer, loss.max_grad_norm, diagnostics=diagnostics)
    return diagnostics


def test_an_optimizer_whose_state_was_loaded_goes_on_from_it(triton_device):
    case = make_case(triton_device, hidden=(16, 16))
    optimizer = adam(case.parameters, triton_device)
    case.fused.flat.use_optimizer(optimizer)
    for _ in range(3):
        one_step(case, optimizer)
    moments = copy.deepcopy(optimizer.state_dict())
    weights = [parameter.detach().clone() for parameter in case.parameters]
    addresses = case.fused.flat.weights.data_ptr(), case.fused.flat.exp_avg.data_ptr()
    expected = [one_step(case, optimizer), *case.fused.flat.snapshot()]
    one_step(case, optimizer)
    optimizer.load_state_dict(moments)
    for parameter, weight in zip(case.parameters, weights, strict=True):
        parameter.data = weight  # both are in other memory now
    case.fused.flat.refresh()
    case.fused.flat.use_optimizer(optimizer)
    resumed = [one_step(case, optimizer), *case.fused.flat.snapshot()]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(resumed, expected, strict=True))
    assert addresses == (case.fused.flat.weights.data_ptr(), case.fused.flat.exp_avg.data_ptr())
    for parameter in case.parameters:
        assert optimizer.state[parameter]["step"].item() == 4


@pytest.mark.gpu
def test_a_captured_graph_gives_the_bits_of_the_calls_it_was_captured_from(triton_device):
    if triton_device.type == "cpu":
        pytest.skip("needs a CUDA device")
    case = make_case(triton_device, masked=True, precision="tf32", normalized=True)
    optimizer = adam(case.parameters, triton_device)
    case.fused.flat.use_optimizer(optimizer)
    loss = loss_of(triton_device, 0.2, max_grad_norm=0.5)
    diagnostics = torch.zeros(7, device=triton_device)

    def update():
        case.fused.gradients(case.inputs, case.samples, case.indices, case.statistics(), loss)
        case.fused.step(optimizer, loss.max_grad_norm, diagnostics=diagnostics)

    update()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update()
    for clip in (0.2, 0.05):
        loss.clip.fill_(clip)
        kept = case.fused.flat.snapshot()
        update()
        expected, terms = case.fused.flat.snapshot(), diagnostics.clone()
        case.fused.flat.restore(kept)
        graph.replay()
        assert torch.equal(diagnostics, terms)
        assert all(torch.equal(*pair) for pair in zip(case.fused.flat.snapshot(), expected, strict=True))
