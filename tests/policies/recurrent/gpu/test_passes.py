"""Memory cores in Triton's kernels: outputs, states and all gradients against the plain recurrence under autograd."""

import pytest
import torch

from scramjet.policies.recurrent.autograd import Recurrence
from scramjet.policies.recurrent.cores import GRU, LSTM, MinGRU
from scramjet.policies.recurrent.gpu import tuning
from tests.helpers.plain_cores import plainly

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


def make_case(kind, device, *, steps=2, rows=3, num_inputs=4, size=None, layers=1, share=0.3, spread=0.3):
    """A core with random weights, features, a state and begins; small, as Triton interprets a scan number by number."""
    core = kind(num_inputs, size or (3 if kind is MinGRU else 16), layers)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(spread * torch.randn(parameter.shape))
    features, state = torch.randn(steps, rows, num_inputs), torch.randn(rows, core.state_size)
    begins = None if share is None else (torch.rand(steps, rows) < share).to(device)
    return core.to(device), features.to(device).requires_grad_(), state.to(device).requires_grad_(), begins


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
    {"steps": 5},
    {"steps": 1, "rows": 5, "share": None},
    {"size": 5, "rows": 18, "steps": 2},
    {"size": 33, "num_inputs": 1, "rows": 1, "share": 1.0},
    {"layers": 2, "share": 0.1, "steps": 3},
]


@every_core
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_outputs_and_gradients_are_those_of_the_plain_recurrence(in_triton, kind, variant):
    core, features, state, begins = make_case(kind, in_triton("float32"), **variant)
    ours, theirs = core(features, state, begins), plainly(core, features, state, begins)
    assert ours[0].grad_fn.name().startswith("_CompiledRecurrence")
    assert_close(ours, theirs, 1e-5)
    assert_close(gradients(ours, core, features, state), gradients(theirs, core, features, state), 1e-5)


@gated_core
@pytest.mark.parametrize(("is_resident", "size"), [(True, 16), (False, 24)])
def test_products_of_float16_are_near_the_plain_recurrence(in_triton, monkeypatch, kind, is_resident, size):
    """The bound is a few times the rounding of one number, 2^-11 = 0.0005, which is passed on from step to step."""
    if not is_resident:
        monkeypatch.setattr(tuning, "_shared_kilobytes", lambda device: 0)
    core, features, state, begins = make_case(kind, in_triton("tf32"), rows=17, size=size)
    ours, theirs = core(features, state, begins), plainly(core, features, state, begins)
    assert_close(ours, theirs, 2e-3)
    found, expected = gradients(ours, core, features, state), gradients(theirs, core, features, state)
    assert_close(found, expected, 2e-3)
    assert not torch.equal(found[0], expected[0])  # rounded, as it was asked to be


@every_core
def test_products_of_bfloat16_are_near_the_plain_recurrence(in_triton, kind):
    device = in_triton("bfloat16")
    if device.type == "cpu" and kind is not MinGRU:
        pytest.skip("the interpreter does not multiply bfloat16")
    core, features, state, begins = make_case(kind, device, rows=5)
    ours, theirs = core(features, state, begins), plainly(core, features, state, begins)
    assert ours[0].dtype == ours[1].dtype == torch.float32
    assert_close(ours, theirs, 0.02)
    found = gradients(ours, core, features, state)
    assert {gradient.dtype for gradient in found} == {torch.float32}
    assert_close(found, gradients(theirs, core, features, state), 0.03)


@gated_core
def test_tiny_gradients_are_as_exact_as_others(in_triton, kind):
    """2^-60 is nothing in float16; scaled by a power of two, every number stays the same but for its exponent."""
    core, features, state, begins = make_case(kind, in_triton("tf32"), share=0.2)
    results = core(features, state, begins)
    whole, tiny = (gradients(results, core, features, state, scale) for scale in (1.0, 2.0**-60))
    assert all(gradient.abs().max() > 0 for gradient in whole)
    assert all(torch.equal(little * 2.0**60, large) for little, large in zip(tiny, whole, strict=True))


def test_a_scan_longer_than_a_tile_goes_on_from_tile_to_tile(in_triton, monkeypatch):
    monkeypatch.setattr(tuning, "SCAN", tuning.SCAN._replace(steps=4, numbers=16))
    core, features, state, begins = make_case(MinGRU, in_triton("float32"), steps=10, size=5, rows=2, share=0.1)
    assert tuning.scan_tile(10, 5) == (4, 4)
    ours, theirs = core(features, state, begins), plainly(core, features, state, begins)
    assert_close(ours, theirs, 1e-5)
    assert_close(gradients(ours, core, features, state), gradients(theirs, core, features, state), 1e-5)


@every_core
@pytest.mark.parametrize(("steps", "share", "mode"), [(1, None, torch.inference_mode), (3, 0.3, torch.no_grad)])
def test_without_gradients_the_same_numbers_come_out(in_triton, kind, steps, share, mode):
    core, features, state, begins = make_case(kind, in_triton("tf32"), steps=steps, share=share)
    expected = core(features, state, begins)
    with mode():
        found = core(features, state, begins)
    assert all(torch.equal(mine, other) for mine, other in zip(found, expected, strict=True))


@every_core
def test_the_same_inputs_give_the_same_bits_and_a_second_backward_the_same_again(in_triton, kind):
    core, features, state, begins = make_case(kind, in_triton("tf32"))
    once, again = (core(features, state, begins) for _ in range(2))
    found = [gradients(once, core, features, state) for _ in range(2)]
    found.append(gradients(again, core, features, state))
    assert all(torch.equal(mine, other) for mine, other in zip(once, again, strict=True))
    assert all(torch.equal(mine, other) for more in found[1:] for mine, other in zip(found[0], more, strict=True))


@every_core
def test_after_a_begin_nothing_is_left_of_what_came_before_nor_does_a_gradient_cross_it(in_triton, kind):
    core, features, state, _ = make_case(kind, in_triton("tf32"), steps=4, share=None)
    fresh = core(features[2:], torch.zeros_like(state), None)
    begins = torch.zeros(4, 3, dtype=torch.bool, device=features.device)
    begins[2] = True
    spoiled = torch.cat([torch.full_like(features[:2], float("nan")), features[2:]])
    resumed = core(spoiled, state, begins)
    assert_close((resumed[0][2:], resumed[1]), fresh, 1e-6)
    begins[2, 1] = False
    results = core(features, state, begins)
    to_features, to_state = torch.autograd.grad(results[0][2:].sum() + results[1].sum(), (features, state))
    assert [bool((to_features[:2, row] == 0).all()) for row in range(3)] == [True, False, True]
    assert [bool((to_state[row] == 0).all()) for row in range(3)] == [True, False, True]


@every_core
def test_a_row_sees_nothing_of_the_others(in_triton, kind):
    core, features, state, begins = make_case(kind, in_triton("tf32"))
    changed_features, changed_state = features.detach().clone(), state.detach().clone()
    changed_features[:, 1], changed_state[1] = float("nan"), 100.0
    changed_features.requires_grad_()
    expected, found = core(features, state, begins), core(changed_features, changed_state, begins)
    gradient = torch.autograd.grad(found[0].sum(), changed_features)[0]
    assert torch.equal(expected[0][:, ::2], found[0][:, ::2])
    assert torch.equal(torch.autograd.grad(expected[0].sum(), features)[0][:, ::2], gradient[:, ::2])
    assert found[0][:, 1].isnan().all()  # a diverged number is seen
    assert gradient[:, 1].isnan().any()


@every_core
def test_strided_tensors_are_taken_and_changed_outputs_do_not_change_gradients(in_triton, kind):
    core, features, state, begins = make_case(kind, in_triton("float32"))
    expected = core(features, state, begins)
    gradient = torch.autograd.grad(expected[0].sum(), features)[0]
    wide = (
        torch.cat([features, features], dim=2).transpose(0, 1).contiguous().transpose(0, 1)[:, :, : features.shape[2]]
    )
    strided = wide, torch.cat([state, state], dim=1)[:, : core.state_size], begins.t().contiguous().t()
    assert not any(tensor.is_contiguous() for tensor in strided)
    outputs, after = core(*strided)
    assert torch.equal(outputs, expected[0])
    assert torch.equal(after, expected[1])
    total = outputs.sum()
    with torch.no_grad():
        outputs.zero_()
        after.zero_()
    assert torch.equal(torch.autograd.grad(total, features)[0], gradient)


@every_core
def test_gradients_have_gradients(in_triton, kind):
    core, features, state, begins = make_case(kind, in_triton("float32"))

    def penalty(results):
        grads = torch.autograd.grad(results[0].sin().sum(), [features, *core.parameters()], create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in grads), [features, state, *core.parameters()])

    assert_close(penalty(core(features, state, begins)), penalty(plainly(core, features, state, begins)), 1e-4)


@every_core
def test_what_wants_no_gradient_gets_none(in_triton, kind):
    core, features, state, begins = make_case(kind, in_triton("float32"))
    core.requires_grad_(False)
    assert not core(features.detach(), state.detach(), begins)[0].requires_grad
    core.layers[0].bias.requires_grad_()
    core(features.detach(), state.detach(), begins)[0].sum().backward()
    assert [parameter.grad is None for parameter in core.parameters()].count(False) == 1


def test_many_rows_are_taken_more_at_a_time_and_weights_stay_out_of_a_small_shared_memory(monkeypatch):
    device = torch.device("cpu")
    assert [tuning.choose(tuning.ACT, "tf32", rows, 128, device).rows for rows in (1, 4095, 4096)] == [16, 16, 32]
    for table in (tuning.ACT, tuning.FORWARD, tuning.BACKWARD):
        assert [tuning.choose(table, "tf32", 64, size, device).chunk > 0 for size in (1, 128, 129)] == [0, 0, 1]
        assert tuning.choose(table, "float32", 64, 16, device).chunk > 0
        monkeypatch.setattr(tuning, "_shared_kilobytes", lambda _: 99)
        assert [tuning.choose(table, "tf32", 64, size, device).chunk > 0 for size in (64, 65)] == [0, 1]
        assert tuning.choose(table, "tf32", 64, 256, device).kilobytes <= 99 * 2
        monkeypatch.undo()


@pytest.mark.gpu
@every_core
def test_on_a_gpu_cores_run_in_kernels_unless_these_cannot_take_the_tensors(kind):
    core, features, state, begins = make_case(kind, torch.device("cuda"))
    is_compiled = "_CompiledRecurrence"
    assert core(features, state, begins)[0].grad_fn.name().startswith(is_compiled)
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        outputs, after = core(features.bfloat16(), state, begins)
        assert outputs.grad_fn.name().startswith(is_compiled)
        assert outputs.dtype == after.dtype == torch.float32
    mapped, _ = torch.vmap(core, in_dims=(1, 1, 1), out_dims=(1, 1))(
        features.unsqueeze(2), state.unsqueeze(0), begins.unsqueeze(2)
    )
    assert_close([mapped.squeeze(2)], [plainly(core, features, state, begins)[0]], 1e-5)
    core.double()
    assert not core(features.double(), state.double(), begins)[0].grad_fn.name().startswith(is_compiled)
    large, *inputs = make_case(kind, torch.device("cuda"), size=257)
    assert large(*inputs)[0].grad_fn.name().startswith(is_compiled) == (kind is MinGRU)


@pytest.mark.gpu
@every_core
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize(("rows", "size"), [(100, 128), (33, 256), (1000, 64)])
def test_large_cores_on_the_gpu_agree_with_the_plain_recurrence(in_triton, kind, precision, rows, size):
    if (device := in_triton(precision)).type == "cpu":
        pytest.skip("too much for the interpreter")
    core, features, state, begins = make_case(
        kind, device, steps=70, rows=rows, num_inputs=size, size=size, share=0.05, spread=0.02
    )
    ours, theirs = core(features, state, begins), plainly(core, features, state, begins)
    tolerance = {"float32": 2e-5, "tf32": 5e-3, "bfloat16": 0.05}[precision]
    assert_close(ours, theirs, tolerance)
    assert_close(gradients(ours, core, features, state), gradients(theirs, core, features, state), tolerance)


@pytest.mark.gpu
@every_core
def test_a_recorded_graph_replays_forward_and_backward_pass(kind):
    core, features, state, begins = make_case(kind, torch.device("cuda"), rows=40, size=32)

    def learn():
        results = core(features, state, begins)
        return (*results, *torch.autograd.grad(results[0].square().sum(), [features, state, *core.parameters()]))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        learn()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = learn()
    with torch.no_grad():
        features.mul_(-0.5)
        begins.copy_(begins.flip(0))
    graph.replay()
    assert all(torch.equal(mine, other) for mine, other in zip(recorded, learn(), strict=True))
