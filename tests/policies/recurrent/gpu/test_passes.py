"""Memory cores in Triton's kernels: outputs, states and all gradients against the plain recurrence under autograd."""

import pytest
import torch

from scramjet.policies.recurrent.autograd import Recurrence
from scramjet.policies.recurrent.cores import GRU, LSTM, MinGRU

pytestmark = pytest.mark.usefixtures("one_thread")

CORES = [LSTM, GRU, MinGRU]
every_core = pytest.mark.parametrize("kind", CORES)
gated_core = pytest.mark.parametrize("kind", [LSTM, GRU])


@pytest.fixture
def in_triton(triton_device, monkeypatch):
    """A function that makes cores run in Triton with products of a precision; returns the device for their tensors."""
    from scramjet.policies.recurrent.gpu import passes

    def use(precision):
        monkeypatch.setattr(Recurrence, "passes", lambda self, *_: passes.make(self.name, precision))
        return triton_device

    return use


def make_case(kind, device, *, steps=5, rows=3, num_inputs=4, size=16, layers=1, share=0.3):
    """A core with random weights, features, a state and begins."""
    core = kind(num_inputs, size, layers)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    features, state = torch.randn(steps, rows, num_inputs), torch.randn(rows, core.state_size)
    begins = None if share is None else (torch.rand(steps, rows) < share).to(device)
    return core.to(device), features.to(device).requires_grad_(), state.to(device).requires_grad_(), begins


def plainly(core, features, state, begins):
    """What the core does, by torch's operators."""
    after = []
    for layer, own in zip(core.layers, state.split(core.layer_state_size, dim=1), strict=True):
        features, own = core.recurrence.plain(features, own, begins, *layer.weights())
        after.append(own)
    return features, torch.cat(after, dim=1)


def gradients(results, core, features, state, scale=1.0):
    """Of features, state and all weights, for random gradients of outputs and state after."""
    generator = torch.Generator().manual_seed(1)
    grads = [scale * torch.randn(result.shape, generator=generator).to(result.device) for result in results]
    return torch.autograd.grad(results, [features, state, *core.parameters()], grads, retain_graph=True)


def assert_close(ours, theirs, tolerance):
    """Each tensor equals the other up to a share of its largest number."""
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=tolerance * max(float(other.detach().abs().max()), 1e-30))


VARIANTS = [
    {},
    {"steps": 1, "share": None},
    {"steps": 1, "rows": 17},
    {"size": 5, "rows": 18},
    {"size": 33, "num_inputs": 1, "steps": 3, "share": 1.0},
    {"layers": 2, "share": 0.1},
]


@every_core
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_outputs_and_gradients_are_those_of_the_plain_recurrence(in_triton, kind, variant):
    core, features, state, begins = make_case(kind, in_triton("float32"), **variant)
    ours, theirs = core(features, state, begins), plainly(core, features, state, begins)
    assert ours[0].grad_fn.name().startswith("_CompiledRecurrence")
    assert_close(ours, theirs, 1e-5)
    assert_close(gradients(ours, core, features, state), gradients(theirs, core, features, state), 1e-5)
