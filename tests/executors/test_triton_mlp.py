"""The fused kernels of small networks against the policy, autograd and torch's Adam, interpreted or on a GPU; and the
executor that runs them, beside the torch executor, by one rank and by several."""

import copy
import threading

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.ppo import normalize
from scramjet.executors.executor import ActStep, Diagnostics
from scramjet.executors.losses import minibatch_loss
from scramjet.executors.samples import Minibatches, Samples
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.executors.triton_executor import TritonExecutor, triton_mlp
from scramjet.executors.triton_mlp import TritonMLP
from scramjet.executors.triton_plan import plan_of, plan_of_critic
from scramjet.policies.layers import mlp
from scramjet.policies.normalization import ObservationNormalizer
from scramjet.runtime.ranks import Ranks
from scramjet.training.batches.batch import prepare_batch
from scramjet.training.batches.shared_units import shared_minibatches
from scramjet.training.learner import loss_settings
from tests.helpers.fused_mlps import ACTIONS, NUM_SAMPLES, SMALL, VALUE_COEF, loss_of, make_case, make_policy
from tests.helpers.shared_updates import Case
from tests.helpers.thread_ranks import on_ranks
from tests.helpers.triton_cases import adam, few_interpreted, of_device

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("one_thread")]


def drawn_by_both(case, noise):
    """Actions, log-probabilities and values, of the kernels and of the policy; those of the policy on the CPU."""
    samples, plan = case.samples, case.fused.plan
    action, log_prob, value = torch.empty_like(samples.action), *torch.empty(2, NUM_SAMPLES, device=noise.device)
    case.fused.act(case.inputs, samples.mask, noise, action, log_prob, value if plan.is_one_network else None)
    if not plan.is_one_network:
        case.fused.values(case.inputs, value)
    policy = copy.deepcopy(case.policy).cpu()
    with torch.no_grad():
        logits, expected_value, _ = policy(samples.obs.cpu())
    expected, expected_log_prob = torch.empty_like(action, device="cpu"), torch.empty(NUM_SAMPLES)
    mask = None if samples.mask is None else samples.mask.cpu()
    policy.distribution.sample(logits, mask, noise.cpu(), expected, expected_log_prob)
    return (action.cpu(), log_prob.cpu(), value.cpu()), (expected, expected_log_prob, expected_value)


ACTING = [
    {"inputs": 16, "actions": "several", "masked": True, "shared_trunk": True},
    {"inputs": 5, "actions": "three numbers", "state_dependent_std": True, "shared_trunk": True},
    {"inputs": 3, "actions": "two"},
    {"inputs": 17, "actions": "seven", "activation": "relu", "masked": True},
    {"inputs": 4, "actions": "sixteen", "masked": True, "shared_trunk": True},
    {"inputs": 128, "actions": "many", "normalized": True},
    {"inputs": 5, "actions": "several", "hidden": (40, 24)},
    {"inputs": 3, "actions": "one number", "normalized": True},
]


@few_interpreted("variant", ACTING, 2)
def test_actions_log_probabilities_and_values_are_those_of_the_policy(triton_device, variant):
    case = make_case(triton_device, **variant)
    distribution = case.policy.distribution
    noise = distribution.noise(1, NUM_SAMPLES, torch.Generator(triton_device).manual_seed(3))[0]
    if not case.fused.plan.is_normal:
        noise[:2] = torch.tensor([0.0, 1.0 - 2**-24]).view(2, *[1] * (noise.dim() - 1))  # the ends of the range
    (action, log_prob, value), (expected, expected_log_prob, expected_value) = drawn_by_both(case, noise)
    same = torch.isclose(action, expected, rtol=1e-4, atol=1e-4).view(NUM_SAMPLES, -1).all(1)
    assert same.float().mean() > 0.99  # but where a uniform number falls on a border, to rounding
    torch.testing.assert_close(log_prob[same], expected_log_prob[same], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(value, expected_value, rtol=1e-4, atol=1e-5)
    if case.samples.mask is not None:
        offsets = case.fused.plan.offsets[:-1].cpu()
        chosen = action.view(NUM_SAMPLES, -1) + offsets
        assert case.samples.mask.cpu().gather(1, chosen).all()


BOUNDED = [
    (Box(np.float32([-2, 0, 1]), np.float32([2, 5, 1.5])), "scale"),
    (Box(np.float32([-0.5, 0, -1]), np.float32([0.5, 5, np.inf])), "clip"),
    (Box(-1, 1, (3,), np.float32), "scale"),
]


def test_what_the_env_receives_is_what_the_distribution_gives_it(triton_device, monkeypatch):
    for space, bounded in of_device(BOUNDED, triton_device):
        monkeypatch.setitem(ACTIONS, "bounded", space)
        case = make_case(triton_device, actions="bounded", bounded_actions=bounded)
        noise = 2 * torch.randn(NUM_SAMPLES, 3, device=triton_device)
        noise[3] = torch.nan
        action, given, log_prob = torch.zeros_like(noise), torch.zeros_like(noise), torch.zeros_like(noise[:, 0])
        case.fused.act(case.inputs, None, noise, action, log_prob, None, given)
        expected = case.policy.distribution.env_action(action)
        assert case.fused.plan.scales == case.policy.distribution.scales
        assert given[3].isnan().all()
        # Where the centre is not 0, a GPU may round centre + half width * action once.
        torch.testing.assert_close(given, expected, rtol=3e-7, atol=3e-7, equal_nan=True)
        assert ((given == expected) | expected.isnan())[:, :1].all()  # the first centre is 0


def test_rows_past_the_last_are_not_written(triton_device):
    for actions, num_rows in of_device([("several", 65), ("seven", 1), ("three numbers", 64)], triton_device):
        case = make_case(triton_device, actions=actions)
        like = case.samples.action
        action = torch.full((128, *like.shape[1:]), -9, device=triton_device).to(like.dtype)
        log_prob, value = torch.full((2, 128), torch.nan, device=triton_device)
        noise = torch.rand(num_rows, *action.shape[1:], device=triton_device)
        case.fused.act(case.inputs[:num_rows], None, noise, action, log_prob, None)
        case.fused.values(case.inputs[:num_rows], value)
        assert (action[:num_rows] != -9).all()
        assert (action[num_rows:] == -9).all()
        for written in (log_prob, value):
            assert written[:num_rows].isfinite().all(), actions
            assert written[num_rows:].isnan().all(), actions


def test_logits_that_are_not_numbers_still_choose_an_action_and_show_in_its_log_prob(triton_device):
    for actions in of_device(["several", "seven"], triton_device):
        case = make_case(triton_device, actions=actions)
        with torch.no_grad():
            case.policy.network.actor_head.bias.fill_(torch.nan)
        shape = (8, *case.samples.action.shape[1:])
        action, log_prob = torch.full(shape, -1, device=triton_device), torch.zeros(8, device=triton_device)
        case.fused.act(case.inputs[:8], None, torch.rand(shape, device=triton_device), action, log_prob, None)
        assert (action == 0).all(), actions
        assert log_prob.isnan().all(), actions


# --- gradients

TERMS = Diagnostics.NAMES[:-1]


def fused_gradients(case, *, is_normalized=False, value_clip=None, indices=None):
    """The loss terms by name; gradients are left in `case.fused`."""
    statistics = case.statistics() if is_normalized else None
    indices, loss = case.indices if indices is None else indices, loss_of(case.indices.device, value_clip)
    case.fused.gradients(case.inputs, case.samples, indices, statistics, loss)
    return dict(zip(TERMS, case.fused.terms.tolist(), strict=True))


def autograd_gradients(case, *, is_normalized=False, value_clip=None):
    """The loss terms that `ppo_loss` makes of the same minibatch, and autograd's gradients."""
    loss = loss_of(case.indices.device, value_clip, normalizes=is_normalized)
    terms = minibatch_loss(case.policy, case.samples.select(case.indices), loss)
    return terms, list(torch.autograd.grad(terms.total.sum(), case.parameters))


def assert_close(found, expected, tolerance):
    """Every tensor within `tolerance` of the largest number in it, of 0.001 at least: sums may cancel out."""
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours.shape == theirs.shape
        error = (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-3)
        assert error < tolerance, f"tensor {number}: {error:.2e}"


LEARNING = [
    {"inputs": 17, "actions": "two", "masked": True, "value_clip": 0.2, "is_normalized": True, "hidden": (40, 24)},
    {"inputs": 16, "actions": "three numbers", "shared_trunk": True, "normalized": True, "is_normalized": True},
    {"inputs": 17, "actions": "seven", "activation": "relu", "value_clip": 0.2},
    {"inputs": 16, "actions": "two", "activation": "relu", "masked": True, "value_clip": 0.2, "is_normalized": True},
    {"inputs": 17, "actions": "two", "masked": True, "value_clip": 0.2, "hidden": (128, 128)},
    {"inputs": 1, "actions": "sixteen", "is_normalized": True, "value_clip": 0.2},
    {"inputs": 49, "actions": "many", "activation": "relu"},
    {"inputs": 128, "actions": "two", "hidden": (16, 64)},
    {"inputs": 3, "actions": "one number", "value_clip": 0.2, "is_normalized": True},
    {"inputs": 6, "actions": "three numbers", "state_dependent_std": True, "log_std_init": -0.7},
    {"inputs": 5, "actions": "several", "masked": True, "normalized": True, "activation": "relu"},
    {"inputs": 4, "actions": "sixteen", "shared_trunk": True, "masked": True, "value_clip": 0.2},
    {"inputs": 4, "actions": "one number", "shared_trunk": True, "state_dependent_std": True},
    {"inputs": 4, "actions": "several", "shared_trunk": True, "hidden": (20, 50)},
    {"space": Discrete(9), "actions": "two"},
    {
        "space": Dict({"level": Discrete(4), "place": Box(-9, 9, (2, 2), np.float64)}),
        "actions": "seven", "normalized": True, "shared_trunk": True,
    },
]  # fmt: skip


def both_ways(device, variant, **settings):
    """The case, the kernels' terms, and what autograd has to say."""
    variant = dict(variant)
    loss = {"value_clip": variant.pop("value_clip", None), "is_normalized": variant.pop("is_normalized", False)}
    case = make_case(device, **variant, **settings)
    return case, fused_gradients(case, **loss), *autograd_gradients(case, **loss)


@few_interpreted("variant", LEARNING, 2)
def test_gradients_and_loss_terms_are_those_of_autograd(triton_device, variant):
    case, found, terms, expected = both_ways(triton_device, variant)
    assert 0.2 < terms.clip_fraction.item() < 0.8  # both sides of the clip are there
    assert_close(case.fused.gradients_of, expected, 1e-4)
    for name in TERMS:
        assert found[name] == pytest.approx(getattr(terms, name).item(), rel=1e-4, abs=1e-5), name


@pytest.mark.gpu  # the interpreter does not round as tensor cores do
@pytest.mark.parametrize(("precision", "smooth", "with_edges"), [("tf32", 0.01, 0.05), ("bfloat16", 0.04, 0.1)])
@pytest.mark.parametrize("variant", LEARNING, ids=str)
def test_gradients_in_lower_precision_are_near_those_of_autograd(variant, precision, smooth, with_edges):
    case, _, _, expected = both_ways(torch.device("cuda"), variant, precision=precision)
    ours, theirs = (torch.cat([part.flatten() for part in each]) for each in (case.fused.gradients_of, expected))
    # Of so few samples, one that rounding puts on the other side of a ReLU's edge is a percent or two.
    assert (ours - theirs).norm() / theirs.norm() < (with_edges if variant.get("activation") == "relu" else smooth)


def test_a_deviation_outside_its_range_is_only_led_back_into_it(triton_device):
    places = [(3.0, 0.5), (3.0, 2.0), (-11.0, 0.5), (-11.0, 2.0), (2.0, 2.0)]
    for log_std, distance in places if triton_device.type == "cuda" else places[:2]:
        case = make_case(triton_device, inputs=3, actions="three numbers")
        samples, distribution = case.samples, case.policy.distribution
        head = case.policy.network.actor_head
        with torch.no_grad():
            head.log_std.fill_(log_std)
            logits = case.policy.logits(samples.obs)
            mean, kept = distribution.mean_and_log_std(logits)
            samples.action.copy_(mean + distance * kept.exp())
            samples.log_prob.copy_(distribution.log_prob_and_entropy(logits, samples.action, None)[0])
        samples.advantage.fill_(1.0)
        fused_gradients(case)
        expected = autograd_gradients(case)[1]
        is_led_back = (log_std > 2 and distance < 1) or (log_std < -10 and distance > 1) or log_std == 2
        (place,) = (i for i, parameter in enumerate(case.parameters) if parameter is head.log_std)
        assert bool(expected[place].any()) == is_led_back, (log_std, distance)
        assert_close(case.fused.gradients_of, expected, 1e-2)  # deviations as small as the rounding of actions


def test_a_critic_alone_learns_what_autograd_would(triton_device):
    for inputs, is_normalized in of_device([(4, True), (16, False)], triton_device):
        trunk, head = mlp(inputs, (32, 20), "relu"), nn.Linear(20, 1)
        critic = nn.Sequential(trunk, head).to(triton_device)
        obs, returns = torch.randn(150, inputs, device=triton_device), torch.randn(150, device=triton_device)
        normalizer = ObservationNormalizer((inputs,)).to(triton_device) if is_normalized else None
        if normalizer is not None:
            normalizer.update(3 * obs + 1)
        fused = TritonMLP(plan_of_critic(critic, trunk, head, normalizer), precision="float32", launch=SMALL)
        seen = obs if normalizer is None else normalizer(obs)
        values = torch.empty(150, device=triton_device)
        fused.values(obs, values)
        torch.testing.assert_close(values, critic(seen).squeeze(-1).detach(), rtol=1e-5, atol=1e-5)
        places = torch.randperm(150, device=triton_device)[:77]
        counts = None if is_normalized else torch.rand(150, device=triton_device) < 0.7
        weights = torch.ones(77, device=triton_device) if counts is None else counts[places].float()
        loss = (0.5 * (critic(seen[places]).squeeze(-1) - returns[places]).square() * weights).sum() / weights.sum()
        expected = torch.autograd.grad(loss, fused.plan.parameters)
        samples = Samples(obs, None, places, returns, returns, returns, returns, place=places, counts=counts)
        fused.gradients(obs, samples, places, None, loss_of(triton_device), 1.0 / weights.sum().view(1))
        assert fused.terms[TERMS.index("value_loss")].item() == pytest.approx(loss.item(), rel=1e-4)
        assert_close(fused.gradients_of, [VALUE_COEF * gradient for gradient in expected], 1e-4)


def test_any_number_of_programs_gives_the_same_gradients_and_the_same_call_the_same_bits(triton_device):
    for num_programs in of_device([3, 1, 50], triton_device):
        case = make_case(triton_device, masked=True, launch=SMALL._replace(programs=num_programs))
        first = fused_gradients(case, is_normalized=True, value_clip=0.2)
        expected = autograd_gradients(case, is_normalized=True, value_clip=0.2)[1]
        assert_close(case.fused.gradients_of, expected, 1e-4)
        sums = case.fused.sums.clone()
        case.fused.sums.fill_(torch.nan)
        assert fused_gradients(case, is_normalized=True, value_clip=0.2) == first, num_programs
        assert torch.equal(case.fused.sums, sums), num_programs
        unaligned = torch.cat([case.indices[:1], case.indices]).int()[1:]
        fused_gradients(case, is_normalized=True, value_clip=0.2, indices=unaligned)
        assert torch.equal(case.fused.sums, sums), "other indices of the same samples"


def test_advantage_statistics_are_those_that_normalize_uses(triton_device):
    case = make_case(triton_device)
    for size, num_minibatches in of_device([(100, 2), (1, 3), (5000, 1), (70000, 1)], triton_device):
        advantage = torch.randn(size * num_minibatches + 7, device=triton_device) * 3 + 50  # far from 0: squares cancel
        order = torch.randperm(len(advantage), device=triton_device)[: size * num_minibatches]
        out = torch.empty(num_minibatches, 2, device=triton_device)
        case.fused.advantage_statistics(advantage, order, num_minibatches, out)
        for (mean, inverse), indices in zip(out, order.view(num_minibatches, size), strict=True):
            expected = normalize(advantage[indices].double())
            found = (advantage[indices].double() - mean) * inverse
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
    alike, out = torch.full((3000,), 0.010278369, device=triton_device), torch.empty(2, 2, device=triton_device)
    case.fused.advantage_statistics(alike, torch.arange(2998, device=triton_device), 2, out)
    assert bool((out[:, 0] == alike[0]).all()), "a rounding error of the mean would be brought to deviation 1"


# --- steps


def test_steps_are_those_of_torch_whether_gradients_are_clipped_or_not(triton_device):
    for max_norm, eps in of_device([(0.5, 1e-8), (None, 1e-5)], triton_device):
        case = make_case(triton_device, actions="three numbers", hidden=(16, 16))
        others = [nn.Parameter(parameter.detach().clone()) for parameter in case.parameters]
        ours, theirs = (adam(each, triton_device, eps=eps) for each in (case.parameters, others))
        case.fused.flat.use_optimizer(ours)
        for step in range(20):
            for view, other in zip(case.fused.gradients_of, others, strict=True):
                view.copy_(0.04 / (1 + step % 3) ** 3 * torch.randn_like(view))  # norms of about 1.1, 0.14 and 0.04
                other.grad = view.clone()
            case.fused.terms.copy_(torch.arange(6.0))
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


# --- the executor


def executors(case, device):
    """A Triton executor of the case's policy, and a torch executor of a copy; each with an optimizer."""
    policies = case.policy, copy.deepcopy(case.policy)
    optimizers = [adam(policy.parameters(), device, eps=1e-5) for policy in policies]
    return (TritonExecutor(policies[0], case.fused), TorchExecutor(policies[1])), optimizers


MIXED = Dict({"level": Discrete(4), "speed": Box(-9, 9, (2,), np.float32)})
UPDATED = [
    {"actions": "seven", "masked": True, "counted": True, "space": MIXED, "normalized": True},
    {"actions": "two"},
    {"actions": "one number", "normalized": True},
    {"actions": "several", "masked": True, "shared_trunk": True},
    {"actions": "two", "space": MIXED, "normalized": True},
]


@few_interpreted("variant", UPDATED)
def test_an_update_leaves_the_weights_moments_and_diagnostics_of_the_torch_executor(triton_device, variant):
    case = make_case(triton_device, hidden=(16, 16), **variant)
    both, optimizers = executors(case, triton_device)
    loss = loss_of(triton_device, 0.2, normalizes=True, max_grad_norm=0.5)
    orders = [torch.randperm(len(case.samples.action), device=triton_device) for _ in range(2)]
    tables = []
    for executor, optimizer in zip(both, optimizers, strict=True):
        executor.refresh()
        executor.begin_update(case.samples, optimizer)
        executor.read_samples(case.samples)
        minibatches = [Minibatches.even(order, 2) for order in orders]
        tables.append(torch.cat([executor.learn(case.samples, each, loss, optimizer).table for each in minibatches]))
    torch.testing.assert_close(tables[0], tables[1], rtol=1e-3, atol=1e-4)
    ours, theirs = (list(executor.policy.named_parameters()) for executor in both)
    for (name, parameter), (_, other) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name} {text}")
        assert optimizers[0].state[parameter]["step"].item() == 4
    values = [torch.empty(len(case.samples.action), device=triton_device) for _ in both]
    with torch.no_grad():
        for executor, value in zip(both, values, strict=True):
            executor.values(case.samples.obs, None, value)
    torch.testing.assert_close(*values, rtol=1e-2, atol=1e-3)


def test_warming_up_changes_neither_weights_nor_moments(triton_device):
    case = make_case(triton_device, hidden=(16, 16))
    (executor, _), (optimizer, _) = executors(case, triton_device)
    executor.begin_update(case.samples, optimizer)
    loss = loss_of(triton_device, max_grad_norm=0.5)
    minibatches = Minibatches.even(torch.arange(100, device=triton_device), 2)
    executor.learn(case.samples, minibatches, loss, optimizer)
    before = case.fused.flat.snapshot()
    samples = case.samples
    samples.advantage.fill_(torch.nan)
    noise = torch.rand(len(samples.action), device=triton_device)
    step = ActStep(samples.obs, None, noise, samples.action, samples.log_prob, None, None)
    executor.warm_up(step, samples, minibatches, loss)
    assert all(torch.equal(*pair) for pair in zip(case.fused.flat.snapshot(), before, strict=True))


def test_weights_that_were_frozen_are_left_to_torch(triton_device):
    case = make_case(triton_device, hidden=(16, 16))
    (executor, _), (optimizer, _) = executors(case, triton_device)
    frozen = case.policy.network.actor[0].weight
    frozen.requires_grad_(False)
    before, moves = frozen.clone(), case.policy.network.actor[2].weight
    begin = moves.detach().clone()
    executor.begin_update(case.samples, optimizer)
    minibatches = Minibatches.even(torch.arange(100, device=triton_device), 1)
    executor.learn(case.samples, minibatches, loss_of(triton_device), optimizer)
    assert torch.equal(frozen, before)
    assert not torch.equal(moves, begin)


class OneAtATime(TritonMLP):
    """Launches by one thread at a time: Triton's interpreter is not made for several."""

    lock = threading.Lock()

    def gradients(self, *arguments):
        with self.lock:
            super().gradients(*arguments)

    def sum_again(self):
        with self.lock:
            super().sum_again()

    def step(self, *arguments, **named):
        with self.lock:
            super().step(*arguments, **named)


def test_ranks_take_the_gradient_steps_that_one_rank_takes_on_the_same_minibatches(triton_device):
    if triton_device.type == "cuda":
        pytest.skip("ranks are threads here, and share the CPU")
    case = Case(ppo={"normalize_observations": False})
    config = PPOConfig(normalize_observations=False)
    loss = loss_settings(config, clip=torch.tensor(0.2), entropy_coef=torch.tensor(0.01))
    rollout = case.rollouts[0]
    samples = prepare_batch(rollout, rollout.reward, config).samples
    size = samples.num_units // 2
    shares = torch.randperm(size).view(4, -1), size + torch.randperm(size).view(4, -1)  # of ranks 0 and 1

    def work(ranks: Ranks):
        policy = copy.deepcopy(case.start)
        executor = TritonExecutor(policy, OneAtATime(plan_of(policy), precision="float32", launch=SMALL))
        optimizer = torch.optim.Adam(policy.parameters(), lr=0.01, fused=True)
        executor.begin_update(samples, optimizer)
        own = Minibatches.even(shares[ranks.rank].flatten(), 4)
        minibatches = shared_minibatches(own, samples, ranks, normalizes=True)
        table = executor.learn(samples, minibatches, loss, optimizer).table
        return [table, *(parameter.detach() for parameter in policy.parameters())]

    first, second = on_ranks(2, work)
    policy = copy.deepcopy(case.start)
    order = torch.cat(shares, 1).flatten()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01, fused=True)
    table = TorchExecutor(policy).learn(samples, Minibatches.even(order, 4), loss, optimizer).table
    torch.testing.assert_close(first, [table, *policy.parameters()], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(first, second, strict=True))


PICTURE, SMALL_PICTURE = (Box(0, 255, (1, size, size), np.uint8) for size in (36, 8))
REASONS = [
    ({"hidden": (256, 256)}, "256 and 256 units: at most 128"),
    ({"hidden": (64,)}, "1 hidden layers"),
    ({"inputs": 129}, "129 inputs: Triton kernels take at most 128"),
    ({"actions": "many", "shared_trunk": True}, None),
    ({"actions": "too many"}, "33 outputs"),
    ({"actions": "one number", "bounded_actions": "tanh"}, "bounded_actions='tanh'"),
    ({"memory": "gru"}, "memory"),
    ({"hidden": (20, 100), "inputs": 128}, None),
    (
        {"space": PICTURE, "encoder": "nature_cnn", "hidden": (8,)},
        "run no NatureCNN: it, the layers, the loss and Adam have kernels of their own",
    ),
    ({"space": SMALL_PICTURE, "encoder": "impala_cnn"}, "run no ImpalaCNN: the layers, the loss and Adam have"),
]


def test_a_policy_that_kernels_cannot_run_is_told_why(triton_device, monkeypatch):
    monkeypatch.setitem(ACTIONS, "too many", Discrete(33))
    for shape, reason in REASONS:
        made = triton_mlp(make_policy(triton_device, **shape), "float32")
        assert isinstance(made, TritonMLP) if reason is None else reason in made, shape
