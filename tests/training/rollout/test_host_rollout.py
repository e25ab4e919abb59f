"""Envs on the CPU and the policy elsewhere: the rollout is the one that they would play side by side."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scramjet.engine import Backend, FrameStackPool, NativePool
from scramjet.engine.trees import leaves
from scramjet.envs import load_env
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.runtime.devices import set_precision
from scramjet.training.config.files import starting_config
from scramjet.training.rollout import player as player_module
from scramjet.training.rollout.parts import CopiedPart
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout
from tests.helpers.run_files import assert_resumes_exactly

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_STEPS, NUM_ROLLOUTS, RESET_SEED = 16, 2, 100
SMALL = PolicyConfig(hidden=(8,))
LSTM = PolicyConfig(hidden=(8,), memory="lstm", memory_size=8)


@dataclass(frozen=True)
class Case:
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


def player_of(case: Case, num_envs: int, device: str = "cpu", **options: Any) -> RolloutPlayer:
    """What plays a case, from the first observations on."""
    pool = case.pool(num_envs)
    spaces = pool.observation_space, pool.action_space
    torch.manual_seed(0)
    policy = Policy(default_network(*spaces, case.policy), *spaces, case.policy)
    with torch.no_grad():
        for parameter in policy.network.actor_head.parameters():  # then who sees something else does something else
            parameter.mul_(100 if parameter.dim() > 1 else 1)
    policy.to(device)
    player = RolloutPlayer(pool, TorchExecutor(policy), NUM_STEPS, case.horizon, **options)
    pool.reset(RESET_SEED, out=player.buffers.last)
    return player


def play(case: Case, num_envs: int, device: str = "cpu", **options: Any) -> list[dict[str, Tensor]]:
    """Every tensor of some rollouts in a row, with the same noise whatever the device."""
    player = player_of(case, num_envs, device, **options)
    assert player.buffers.is_apart == (options["apart"] is not False)
    distribution, random = player.executor.policy.distribution, torch.Generator().manual_seed(5)
    draw = distribution.noise
    distribution.noise = lambda *size, out: out.copy_(draw(*size[:2], random))
    played = [tensors(player.play(torch.Generator(device))) for _ in range(NUM_ROLLOUTS)]
    assert player.pool.steps_taken == NUM_ROLLOUTS * NUM_STEPS  # also where they were played in halves
    ended = player.pool.episodes()
    played[-1] |= {f"episodes.{name}": torch.from_numpy(getattr(ended, name)) for name in ("returns", "env_ids")}
    return played


def tensors(rollout: Rollout) -> dict[str, Tensor]:
    found = {"recurrent": rollout.recurrent.states}
    for field in fields(rollout):
        value = getattr(rollout, field.name)
        if isinstance(value, Tensor):
            found[field.name] = value
    found |= {f"obs.{i}": leaf for i, leaf in enumerate(leaves(rollout.obs))}
    return {name: tensor.cpu().clone() for name, tensor in found.items()}


def assert_same(one: list[dict[str, Tensor]], other: list[dict[str, Tensor]], tolerance: float, case: object) -> None:
    for i, (here, there) in enumerate(zip(one, other, strict=True)):
        assert here.keys() == there.keys()
        for name, tensor in here.items():
            said = f"{case}: {name} of rollout {i}: "
            torch.testing.assert_close(
                there[name], tensor, rtol=tolerance, atol=tolerance, msg=lambda text, said=said: said + text
            )


@pytest.fixture(scope="module")
def plain() -> dict[str, list[dict[str, Tensor]]]:
    """Rollouts of seven envs side by side with the policy, by case."""
    return {name: play(case, 7, apart=False) for name, case in CASES.items()}


def test_a_rollout_through_other_buffers_is_the_plain_one(plain):
    assert all(any(rollout["truncated"].any() for rollout in played) for played in plain.values())
    assert any(rollout["terminated"].any() for rollout in plain["seats"])
    assert not all(rollout["alive"].all() for rollout in plain["agents"])
    assert not all(rollout["mask"].all() for rollout in plain["masks in a dict"])
    assert all(rollout["final_value"].any() and rollout["states"][1:].any() for rollout in plain["memory"])
    for name, case in CASES.items():
        assert_same(plain[name], play(case, 7, apart=True, in_halves=False), 0.0, name)


@pytest.mark.rest
def test_a_rollout_of_one_or_two_envs_through_other_buffers_is_the_plain_one():
    for (name, case), num_envs in itertools.product(CASES.items(), (1, 2)):
        expected = play(case, num_envs, apart=False)
        assert_same(expected, play(case, num_envs, apart=True, in_halves=False), 0.0, name)
        assert_same(expected, play(case, num_envs, apart=True), 1e-5, name)


def test_envs_are_halved_where_a_pool_can_step_a_part():
    for case, num_envs, rows in (
        ("truncating", 7, [slice(0, 3), slice(3, 7)]), ("agents", 7, [slice(0, 6), slice(6, 14)]),
        ("memory of seats", 2, [slice(0, 1), slice(1, 2)]), ("truncating", 1, [slice(0, 1)]),
        ("frame stack", 7, [slice(0, 7)]),
    ):  # fmt: skip
        assert [part.rows for part in player_of(CASES[case], num_envs, apart=True).parts] == rows, case


def test_nothing_that_a_late_device_still_reads_is_written_over(plain, monkeypatch):
    """Work for the policy's device is done as late as can be: when the CPU waits for it. Rollouts are in halves: a
    matrix product of fewer rows may round differently."""
    queue: list[tuple[CopiedPart, str, Callable[[], None]]] = []
    ends: list[CopiedPart | None] = []

    def run_until(part: CopiedPart | None) -> None:
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
    monkeypatch.setattr(player_module, "value_rollout", lambda *given: (ends.append(run_until(None)), value(*given))[1])
    for name, case in CASES.items():
        assert_same(plain[name], play(case, 7, apart=True), 1e-5, name)
    assert len(ends) == NUM_ROLLOUTS * len(CASES)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_policy_on_the_gpu_plays_what_it_plays_on_the_cpu(name: str):
    set_precision("float32")
    for num_envs in (1, 7, 64):
        expected = play(CASES[name], num_envs, apart=False)
        assert_same(expected, play(CASES[name], num_envs, "cuda", apart=None), 1e-4, num_envs)


@pytest.mark.gpu
def test_what_envs_write_is_copied_by_the_gpu_itself():
    player = player_of(CASES["masks in a dict"], 4, "cuda")
    rollout = player.rollout
    assert player.buffers.is_apart
    written = [*player.buffers.env_steps.shown, *player.buffers.env_steps.results]
    assert all(tensor.is_pinned() for tensor in written if tensor.numel())
    assert all(part.actions.is_pinned() for part in player.parts)
    assert all(tensor.is_cuda for tensor in (*leaves(rollout.obs), rollout.mask, rollout.reward, rollout.action))
    player.play(torch.Generator("cuda"))
    assert [part.is_recorded for part in player.parts] == [True, True]
    assert not player.is_recorded


UPDATE = 64 * 32
RUNS: dict[str, dict[str, Any]] = {
    "cartpole": {}, "frame stack": {"frame_stack": 3}, "no fused kernels": {"fused": False},
    "memory": {"env": "masked_cartpole", "policy": PolicyConfig(memory="lstm", memory_size=16)},
    "seats": {"env": "connect_four"},
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_run_with_envs_on_the_cpu_trains_and_resumes_bit_for_bit(tmp_path: Path, run: dict[str, Any]):
    config = starting_config(run.get("env", "cartpole"))
    constant = {"learning_rate": 0.001, "entropy_coef": 0.01}  # the same however long the run is
    ppo = replace(config.ppo, num_minibatches=4, minibatch_size=None, **constant)
    sizes = {"num_envs": 64, "num_steps": 32, "total_timesteps": 8 * UPDATE, "num_threads": 1}
    config = replace(config, ppo=ppo, device="cuda", env_device="cpu", **sizes, **run)
    whole = assert_resumes_exactly(config, tmp_path, 4 * UPDATE)
    assert whole.policy.device.type == "cpu"  # what is handed over, wherever it was trained
