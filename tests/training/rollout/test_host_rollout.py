"""Envs on the CPU and the policy elsewhere: the rollout is the one that they would play side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import scramjet
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.engine.trees import leaves
from scramjet.engine.worlds.native_pool import Backend, NativePool
from scramjet.engine.wrappers.frame_stack import FrameStackPool
from scramjet.envs import Box, Discrete, Env, load_env
from scramjet.errors import TrainingError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.runtime.machine.devices import set_precision
from scramjet.training.config.files import starting_config
from scramjet.training.rollout import player as player_module
from scramjet.training.rollout.parts import CopiedPart
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_STEPS, NUM_ROLLOUTS, RESET_SEED = 16, 2, 100
SMALL = PolicyConfig(hidden=(8,))
LSTM = PolicyConfig(hidden=(8,), memory="lstm", memory_size=8)


@dataclass(frozen=True)
class Case:
    """A world and what plays it."""

    world: str
    parameters: dict[str, Any]
    policy: PolicyConfig = SMALL
    frame_stack: int = 1
    horizon: int | None = None

    def pool(self, num_envs: int) -> NativePool | FrameStackPool:
        """Interpreted but for cartpole: how rules run makes no difference to who copies what they write."""
        backend: Backend = "cpu" if self.world == "cartpole" else "interpreted"
        pool = NativePool(load_env(self.world, **self.parameters), num_envs, num_threads=1, backend=backend)
        return pool if self.frame_stack == 1 else FrameStackPool(pool, self.frame_stack)

    def network(self) -> torch.nn.Module:
        torch.manual_seed(0)
        pool = self.pool(1)
        network = default_network(pool.observation_space, pool.action_space, self.policy)
        with torch.no_grad():
            for parameter in network.actor_head.parameters():  # then who sees something else does something else
                parameter.mul_(100 if parameter.dim() > 1 else 1)
        return network


CASES = {
    "truncating": Case("cartpole", {"max_episode_steps": 9}),
    "shared trunk": Case("cartpole", {"max_episode_steps": 9}, PolicyConfig(hidden=(8,), shared_trunk=True)),
    "masks in a dict": Case("maze", {"rows": 4, "cols": 4}),
    "agents": Case("snake", {"size": 5, "snakes": 2, "max_episode_steps": 5}),
    "seats": Case("connect_four", {"max_episode_steps": 10}),
    "continuous": Case("pendulum", {"max_episode_steps": 7}),
    "memory": Case("masked_cartpole", {"max_episode_steps": 9}, LSTM, horizon=8),
    "memory of agents": Case("snake", {"size": 5, "snakes": 2, "max_episode_steps": 5}, LSTM),
    "memory of seats": Case("connect_four", {"max_episode_steps": 10}, LSTM),
    "frame stack": Case("cartpole", {"max_episode_steps": 9}, frame_stack=3),
}


def play(
    case: Case,
    num_envs: int,
    *,
    apart: bool | None,
    device: str = "cpu",
    in_halves: bool = True,
) -> list[dict[str, Tensor]]:
    """Every tensor of some rollouts in a row, with the same noise whatever the device."""
    pool = case.pool(num_envs)
    policy = Policy(case.network(), pool.observation_space, pool.action_space, case.policy).to(device)
    player = RolloutPlayer(pool, TorchExecutor(policy), NUM_STEPS, case.horizon, apart=apart, in_halves=in_halves)
    assert player.buffers.is_apart == (apart is not False)
    pool.reset(RESET_SEED, out=player.buffers.last)
    draw, random = policy.distribution.noise, torch.Generator().manual_seed(5)
    policy.distribution.noise = lambda *size, out: out.copy_(draw(*size[:2], random))
    played = [tensors(player.play(torch.Generator(device))) for _ in range(NUM_ROLLOUTS)]
    ended = pool.episodes()
    played[-1] |= {f"episodes.{name}": torch.from_numpy(getattr(ended, name)) for name in ("returns", "env_ids")}
    return played


def tensors(rollout: Rollout) -> dict[str, Tensor]:
    """All that a learner reads, by name."""
    found = {"recurrent": rollout.recurrent.states}
    for field in fields(rollout):
        value = getattr(rollout, field.name)
        if isinstance(value, Tensor):
            found[field.name] = value
    found |= {f"obs.{i}": leaf for i, leaf in enumerate(leaves(rollout.obs))}
    return {name: tensor.cpu().clone() for name, tensor in found.items()}


def assert_same(one: list[dict[str, Tensor]], other: list[dict[str, Tensor]], tolerance: float) -> None:
    for i, (here, there) in enumerate(zip(one, other, strict=True)):
        assert here.keys() == there.keys()
        for name, tensor in here.items():
            said = f"{name} of rollout {i}"
            torch.testing.assert_close(
                there[name], tensor, rtol=tolerance, atol=tolerance, msg=lambda text, said=said: f"{said}: {text}"
            )


each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@each_case
@pytest.mark.parametrize("num_envs", [1, 2, 7])
def test_a_rollout_through_other_buffers_is_the_plain_one(case: Case, num_envs: int):
    plain = play(case, num_envs, apart=False)
    assert_same(plain, play(case, num_envs, apart=True, in_halves=False), 0.0)
    # A matrix product of fewer rows may round differently.
    assert_same(plain, play(case, num_envs, apart=True), 1e-5)
    assert any(rollout["terminated"].any() or rollout["truncated"].any() for rollout in plain)


def test_the_cases_tell_truncated_and_terminated_and_dead_and_masked_apart():
    seen = {name: play(case, 7, apart=False) for name, case in CASES.items()}
    assert all(any(rollout["truncated"].any() for rollout in seen[name]) for name in seen)
    assert any(rollout["terminated"].any() for rollout in seen["seats"])
    assert not all(rollout["alive"].all() for rollout in seen["agents"])
    assert not all(rollout["mask"].all() for rollout in seen["masks in a dict"])
    assert all(rollout["final_value"].any() for rollout in seen["memory"])
    assert all(rollout["states"][1:].any() for rollout in seen["memory"])


@pytest.mark.parametrize(
    ("case", "num_envs", "rows"),
    [
        ("truncating", 7, [slice(0, 3), slice(3, 7)]),
        ("agents", 7, [slice(0, 6), slice(6, 14)]),
        ("memory of seats", 2, [slice(0, 1), slice(1, 2)]),
        ("truncating", 1, [slice(0, 1)]),
        ("frame stack", 7, [slice(0, 7)]),
    ],
)
def test_envs_are_halved_where_a_pool_can_step_a_part(case: str, num_envs: int, rows: list[slice]):
    chosen = CASES[case]
    pool = chosen.pool(num_envs)
    policy = Policy(chosen.network(), pool.observation_space, pool.action_space, chosen.policy)
    player = RolloutPlayer(pool, TorchExecutor(policy), 4, apart=True)
    assert [part.rows for part in player.parts] == rows


def test_a_part_of_a_rollout_is_written_where_the_whole_is():
    case = CASES["memory of seats"]
    pool = case.pool(3)
    policy = Policy(case.network(), pool.observation_space, pool.action_space, case.policy)
    rollout = RolloutPlayer(pool, TorchExecutor(policy), 4).rollout
    part = rollout.part(slice(1, 3))
    part.recurrent.states.fill_(1.0)
    part.states.fill_(2.0)
    part.final_value.fill_(3.0)
    assert rollout.recurrent.states[:, 0].tolist() == [0, 0, 1, 1, 1, 1]
    assert rollout.states[0, :, 0].tolist() == [0, 0, 2, 2, 2, 2]
    assert rollout.final_value[-1].tolist() == [0, 3, 3]
    assert part.recurrent.of_movers(torch.tensor([0, 1], dtype=torch.int8)).shape == (2, policy.state_size)


@pytest.fixture
def lagging_gpu(monkeypatch) -> list[str]:
    """Work for the policy's device is done as late as can be: when the CPU waits for it. Lists what was waited for."""
    queue: list[tuple[CopiedPart, str, Callable[[], None]]] = []
    waits: list[str] = []

    def run_until(part: CopiedPart | None) -> None:
        waits.append("actions" if part else "end")
        while queue:
            whose, name, work = queue.pop(0)
            work()
            if whose is part and name == "decide":
                return

    def queued(name: str) -> Callable[..., None]:
        original = getattr(CopiedPart, name)
        return lambda part, *arguments: queue.append((part, name, lambda: original(part, *arguments)))

    for name in ("show", "decide", "reset_ended"):
        monkeypatch.setattr(CopiedPart, name, queued(name))
    monkeypatch.setattr(CopiedPart, "await_actions", run_until)
    value = player_module.value_rollout
    monkeypatch.setattr(player_module, "value_rollout", lambda *given: (run_until(None), value(*given))[1])
    return waits


@each_case
def test_nothing_that_a_late_device_still_reads_is_written_over(case: Case, lagging_gpu: list[str]):
    assert_same(play(case, 7, apart=False), play(case, 7, apart=True), 1e-5)
    assert lagging_gpu.count("end") == 2 * NUM_ROLLOUTS  # the plain ones end likewise


class Poisoned(Env):
    """Cut short by the clock with a number that is none, in env 5 alone."""

    max_episode_steps = 4

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(2)
    state = {"count": np.int32}

    def reset(self, s):
        s.count = 0

    def step(self, s, action):
        s.count += 1
        return 1.0, False

    def observe(self, s, obs):
        obs[0] = 0.0
        obs[1] = np.nan if s.count == 4 and s._index == 5 else 0.5


def test_a_number_that_is_none_is_told_with_the_env_it_comes_from():
    pool = NativePool(Poisoned(), 7, backend="interpreted")
    network = default_network(pool.observation_space, pool.action_space, SMALL)
    policy = Policy(network, pool.observation_space, pool.action_space)
    player = RolloutPlayer(pool, TorchExecutor(policy), NUM_STEPS, apart=True)
    pool.reset(RESET_SEED, out=player.buffers.last)
    with pytest.raises(TrainingError, match=r"an observation of nan in env 5 at step 4"):
        player.play(torch.Generator())


class Astray(Poisoned):
    """A choice that is none, in env 5 alone."""

    observation_space = Discrete(3)

    def observe(self, s, obs):
        obs[0] = 7 if s.count == 2 and s._index == 5 else 1


def test_a_choice_that_is_none_is_told_with_the_env_it_comes_from():
    pool = NativePool(Astray(), 7, backend="interpreted")
    network = default_network(pool.observation_space, pool.action_space, SMALL)
    policy = Policy(network, pool.observation_space, pool.action_space)
    player = RolloutPlayer(pool, TorchExecutor(policy), NUM_STEPS, apart=True)
    pool.reset(RESET_SEED, out=player.buffers.last)
    with pytest.raises(TrainingError, match=r"7, outside its space, in env 5 at step 2"):
        player.play(torch.Generator())


def test_a_choice_that_is_none_is_told_even_where_the_device_is_lost_over_it(monkeypatch):
    def decide(part: CopiedPart, t: int) -> None:
        if t == 3:
            raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(CopiedPart, "show", lambda part, t: None)  # what is there cannot be looked at any more
    monkeypatch.setattr(CopiedPart, "decide", decide)
    pool = NativePool(Astray(), 7, backend="interpreted")
    network = default_network(pool.observation_space, pool.action_space, SMALL)
    policy = Policy(network, pool.observation_space, pool.action_space)
    player = RolloutPlayer(pool, TorchExecutor(policy), NUM_STEPS, apart=True)
    pool.reset(RESET_SEED, out=player.buffers.last)
    with pytest.raises(TrainingError, match=r"7, outside its space, in env 5 at step 2"):
        player.play(torch.Generator())


def test_a_rollout_in_halves_counts_as_one_step_of_the_pool():
    pool = CASES["truncating"].pool(7)
    policy = Policy(CASES["truncating"].network(), pool.observation_space, pool.action_space)
    player = RolloutPlayer(pool, TorchExecutor(policy), NUM_STEPS, apart=True)
    pool.reset(RESET_SEED, out=player.buffers.last)
    player.play(torch.Generator())
    assert pool.steps_taken == NUM_STEPS


@pytest.mark.gpu
@each_case
@pytest.mark.parametrize("num_envs", [1, 7, 64])
def test_a_policy_on_the_gpu_plays_what_it_plays_on_the_cpu(case: Case, num_envs: int):
    set_precision("float32")
    assert_same(play(case, num_envs, apart=False), play(case, num_envs, apart=None, device="cuda"), 1e-4)


@pytest.mark.gpu
def test_what_envs_write_is_copied_by_the_gpu_itself():
    case = CASES["masks in a dict"]
    pool = case.pool(4)
    policy = Policy(case.network(), pool.observation_space, pool.action_space, case.policy).to("cuda")
    player = RolloutPlayer(pool, TorchExecutor(policy), 4)
    rollout = player.rollout
    assert player.buffers.is_apart
    written = [*player.buffers.env_steps.shown, *player.buffers.env_steps.results]
    assert all(tensor.is_pinned() for tensor in written if tensor.numel())
    assert all(part.actions.is_pinned() for part in player.parts)
    assert all(tensor.is_cuda for tensor in (*leaves(rollout.obs), rollout.mask, rollout.reward, rollout.action))
    pool.reset(RESET_SEED, out=player.buffers.last)
    player.play(torch.Generator("cuda"))
    assert [part.is_recorded for part in player.parts] == [True, True]
    assert not player.is_recorded


UPDATE = 64 * 32
RUNS = {
    "cartpole": {},
    "frame stack": {"frame_stack": 3},
    "no fused kernels": {"fused": False},
    "memory": {"env": "masked_cartpole", "policy": PolicyConfig(memory="lstm", memory_size=16)},
    "seats": {"env": "connect_four"},
}


@pytest.mark.gpu
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_run_with_envs_on_the_cpu_trains_and_resumes_bit_for_bit(tmp_path: Path, run: dict[str, Any]):
    def config(num_updates: int) -> scramjet.RunConfig:
        start = starting_config(run.get("env", "cartpole"))
        constant = {"learning_rate": 0.001, "entropy_coef": 0.01}  # the same however long the run is
        ppo = replace(start.ppo, num_minibatches=4, minibatch_size=None, **constant)
        sizes = {"num_envs": 64, "num_steps": 32, "total_timesteps": UPDATE * num_updates}
        return replace(start, ppo=ppo, device="cuda", env_device="cpu", **sizes, **run)

    whole = scramjet.train(config(8), runs_dir=tmp_path, run_name="whole", display="quiet")
    assert whole.policy.device.type == "cpu"  # what is handed over, wherever it was trained
    scramjet.train(config(4), runs_dir=tmp_path, run_name="half", display="quiet")
    resumed = scramjet.train(resume="half", runs_dir=tmp_path, display="quiet", total_timesteps=UPDATE * 8)
    assert resumed.step == whole.step
    for name, weight in whole.policy.state_dict().items():
        assert torch.equal(weight, resumed.policy.state_dict()[name]), name
    assert resumed.metrics["return_100"] == whole.metrics["return_100"]
