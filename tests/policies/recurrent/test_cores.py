"""Memory cores: compiled steps against the plain recurrence, torch's own layers, and what a memory must not do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from scramjet.policies.config import PolicyConfig
from scramjet.policies.recurrent import autograd as memory_fused
from scramjet.policies.recurrent import cores as memory
from scramjet.policies.recurrent.cores import GRU, LSTM, MinGRU, make_core
from tests.helpers.plain_cores import plainly

CORES = [LSTM, GRU, MinGRU]
every_core = pytest.mark.parametrize("kind", CORES)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products this small do not gain by a second thread, and wait for it when the machine is busy."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def random_core(kind, num_inputs, size, layers=1, seed=0, spread=0.3):
    """A core whose every weight is random: zero biases hide mistakes."""
    core = kind(num_inputs, size, layers)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, generator=generator))
    return core


def random_case(core, steps, rows, num_inputs, share=0.2, seed=0):
    """Features, a state and begins; both tensors want gradients."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(steps, rows, num_inputs, generator=generator).requires_grad_()
    state = torch.randn(rows, core.state_size, generator=generator).requires_grad_()
    begins = None if share is None else torch.rand(steps, rows, generator=generator) < share
    return features, state, begins


def gradients(results, core, features, state, seed=0):
    generator = torch.Generator().manual_seed(seed)
    grads = [torch.randn(result.shape, generator=generator) for result in results]
    return torch.autograd.grad(results, [features, state, *core.parameters()], grads, retain_graph=True)


def assert_alike(ours, theirs):
    """Equal up to rounding: of the single number, or of the largest where sums cancel."""
    for mine, other in zip(ours, theirs, strict=True):
        mine, other = mine.detach(), other.detach()
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=2e-6 * (1 + float(other.abs().max())))


@settings(max_examples=40)
@given(
    kind=st.sampled_from(CORES),
    steps=st.sampled_from([1, 2, 3, 9]),
    rows=st.sampled_from([1, 2, 7]),
    num_inputs=st.integers(1, 9),
    size=st.sampled_from([1, 5, 16, 37, 70]),
    layers=st.integers(1, 3),
    share=st.sampled_from([None, 0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_compiled_steps_give_the_results_and_gradients_of_the_plain_recurrence(
    kind, steps, rows, num_inputs, size, layers, share, seed
):
    core = random_core(kind, num_inputs, size, layers, seed)
    features, state, begins = random_case(core, steps, rows, num_inputs, share, seed)
    fused, plain = core(features, state, begins), plainly(core, features, state, begins)
    assert fused[0].grad_fn.name().startswith("_CompiledRecurrence")
    assert_alike(fused, plain)
    assert_alike(gradients(fused, core, features, state), gradients(plain, core, features, state))


@every_core
@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_sequence_of_many_rows_agrees_too_with_any_number_of_threads(kind, threads):
    core = random_core(kind, 128, 128, spread=0.03)  # more, and small differences grow from step to step
    features, state, begins = random_case(core, 20, 101, 128, 0.02)
    plain = plainly(core, features, state, begins)
    torch.set_num_threads(threads)
    try:
        fused = core(features, state, begins)
        ours = gradients(fused, core, features, state)
    finally:
        torch.set_num_threads(1)
    assert_alike(fused, plain)
    assert_alike(ours, gradients(plain, core, features, state))


@every_core
@pytest.mark.parametrize("num_parts", [1, 2, 5])
def test_any_number_of_parts_gives_the_same_and_the_same_number_the_same_bits(kind, num_parts, monkeypatch):
    core = random_core(kind, 6, 24, 2)
    features, state, begins = random_case(core, 5, 101, 6, 0.3)
    plain = plainly(core, features, state, begins)
    monkeypatch.setattr(memory_fused, "_num_parts", lambda *_: num_parts)
    once, again = (core(features, state, begins) for _ in range(2))
    assert_alike(once, plain)
    ours = gradients(once, core, features, state)
    assert_alike(ours, gradients(plain, core, features, state))
    pairs = zip((*once, *ours), (*again, *gradients(again, core, features, state)), strict=True)
    assert all(torch.equal(mine, other) for mine, other in pairs)


@every_core
@pytest.mark.parametrize("steps", [1, 5])
def test_without_gradients_the_same_numbers_come_out(kind, steps):
    core = random_core(kind, 6, 24, 2)
    features, state, begins = random_case(core, steps, 5, 6, 0.3)
    expected = core(features, state, begins)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = core(features, state, begins)
        assert all(
            torch.equal(mine, other) and not mine.requires_grad for mine, other in zip(found, expected, strict=True)
        )


@every_core
def test_the_same_inputs_give_the_same_bits(kind):
    core = random_core(kind, 20, 40)
    features, state, begins = random_case(core, 12, 33, 20)
    results = [core(features, state, begins) for _ in range(2)]
    for once, again in zip(*results, strict=True):
        assert torch.equal(once, again)
    for once, again in zip(*(gradients(result, core, features, state) for result in results), strict=True):
        assert torch.equal(once, again)


def copy_weights(core, theirs):
    """Give torch's layers the weights of ours; theirs stand with a row for each gate."""
    with torch.no_grad():
        for i, layer in enumerate(core.layers):
            getattr(theirs, f"weight_ih_l{i}").copy_(layer.input_weight.t())
            size = core.num_features
            order = (
                (size, 2 * size, 0) if isinstance(core, GRU) else range(0, 4 * size, size)
            )  # blocks as torch has them
            recurrent = [layer.recurrent_weight[:, first : first + size] for first in order]
            getattr(theirs, f"weight_hh_l{i}").copy_(torch.cat(recurrent, dim=1).t())
            getattr(theirs, f"bias_hh_l{i}").zero_()
            getattr(theirs, f"bias_ih_l{i}").copy_(layer.bias[-len(getattr(theirs, f"bias_ih_l{i}")) :])
            if isinstance(core, GRU):
                getattr(theirs, f"bias_hh_l{i}")[-size:] = layer.bias[:size]


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_lstm_is_that_of_torch(layers):
    core, theirs = random_core(LSTM, 7, 19, layers), nn.LSTM(7, 19, layers)
    copy_weights(core, theirs)
    features, state, _ = random_case(core, 11, 4, 7)
    parts = state.view(4, layers, 2, 19)
    outputs, (hidden, cell) = theirs(
        features, (parts[:, :, 0].transpose(0, 1).contiguous(), parts[:, :, 1].transpose(0, 1).contiguous())
    )
    after = torch.stack([hidden, cell], dim=2).transpose(0, 1).reshape(4, -1)
    assert_alike(core(features, state, None), (outputs, after))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_gru_is_that_of_torch(layers):
    core, theirs = random_core(GRU, 7, 19, layers), nn.GRU(7, 19, layers)
    copy_weights(core, theirs)
    features, state, _ = random_case(core, 11, 4, 7)
    outputs, hidden = theirs(features, state.view(4, layers, 19).transpose(0, 1).contiguous())
    assert_alike(core(features, state, None), (outputs, hidden.transpose(0, 1).reshape(4, -1)))


def test_the_mingru_of_steady_inputs_decays_towards_its_candidate_by_the_closed_form():
    core = random_core(MinGRU, 3, 8)
    features, state, _ = random_case(core, 1, 5, 3)
    outputs, _ = core(features.expand(20, 5, 3), state, None)
    weight, bias = core.layers[0].weights()
    gate, candidate = (features[0] @ weight + bias).double().chunk(2, dim=1)
    steps = torch.arange(1, 21).view(20, 1, 1)
    expected = candidate + (1 - gate.sigmoid()) ** steps * (state - candidate)
    torch.testing.assert_close(outputs.double(), expected, rtol=0, atol=3e-6)


@every_core
@pytest.mark.parametrize("filler", [1.0, float("nan"), float("inf")])
def test_after_a_begin_all_is_as_in_a_fresh_sequence_whatever_came_before(kind, filler):
    core = random_core(kind, 6, 21, 2)
    features, state, _ = random_case(core, 9, 3, 6, None)
    fresh = core(features[4:], torch.zeros_like(state), None)
    begins = torch.zeros(9, 3, dtype=torch.bool)
    begins[4] = True
    spoiled = torch.cat([torch.full_like(features[:4], filler), features[4:]])
    resumed = core(spoiled, state, begins)
    assert_alike((resumed[0][4:], resumed[1]), fresh)
    ours = torch.autograd.grad(resumed[0][4:].sum() + resumed[1].sum(), features)
    assert_alike(ours, torch.autograd.grad(fresh[0].sum() + fresh[1].sum(), features))


@every_core
def test_no_gradient_crosses_a_begin(kind):
    core = random_core(kind, 6, 21)
    features, state, begins = random_case(core, 9, 3, 6, 0.0)
    begins[5, 1] = begins[0, 2] = True
    outputs, after = core(features, state, begins)
    to_features, to_state = torch.autograd.grad(outputs[5:].sum() + after.sum(), (features, state))
    assert (to_features[:5, 1] == 0).all()
    assert (to_features[:5, 0] != 0).any()
    assert (to_state[2] == 0).all()
    assert (to_state[0] != 0).any()


@every_core
def test_a_row_sees_nothing_of_the_others(kind):
    core = random_core(kind, 6, 33, 2)
    features, state, begins = random_case(core, 7, 5, 6)
    changed_features, changed_state, changed_begins = features.detach().clone(), state.detach().clone(), begins.clone()
    changed_features[:, 2], changed_state[2], changed_begins[:, 2] = float("nan"), 100.0, True
    others = [0, 1, 3, 4]
    outputs, after = core(features, state, begins)
    changed_outputs, changed_after = core(changed_features, changed_state, changed_begins)
    assert torch.equal(outputs[:, others], changed_outputs[:, others])
    assert torch.equal(after[others], changed_after[others])
    assert changed_outputs[:, 2].isnan().all()


@every_core
@pytest.mark.parametrize("layers", [1, 2])
def test_a_sequence_in_pieces_equals_the_whole(kind, layers):
    core = random_core(kind, 6, 21, layers)
    features, state, begins = random_case(core, 10, 4, 6, 0.2)
    whole = core(features, state, begins)
    for length in (1, 4):
        pieces, carried = [], state
        for start in range(0, 10, length):
            outputs, carried = core(features[start : start + length], carried, begins[start : start + length])
            pieces.append(outputs)
        assert_alike((torch.cat(pieces), carried), whole)
        assert_alike(
            gradients((torch.cat(pieces), carried), core, features, state), gradients(whole, core, features, state)
        )


@every_core
def test_strided_tensors_are_taken_and_inputs_stay_as_they_are(kind):
    core = random_core(kind, 6, 16)
    features, state, begins = (tensor.detach() for tensor in random_case(core, 5, 4, 6, 0.4))
    expected = core(features, state, begins)
    wide = torch.cat([features, features], dim=2).transpose(0, 1).contiguous().transpose(0, 1)[:, :, :6]
    strided = wide, torch.cat([state, state], dim=1)[:, : core.state_size], begins.t().contiguous().t()
    assert not any(tensor.is_contiguous() for tensor in strided)
    copies = [tensor.clone() for tensor in strided]
    with torch.inference_mode():
        step = core(*(tensor[:1] if tensor.dim() == 3 or tensor.dtype == torch.bool else tensor for tensor in strided))
    assert_alike([step[0]], [expected[0][:1]])
    results = core(*strided)
    assert_alike(results, expected)
    (results[0].sum() + results[1].sum()).backward()
    results[1].detach().zero_()  # a state that the caller clears is not the outputs' memory
    assert_alike([results[0]], [expected[0]])
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(strided, copies, strict=True))


@every_core
def test_a_second_backward_gives_the_same_again(kind):
    core = random_core(kind, 6, 16)
    features, state, begins = random_case(core, 5, 4, 6)
    total = sum(result.square().sum() for result in core(features, state, begins))
    once = torch.autograd.grad(total, list(core.parameters()), retain_graph=True)
    for first, second in zip(once, torch.autograd.grad(total, list(core.parameters())), strict=True):
        assert torch.equal(first, second)


@every_core
def test_weights_and_inputs_that_want_no_gradient_get_none(kind):
    core = random_core(kind, 6, 16)
    features, state, begins = (tensor.detach() for tensor in random_case(core, 5, 4, 6))
    assert not core.requires_grad_(False)(features, state, begins)[0].requires_grad
    core.layers[0].bias.requires_grad_()
    core(features, state, begins)[0].sum().backward()
    assert [parameter.grad is None for parameter in core.parameters()].count(False) == 1


@every_core
def test_gradients_have_gradients(kind):
    core = random_core(kind, 3, 5)
    features, state, begins = random_case(core, 4, 2, 3, 0.3)

    def penalty(results):
        grads = torch.autograd.grad(results[0].sin().sum(), [features, *core.parameters()], create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in grads), [features, state, *core.parameters()])

    assert_alike(penalty(core(features, state, begins)), penalty(plainly(core, features, state, begins)))


@every_core
def test_the_plain_recurrence_in_float64_passes_gradcheck(kind):
    core = random_core(kind, 3, 4).double()
    features, state, begins = random_case(core, 4, 3, 3, 0.3)
    inputs = features.detach().double().requires_grad_(), state.detach().double().requires_grad_()
    names = [name for name, _ in core.named_parameters()]

    def run(features, state, *weights):
        return torch.func.functional_call(core, dict(zip(names, weights, strict=True)), (features, state, begins))

    assert core(*inputs, begins)[0].dtype == torch.float64
    assert torch.autograd.gradcheck(run, (*inputs, *core.parameters()))


@every_core
def test_a_diverged_weight_is_seen_in_outputs_and_gradients(kind):
    core = random_core(kind, 6, 40)
    features, state, begins = random_case(core, 3, 4, 6)
    with torch.no_grad():
        core.layers[0].input_weight[0, 0] = float("nan")
    outputs, _ = core(features, state, begins)
    assert outputs[..., 0].isnan().all()
    assert torch.autograd.grad(outputs.sum(), features)[0].isnan().any()


@pytest.mark.parametrize(("kind", "gate", "bias"), [(LSTM, 1, 1.0), (GRU, 2, 1.0), (MinGRU, 0, -1.0)])
def test_a_new_core_remembers_and_its_weights_are_orthogonal_gate_by_gate(kind, gate, bias):
    core = kind(12, 8, 2)
    for layer in core.layers:
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
def test_under_autocast_the_plain_recurrence_takes_over(kind):
    core = random_core(kind, 6, 16)
    features, state, begins = random_case(core, 5, 4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, _ = core(features, state, begins)
    torch.testing.assert_close(outputs.float(), core(features, state, begins)[0], rtol=0, atol=0.1)


def test_kept_zeroes_only_the_rows_that_begin():
    state = torch.ones(3, 2)
    begins = torch.tensor([[False, False, False], [False, True, False]])
    assert memory.reset_begun(state, begins, 0).equal(state)
    assert memory.reset_begun(state, begins, 1).tolist() == [[1, 1], [0, 0], [1, 1]]
