"""Samples in fixed shapes, as CUDA graphs need them: what is learned is the same, and nothing looks at the numbers."""

from __future__ import annotations

import copy
import itertools
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scramjet.accelerate.cuda_graphs import Stage
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.errors import TrainingError
from scramjet.policies.normalization import make_normalizer
from scramjet.training.batches.whole_updates import UpdateNumbers, UpdateStages
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import make_policy

pytestmark = pytest.mark.usefixtures("one_thread")

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


class Rerun(Stage[Any]):
    """Keeps the work of the second run, as a CUDA graph does: from then on it runs that with the learning rate that
    the optimizer had, and writes to the results of that run."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        (self._group,) = optimizer.param_groups
        self._is_warm, self._work, self._result, self._learning_rate = False, None, None, None

    @property
    def is_recorded(self) -> bool:  # type: ignore[override]
        return self._work is not None

    def run(self, work: Any, *, may_record: bool = True, **options: Any) -> Any:
        if self._work is not None:
            self._group["lr"] = self._learning_rate
            write_over(self._result, self._work())
            return self._result
        result = work()
        if self._is_warm and may_record:
            self._work, self._result, self._learning_rate = work, result, self._group["lr"]
        self._is_warm = True
        return result


def write_over(old: Any, new: Any) -> None:
    """Copy the tensors of a record to those of an earlier one."""
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
            learner._take_epochs(batch, None)
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
    assert played.learner._stages is not recorded
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
