"""Training on the GPU: recorded work gives what plain work gives, and a run is never lost there either."""

import copy
import gc
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.engine import NativePool
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.envs import Box, Discrete, Env, load_env
from scramjet.errors import TrainingError
from scramjet.executors.choice import choose_executor
from scramjet.executors.cuda_graphs import Recorder
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.executors.torch_with_kernels import TorchWithKernels
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.batches.shuffling import shuffle_on_gpu
from scramjet.training.batches.whole_updates import UpdateStages
from scramjet.training.config.files import starting_config
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.choosing import choosing_world

pytestmark = pytest.mark.gpu

NUM_ENVS, NUM_STEPS = 64, 32


def ppo_config(**changes: Any) -> PPOConfig:
    """Few passes, so that rounding stays small from one update to the next."""
    few = {"num_epochs": 4, "num_minibatches": 4, "learning_rate": 2.5e-4}
    return PPOConfig(**few | {"normalize_rewards": False, "normalize_observations": False} | changes)


def make(
    world: str | Env, config: PolicyConfig, ppo: PPOConfig | None = None, *, recorded: bool = True,
    by_epoch: bool = False, fused: bool = False, with_kernels: bool = False,
):  # fmt: skip
    """What plays rollouts on the GPU, and a learner there; `with_kernels`: around torch's operators.

    `by_epoch`: record each epoch of an update, also where the whole update could be recorded.
    """
    torch.manual_seed(0)
    env, ppo = load_env(world) if isinstance(world, str) else world, ppo or ppo_config()
    pool = CudaPool(env, NUM_ENVS)
    spaces, normalizes = (env.observation_space, env.action_space), ppo.normalize_observations
    policy = Policy(default_network(*spaces, config), *spaces, config, normalize_observations=normalizes).to("cuda")
    executor = choose_executor(policy, pool, fused=fused)
    assert executor.name == ("triton" if fused else "torch")
    if with_kernels:
        executor = TorchWithKernels(policy)
    player = RolloutPlayer(pool, executor, NUM_STEPS, ppo.bptt_horizon)
    pool.reset(1, out=player.buffers.last)
    learner = Learner.for_rollout(player.rollout, executor, ppo, total_steps=10**6, seed=0)
    if by_epoch:
        learner._stages = UpdateStages.by_epoch(policy.device)
    if not recorded:
        stages = learner._stages
        for stage in (player._stage, learner._preparing, stages.update, stages.epoch, stages.correction):
            stage.is_refused = True
    return player, learner


def has_recorded(learner: Learner) -> bool:
    """Whether what the learner does is replayed: whole updates, or epochs where something is looked at between."""
    stages = learner._stages
    assert stages.are_one == (learner.config.target_kl is None)
    return stages.update.is_recorded if stages.are_one else stages.epoch.is_recorded


def train(parts, num_updates: int) -> list[dict]:
    player, learner = parts
    generator = torch.Generator("cuda").manual_seed(0)
    return [
        learner.update(learner.prepare(player.play(generator)), update * NUM_ENVS * NUM_STEPS)
        for update in range(num_updates)
    ]


def assert_learn_alike(plain, other, num_updates: int, metrics: Any = None, **weights: float) -> None:
    """Some updates of both have metrics and end with weights within these tolerances; to the bit without any."""
    for before, after in zip(train(plain, num_updates), train(other, num_updates), strict=True):
        assert after == (before if metrics is None else pytest.approx(before, **metrics))
    assert_same_weights(plain[1].policy, other[1].policy, **weights)


def assert_same_weights(policy: nn.Module, other: nn.Module, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Within these tolerances; to the bit without any."""
    found = other.state_dict()
    for name, weight in policy.state_dict().items():
        torch.testing.assert_close(found[name], weight, rtol=rtol, atol=atol, msg=name)


def remembering(memory: Any, **shape: Any) -> PolicyConfig:
    return PolicyConfig(memory=memory, memory_size=32, **shape)


PLAIN, MLP, VTRACE = PolicyConfig(), PolicyConfig(encoder="mlp"), ppo_config(advantage="vtrace")
SHORT_GAMES, TWO_SNAKES = load_env("connect_four", max_episode_steps=9), load_env("snake", size=6, snakes=2)
CASES = {
    "separate": ("cartpole", PLAIN, ppo_config()),
    "shared": ("cartpole", PolicyConfig(shared_trunk=True), ppo_config(value_clip=0.2)),
    "gaussian": ("pendulum", PLAIN, ppo_config(normalize_rewards=True)),
    "lstm": ("masked_cartpole", remembering("lstm"), ppo_config(num_minibatches=2)),
    "gru and horizon": ("tmaze", remembering("gru"), ppo_config(bptt_horizon=16)),
    "masks and seats": ("connect_four", PLAIN, ppo_config()),
    "seats cut short": (SHORT_GAMES, PLAIN, VTRACE),
    "agents": (load_env("snake", size=8, snakes=3), MLP, ppo_config()),
    "agents, vtrace": (TWO_SNAKES, MLP, VTRACE),
    "agents with memory": (TWO_SNAKES, remembering("gru", encoder="mlp"), ppo_config(bptt_horizon=16)),
    "seats with memory": (SHORT_GAMES, remembering("lstm", encoder="mlp"), ppo_config(bptt_horizon=16)),
    "seats with memory, vtrace": ("connect_four", remembering("mingru", encoder="mlp"), VTRACE),
    "vtrace": ("cartpole", PLAIN, VTRACE),
    "schedules": ("cartpole", PLAIN, ppo_config(clip_epsilon="0.3@0,0.1@end", learning_rate="0.001@0,0@end")),
    "batch normalization of advantages": ("cartpole", PLAIN, ppo_config(normalize_advantages="batch")),
    "target kl": ("cartpole", PLAIN, ppo_config(target_kl=0.001, learning_rate=0.01)),
}
FUSED_CASES = {
    name: CASES[name] for name in ("separate", "shared", "schedules", "batch normalization of advantages")
} | {
    "normalized numbers": ("pendulum", PLAIN, ppo_config(normalize_observations=True)),
    "many inputs": ("squared", PLAIN, ppo_config()),
    "several choices": (choosing_world("box", "multi", "one", masked=True), PLAIN, ppo_config()),
    "seats": ("kuhn", PLAIN, ppo_config()),
    "agents": (choosing_world("box", "discrete", "agents"), PLAIN, ppo_config()),
    "encoded": (choosing_world("dict", "multi", "one"), PolicyConfig(hidden=(48, 32)), ppo_config()),
}
fused_cases = pytest.mark.parametrize("case", FUSED_CASES.values(), ids=FUSED_CASES)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_recorded_updates_give_what_plain_ones_give(case):
    plain, recorded = make(*case, recorded=False), make(*case)
    assert_learn_alike(plain, recorded, 6, metrics={"rel": 1e-3, "abs": 1e-4}, rtol=1e-2, atol=1e-3)
    assert recorded[0].is_recorded
    assert recorded[1]._preparing.is_recorded
    assert has_recorded(recorded[1])


@fused_cases
def test_recorded_updates_by_fused_kernels_give_the_bits_of_plain_ones(case):
    plain, recorded = make(*case, recorded=False, fused=True), make(*case, fused=True)
    assert_learn_alike(plain, recorded, 5, metrics={"rel": 1e-6})
    assert has_recorded(recorded[1])


@fused_cases
def test_updates_recorded_whole_learn_the_bits_of_those_recorded_by_epoch(case):
    by_epoch, whole = make(*case, fused=True, by_epoch=True), make(*case, fused=True)
    assert_learn_alike(by_epoch, whole, 6)
    assert by_epoch[1]._stages.epoch.is_recorded
    assert has_recorded(whole[1])
    assert torch.equal(*(learner.shuffle_generator.get_state() for _, learner in (by_epoch, whole)))


@fused_cases
def test_fused_kernels_learn_what_the_network_would(case):
    alike = {"metrics": {"rel": 2e-2, "abs": 2e-3}, "rtol": 1e-2, "atol": 1e-3}
    assert_learn_alike(make(*case), make(*case, fused=True), 4, **alike)


@pytest.mark.parametrize("name", ["shared", "gaussian", "lstm", "agents", "masks and seats", "seats with memory"])
def test_recorded_kernels_around_a_network_learn_what_the_operators_would(name):
    plain, kernel = make(*CASES[name]), make(*CASES[name], with_kernels=True)
    assert_learn_alike(plain, kernel, 4, metrics={"rel": 2e-2, "abs": 2e-3}, rtol=1e-2, atol=1e-3)
    assert has_recorded(kernel[1])


class Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["schedules", "normalized numbers", "encoded"])
def test_a_replayed_update_calls_a_handful_of_operators_however_many_epochs_it_has(name):
    player, learner = make(*FUSED_CASES[name], fused=True)
    train((player, learner), 3)
    batch = learner.prepare(player.play(torch.Generator("cuda")))
    with Calls() as calls:
        learner.update(batch, 0)
    # Keys are drawn, numbers sent there, the graph replayed, its outcome read.
    assert len(calls.names) <= 12, calls.names


def test_a_rollout_on_the_gpu_is_that_of_the_cpu_for_the_same_noise():
    env, config = load_env("squared"), PolicyConfig()
    torch.manual_seed(0)
    network = default_network(env.observation_space, env.action_space, config)
    rollouts = []
    for device in ("cpu", "cuda"):
        pool = CudaPool(env, NUM_ENVS) if device == "cuda" else NativePool(env, NUM_ENVS)
        policy = Policy(copy.deepcopy(network), env.observation_space, env.action_space, config).to(device)
        player = RolloutPlayer(pool, TorchExecutor(policy), NUM_STEPS)
        pool.reset(1, out=player.buffers.last)
        noise = torch.rand(NUM_STEPS, NUM_ENVS, generator=torch.Generator().manual_seed(5))
        policy.distribution.noise = lambda *_, out=None, noise=noise: out.copy_(noise) if out is not None else noise
        rollouts.append(player.play(torch.Generator(device)))
    cpu, gpu = rollouts
    for name in ("action", "log_prob", "value", "reward", "terminated", "truncated", "final_value", "obs"):
        torch.testing.assert_close(getattr(gpu, name).cpu(), getattr(cpu, name), rtol=1e-4, atol=1e-4, msg=name)


def test_an_order_on_the_gpu_is_a_permutation_of_whole_runs():
    generator = torch.Generator().manual_seed(0)
    for num_units, neighbours in ((1, 1), (7, 1), (1000, 1), (4096, 32), (96, 32), (131072, 32)):
        order = torch.empty(num_units, dtype=torch.int64, device="cuda")
        shuffle_on_gpu(order, generator, neighbours)
        assert torch.equal(order.sort().values.cpu(), torch.arange(num_units))
        runs = order.view(-1, neighbours)
        assert bool((runs - runs[:, :1] == torch.arange(neighbours, device="cuda")).all())


UPDATE = 64 * 32


def small_config(num_updates: int = 12, world: str = "cartpole", **changes) -> RunConfig:
    config = starting_config(world)
    ppo = replace(config.ppo, learning_rate=0.001, entropy_coef=0.01)  # constant: the same however long the run is
    sizes = {"num_envs": 64, "num_steps": 32, "total_timesteps": UPDATE * num_updates, "num_threads": 1}
    return replace(config, ppo=ppo, device="cuda", **sizes, **changes)


def run(tmp_path: Path, name: str, num_updates: int = 12, world: str = "cartpole", **changes: Any) -> Any:
    config = small_config(num_updates, world, **changes)
    return scramjet.train(config, runs_dir=tmp_path, run_name=name, display="quiet")


def resume(tmp_path: Path, name: str) -> Any:
    return scramjet.train(resume=name, runs_dir=tmp_path, display="quiet", total_timesteps=UPDATE * 12)


@pytest.mark.parametrize(
    ("world", "fused"), [("cartpole", True), ("cartpole", False), ("pendulum", True), ("squared", True)]
)
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path, world: str, fused: bool):
    whole = run(tmp_path, "whole", world=world, fused=fused)
    run(tmp_path, "half", 6, world, fused=fused)
    resumed = resume(tmp_path, "half")
    assert resumed.step == whole.step
    assert_same_weights(whole.policy, resumed.policy)
    assert resumed.metrics["return_100"] == whole.metrics["return_100"]
    assert scramjet.evaluate(tmp_path / "whole", episodes=5).episodes == 5  # on the CPU


def test_a_checkpoint_moves_to_the_cpu_and_back(tmp_path: Path):
    on_gpu = run(tmp_path, "gpu")
    more = replace(small_config(16), device="cpu", precision="auto")
    on_cpu = scramjet.train(more, fork=on_gpu.run_path, runs_dir=tmp_path, run_name="cpu", display="quiet")
    assert on_cpu.policy.device.type == "cpu"
    again = scramjet.train(small_config(20), fork=on_cpu.run_path, runs_dir=tmp_path, run_name="again", display="quiet")
    assert 'device = "cuda"' in (again.run_path / "config.toml").read_text()
    assert again.step == UPDATE * 20


def test_ctrl_c_saves_and_a_resume_goes_on_as_if_nothing_had_been(tmp_path: Path, monkeypatch):
    whole = run(tmp_path, "whole")
    calls = []

    def play_and_interrupt(*arguments):
        calls.append(arguments)
        if len(calls) == 7:  # a replay
            os.kill(os.getpid(), signal.SIGINT)
        return play(*arguments)

    play = RolloutPlayer.play
    monkeypatch.setattr(RolloutPlayer, "play", play_and_interrupt)
    stopped = run(tmp_path, "stopped")
    assert (stopped.stopped_by, stopped.step) == ("ctrl-c", UPDATE * 7)
    assert_same_weights(whole.policy, resume(tmp_path, "stopped").policy)


class Poisoned(Env):
    """Gives a number that is none in one env at one step."""

    at: int = 40
    in_reward: bool = True
    max_episode_steps = 1000

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(2)
    state = {"count": np.int32}

    def reset(self, s):
        s.count = 0

    def step(self, s, action):
        s.count += 1
        hit = self.in_reward and s.count == self.at and s._index == 5
        return (np.nan if hit else 1.0), False

    def observe(self, s, obs):
        hit = not self.in_reward and s.count == self.at and s._index == 5
        obs[0] = 0.0
        obs[1] = np.inf if hit else 0.5


@pytest.mark.parametrize(("in_reward", "message"), [(True, "a reward of nan"), (False, "an observation of inf")])
def test_a_number_that_is_none_is_found_in_a_replay_with_its_env_and_step(in_reward, message):
    env, config = Poisoned(in_reward=in_reward, at=3 * NUM_STEPS - 7), PolicyConfig()
    pool = CudaPool(env, NUM_ENVS)
    network = default_network(env.observation_space, env.action_space, config)
    policy = Policy(network, env.observation_space, env.action_space, config).to("cuda")
    player, generator = RolloutPlayer(pool, TorchExecutor(policy), NUM_STEPS), torch.Generator("cuda")
    pool.reset(1, out=player.buffers.last)
    for _ in range(2):
        player.play(generator)
    with pytest.raises(TrainingError, match=rf"{message} in env 5 at step {3 * NUM_STEPS - 7}\b"):
        player.play(generator)


@pytest.mark.parametrize("fused", [True, False])
def test_weights_that_diverge_stop_the_run(tmp_path: Path, fused: bool):
    config = small_config(fused=fused)
    config = replace(config, ppo=replace(config.ppo, learning_rate=1e38, max_grad_norm=None))
    with pytest.raises(TrainingError, match="training diverged"):
        scramjet.train(config, runs_dir=tmp_path, display="quiet")


def test_a_rollout_too_large_for_the_gpu_says_what_to_lower(tmp_path: Path):
    config = replace(small_config(), num_envs=1 << 22, num_steps=1 << 12, total_timesteps=1 << 34)
    with pytest.raises(TrainingError, match=r"memory is full; lower --num-envs"):
        scramjet.train(config, runs_dir=tmp_path, display="quiet")


class Stubborn(nn.Module):
    """Looks at its numbers on the CPU, which no graph can record."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 32)
        self.logits_of, self.value_of = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, obs):
        features = torch.tanh(self.body(obs))
        if float(features.mean()) > 100:
            features = features * 0
        return self.logits_of(features), self.value_of(features).squeeze(-1)


@pytest.mark.parametrize(("env_device", "stage"), [("cuda", "a rollout"), ("cpu", "a decision")])
def test_a_network_that_cannot_be_recorded_trains_and_says_so_once(tmp_path: Path, capsys, env_device, stage):
    config = small_config(env_device=env_device)
    result = scramjet.train(config, network=Stubborn(), runs_dir=tmp_path, display="quiet")
    assert result.step == UPDATE * 12
    said = capsys.readouterr().out
    assert said.count(f"{stage} cannot be recorded") == 1
    assert said.count("an update cannot be recorded") == 1


def test_python_looks_for_no_garbage_while_work_is_recorded():
    """Freeing memory of the GPU then, such as that of an earlier run's envs, would end the recording."""
    source, seen = torch.zeros(3, device="cuda"), []

    def work():
        seen.append((torch.cuda.is_current_stream_capturing(), gc.isenabled()))
        return source + 1

    recorder = Recorder("a sum", say=lambda text: None)
    for _ in range(3):
        recorder.run(work, version=0)
    assert seen == [(False, True), (True, False)]
    assert gc.isenabled()
