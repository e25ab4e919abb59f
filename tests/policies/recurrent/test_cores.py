"""Memory cores: their kernels against the plain recurrence under autograd, torch's own layers, and what a memory must
not do. The kernels are those for the CPU and, in the rest, Triton's, interpreted or on a CUDA device."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from scramjet.kernels import operations
from scramjet.kernels.cpu import recurrent as on_cpu
from scramjet.kernels.gpu import recurrent as tuning
from scramjet.policies import GRU, LSTM, MinGRU, PolicyConfig, make_core
from tests.helpers.cuda_graphs import replayed

pytestmark = pytest.mark.usefixtures("one_thread")

CORES = [LSTM, GRU, MinGRU]
every_core = pytest.mark.parametrize("kind", CORES)
gated_core = pytest.mark.parametrize("kind", [LSTM, GRU])
TRITON = [pytest.param("triton", marks=pytest.mark.rest), pytest.param("cuda", marks=pytest.mark.gpu)]
in_triton = pytest.mark.parametrize("kernels", TRITON, indirect=True)
COMPILED = "_CompiledRecurrence"


@pytest.fixture(params=["cpu", *TRITON])
def kernels(request, monkeypatch):
    """A function that makes cores run in kernels, Triton's with products of a precision; returns the device."""

    def use(precision="float32"):
        if request.param == "cpu":
            return torch.device("cpu")
        pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")
        from scramjet.kernels.gpu import recurrent as passes

        if request.param == "triton" and os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("tried on the GPU itself")
        monkeypatch.setattr(operations.Recurrence, "passes", lambda self, *_: passes.make(self.name, precision))
        return torch.device("cpu" if request.param == "triton" else "cuda")

    return use


def plainly(core, features, state, begins):
    """What the core does, by torch's operators."""
    after = []
    for layer, own in zip(core.layers, state.split(core.layer_state_size, dim=1), strict=True):
        features, own = core.recurrence.plain(features, own, begins, *layer.weights())
        after.append(own)
    return features, torch.cat(after, dim=1)


def make_case(
    kind, device="cpu", *, steps=2, rows=3, num_inputs=4, size=None, layers=1, share=0.3, spread=0.3, seed=0
):  # fmt: skip
    """A core with random weights (zero biases hide mistakes), features, a state and begins.

    Small, as Triton interprets a scan number by number.
    """
    torch.manual_seed(seed)
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


def assert_close(ours, theirs, tolerance=1e-5):
    """Each tensor equals the other up to a share of its largest number."""
    for mine, other in zip(ours, theirs, strict=True):
        atol = tolerance * max(float(other.detach().abs().max()), 1e-30)
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=0, atol=atol)


def assert_equal(ours, theirs):
    assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs, strict=True))


def assert_plain(core, features, state, begins, tolerance=1e-5):
    """Outputs, state after and all gradients are those of the plain recurrence; returns ours."""
    ours, theirs = core(features, state, begins), plainly(core, features, state, begins)
    assert ours[0].grad_fn.name().startswith(COMPILED)
    assert ours[0].dtype == ours[1].dtype == torch.float32
    found, expected = gradients(ours, core, features, state), gradients(theirs, core, features, state)
    assert_close((*ours, *found), (*theirs, *expected), tolerance)
    return *ours, *found


# --- results and gradients ---------------------------------------------------------------------------------------

VARIANTS = [
    {"steps": 5},
    {"steps": 1, "rows": 5, "share": None},
    {"size": 5, "rows": 18, "steps": 2},
    {"size": 33, "num_inputs": 1, "rows": 1, "share": 1.0},
    {"layers": 2, "share": 0.1, "steps": 3},
]


@every_core
def test_outputs_and_gradients_are_those_of_the_plain_recurrence(kernels, kind):
    for variant in VARIANTS:
        assert_plain(*make_case(kind, kernels(), **variant))


@settings(max_examples=40)
@given(
    kind=st.sampled_from(CORES), steps=st.sampled_from([1, 2, 3, 9]), rows=st.sampled_from([1, 2, 7]),
    num_inputs=st.integers(1, 9), size=st.sampled_from([1, 5, 16, 37, 70]), layers=st.integers(1, 3),
    share=st.sampled_from([None, 0.0, 0.3, 1.0]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_so_they_are_in_any_size(kind, **sizes):
    assert_plain(*make_case(kind, **sizes), tolerance=1e-4)


@every_core
def test_any_number_of_parts_and_threads_gives_the_same_and_the_same_number_the_same_bits(kind, monkeypatch):
    case = make_case(kind, steps=20, rows=101, num_inputs=128, size=128, share=0.02, spread=0.03)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        assert_plain(*case, tolerance=1e-4)
    case = make_case(kind, steps=5, rows=101, num_inputs=6, size=24, layers=2)
    for num_parts in (1, 2, 5):
        monkeypatch.setattr(on_cpu, "_num_parts", lambda *_, num_parts=num_parts: num_parts)
        assert_equal(*(assert_plain(*case, tolerance=1e-4) for _ in range(2)))


@every_core
def test_the_same_inputs_give_the_same_bits_without_gradients_too_and_a_second_backward_the_same_again(kernels, kind):
    for steps, share, mode in ((1, None, torch.inference_mode), (3, 0.3, torch.no_grad)):
        core, features, state, begins = make_case(kind, kernels("tf32"), steps=steps, share=share, layers=2)
        once, again = (core(features, state, begins) for _ in range(2))
        with mode():
            found = core(features, state, begins)
        assert_equal(once, again)
        assert_equal(once, found)
        assert not any(each.requires_grad for each in found)
        first, *others = (gradients(results, core, features, state) for results in (once, once, again))
        for other in others:
            assert_equal(first, other)


@every_core
def test_gradients_have_gradients(kernels, kind):
    core, features, state, begins = make_case(kind, kernels())

    def penalty(results):
        grads = torch.autograd.grad(results[0].sin().sum(), [features, *core.parameters()], create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in grads), [features, state, *core.parameters()])

    assert_close(penalty(core(features, state, begins)), penalty(plainly(core, features, state, begins)), 1e-4)


@every_core
def test_what_wants_no_gradient_gets_none(kernels, kind):
    core, features, state, begins = make_case(kind, kernels())
    core.requires_grad_(False)
    assert not core(features.detach(), state.detach(), begins)[0].requires_grad
    core.layers[0].bias.requires_grad_()
    core(features.detach(), state.detach(), begins)[0].sum().backward()
    assert [parameter.grad is None for parameter in core.parameters()].count(False) == 1


# --- torch's layers and a closed form ----------------------------------------------------------------------------


@gated_core
def test_the_lstm_and_the_gru_are_those_of_torch(kind):
    for layers in (1, 2, 3):
        core, features, state, _ = make_case(kind, steps=11, rows=4, num_inputs=7, size=19, layers=layers)
        theirs = (nn.LSTM if kind is LSTM else nn.GRU)(7, 19, layers)
        with torch.no_grad():
            for i, layer in enumerate(core.layers):
                getattr(theirs, f"weight_ih_l{i}").copy_(layer.input_weight.t())
                blocks = layer.recurrent_weight.split(19, dim=1)
                if kind is GRU:  # torch has what the candidate recalls of the state last
                    blocks = *blocks[1:], blocks[0]
                getattr(theirs, f"weight_hh_l{i}").copy_(torch.cat(blocks, dim=1).t())
                getattr(theirs, f"bias_hh_l{i}").zero_()
                getattr(theirs, f"bias_ih_l{i}").copy_(layer.bias[-len(getattr(theirs, f"bias_ih_l{i}")) :])
                if kind is GRU:
                    getattr(theirs, f"bias_hh_l{i}")[-19:] = layer.bias[:19]
        parts = state.view(4, layers, -1, 19).permute(2, 1, 0, 3).contiguous()
        outputs, after = theirs(features, tuple(parts) if kind is LSTM else parts[0])
        after = torch.stack(after if kind is LSTM else [after]).permute(2, 1, 0, 3).reshape(4, -1)
        assert_close(core(features, state, None), (outputs, after))


def test_the_mingru_of_steady_inputs_decays_towards_its_candidate_by_the_closed_form():
    core, features, state, _ = make_case(MinGRU, steps=1, rows=5, num_inputs=3, size=8)
    outputs, _ = core(features.expand(20, 5, 3), state, None)
    weight, bias = core.layers[0].weights()
    gate, candidate = (features[0] @ weight + bias).double().chunk(2, dim=1)
    steps = torch.arange(1, 21).view(20, 1, 1)
    expected = candidate + (1 - gate.sigmoid()) ** steps * (state - candidate)
    torch.testing.assert_close(outputs.double(), expected, rtol=0, atol=3e-6)


@every_core
def test_a_sequence_in_pieces_equals_the_whole(kind):
    for layers in (1, 2):
        core, features, state, begins = make_case(kind, steps=10, layers=layers, share=0.2)
        whole = core(features, state, begins)
        for length in (1, 4):
            pieces, carried = [], state
            for part in (slice(start, start + length) for start in range(0, 10, length)):
                outputs, carried = core(features[part], carried, begins[part])
                pieces.append(outputs)
            ours = torch.cat(pieces), carried
            assert_close(ours, whole)
            assert_close(gradients(ours, core, features, state), gradients(whole, core, features, state))


# --- episodes and rows -------------------------------------------------------------------------------------------


@every_core
def test_after_a_begin_nothing_is_left_of_what_came_before_nor_does_a_gradient_cross_it(kernels, kind):
    core, features, state, _ = make_case(kind, kernels("tf32"), steps=4, share=None, layers=2)
    fresh = core(features[2:], torch.zeros_like(state), None)
    begins = torch.zeros(4, 3, dtype=torch.bool, device=features.device)
    begins[2] = True
    for filler in (1.0, torch.nan, torch.inf):
        resumed = core(torch.cat([torch.full_like(features[:2], filler), features[2:]]), state, begins)
        assert_close((resumed[0][2:], resumed[1]), fresh, 1e-6)
        ours, theirs = (torch.autograd.grad(each[0][-2:].sum() + each[1].sum(), features, retain_graph=True)
                        for each in (resumed, fresh))  # fmt: skip
        assert_close(ours, theirs, 1e-5)
    begins[2, 1] = False
    results = core(features, state, begins)
    to_features, to_state = torch.autograd.grad(results[0][2:].sum() + results[1].sum(), (features, state))
    assert [bool((to_features[:2, row] == 0).all()) for row in range(3)] == [True, False, True]
    assert [bool((to_state[row] == 0).all()) for row in range(3)] == [True, False, True]


@every_core
def test_a_row_sees_nothing_of_the_others_and_a_diverged_number_is_seen(kernels, kind):
    core, features, state, begins = make_case(kind, kernels("tf32"))
    changed_features, changed_state = features.detach().clone(), state.detach().clone()
    changed_features[:, 1], changed_state[1] = torch.nan, 100.0
    changed_features.requires_grad_()
    expected, found = core(features, state, begins), core(changed_features, changed_state, begins)
    gradient = torch.autograd.grad(found[0].sum(), changed_features)[0]
    assert torch.equal(expected[0][:, ::2], found[0][:, ::2])
    assert torch.equal(torch.autograd.grad(expected[0].sum(), features)[0][:, ::2], gradient[:, ::2])
    assert found[0][:, 1].isnan().all()
    assert gradient[:, 1].isnan().any()
    with torch.no_grad():
        core.layers[0].input_weight[0, 0] = torch.nan
    outputs, _ = core(features, state, begins)
    assert outputs[..., 0].isnan().all()
    assert torch.autograd.grad(outputs.sum(), features)[0].isnan().any()


@every_core
def test_strided_tensors_are_taken_inputs_stay_as_they_are_and_changed_outputs_do_not_change_gradients(kernels, kind):
    core, features, state, begins = make_case(kind, kernels())
    expected = core(features, state, begins)
    gradient = torch.autograd.grad(expected[0].sum(), features)[0]
    wide = torch.cat([features, features], dim=2).transpose(0, 1).contiguous().transpose(0, 1)
    strided = wide[:, :, :4], torch.cat([state, state], dim=1)[:, : core.state_size], begins.t().contiguous().t()
    assert not any(tensor.is_contiguous() for tensor in strided)
    copies = [tensor.clone() for tensor in strided]
    with torch.inference_mode():
        assert_close(core(strided[0][:1], strided[1], strided[2][:1])[:1], [expected[0][:1]], 1e-6)
    outputs, after = core(*strided)
    assert_equal((outputs, after), expected)
    total = outputs.sum()
    with torch.no_grad():
        after.zero_()  # a state that the caller clears is not the outputs' memory
        assert torch.equal(outputs, expected[0])
        outputs.zero_()
    assert torch.equal(torch.autograd.grad(total, features)[0], gradient)
    assert_equal(strided, copies)


# --- making a core -----------------------------------------------------------------------------------------------


def test_a_new_core_remembers_and_its_weights_are_orthogonal_gate_by_gate():
    for kind, gate, bias in ((LSTM, 1, 1.0), (GRU, 2, 1.0), (MinGRU, 0, -1.0)):
        for layer in kind(12, 8, 2).layers:
            biases = layer.bias.view(-1, 8)
            assert (biases[gate] == bias).all()
            assert biases.abs().sum() == 8
            for name, weight in layer.named_parameters():
                for block in weight.split(8, dim=1) if name.endswith("_weight") else ():
                    torch.testing.assert_close(block.t() @ block, torch.eye(8), rtol=0, atol=1e-5)


def test_the_config_chooses_the_core():
    assert make_core(5, PolicyConfig()) is None
    for name, kind, per_unit in (("lstm", LSTM, 2), ("gru", GRU, 1), ("mingru", MinGRU, 1)):
        core = make_core(5, PolicyConfig(memory=name, memory_size=8, memory_layers=3))
        assert type(core) is kind
        assert (core.num_features, core.state_size) == (8, 3 * 8 * per_unit)
    names = list(make_core(5, PolicyConfig(memory="gru")).state_dict())
    assert names == [f"layers.0.{name}" for name in ("input_weight", "bias", "recurrent_weight")]


@every_core
def test_under_autocast_and_in_float64_the_plain_recurrence_takes_over(kind):
    core, features, state, begins = make_case(kind, steps=5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, _ = core(features, state, begins)
    expected, _ = core(features, state, begins)
    exact, _ = core.double()(features.double(), state.double(), begins)
    for outputs, dtype, atol in ((rounded, torch.float32, 0.1), (exact, torch.float64, 1e-5)):
        assert not outputs.grad_fn.name().startswith(COMPILED)
        assert outputs.dtype == dtype
        torch.testing.assert_close(outputs.float(), expected, rtol=0, atol=atol)


# --- Triton's kernels: precision, tiles, and what runs on a GPU --------------------------------------------------


@in_triton
@gated_core
def test_products_of_float16_are_near_the_plain_recurrence(kernels, monkeypatch, kind):
    """The bound is a few times the rounding of one number, 2^-11 = 0.0005, which is passed on from step to step."""
    case = make_case(kind, kernels("tf32"), rows=17)
    found, plain = assert_plain(*case, tolerance=2e-3), plainly(*case)
    assert not torch.equal(found[0], plain[0])  # rounded, as it was asked to be
    monkeypatch.setattr(tuning, "_shared_kilobytes", lambda device: 0)  # weights do not stay in it
    assert_plain(*make_case(kind, kernels("tf32"), rows=17, size=24), tolerance=2e-3)


@in_triton
@every_core
def test_products_of_bfloat16_are_near_the_plain_recurrence(kernels, kind):
    device = kernels("bfloat16")
    if device.type == "cpu" and kind is not MinGRU:
        pytest.skip("the interpreter does not multiply bfloat16")
    assert_plain(*make_case(kind, device, rows=5), tolerance=0.03)


@in_triton
@gated_core
def test_tiny_gradients_are_as_exact_as_others(kernels, kind):
    """2^-60 is nothing in float16; scaled by a power of two, every number stays the same but for its exponent."""
    core, features, state, begins = make_case(kind, kernels("tf32"), share=0.2)
    results = core(features, state, begins)
    whole, tiny = (gradients(results, core, features, state, scale) for scale in (1.0, 2.0**-60))
    assert all(gradient.abs().max() > 0 for gradient in whole)
    assert_equal([little * 2.0**60 for little in tiny], whole)


@in_triton
def test_a_scan_longer_than_a_tile_goes_on_from_tile_to_tile(kernels, monkeypatch):
    monkeypatch.setattr(tuning, "SCAN", tuning.SCAN._replace(steps=4, numbers=16))
    assert tuning.scan_tile(10, 5) == (4, 4)
    assert_plain(*make_case(MinGRU, kernels(), steps=10, size=5, rows=2, share=0.1))


def test_many_rows_are_taken_more_at_a_time_and_weights_stay_out_of_a_small_shared_memory(monkeypatch):
    device = torch.device("cpu")
    assert [tuning.chosen_launch(tuning.ACT, "tf32", rows, 128, device).rows for rows in (1, 4095, 4096)] == [
        16,
        16,
        32,
    ]
    for table in (tuning.ACT, tuning.FORWARD, tuning.BACKWARD):
        assert [tuning.chosen_launch(table, "tf32", 64, size, device).chunk > 0 for size in (1, 128, 129)] == [0, 0, 1]
        assert tuning.chosen_launch(table, "float32", 64, 16, device).chunk > 0
        monkeypatch.setattr(tuning, "_shared_kilobytes", lambda _: 99)
        assert [tuning.chosen_launch(table, "tf32", 64, size, device).chunk > 0 for size in (64, 65)] == [0, 1]
        assert tuning.chosen_launch(table, "tf32", 64, 256, device).kilobytes <= 99 * 2
        monkeypatch.undo()


@pytest.mark.gpu
@every_core
def test_on_a_gpu_cores_run_in_kernels_unless_these_cannot_take_the_tensors(kind):
    core, features, state, begins = make_case(kind, "cuda")
    assert core(features, state, begins)[0].grad_fn.name().startswith(COMPILED)
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        outputs, after = core(features.bfloat16(), state, begins)
        assert outputs.grad_fn.name().startswith(COMPILED)
        assert outputs.dtype == after.dtype == torch.float32
    mapped, _ = torch.vmap(core, in_dims=(1, 1, 1), out_dims=(1, 1))(
        features.unsqueeze(2), state.unsqueeze(0), begins.unsqueeze(2)
    )
    assert_close([mapped.squeeze(2)], [plainly(core, features, state, begins)[0]])
    core.double()
    assert not core(features.double(), state.double(), begins)[0].grad_fn.name().startswith(COMPILED)
    large, *inputs = make_case(kind, "cuda", size=257)
    assert large(*inputs)[0].grad_fn.name().startswith(COMPILED) == (kind is MinGRU)


@pytest.mark.parametrize("kernels", ["cuda"], indirect=True)
@pytest.mark.gpu
@every_core
def test_large_cores_on_the_gpu_agree_with_the_plain_recurrence(kernels, kind):
    for precision, tolerance in (("float32", 2e-5), ("tf32", 5e-3), ("bfloat16", 0.05)):
        for rows, size in ((100, 128), (33, 256), (1000, 64)):
            sizes = {"steps": 70, "rows": rows, "num_inputs": size, "size": size}
            assert_plain(*make_case(kind, kernels(precision), **sizes, share=0.05, spread=0.02), tolerance=tolerance)


@pytest.mark.gpu
@every_core
def test_a_recorded_graph_replays_forward_and_backward_pass(kind):
    core, features, state, begins = make_case(kind, "cuda", rows=40, size=32)

    def learn():
        results = core(features, state, begins)
        return (*results, *torch.autograd.grad(results[0].square().sum(), [features, state, *core.parameters()]))

    replay = replayed(learn, (features, begins), (-0.5 * features.detach(), begins.flip(0)))
    assert_equal(replay, learn())
