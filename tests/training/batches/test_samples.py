"""From a rollout to a gradient step: targets, samples and what does not count, orders of an epoch, fixed shapes."""

import copy
import itertools
from dataclasses import fields, is_dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.ppo import explained_variance, normalize
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete
from scramjet.errors import TrainingError
from scramjet.executors.cuda_graphs import Recorder, Stage
from scramjet.executors.losses import minibatch_loss
from scramjet.executors.samples import Samples
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.policies.normalization import make_normalizer
from scramjet.training.batches.samples import lay_out
from scramjet.training.batches.shuffling import KEYS, NEIGHBOURS, draw_keys, encipher, run_length, shuffle_on_gpu
from scramjet.training.batches.targets import Targets
from scramjet.training.batches.whole_updates import UpdateNumbers, UpdateStages
from scramjet.training.learner import Learner, loss_settings
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import make_policy

pytestmark = pytest.mark.usefixtures("one_thread")

NUM = 24


def some_samples() -> Samples:
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randn(5, NUM, generator=generator)
    return Samples(
        obs=torch.rand(NUM, 3, generator=generator), mask=None, action=torch.randint(4, (NUM,), generator=generator),
        log_prob=numbers[0] - 1.5, value=numbers[1], advantage=numbers[2], returns=numbers[3],
        place=torch.arange(NUM), counts=torch.rand(NUM, generator=generator) < 0.6,
    )  # fmt: skip


def test_the_loss_and_its_gradient_are_those_of_the_samples_that_count():
    space, actions = Box(0, 1, (3,)), Discrete(4)
    policy = Policy(default_network(space, actions, PolicyConfig(hidden=(8,))), space, actions)
    marked = some_samples()
    marked.log_prob[~marked.counts] = -1e4  # a ratio beyond all numbers, which must not be looked at
    marked.advantage[~marked.counts] = torch.nan
    chosen = replace(marked, counts=None).select(marked.counts.nonzero().squeeze(1))
    for case in itertools.product(("ppo", "impala"), (None, 0.1), ("minibatch", "off")):
        loss, value_clip, normalizes = case
        config = PPOConfig(loss=loss, value_clip=value_clip, normalize_advantages=normalizes, num_minibatches=1)
        results = []
        for samples in (marked, chosen):
            terms = minibatch_loss(policy, samples, loss_settings(config, clip=0.2, entropy_coef=0.01))
            gradients = torch.autograd.grad(terms.total, list(policy.parameters()))
            results.append([getattr(terms, name) for name in terms.__slots__] + list(gradients))
        for ours, expected in zip(*results, strict=True):
            assert torch.allclose(ours, expected, rtol=1e-4, atol=1e-6), case


def test_advantages_are_normalized_over_what_counts_and_explained_variance_is_of_that():
    samples = some_samples()
    kept = samples.counts
    ours = normalize(samples.advantage, kept)
    torch.testing.assert_close(ours[kept], normalize(samples.advantage[kept]))
    assert not ours[~kept].any()
    ours = explained_variance(samples.value, samples.returns, kept)
    torch.testing.assert_close(ours, explained_variance(samples.value[kept], samples.returns[kept]))


# --- a rollout laid out ----------------------------------------------------------------------------------------------


def a_rollout(num_steps: int, num_rows: int, **changes: Any) -> Any:
    """Steps whose numbers say where they are: step t of row r has observation, value and action 10 t + r."""
    places = 10 * torch.arange(num_steps + 1).unsqueeze(1) + torch.arange(num_rows)
    nothing = torch.zeros(num_steps, num_rows, dtype=torch.bool)
    given = dict(
        obs=places.unsqueeze(-1).float(), mask=None, action=places[:-1], log_prob=-places[:-1].float(),
        value=places.float(), terminated=nothing, truncated=nothing, alive=None, seat=None, mine=None,
        num_steps=num_steps, horizon=num_steps, recurrent=SimpleNamespace(is_used=False), states=torch.zeros(0, 0, 0),
    )  # fmt: skip
    return SimpleNamespace(**{**given, **changes})


def laid_out(rollout: Any, counts: Tensor | None = None) -> Samples:
    """Its samples, with advantages and returns that say where they are too."""
    return lay_out(rollout, rollout.value[:-1] + 0.25, rollout.value[:-1] + 0.5, counts)


def remembering(num_slots: int, num_steps: int, horizon: int) -> dict[str, Any]:
    """What a rollout of a policy with memory has more: the state of slot s before stretch k is 100 k + s."""
    stretches = 100 * torch.arange(num_steps // horizon).unsqueeze(1) + torch.arange(num_slots)
    states = stretches.unsqueeze(-1).float()
    return {"horizon": horizon, "recurrent": SimpleNamespace(is_used=True), "states": states}


def test_all_steps_of_all_envs_are_samples_and_none_is_copied():
    rollout = a_rollout(2, 3)
    samples = laid_out(rollout)
    assert samples.action.tolist() == [0, 1, 2, 10, 11, 12]
    assert samples.obs.flatten().tolist() == samples.value.tolist() == [0, 1, 2, 10, 11, 12]
    assert samples.advantage.tolist() == [0.25, 1.25, 2.25, 10.25, 11.25, 12.25]
    assert samples.obs.data_ptr() == rollout.obs.data_ptr()
    assert samples.is_plain
    assert samples.num_units == 6


def test_steps_of_agents_that_were_dead_and_turns_that_do_not_count_are_left_out():
    alive = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 1]])
    samples = laid_out(a_rollout(2, 3, alive=alive))
    assert samples.action.tolist() == [0, 1, 2, 10, 12]
    assert samples.place.tolist() == [0, 1, 2, 3, 5]
    assert samples.returns.tolist() == [0.5, 1.5, 2.5, 10.5, 12.5]
    samples.set_targets(torch.arange(6.0).view(2, 3), 10 + torch.arange(6.0).view(2, 3))
    assert samples.advantage.tolist() == [0, 1, 2, 3, 5]
    assert samples.returns.tolist() == [10, 11, 12, 13, 15]
    seats = torch.tensor([[0, 1], [1, 0], [0, 0]], dtype=torch.int8)
    counts = torch.tensor([[True, True], [False, True]])
    assert laid_out(a_rollout(2, 2, seat=seats), counts).action.tolist() == [0, 1, 11]


def test_with_memory_the_stretches_between_kept_states_stand_side_by_side():
    ended = torch.tensor([[False], [True], [False], [False]])
    samples = laid_out(a_rollout(4, 1, terminated=ended, **remembering(1, 4, 2)))
    assert samples.action.view(2, 2).T.tolist() == [[0, 10], [20, 30]]
    assert (samples.state.flatten().tolist(), samples.num_units) == ([0, 100], 2)
    ended = torch.tensor([[True], [False], [False], [False]])
    samples = laid_out(a_rollout(4, 1, terminated=ended, **remembering(1, 4, 4)))
    assert samples.begins.flatten().tolist() == [False, True, False, False]


def test_with_memory_each_seat_has_its_own_turns_and_short_ones_are_filled_up_and_do_not_count():
    seats = torch.tensor([[0], [1], [0], [0], [1]], dtype=torch.int8)
    rollout = a_rollout(4, 1, seat=seats, **remembering(2, 4, 4))
    samples = laid_out(rollout, torch.ones(4, 1, dtype=torch.bool))
    assert samples.place.view(3, 2).T.tolist() == [[0, 2, 3], [1, -1, -1]]
    assert samples.counts.view(3, 2).T.tolist() == [[True, True, True], [True, False, False]]
    assert samples.state.flatten().tolist() == [0, 1]
    assert samples.select(torch.tensor([1])).action[0] == 10
    target = torch.full((4, 1), -1.0)
    samples.write_back(target, samples.value)  # to where each was played
    assert target.flatten().tolist() == [0, 10, 20, 30]


def test_with_memory_a_sequence_of_an_agent_that_is_dead_throughout_is_left_out():
    alive = torch.tensor([[1, 0], [1, 0], [1, 0]])
    samples = laid_out(a_rollout(2, 2, alive=alive, **remembering(2, 2, 2)))
    assert samples.action.tolist() == [0, 10]
    assert samples.state.flatten().tolist() == [0]


# --- targets of three steps, computed by hand with gamma = lambda = 1/2 ----------------------------------------------

CONFIG = PPOConfig(gamma=0.5, gae_lambda=0.5)


def three_steps(**changes: Any) -> Targets:
    """One env paid 1, 2 and 3 whose states are worth 1, 2, 3 and 4; `changes` are fields of its rollout."""
    given = {"value": torch.tensor([[1.0], [2.0], [3.0], [4.0]]), "final_value": torch.zeros(3, 1), **changes}
    return Targets.of(a_rollout(3, 1, **given), torch.tensor([[1.0], [2.0], [3.0]]), CONFIG)


def at_step(t: int) -> torch.Tensor:
    """True at one step, [3, 1]."""
    return (torch.arange(3) == t).unsqueeze(1)


def test_each_advantage_is_its_own_error_and_a_quarter_of_the_next_advantage():
    advantage, returns, counts = three_steps().on_policy()
    # The errors r + v' / 2 - v are 1 + 1 - 1, 2 + 1.5 - 2 and 3 + 2 - 3.
    assert advantage.flatten().tolist() == [1 + 2.0 / 4, 1.5 + 2 / 4, 2]
    assert returns.flatten().tolist() == [1.5 + 1, 2 + 2, 2 + 3]
    assert counts is None


def test_after_an_episode_that_ended_nothing_follows_and_one_that_was_cut_goes_on_with_its_own_last_value():
    advantage, _, _ = three_steps(terminated=at_step(1)).on_policy()
    assert advantage.flatten().tolist() == [1 + (2 - 2) / 4, 2 - 2, 2]
    advantage, _, _ = three_steps(truncated=at_step(1), final_value=at_step(1) * 6.0).on_policy()
    assert advantage.flatten().tolist() == [1 + 3 / 4, 2 + 6 / 2 - 2, 2]


def test_turns_of_a_seat_whose_next_is_not_in_the_rollout_do_not_count():
    seats = torch.tensor([[1], [0], [1], [0]], dtype=torch.int8)
    values = torch.tensor([[2.0], [5.0], [7.0], [10.0]])
    targets = three_steps(seat=seats, value=values)
    paid = Targets.of(targets.rollout, torch.tensor([[[7.0, 1.0]], [[1.0, 3.0]], [[2.0, 4.0]]]), CONFIG)
    advantage, _, counts = paid.on_policy()
    assert counts is not None
    assert counts.flatten().tolist() == [True, True, False]
    assert advantage.flatten().tolist() == [(1 + 3) + 7 / 2 - 2, (1 + 2) + 10 / 2 - 5, 0]


def test_what_the_policy_would_do_less_often_weighs_less_and_nothing_weighs_more_than_one():
    """Every step's ratio alike: an error, and a quarter of the next, each weighed."""
    targets = three_steps()
    for ratio, weight in ((0.5, 0.5), (4.0, 1.0)):
        _, returns, _ = targets.off_policy(targets.rollout.value, torch.full((3, 1), ratio).log())
        third = weight * 2
        second = weight * 1.5 + weight * third / 4
        first = weight * 1 + weight * second / 4
        torch.testing.assert_close(returns.flatten(), torch.tensor([1 + first, 2 + second, 3 + third]))


# --- the order of an epoch as the GPU computes it, and the numbers of an update in one memory that it reads ----------


def order_of(num_units: int, neighbours: int, seed: int = 0) -> torch.Tensor:
    order = torch.full((num_units,), -1)
    shuffle_on_gpu(order, torch.Generator().manual_seed(seed), neighbours)
    return order


def test_every_sample_has_one_place_neighbours_stay_together_and_runs_are_permuted():
    for num_units in (1, 2, 3, 7, 64, 1000, 4097):
        assert torch.equal(order_of(num_units, 1).sort().values, torch.arange(num_units)), num_units
    order = order_of(96 * 32, 32)
    runs = order.view(-1, 32)
    assert torch.equal(runs - runs[:, :1], torch.arange(32).expand(96, 32))
    assert torch.equal((runs[:, 0] // 32).sort().values, torch.arange(96))
    assert torch.equal(runs[:, 0] // 32, order_of(96, 1))


def test_keys_drawn_together_are_those_drawn_one_by_one_and_give_their_orders():
    one_by_one, together = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    keys = draw_keys(together, 3)
    for row in keys:
        shuffled, enciphered = torch.empty(2, 200, dtype=torch.int64)
        shuffle_on_gpu(shuffled, one_by_one, 1)
        encipher(enciphered, row, 1)
        assert torch.equal(shuffled, enciphered)
    assert torch.equal(one_by_one.get_state(), together.get_state())
    # Another key is another order, and one is still that of earlier versions.
    assert (order_of(1000, 1, seed=1) != order_of(1000, 1, seed=2)).float().mean() > 0.9
    assert order_of(7, 1, seed=11).tolist() == [0, 4, 2, 1, 3, 5, 6]


def test_orders_look_random():
    """Each place is as likely for each number, and neighbours are torn apart."""
    num_units, num_orders = 16, 4000
    generator = torch.Generator().manual_seed(3)
    counts = torch.zeros(num_units, num_units)
    steps = []
    for _ in range(num_orders):
        order = torch.empty(num_units, dtype=torch.int64)
        shuffle_on_gpu(order, generator, 1)
        counts[torch.arange(num_units), order] += 1
        steps.append(float((order[1:] - order[:-1] == 1).float().mean()))
    expected = num_orders / num_units
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    freedom = (num_units - 1) ** 2
    assert chi_squared < freedom + 5 * (2 * freedom) ** 0.5
    assert sum(steps) / num_orders == pytest.approx(1 / num_units, abs=0.01)  # one step in n goes on by 1 by chance


def test_runs_are_only_made_where_they_fit():
    assert run_length(1024 * 128, 1024, 4) == NEIGHBOURS
    assert run_length(100 * 128, 100, 4) == 1  # rows do not end where runs do
    assert run_length(64 * 32, 64, 4) == 1  # a minibatch of 16 runs would be a poor sample
    assert run_length(64 * 64, 64, 4) == NEIGHBOURS


def test_numbers_that_are_sent_are_read_as_float32_at_addresses_that_kernels_are_compiled_for():
    numbers = UpdateNumbers(torch.device("cpu"), num_epochs=3)
    views = (numbers.learning_rate, numbers.clip, numbers.entropy_coef)
    addresses = [view.data_ptr() for view in (*views, numbers.keys)]
    keys = torch.randint(1 << 31, (3, KEYS))
    for sent in ((1e-3, 0.2, 0.01), (2.5e-4, 0.1, 0.0)):
        numbers.send(*sent, keys)
        assert [view.item() for view in views] == [float(np.float32(value)) for value in sent]
        assert torch.equal(numbers.keys, keys)
    assert all((address - addresses[0]) % 16 == 0 for address in addresses)
    assert addresses == [view.data_ptr() for view in (*views, numbers.keys)]
    numbers = UpdateNumbers(torch.device("cpu"), num_epochs=1)
    numbers.send(1.0, 2.0, 3.0)  # keys are drawn later
    assert (numbers.learning_rate.item(), numbers.clip.item(), numbers.entropy_coef.item()) == (1.0, 2.0, 3.0)
    assert not numbers.keys.any()


# --- fixed shapes, as CUDA graphs need them: the same is learned, and nothing looks at the numbers -------------------


PPO = PPOConfig(num_epochs=2, num_minibatches=1, learning_rate=0.01, normalize_advantages="minibatch")
CASES = list(itertools.product(("agents", "seats"), (None, "lstm", "gru", "mingru")))
FEW = [("agents", None), ("seats", "gru")]
few_or_all = pytest.mark.parametrize("cases", [FEW, pytest.param(CASES, marks=pytest.mark.rest)], ids=["few", "all"])
ADVANTAGES: list[Any] = ["gae", "vtrace"]


class Played:
    """A policy, what plays it and a learner; `fixed` shapes or not, the same rollouts are played."""

    def __init__(self, players, memory, ppo=PPO, *, fixed, limit=5, horizon=5) -> None:
        env = choosing_world(obs="box", action="multi", players=players, masked=True)
        type(env).max_episode_steps = limit
        self.policy = make_policy(env, memory=memory)
        self.policy.normalizer = make_normalizer(env.observation_space)
        pool = NativePool(env, 4, backend="interpreted")
        executor = TorchExecutor(self.policy)
        self.player = RolloutPlayer(pool, executor, 10, horizon=horizon if memory else None)
        pool.reset(7, out=self.player.buffers.last)
        self.learner = Learner.for_rollout(self.player.rollout, executor, ppo, total_steps=100, seed=0)
        self.learner.fixed_shapes = fixed
        self._generator = torch.Generator().manual_seed(5)

    def play(self) -> Rollout:
        return self.player.play(self._generator)

    def update(self) -> dict[str, Any]:
        return self.learner.update(self.learner.prepare(self.play()), 0)


@few_or_all
def test_updates_learn_the_same(cases: list[Any]) -> None:
    for (players, memory), advantage in itertools.product(cases, ADVANTAGES):
        # Of several stretches V-trace keeps old values of those in which nothing counts, if they are left out.
        horizon = 10 if advantage == "vtrace" else 5
        ppo = replace(PPO, advantage=advantage, normalize_rewards=False)
        fixed, selected = (Played(players, memory, ppo, fixed=each, horizon=horizon) for each in (True, False))
        for _ in range(3):
            assert fixed.update() == pytest.approx(selected.update(), rel=1e-3, abs=1e-5), (players, memory, advantage)
        for name, tensor in selected.policy.state_dict().items():  # statistics of observations too
            torch.testing.assert_close(fixed.policy.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


class NoLook(TorchDispatchMode):
    """Fails where the host looks at a tensor's numbers, or a shape would depend on them."""

    REFUSED = ("nonzero", "masked_select", "_local_scalar_dense", "unique", "equal", "is_nonzero", "item")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.REFUSED, name
        if name in ("index", "index_put_", "index_put"):
            assert all(index is None or index.dtype is torch.int64 for index in args[1]), f"{name} by a mask"
        return func(*args, **(kwargs or {}))


class Rerun(Recorder[Any]):
    """Replays by running the recorded work again, with the learning rate that the optimizer had, and writing to the
    results of the recording; recording computes them for the first replay."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        (self._group,) = optimizer.param_groups
        self._version, self._graph, self._result = None, None, None
        self._is_warm, self.is_refused, self._is_new = False, False, False

    def _run_aside(self, work: Any) -> Any:
        self._is_warm = True
        return work()

    def _record(self, work: Any, recording: Any) -> None:
        self._work, self._result, self._learning_rate = work, work(), self._group["lr"]
        self._graph, self._is_new = self, True  # type: ignore[assignment]

    def replay(self) -> None:
        if not self._is_new:
            self._group["lr"] = self._learning_rate
            write_over(self._result, self._work())
        self._is_new = False


def write_over(old: Any, new: Any) -> None:
    if isinstance(old, torch.Tensor):
        old.copy_(new)
    elif is_dataclass(old):
        for field in fields(old):
            write_over(getattr(old, field.name), getattr(new, field.name))


def as_on_gpu(played: Played, *, whole: bool, recorded: bool = True) -> Played:
    """The learner set up as on the GPU: it reads numbers from memory, computes orders, and records stages."""
    learner, cpu = played.learner, torch.device("cpu")
    numbers = learner._numbers = UpdateNumbers(cpu, learner.config.epochs)
    learner._clip, learner._entropy = numbers.clip, numbers.entropy_coef
    learner.optimizer.param_groups[0]["lr"] = numbers.learning_rate
    learner._shuffler.enciphers = True
    optimizer = learner.optimizer
    optimizer.load_state_dict(optimizer.state_dict())  # as a checkpoint is: that replaces what the optimizer holds
    kind: Any = partial(Rerun, optimizer) if recorded else Stage
    learner._preparing = kind()
    if whole:
        learner._stages = UpdateStages(kind(), Stage(), Stage(), are_one=True)
    else:
        learner._stages = UpdateStages(Stage(), kind(), kind(), are_one=False)
    return played


@few_or_all
def test_nothing_from_rollout_to_the_end_of_an_update_depends_on_numbers_looked_at(cases: list[Any]) -> None:
    for (players, memory), advantage in itertools.product(cases, ADVANTAGES):
        ppo = replace(PPO, advantage=advantage, num_minibatches=2)
        played = as_on_gpu(Played(players, memory, ppo, fixed=True), whole=True, recorded=False)
        learner, rollout = played.learner, played.play()
        assert played.policy.normalizer is not None
        with NoLook():
            batch = learner.prepare(rollout)
            learner._follow_schedules(0)
            learner.executor.begin_update(batch.samples, learner.optimizer)
            learner._take_epochs(batch, None, None)
    played = Played("agents", None, fixed=False)
    rollout = played.play()
    with pytest.raises(AssertionError, match=r"nonzero|_local_scalar_dense"), NoLook():
        played.learner.prepare(rollout)  # in the layout of the CPU: the watch sees it


WAYS = [{"whole": True, "recorded": False}, {"whole": True}, {"whole": False}]
MORE = [("one", None, "gae"), ("agents", None, "gae"), ("seats", "gru", "vtrace")]


@pytest.mark.parametrize("case", [("agents", None, "vtrace"), *(pytest.param(c, marks=pytest.mark.rest) for c in MORE)])
def test_updates_recorded_whole_or_by_epoch_learn_the_bits_of_plain_ones(case: tuple[str, Any, Any]) -> None:
    players, memory, advantage = case
    schedules: dict[str, Any] = {"learning_rate": "0.01@0,0.001@end", "clip_epsilon": "0.3@0,0.1@end"}
    ppo = replace(PPO, num_epochs=3, num_minibatches=2, advantage=advantage, **schedules)
    found = [as_on_gpu(Played(players, memory, ppo, fixed=True), **way) for way in WAYS]
    for update in range(5):
        metrics = [each.learner.update(each.learner.prepare(each.play()), update * 20) for each in found]
        assert metrics[0] == metrics[1] == metrics[2]
        assert metrics[0]["epochs"] == 3
        used = [float(each.learner.optimizer.param_groups[0]["lr"]) for each in found]
        assert used == [pytest.approx(metrics[0]["learning_rate"])] * 3
    plain, whole, by_epoch = found
    assert whole.learner._stages.update.is_recorded
    assert by_epoch.learner._stages.epoch.is_recorded
    for other in (whole, by_epoch):
        for name, tensor in plain.policy.state_dict().items():  # statistics of observations too
            assert torch.equal(other.policy.state_dict()[name], tensor), name
        drawn = other.learner.shuffle_generator.get_state()
        assert torch.equal(drawn, plain.learner.shuffle_generator.get_state())


def test_weights_frozen_after_an_update_was_recorded_stay_as_they_are() -> None:
    played = as_on_gpu(Played("one", None, fixed=True), whole=True)
    for _ in range(3):
        played.update()
    recorded, first = played.learner._stages, next(played.policy.parameters())
    assert recorded.update.is_recorded
    first.requires_grad_(False)
    before = first.detach().clone()
    played.update()
    assert not recorded.update.is_recorded
    assert torch.equal(first, before)


def test_every_rollout_has_the_same_shapes_and_each_step_once() -> None:
    for case in (("agents", None), ("agents", "gru"), ("seats", "gru")):
        played, shapes = Played(*case, fixed=True), set()
        for _ in range(4):
            rollout = played.play()
            samples = played.learner.prepare(rollout).samples
            shapes.add(tuple(samples.action.shape))
            assert 0 < samples.num_counted < len(samples.action), case
            assert sorted(samples.place[samples.place >= 0].tolist()) == list(range(rollout.log_prob.numel())), case
        assert len(shapes) == 1, case


def test_a_rollout_in_which_no_turn_counts_is_an_error() -> None:
    for memory in (None, "gru"):
        with pytest.raises(TrainingError, match="nothing to learn from"):
            Played("seats", memory, fixed=True, limit=1).update()


def test_statistics_of_observations_are_those_of_the_rows_that_count() -> None:
    space = choosing_world(obs="box", action="multi", players="one").observation_space
    weighted = make_normalizer(space)
    assert weighted is not None
    selected = copy.deepcopy(weighted)
    for size in (40, 7):
        rows, counts = torch.rand(size, *space.shape), torch.rand(size) < 0.5
        weighted.update(rows, counts=counts)
        selected.update(rows[counts])
    for name, tensor in selected.state_dict().items():
        torch.testing.assert_close(weighted.state_dict()[name], tensor)
