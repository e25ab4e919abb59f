"""The fused kernels of PPO against torch modules, autograd and `ppo_loss`.

Each test runs in Triton's interpreter on the CPU, or on a CUDA device where there is one.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="the fused kernels are written in Triton, which is not installed here")

from scramjet.accelerate.executor import Diagnostics, LossSettings
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.triton.mlp import MLPWeights, TritonMLP, why_unsupported
from scramjet.algorithms.ppo import LossTerms, normalize, ppo_loss
from scramjet.policies import categorical
from scramjet.policies.layers import mlp

NUM_SAMPLES, MINIBATCH = 400, 150  # no number of blocks
CLIP, ENTROPY_COEF, VALUE_COEF = 0.2, 0.05, 0.7


@dataclass
class Case:
    """Two networks, a rollout laid flat that another policy made, and the kernels for them."""

    actor: nn.Sequential
    critic: nn.Sequential
    samples: Samples
    indices: torch.Tensor
    fused: TritonMLP

    @property
    def parameters(self):
        return [*self.actor.parameters(), *self.critic.parameters()]

    def statistics(self):
        """Of the one minibatch there is."""
        out = torch.empty(1, 2, device=self.indices.device)
        self.fused.advantage_statistics(self.samples.advantage, self.indices, 1, out)
        return out[0]


def random_mask(rows, num_actions, device):
    """Legal actions at random, the first always."""
    mask = torch.rand(rows, num_actions, device=device) < 0.6
    mask[:, 0] = True
    return mask


def make_case(
    device, *, inputs=4, actions=7, hidden=32, activation="tanh", masked=False, precision="float32", num_programs=2
):
    actor = nn.Sequential(*mlp(inputs, (hidden, hidden), activation), nn.Linear(hidden, actions)).to(device)
    critic = nn.Sequential(*mlp(inputs, (hidden, hidden), activation), nn.Linear(hidden, 1)).to(device)
    with torch.no_grad():
        for parameter in [*actor.parameters(), *critic.parameters()]:
            parameter.add_(0.1 * torch.randn_like(parameter))  # biases that are not 0
        obs = torch.randn(NUM_SAMPLES, inputs, device=device)
        mask = random_mask(NUM_SAMPLES, actions, device) if masked else None
        logits = categorical.mask_logits(actor(obs), mask)
        action = torch.distributions.Categorical(logits=logits).sample()
        log_prob = categorical.log_prob_and_entropy(logits, action, None)[0]
        value = critic(obs).squeeze(-1)
    noise = torch.randn(4, NUM_SAMPLES, device=device)
    samples = Samples(
        obs=obs,
        mask=mask,
        action=action,
        log_prob=log_prob + 0.3 * noise[0],  # about half the ratios are clipped
        value=value + 0.3 * noise[1],
        advantage=2 * noise[2] + 1,
        returns=value + noise[3],
        place=torch.arange(NUM_SAMPLES, device=device),
    )
    weights = MLPWeights.of(actor), MLPWeights.of(critic)
    fused = TritonMLP(*weights, activation=activation, precision=precision, num_programs=num_programs)
    return Case(actor, critic, samples, torch.randperm(NUM_SAMPLES, device=device)[:MINIBATCH], fused)


def loss_of(clip, entropy_coef, value_clip):
    return LossSettings(
        clip=clip, entropy_coef=entropy_coef, value_coef=VALUE_COEF, value_clip=value_clip, max_grad_norm=None,
        normalizes_advantages=False,
    )  # fmt: skip


def fused_gradients(case, *, statistics=None, value_clip=None, indices=None):
    """The diagnostics by name; gradients are left in `case.fused`."""
    device = case.indices.device
    diagnostics = torch.full((7,), torch.nan, device=device)
    case.fused.gradients(
        case.samples,
        case.indices if indices is None else indices,
        statistics,
        loss_of(torch.tensor(CLIP, device=device), torch.tensor([ENTROPY_COEF], device=device), value_clip),
        diagnostics=diagnostics,
    )
    return dict(zip(Diagnostics.NAMES, diagnostics.tolist(), strict=True))


def autograd_gradients(case, *, is_normalized=False, value_clip=None) -> tuple[LossTerms, list[torch.Tensor]]:
    """What `ppo_loss` and autograd make of the same minibatch."""
    samples, indices = case.samples, case.indices
    obs, mask = samples.obs[indices], None if samples.mask is None else samples.mask[indices]
    log_prob, entropy = categorical.log_prob_and_entropy(case.actor(obs), samples.action[indices], mask)
    advantage = samples.advantage[indices]
    terms = ppo_loss(
        log_prob,
        entropy,
        case.critic(obs).squeeze(-1),
        old_log_prob=samples.log_prob[indices],
        old_value=samples.value[indices],
        advantage=normalize(advantage) if is_normalized else advantage,
        returns=samples.returns[indices],
        clip=CLIP,
        value_clip=value_clip,
        entropy_coef=ENTROPY_COEF,
        value_coef=VALUE_COEF,
    )
    return terms, list(torch.autograd.grad(terms.total, case.parameters))


def assert_close(found, expected, tolerance):
    """Every tensor within `tolerance` of the largest number in it."""
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours.shape == theirs.shape
        error = (ours - theirs).abs().max() / theirs.abs().max()
        assert error < tolerance, f"tensor {number}: {error:.2e}"


VARIANTS = [
    {"inputs": 4, "actions": 2},
    {"inputs": 3, "actions": 7, "masked": True, "is_normalized": True},
    {"inputs": 17, "actions": 7, "activation": "relu", "value_clip": 0.2},
    {"inputs": 4, "actions": 2, "activation": "relu", "masked": True, "value_clip": 0.2, "is_normalized": True},
    {"inputs": 17, "actions": 2, "masked": True, "value_clip": 0.2, "hidden": 128},
    {"inputs": 1, "actions": 16, "is_normalized": True, "value_clip": 0.2},
    {"inputs": 64, "actions": 3, "activation": "relu"},
]


def both_ways(device, variant, **settings):
    """The case, the kernels' diagnostics, and what autograd has to say."""
    variant = dict(variant)
    value_clip, is_normalized = variant.pop("value_clip", None), variant.pop("is_normalized", False)
    case = make_case(device, **variant, **settings)
    found = fused_gradients(case, statistics=case.statistics() if is_normalized else None, value_clip=value_clip)
    return case, found, *autograd_gradients(case, is_normalized=is_normalized, value_clip=value_clip)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients_and_diagnostics_are_those_of_autograd(triton_device, variant):
    case, found, terms, expected = both_ways(triton_device, variant)
    assert 0.2 < terms.clip_fraction.item() < 0.8  # both sides of the clip are there
    assert_close(case.fused.views, expected, 1e-4)
    norm = torch.cat([gradient.flatten() for gradient in expected]).norm()
    for name in Diagnostics.NAMES:
        theirs = norm if name == "grad_norm" else getattr(terms, name)
        assert found[name] == pytest.approx(theirs.item(), rel=1e-4, abs=1e-5), name


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 0.05), ("bfloat16", 0.1)])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients_in_lower_precision_are_near_those_of_autograd(triton_device, variant, precision, tolerance):
    if triton_device.type == "cpu":
        pytest.skip("the interpreter does not round as tensor cores do")
    case, _, _, expected = both_ways(triton_device, variant, precision=precision)
    whole = torch.cat([gradient.flatten() for gradient in expected])
    # Of so few samples, one that rounding puts on the other side of a clip or of a ReLU's edge is a percent or two.
    assert (case.fused.grads - whole).norm() / whole.norm() < tolerance


def test_gradients_are_in_the_order_of_the_parameters_and_views_are_parts_of_them(triton_device):
    case, *_ = both_ways(triton_device, VARIANTS[0])
    assert [view.shape for view in case.fused.views] == [parameter.shape for parameter in case.parameters]
    assert torch.equal(torch.cat([view.flatten() for view in case.fused.views]), case.fused.grads)
    assert case.fused.views[0].data_ptr() == case.fused.grads.data_ptr()


def test_indices_may_be_narrow_and_unaligned(triton_device):
    case = make_case(triton_device)
    fused_gradients(case)
    expected = case.fused.grads.clone()
    shifted = torch.cat([case.indices[:1], case.indices]).int()[1:]
    fused_gradients(case, indices=shifted)
    assert torch.equal(case.fused.grads, expected)


@pytest.mark.parametrize("num_programs", [1, 3, 50])
def test_any_number_of_programs_gives_the_same_gradients(triton_device, num_programs):
    case = make_case(triton_device, masked=True, num_programs=num_programs)
    fused_gradients(case)
    assert_close(case.fused.views, autograd_gradients(case)[1], 1e-4)


def test_the_same_call_twice_gives_the_same_bits(triton_device):
    case = make_case(triton_device, masked=True)
    first = fused_gradients(case, statistics=case.statistics(), value_clip=0.2)
    grads = case.fused.grads.clone()
    case.fused.grads.fill_(torch.nan)
    assert fused_gradients(case, statistics=case.statistics(), value_clip=0.2) == first
    assert torch.equal(case.fused.grads, grads)


def test_kernels_see_weights_that_have_moved(triton_device):
    case = make_case(triton_device)
    fused_gradients(case)
    with torch.no_grad():
        for parameter in case.parameters:
            parameter.mul_(0.9)
    fused_gradients(case)
    assert_close(case.fused.views, autograd_gradients(case)[1], 1e-4)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("inputs", "actions", "activation"), [(3, 2, "tanh"), (17, 7, "relu"), (4, 16, "tanh")])
def test_actions_are_those_that_the_categorical_draws_at_the_same_uniforms(
    triton_device, inputs, actions, activation, masked
):
    case = make_case(triton_device, inputs=inputs, actions=actions, activation=activation, masked=masked)
    obs, mask = case.samples.obs, case.samples.mask
    uniform = torch.rand(NUM_SAMPLES, device=triton_device)
    uniform[:2] = torch.tensor([0.0, 1.0 - 2**-24])  # the ends of the range
    action, log_prob = torch.empty_like(case.samples.action), torch.empty_like(uniform)
    case.fused.act(obs, mask, uniform, action, log_prob)
    expected, expected_log_prob = torch.empty_like(action, device="cpu"), torch.empty(NUM_SAMPLES)
    logits = case.actor(obs).detach().cpu()
    categorical.sample(logits, None if mask is None else mask.cpu(), uniform.cpu(), expected, expected_log_prob)
    assert (action.cpu() == expected).float().mean() > 0.99  # but where a uniform falls on a border, to rounding
    same = action.cpu() == expected
    torch.testing.assert_close(log_prob.cpu()[same], expected_log_prob[same], rtol=1e-4, atol=1e-5)
    if mask is not None:
        assert mask.gather(1, action[:, None]).all()
    assert len(action.unique()) == actions


@pytest.mark.parametrize("num_rows", [1, 64, 65])
def test_rows_past_the_last_are_not_written(triton_device, num_rows):
    case = make_case(triton_device)
    action = torch.full((128,), -1, device=triton_device)
    log_prob, value = torch.full((2, 128), torch.nan, device=triton_device)
    obs, uniform = case.samples.obs[:num_rows], torch.rand(num_rows, device=triton_device)
    case.fused.act(obs, None, uniform, action, log_prob)
    case.fused.values(obs, value)
    assert (action[:num_rows] >= 0).all()
    assert (action[num_rows:] == -1).all()
    for written in (log_prob, value):
        assert written[:num_rows].isfinite().all()
        assert written[num_rows:].isnan().all()


def test_logits_that_are_not_numbers_still_choose_an_action_and_show_in_its_log_prob(triton_device):
    case = make_case(triton_device)
    with torch.no_grad():
        case.actor[-1].bias.fill_(torch.nan)
    action, log_prob = torch.full((8,), -1, device=triton_device), torch.zeros(8, device=triton_device)
    case.fused.act(case.samples.obs[:8], None, torch.rand(8, device=triton_device), action, log_prob)
    assert (action == 0).all()
    assert log_prob.isnan().all()


@pytest.mark.parametrize(("inputs", "activation"), [(3, "tanh"), (17, "relu"), (64, "tanh")])
def test_values_are_those_of_the_critic(triton_device, inputs, activation):
    case = make_case(triton_device, inputs=inputs, activation=activation)
    value = torch.empty(NUM_SAMPLES, device=triton_device)
    case.fused.values(case.samples.obs, value)
    torch.testing.assert_close(value, case.critic(case.samples.obs).squeeze(-1).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "num_minibatches"), [(1, 3), (100, 4), (5000, 2), (70000, 1)])
def test_advantage_statistics_are_those_that_normalize_uses(triton_device, size, num_minibatches):
    case = make_case(triton_device)
    advantage = torch.randn(size * num_minibatches + 7, device=triton_device) * 3 + 50  # far from 0: squares cancel
    order = torch.randperm(len(advantage), device=triton_device)[: size * num_minibatches]
    out = torch.empty(num_minibatches, 2, device=triton_device)
    case.fused.advantage_statistics(advantage, order, num_minibatches, out)
    for (mean, inverse), indices in zip(out, order.view(num_minibatches, size), strict=True):
        expected = normalize(advantage[indices].double())
        torch.testing.assert_close((advantage[indices].double() - mean) * inverse, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.gpu
def test_a_captured_graph_gives_the_bits_of_the_calls_it_was_captured_from(triton_device):
    if triton_device.type == "cpu":
        pytest.skip("needs a CUDA triton_device")
    case = make_case(triton_device, masked=True, precision="tf32")
    clip, coefficient = torch.tensor(CLIP, device=triton_device), torch.tensor(ENTROPY_COEF, device=triton_device)
    diagnostics = torch.zeros(7, device=triton_device)

    def update():
        case.fused.gradients(
            case.samples, case.indices, case.statistics(), loss_of(clip, coefficient, 0.2), diagnostics=diagnostics
        )

    update()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update()
    for value in (CLIP, 0.05):
        clip.fill_(value)
        update()
        expected, terms = case.fused.grads.clone(), diagnostics.clone()
        case.fused.grads.zero_()
        graph.replay()
        assert torch.equal(case.fused.grads, expected)
        assert torch.equal(diagnostics, terms)


@pytest.mark.parametrize(
    ("hidden", "inputs", "actions", "activation", "precision", "named"),
    [
        ((64, 64), 4, 2, "gelu", "tf32", "gelu"),
        ((64, 64), 4, 2, "tanh", "float16", "float16"),
        ((48, 48), 4, 2, "tanh", "tf32", "48"),
        ((64, 32), 4, 2, "tanh", "tf32", "64 and 32"),
        ((64, 64), 65, 2, "tanh", "tf32", "at most 64"),
        ((128, 128), 32, 2, "tanh", "tf32", "at most 31"),
        ((64, 64), 4, 17, "tanh", "tf32", "17"),
    ],
)
def test_networks_that_do_not_fit_are_named(hidden, inputs, actions, activation, precision, named):
    trunk = mlp(inputs, hidden, "tanh")
    actor = MLPWeights.of(trunk, nn.Linear(hidden[-1], actions))
    critic = MLPWeights.of(mlp(inputs, hidden, "tanh"), nn.Linear(hidden[-1], 1))
    assert named in why_unsupported(actor, critic, activation=activation, precision=precision)


def test_networks_that_fit_have_no_reason_against_them():
    actor, critic = (MLPWeights.of(mlp(4, (64, 64), "tanh"), nn.Linear(64, outputs)) for outputs in (2, 1))
    assert why_unsupported(actor, critic, activation="tanh", precision="float32") is None
