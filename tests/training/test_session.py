"""Sessions: what follows from their config and seed, how they begin, resume, go on and stop."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig
from scramjet.training import components
from scramjet.training.components import limit_threads, make_policy
from scramjet.training.config import resolution
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig
from scramjet.training.display import QuietDisplay
from scramjet.training.seeds import training_episodes
from scramjet.training.session import Session
from scramjet.training.state import checkpoint_of
from scramjet.training.stopping import Stopping
from tests.helpers import HELPERS
from tests.helpers.memory_training import run_config
from tests.helpers.run_files import assert_resumes_exactly
from tests.helpers.sessions import SMALL, begun, train
from tests.helpers.small_runs import OneLayer
from tests.helpers.thread_ranks import on_ranks

pytestmark = pytest.mark.usefixtures("one_thread")


def weights_of(policy: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in policy.parameters()])


def test_the_weights_of_a_policy_follow_from_the_seed_also_where_several_threads_make_some_at_once() -> None:
    """Torch draws weights from one generator for the whole process."""

    def make(seed: int) -> torch.Tensor:
        return weights_of(make_policy(replace(SMALL, seed=seed)))

    seeds = [1, 2, 3, 4] * 4
    expected = [make(seed) for seed in seeds]
    assert not torch.equal(expected[0], expected[1])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as workers:
            made = list(workers.map(make, seeds))
    finally:
        sys.setswitchinterval(interval)
    assert all(map(torch.equal, made, expected))


def test_a_new_session_has_all_updates_ahead_and_the_first_observations_of_its_seeds_episodes(tmp_path: Path) -> None:
    with begun(replace(SMALL, seed=3), tmp_path) as session:
        pool = NativePool(load_env("cartpole"), 4, num_threads=1)
        assert (session.first_update, session.first_step, session.num_updates) == (0, 0, 5)
        np.testing.assert_array_equal(session.rollout.obs[-1].numpy(), pool.reset(training_episodes(3)).obs)


# --- how it begins, and how long it goes on


def test_updates_are_the_fewest_that_reach_the_total_or_as_many_as_the_collector_has() -> None:
    for total, first_step, first_update, given, expected in [
        (1024, 0, 0, None, 8),
        (1025, 0, 0, None, 9),
        (1, 0, 0, None, 1),
        (1024, 1000, 0, None, 1),  # a fork's own updates, after its parent's 1000 steps
        (1024, 0, 0, 3, 3),  # a replay ends with its schedule
        (1024, 0, 2, 3, 5),
        (1024, 0, 0, 30, 8),
    ]:
        config, collector = SimpleNamespace(total_timesteps=total, batch_size=128), SimpleNamespace(num_rollouts=given)
        session = SimpleNamespace(config=config, collector=collector, first_step=first_step, first_update=first_update)
        assert Session.num_updates.fget(session) == expected, (total, first_step, first_update, given)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A run of five updates with checkpoints after the second and the third."""
    with begun(SMALL, tmp_path, run_name="first") as session:
        for update in (2, 3):
            train(session, update if update == 2 else 1)
            checkpoint_of(session, update=update, step=32 * update, elapsed_seconds=7.0)()
    return tmp_path / "first"


def test_a_resumed_run_goes_on_from_its_newest_checkpoint_and_its_time_and_remembers_another_total(saved) -> None:
    for total, num_updates in ((None, 5), (320, 10), (None, 10)):
        with begun(None, saved.parent, resume=saved, total_timesteps=total) as session:
            assert (session.first_update, session.first_step, session.elapsed_seconds) == (3, 0, 7.0)
            assert session.num_updates == num_updates
            assert "resumed at step 96" in session.note


def test_a_fork_counts_on_from_its_parents_step_with_its_weights_and_updates_of_its_own(saved: Path) -> None:
    with begun(None, saved.parent, resume=saved) as session:
        expected = weights_of(session.policy)
    with begun(replace(SMALL, total_timesteps=200), saved.parent, fork=saved, run_name="second") as fork:
        assert (fork.first_update, fork.first_step, fork.num_updates) == (0, 96, 4)
        assert torch.equal(weights_of(fork.policy), expected)
        assert fork.lineage is not None
        assert fork.store.steps() == [96]  # so that a resume has something to begin from
    older = saved / "checkpoints" / "step_00000064"
    with begun(SMALL, saved.parent, fork=older, run_name="third") as fork:
        assert fork.first_step == 64


def test_beginnings_that_contradict_themselves_are_refused_and_leave_no_folder(saved: Path) -> None:
    beginnings: list[tuple[Any, dict[str, Any], str]] = [
        (SMALL, {"resume": "first"}, "keeps its own config"),
        (None, {"resume": "first", "fork": "first"}, "keeps its own config"),
        ("cartpole", {"env": "bandit"}, "give config='cartpole' or env='bandit', not both"),
        (replace(SMALL, total_timesteps=96), {"fork": "first"}, "is reached already"),
        (replace(SMALL, num_envs=10**9), {"run_name": "second"}, "num_envs=1000000000"),
    ]
    for config, given, message in beginnings:
        with pytest.raises(ConfigError, match=message), begun(config, saved.parent, **given):
            pass
    assert [path.name for path in saved.parent.iterdir() if not path.name.startswith(".")] == ["first"]


def test_training_on_the_cpu_loads_neither_triton_nor_the_compiler_of_torch(tmp_path: Path) -> None:
    code = (
        "import sys, scramjet; "
        f"scramjet.train('cartpole', total_timesteps=256, num_envs=4, num_steps=32, runs_dir={str(tmp_path)!r}, "
        "device='cpu', eval={'final_episodes': 0}); "
        "sys.exit(','.join({'triton', 'torch._dynamo', 'sympy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]


# --- why it stops, heard by one rank and obeyed by all


def stopping_on(ranks: Any, **settings: Any) -> tuple[Any, Stopping]:
    session: Any = SimpleNamespace(config=RunConfig(**settings), ranks=ranks, stop_reason=None)
    return session, Stopping(session, QuietDisplay())


def test_a_signal_that_one_rank_gets_stops_all_with_its_exit_code() -> None:
    def ask(ranks: Any) -> Any:
        _, stopping = stopping_on(ranks)
        if ranks.rank == 1:
            stopping._signal.requested = signal.SIGTERM
        return stopping.reason(), stopping.exit_code

    assert on_ranks(3, ask) == [("sigterm", 143)] * 3


def test_a_reason_that_a_callback_gave_on_rank_0_is_known_to_all_and_the_first_is_kept(tmp_path: Path) -> None:
    def ask(ranks: Any) -> Any:
        session, stopping = stopping_on(ranks)
        session.stop_reason = "solved" if ranks.is_first else None
        return stopping.reason(), session.stop_reason, stopping.exit_code

    assert on_ranks(2, ask) == [("callback", "solved", 0)] * 2
    with begun(SMALL, tmp_path) as session:
        session.stop("solved")
        session.stop("bored")
        assert session.stop_reason == "solved"


def test_the_time_limit_is_that_of_rank_0s_clock() -> None:
    def ask(ranks: Any, limit: str) -> Any:
        _, stopping = stopping_on(ranks, time_limit=limit if ranks.is_first else "1h")
        time.sleep(0.002)
        return stopping.reason()

    for limit, reason in (("0.001s", "time limit"), ("1h", None)):
        assert on_ranks(2, lambda ranks, limit=limit: ask(ranks, limit)) == [reason] * 2


# --- how many threads it takes where torch's operators learn


LARGE = nn.Linear(1024, 1024)
MANY_ENVS = RunConfig(num_envs=4096, num_steps=16, device="cpu")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Eight cores, of which so many are free."""

    def with_free(free: int) -> None:
        for module in (resolution, components):
            monkeypatch.setattr(module, "available_cores", lambda: 8)
        monkeypatch.setattr(components, "free_cores", lambda: free)

    return with_free


def test_operators_take_no_more_threads_than_there_are_free_cores_and_compiled_functions_all(machine: Any) -> None:
    slow = replace(MANY_ENVS, fused=False, policy=PolicyConfig(hidden=(1024, 1024)))
    note = "3 threads, since other work keeps 5 of 8 cores busy (--num-threads 8 takes all)"
    few_weights_used_often = nn.Sequential(nn.Conv2d(1, 1, 3))
    for free, config, network, num_threads, told in [
        (3, slow, None, 3, note),
        (8, slow, None, 8, ""),
        (1, MANY_ENVS, None, 8, ""),
        (8, MANY_ENVS, nn.Linear(64, 64), 1, ""),  # a network of one's own is judged by its weights
        (8, MANY_ENVS, LARGE, 8, ""),
        (8, MANY_ENVS, few_weights_used_often, 8, ""),
        (2, MANY_ENVS, LARGE, 2, None),
    ]:
        machine(free)
        decided, note_told = limit_threads(resolve(config), network)
        assert decided.num_threads == num_threads, (free, network)
        assert told in (note_told, None), (free, network)


def test_the_number_of_threads_is_frozen_with_the_run_and_one_of_the_users_is_kept(machine, tmp_path):
    machine(8)
    for given, expected in ((replace(SMALL, num_threads=RunConfig.num_threads), 1), (replace(SMALL, num_threads=2), 2)):
        given = replace(given, policy=PolicyConfig())
        result = scramjet.train(given, network=OneLayer(), runs_dir=tmp_path, display="quiet")
        assert f"num_threads = {expected}\n" in (result.run_path / "config.toml").read_text()


PRIVILEGED = HELPERS / "worlds" / "privileged.py"
VTRACE = PPOConfig(advantage="vtrace", bptt_horizon=4)
PLAYERS: dict[str, Any] = {
    "num_envs": 6, "num_steps": 10, "total_timesteps": 240, "policy": PolicyConfig(hidden=(8,)),
    "ppo": PPOConfig(num_minibatches=3, normalize_rewards=True, learning_rate=0.005),
}  # fmt: skip


def remembering(memory: Any = "gru", **shape: Any) -> PolicyConfig:
    return PolicyConfig(hidden=(8,), memory=memory, memory_size=5, **shape)


CORE: dict[str, tuple[str, dict[str, Any]]] = {
    "memory, values rescaled": ("cartpole", {"ppo": PPOConfig(value_scale="popart", target_entropy=0.5)}),
    "envs of Gymnasium": ("gym:CartPole-v1", {"num_workers": 0, "policy": PolicyConfig(hidden=(8,))}),
}
REST: dict[str, tuple[str, dict[str, Any]]] = {
    "memory": ("cartpole", {}),
    "memory, vtrace": ("cartpole", {"ppo": VTRACE}),
    "memory of agents": ("snake", {}),
    "memory of agents, vtrace": ("snake", {"ppo": VTRACE}),
    "memory of agents, values rescaled": ("snake", {"ppo": PPOConfig(value_scale="popart")}),
    "memory of seats": ("connect_four", {}),
    "memory of seats, vtrace": ("connect_four", {"ppo": VTRACE}),
    "memory of seats, two-hot values": ("connect_four", {"policy": remembering(value_bins=11)}),
    "memory of seats, values rescaled": ("connect_four", {"ppo": PPOConfig(value_scale="popart", target_entropy=0.5)}),
    "values in a logarithmic scale": ("cartpole", {"ppo": PPOConfig(value_scale="symlog")}),
    "colored noise": ("pendulum", {"ppo": PPOConfig(target_entropy=0.5), "policy": remembering(noise_color=0.5)}),
    "agents": (f"{HELPERS}/worlds/everything.py:EveryAgent", PLAYERS),
    "seats": (f"{HELPERS}/player_worlds.py:Trio", PLAYERS),
    "privileged critic": (f"{PRIVILEGED}:HiddenBit", {"policy": PolicyConfig(hidden=(8,))}),
    "privileged critic of agents, masks, memory": (f"{PRIVILEGED}:Cards", {"policy": remembering("lstm")}),
    "privileged critic of seats, memory": (f"{PRIVILEGED}:Nim", {"policy": remembering(memory_layers=2)}),
    "workers": ("gym:CartPole-v1", {"num_workers": 2, "policy": PolicyConfig(hidden=(8,))}),
}


@pytest.mark.parametrize("case", [*CORE, *(pytest.param(case, marks=pytest.mark.rest) for case in REST)])
def test_a_resumed_run_ends_bit_for_bit_as_if_it_had_never_stopped(case: str, tmp_path: Path) -> None:
    world, changes = {**CORE, **REST}[case]
    assert_resumes_exactly(replace(run_config(world), **changes), tmp_path)
