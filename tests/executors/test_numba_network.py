"""Compiled acting and learning on the CPU: what torch's operators and autograd give, for every kind of network, of
vectors, of memories, and of boards with convolutions, value propagation and symmetries."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import Tensor, nn

from scramjet.algorithms.ppo import normalize, ppo_loss
from scramjet.engine.trees import map_leaves
from scramjet.envs.api import Symmetry
from scramjet.executors import numba_network as native_module
from scramjet.executors.losses import LossSettings
from scramjet.executors.numba_executor import UnsupportedPolicyError, numba_network
from scramjet.executors.numba_network import NumbaStep
from scramjet.executors.samples import Minibatches, Samples
from scramjet.kernels.cpu.steps import TERMS
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.policies.symmetries import SymmetryTables, with_symmetries

NUM_STEPS = 6


class Case:
    """Samples that a policy has played, of sequences where it has a memory; old probabilities are a little off."""

    def __init__(self, policy: Policy, obs: Any, units: int, *, masked: bool = False) -> None:
        """`obs` are those of all samples: as many as units, or `NUM_STEPS` times as many where there is a memory."""
        has_memory, distribution = bool(policy.state_size), policy.distribution
        self.policy, self.obs, self.units = policy, obs, units
        self.steps = NUM_STEPS if has_memory else 1
        count = self.steps * units
        self.state = torch.randn(units, policy.state_size) if has_memory else None
        self.begins = torch.rand(self.steps, units) < 0.2 if has_memory else None
        self.mask = None
        if masked:
            self.mask = torch.rand(count, distribution.num_inputs) < 0.6
            self.mask[:, getattr(distribution, "offsets", torch.zeros(2, dtype=torch.int64))[:-1]] = True
        with torch.no_grad():
            output = policy(obs, self.state, self.begins)
        self.noise = distribution.noise(1, count, torch.Generator().manual_seed(0))[0]
        self.action = torch.zeros(count, *distribution.action_shape, dtype=distribution.action_dtype)
        self.log_prob = torch.zeros(count)
        distribution.sample(output.logits, self.mask, self.noise, self.action, self.log_prob)
        self.old_log_prob = self.log_prob + 0.2 * torch.randn(count)
        self.value = output.value + 0.3 * torch.randn(count)
        self.advantage, self.returns = 2 * torch.randn(count) + 1, torch.randn(count)

    def samples(self) -> Samples:
        return Samples(
            obs=self.obs, mask=self.mask, action=self.action, log_prob=self.old_log_prob, value=self.value,
            advantage=self.advantage, returns=self.returns, place=torch.arange(len(self.action)), state=self.state,
            begins=self.begins,
        )  # fmt: skip

    def by_autograd(self, policy: Policy, taken: Tensor, loss: LossSettings) -> tuple[list[float], dict[str, Tensor]]:
        """Terms and the norm, and the clipped gradients by name, which `policy` keeps."""
        index = (torch.arange(self.steps)[:, None] * self.units + taken).flatten()
        state = None if self.state is None else self.state[taken]
        begins = None if self.begins is None else self.begins[:, taken]
        policy.zero_grad(set_to_none=True)
        output = policy(map_leaves(lambda leaf: leaf[index], self.obs), state, begins)
        mask = None if self.mask is None else self.mask[index]
        log_prob, entropy = policy.distribution.log_prob_and_entropy(output.logits, self.action[index], mask)
        advantage = self.advantage[index]
        terms = ppo_loss(
            log_prob, entropy, output.value, old_log_prob=self.old_log_prob[index], old_value=self.value[index],
            advantage=normalize(advantage) if loss.normalizes_advantages else advantage, returns=self.returns[index],
            clip=0.2, value_clip=loss.value_clip, entropy_coef=0.01, value_coef=0.5,
        )  # fmt: skip
        terms.total.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), loss.max_grad_norm or torch.inf)
        return [*(float(getattr(terms, name).detach()) for name in TERMS), float(norm)], gradients_of(policy)


def gradients_of(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}  # type: ignore[union-attr]


def loss_of(*, normalizes: bool = True, value_clip: float | None = None, max_norm: float | None = 0.5) -> LossSettings:
    return LossSettings(
        clip=0.2, entropy_coef=0.01, value_coef=0.5, value_clip=value_clip, max_grad_norm=max_norm,
        normalizes_advantages=normalizes,
    )  # fmt: skip


def check_gradients(
    case: Case, about: object, *, num_threads: int = 2, off: float = 1e-5, **loss: Any
) -> tuple[np.ndarray, dict[str, Tensor]]:
    """Compiled terms and gradients of half of a case's units are those of autograd; `off` of the largest may differ."""
    policy, taken = case.policy, torch.randperm(case.units)[: case.units // 2]
    expected, by_name = case.by_autograd(policy, taken, loss_of(**loss))
    network = numba_network(policy)
    network.use_samples(case.samples())
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        found = network.gradients(taken, loss_of(**loss))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=str(about))
    for name, gradient in gradients_of(policy).items():
        atol = off * (float(by_name[name].abs().max()) + 1e-3)
        assert_close(gradient, by_name[name], f"{about}: {name}", rtol=1e-4, atol=atol)
    return found, gradients_of(policy)


def assert_close(found: Tensor, expected: Tensor, about: object, *, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, msg=lambda text: f"{about}: {text}")


def check_acting(case: Case, about: object) -> None:
    """Compiled functions draw the actions, and give the values and the memory, that the policy does."""
    policy, rows = case.policy, slice(0, case.units)
    obs = map_leaves(lambda leaf: leaf[rows], case.obs)
    mask, state = (None if each is None else each[rows].clone() for each in (case.mask, case.state))
    found = torch.zeros_like(case.action[rows]), torch.zeros(case.units), torch.zeros(case.units)
    network = numba_network(policy)
    network.refresh()
    (act,) = network.acts([NumbaStep(network.encode(obs), mask, case.noise[rows], *found)], state)
    act()
    with torch.no_grad():
        output = policy(obs, case.state, None)
    action, log_prob, value = torch.zeros_like(found[0]), torch.zeros(case.units), torch.zeros(case.units)
    policy.distribution.sample(output.logits, mask, case.noise[rows], action, log_prob)
    for mine, other in zip(found, (action, log_prob, output.value), strict=True):
        assert_close(mine, other, about)
    if state is not None:
        assert_close(state, output.state, about)
    network.values(obs, case.state, value)
    assert_close(value, output.value, about)


def check_adam_steps(case: Case, about: object) -> None:
    """Two updates of four compiled minibatches move weights and moments as torch's Adam does."""
    ours, theirs = case.policy, copy.deepcopy(case.policy)
    before = copy.deepcopy(ours.state_dict())
    order = torch.randperm(case.units)[: case.units - 1]
    optimizers = [torch.optim.Adam(policy.parameters(), lr=0.01, eps=1e-5) for policy in (ours, theirs)]
    network = numba_network(ours)
    for _ in range(2):
        network.use_samples(case.samples())
        network.use_optimizer(optimizers[0])
        found = network.learn(Minibatches.even(order, 4), loss_of())
        for k, taken in enumerate(order.tensor_split(4)):
            expected, _ = case.by_autograd(theirs, taken, loss_of())
            optimizers[1].step()
            np.testing.assert_allclose(found[k], expected, rtol=1e-2, atol=1e-3, err_msg=str(about))
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(mine, other, f"{about}: {name}", rtol=1e-2, atol=2e-3)
        assert not torch.equal(mine, before[name]), f"{about}: {name}"
    for name, mine in optimizers[0].state_dict()["state"].items():
        other = optimizers[1].state_dict()["state"][name]
        assert list(mine) == list(other)
        assert mine["step"] == other["step"] == 8
        assert_close(mine["exp_avg"], other["exp_avg"], about, rtol=1e-2, atol=1e-3)
    optimizers[1].load_state_dict(optimizers[0].state_dict())
    value = torch.zeros(case.units)
    obs = map_leaves(lambda leaf: leaf[: case.units], case.obs)
    network.values(obs, case.state, value)  # sees the weights after the last step
    with torch.no_grad():
        assert_close(value, ours(obs, case.state, None).value, about)


VECTOR = Box(-1, 1, (5,), np.float32)
BOARD = Box(0, 1, (2, 3, 5), np.float32)
ACTIONS = {
    "choice": Discrete(3),
    "choices": MultiDiscrete([2, 4, 3]),
    "points": Box(-1, 1, (3,), np.float32),
    "moves": Discrete(5),
}
MEMORIES = [None, "lstm", "gru", "mingru"]
MIRROR = Symmetry("mirror", lambda board: board[..., ::-1], [4, 3, 2, 1, 0])


def random_policy(space: Any = VECTOR, action: str = "choice", scale: float = 0.2, **settings: Any) -> Policy:
    """A policy whose every weight is random: zero biases and new residual blocks hide mistakes.

    Weights are multiples of 1/256, so that sums over boards of zeros and ones are exact: no ReLU stands so close to 0
    that the order of a sum decides whether it lets a gradient through.
    """
    config = PolicyConfig(**({"hidden": (16, 24), "memory_size": 12} | settings))
    network = default_network(space, ACTIONS[action], config)
    if config.symmetry != "none":
        network = with_symmetries(network, config.symmetry, SymmetryTables.of([MIRROR], space, ACTIONS[action]))
    policy = Policy(network, space, ACTIONS[action], config)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(scale * torch.randn(parameter.shape)).mul_(256).round_().div_(256)
    return policy


def case_of(policy, *, masked=False):
    units = 40 if policy.state_size else 300
    return Case(policy, torch.randn(units * (NUM_STEPS if policy.state_size else 1), 5), units, masked=masked)


@pytest.mark.parametrize("memory", MEMORIES)
def test_gradients_actions_and_values_are_those_of_torch(memory):
    for action, shared in itertools.product(ACTIONS, [False, True]):
        policy = random_policy(action=action, memory=memory, shared_trunk=shared)
        case = case_of(policy, masked=action != "points")
        check_gradients(case, (action, shared))
        check_acting(case, (action, shared))
    check_adam_steps(case_of(random_policy(memory=memory)), memory)


def test_every_option_of_the_loss():
    for activation in ("tanh", "relu"):
        case = case_of(random_policy(activation=activation))
        for value_clip, max_norm, normalizes in itertools.product([None, 0.2], [None, 0.5], [False, True]):
            options = {"value_clip": value_clip, "max_norm": max_norm, "normalizes": normalizes}
            check_gradients(case, (activation, options), **options)


def test_any_number_and_width_of_layers():
    for hidden in ((1,), (7,), (64, 64), (16, 8, 40, 3)):
        check_gradients(case_of(random_policy(hidden=hidden)), hidden)


def test_deviations_out_of_their_range_are_pulled_back_as_torch_pulls_them():
    for log_std in (-30.0, 0.3, 30.0):
        policy = random_policy(action="points")
        with torch.no_grad():
            policy.network.actor_head.log_std.fill_(log_std)
            for parameter in policy.network.actor_head.mean.parameters():
                parameter.zero_()  # a mean that rounds in no way: the distance to it is huge in tiny deviations
        case = case_of(policy)
        if log_std > 1:
            case.action = case.action.clamp(-1e6, 1e6)
        gradients = check_gradients(case, log_std, max_norm=None)[1]
        assert torch.isfinite(gradients["network.actor_head.log_std"]).all(), log_std
    check_gradients(case_of(random_policy(action="points", state_dependent_std=True)), "of the state")


def test_the_number_of_threads_changes_no_more_than_rounding_and_the_same_number_nothing():
    for memory in (None, "lstm"):
        case, found = case_of(random_policy(memory=memory)), []
        for num_threads in (1, 5, 5):
            torch.manual_seed(1)
            found.append(check_gradients(case, memory, num_threads=num_threads))
        one, many, again = found
        np.testing.assert_allclose(one[0], many[0], rtol=1e-4, atol=1e-6)
        assert many[0] == again[0], memory
        assert all(torch.equal(grad, again[1][name]) for name, grad in many[1].items()), memory


def test_parts_are_shared_out_and_whoever_does_them_the_result_is_the_same(monkeypatch):
    small = {"SAMPLES_TO_SHARE": 8, "SAMPLES_PER_PART": 8, "SAMPLES_PER_PART_SQUARED": 1, "BLOCK": 4}
    for name, size in small.items():
        monkeypatch.setattr(native_module, name, size)
    monkeypatch.setattr(native_module.recurrent, "ROWS_PER_BLOCK", 1)
    take_steps, taken_in_parts = native_module.step_kernels.take_steps, []

    def watched(address, num_workers, num_parts, *others):
        taken_in_parts.append(num_parts)
        take_steps(address, num_workers, num_parts, *others)

    monkeypatch.setattr(native_module.step_kernels, "take_steps", watched)
    for memory, hidden in itertools.product((None, "lstm"), ((16,), (200,))):  # inputs few beside the outputs or not
        case, results = case_of(random_policy(memory=memory, hidden=hidden)), []
        for _ in range(10):
            torch.manual_seed(1)
            results.append(check_gradients(case, (memory, hidden), num_threads=3))
        assert max(taken_in_parts) > 3
        taken_in_parts.clear()
        for terms, gradients in results:
            assert terms == results[0][0], (memory, hidden)
            assert all(torch.equal(each, gradients[name]) for name, each in results[0][1].items()), (memory, hidden)


def test_weights_may_move_to_another_place():
    policy = random_policy()
    case, network = case_of(policy), numba_network(policy)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.data = parameter.data.clone() * 0.5
    network.refresh()
    values = torch.zeros(case.units)
    network.values(case.obs, None, values)
    assert_close(values, policy.value(case.obs).detach(), "moved")


def test_what_is_not_a_number_is_seen_in_norm_and_gradients():
    policy = random_policy()
    case, network = case_of(policy), numba_network(policy)
    case.advantage[3] = torch.nan
    network.use_samples(case.samples())
    terms = network.gradients(torch.arange(case.units), loss_of(normalizes=False))
    assert np.isnan(terms[-1])
    assert any(parameter.grad.isnan().any() for parameter in policy.parameters())


def change_class(network):
    class Own(type(network)):
        pass

    network.__class__ = Own


CHANGES = {
    "class": change_class,
    "frozen": lambda network: network.actor[0].weight.requires_grad_(False),
    "shared": lambda network: setattr(network, "critic", network.actor),
    "dropout": lambda network: network.actor.append(nn.Dropout(0.1)),
    "no bias": lambda network: setattr(network, "critic_head", nn.Linear(24, 1, bias=False)),
    "head": lambda network: setattr(network, "actor_head", nn.Sequential(nn.Linear(24, 3))),
    "activation": lambda network: network.actor.__setitem__(1, nn.GELU()),
    "double": lambda network: network.double(),
    "hook": lambda network: network.critic[0].register_forward_hook(lambda *_: None),
    "backward hook": lambda network: network.critic[0].register_full_backward_pre_hook(lambda *_: None),
    "hook of a weight": lambda network: network.critic[0].weight.register_hook(lambda grad: grad),
    "hook after gradients": lambda network: network.critic[0].weight.register_post_accumulate_grad_hook(lambda _: None),
    "own forward": lambda network: setattr(network.actor[0], "forward", lambda x: x),
    "not contiguous": lambda network: setattr(
        network.actor[0].weight, "data", network.actor[0].weight.data.t().contiguous().t()
    ),
}


class OfTheUser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 4)

    def forward(self, obs):
        out = self.body(obs)
        return out[:, :3], out[:, 3]


def is_left_to_torch(policy, reason=""):
    try:
        numba_network(policy)
    except UnsupportedPolicyError as error:
        return reason in str(error)
    return False


def test_what_it_does_not_take_is_left_to_torch():
    assert is_left_to_torch(random_policy(memory="lstm", memory_layers=2))
    assert is_left_to_torch(random_policy(action="points", bounded_actions="tanh"))
    assert is_left_to_torch(Policy(OfTheUser(), VECTOR, ACTIONS["choice"]))
    for name, change in CHANGES.items():
        policy = random_policy()
        assert not is_left_to_torch(policy)
        change(policy.network)
        assert is_left_to_torch(policy), name


# --- boards

SQUARE = Box(0, 1, (3, 4, 4), np.float32)  # of 16 cells, which are laid out with one more
PLACES = Dict(
    {
        "walls": Box(0, 1, (4, 3), np.int8),
        "agent": MultiDiscrete([4, 3]),
        "goal": MultiDiscrete([4, 3]),
        "speed": Box(-1, 1, (2,), np.float32),
    }
)
BOARDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "one layer": (BOARD, {"grid_channels": (8,), "shared_trunk": True}),
    "odd channels": (SQUARE, {"grid_channels": (5, 11)}),
    "residual": (BOARD, {"grid_channels": (9,), "grid_blocks": 2, "shared_trunk": True}),
    "pool": (SQUARE, {"grid_channels": (6,), "grid_readout": "pool", "grid_blocks": 1}),
    "rest": (PLACES, {"grid_channels": (4, 4), "shared_trunk": True, "activation": "relu"}),
    "memory": (BOARD, {"grid_channels": (8,), "memory": "gru", "memory_size": 6}),
    "planning": (PLACES, {"encoder": "value_propagation", "grid_channels": (7,)}),
    "few sweeps": (PLACES, {"encoder": "value_propagation", "grid_channels": (4,), "planning_steps": 2}),
    "symmetric": (BOARD, {"grid_channels": (8,), "symmetry": "canonical", "shared_trunk": True}),
    "symmetric without convolutions": (BOARD, {"encoder": "mlp", "symmetry": "canonical"}),
}


def observations(space: Any, count: int) -> Any:
    if space is not PLACES:
        return (torch.rand(count, *space.shape) < 0.4).float()
    places = {name: torch.stack([torch.randint(0, n, (count,)) for n in (4, 3)], 1) for name in ("agent", "goal")}
    return {**places, "walls": (torch.rand(count, 4, 3) < 0.3).to(torch.int8), "speed": torch.rand(count, 2)}


def board_policy(space: Any = BOARD, **settings: Any) -> Policy:
    return random_policy(space, "moves", 0.1, **({"encoder": "grid_cnn", "hidden": (24, 16)} | settings))


def boards_by(encoder: str) -> list[str]:
    return [name for name, (_, settings) in BOARDS.items() if settings.get("encoder", "grid_cnn") == encoder]


def board_case(name: str, units: int = 141) -> Case:  # not whole groups of boards
    space, settings = BOARDS[name]
    policy = board_policy(space, **settings)
    steps = NUM_STEPS if policy.state_size else 1
    return Case(policy, observations(space, steps * units), units, masked=True)


@pytest.mark.parametrize("encoder", ["grid_cnn", "value_propagation", "mlp"])
def test_actions_and_values_of_boards_are_those_of_torch(encoder: str) -> None:
    for name in boards_by(encoder):
        check_acting(board_case(name), name)


@pytest.mark.parametrize("encoder", ["grid_cnn", "value_propagation", "mlp"])
def test_gradients_of_boards_are_those_of_torch(encoder: str) -> None:
    off = 2e-3 if encoder == "value_propagation" else 1e-5  # it divides by values near 0, so that rounding grows
    for name in boards_by(encoder):
        check_gradients(board_case(name), name, off=off)


def test_steps_of_adam_move_convolutions_as_those_of_torch_do() -> None:
    check_adam_steps(board_case("residual"), "residual")


def test_the_same_boards_give_the_same_bits_whatever_their_number_in_a_group() -> None:
    network, obs = numba_network(board_case("residual").policy), observations(BOARD, 45)
    network.refresh()
    whole, again, part = torch.zeros(45), torch.zeros(45), torch.zeros(3)
    network.values(obs, None, whole)
    network.values(map_leaves(lambda leaf: leaf[40:43], obs), None, part)
    torch.testing.assert_close(part, whole[40:43], atol=1e-6, rtol=1e-6)
    network.values(obs, None, again)
    assert torch.equal(whole, again)


def test_many_observations_are_encoded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rest", "symmetric"):
        with monkeypatch.context() as patch:
            policy = board_case(name).policy
            obs, whole, in_parts = observations(policy.observation_space, 50), torch.empty(50), torch.empty(50)
            network = numba_network(policy)
            network.values(obs, None, whole)
            patch.setattr("scramjet.executors.numba_network.ENCODED_AT_ONCE", 7)
            network.values(obs, None, in_parts)
            assert torch.equal(in_parts, whole), name
            assert_close(whole, policy.value(obs).detach(), name)


BOARD_CHANGES: list[Callable[[Any], Any]] = [
    lambda layers: layers.insert(1, nn.GroupNorm(2, 4)),
    lambda layers: layers.__setitem__(1, nn.Tanh()),
    lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 3, padding=2, dilation=2)),
    lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 1)),
    lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 3, padding=1, bias=False)),
    lambda layers: setattr(layers[4], "second", nn.Conv2d(4, 4, 3, padding=1, groups=2)),
]


def test_boards_that_are_left_to_torch_are_named() -> None:
    plain = {"grid_channels": (4, 4), "grid_blocks": 1, "shared_trunk": True}
    assert not is_left_to_torch(board_policy(**plain))
    kinds, pictures = Dict({"board": SQUARE, "kind": Discrete(3)}), Box(0, 255, (40, 40, 3), np.uint8)
    assert is_left_to_torch(board_policy(kinds, embedding_size=4), "the encoder of these observations")
    assert is_left_to_torch(board_policy(pictures, encoder="nature_cnn"), "NatureCNN")
    assert is_left_to_torch(board_policy(grid_channels=(4,), symmetry="average"), "AveragedNetwork")
    large = board_policy(Box(0, 1, (1, 19, 19), np.float32), grid_channels=(32, 32), shared_trunk=True)
    assert is_left_to_torch(large, "as fast with boards of so many channels")  # does not fit into a cache
    for number, change in enumerate(BOARD_CHANGES):
        policy = board_policy(**plain)
        change(policy.network.encoder.layers)
        assert is_left_to_torch(policy, "3x3 convolutions with ReLU, then residual blocks"), number
