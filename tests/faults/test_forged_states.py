"""Records of envs that somebody forged: refused, or found by checked kernels; never followed out of their arrays."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import scramjet
from scramjet.engine.actions import random_actions
from scramjet.engine.worlds.native_pool import Backend, NativePool
from scramjet.engine.worlds.world_pool import FIX, Probation
from scramjet.envs import Box, Discrete, Env, load_env
from scramjet.errors import ConfigError, WorldError
from scramjet.runtime.checkpoint_format import encode
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.training import resume
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from tests.helpers import HELPERS
from tests.helpers.cases import rest
from tests.helpers.command_calls import call, refusal


def played(name: str, backend: Backend = "cpu", steps: int = 30) -> NativePool:
    pool = NativePool(load_env(name), 4, num_threads=1, backend=backend)
    random, out = np.random.default_rng(0), pool.reset(1)
    for _ in range(steps):
        out = pool.step(random_actions(pool, out, random))
    return pool


def forged(pool: NativePool, honest: dict[str, np.ndarray], **fields: object) -> dict[str, np.ndarray]:
    """A snapshot with some fields of env 2 set to other values."""
    snapshot = {name: each.copy() for name, each in honest.items()}
    states = snapshot["states"].view(pool.states().dtype)
    for name, value in fields.items():
        states[name][2] = value
    return snapshot


# One of each kind, played alone, in turns and by agents, whose rules index arrays by their state. That no rule of any
# other built-in world leaves its arrays is seen where it is interpreted: `tests/parity/test_back_ends.py`.
@pytest.mark.parametrize("name", ["memory", rest("connect_four"), rest(f"{HELPERS}/player_worlds.py:Mortals")])
def test_an_honest_state_is_restored_and_goes_on_the_same_checked_or_not(name: str) -> None:
    """Through the checked kernels and, once every episode has ended, the fast ones again."""
    pool, seen = played(name), []
    snapshot = pool.snapshot()
    for is_own in (True, False):
        random, trace = np.random.default_rng(5), []
        out = pool.restore(snapshot, is_own=is_own)
        for _ in range(60):
            out = pool.step(random_actions(pool, out, random))
            trace += [pool.snapshot()["states"].tobytes(), out.reward.tobytes(), out.terminated.tobytes()]
        seen.append(trace)
    assert seen[0] == seen[1]


IMPOSSIBLE = {
    "cartpole": [
        ("_episode", -1), ("_episode", 2**31 - 1), ("_draw", -5), ("_steps", 500), ("_steps", -1), ("_index", -1),
        ("_return", np.nan),
    ],
    "snake": [
        ("_alive", 2), ("_returns", np.inf), ("head", 30_000), ("length", 30_000), ("body", -2), ("food", 100),
    ],
    "connect_four": [("heights", 100), ("turn", 5)],
    "maze": [("row", 10), ("target_col", -1)],
    "game_2048": [("board", 18)],
    "sokoban": [("row", 0), ("num_placed", 4)],
    "binpack": [("num_items", 10**9), ("order", 40)],
    "rubiks_cube": [("cube", 6)],
    "sliding_tiles": [("gap", 9), ("tiles", -1)],
    "squared": [("rim_rows", 7)],
    "memory": [("tick", 10**6)],
    "tmaze": [("position", -7)],
    "deep_sea": [("column", 10)],
}  # fmt: skip
"""Values that no episode of a world can have."""


def test_a_field_that_no_episode_can_have_is_refused_by_name() -> None:
    for name, fields in IMPOSSIBLE.items():
        pool = played(name, "interpreted", steps=12)
        honest = forged(pool, pool.snapshot())
        for field, value in fields:
            told = rf"the saved state of env 2 is none of \w+: {field} is .*--fork"
            with pytest.raises(ConfigError, match=told):
                pool.restore(forged(pool, honest, **{field: value}), is_own=False)


class Cards(Env):
    """Shows the card that an index without declared bounds points at; the index moves on by itself."""

    max_episode_steps = 50
    observation_space = Box(0, 100, (1,), np.float32)
    action_space = Discrete(2)
    state = {"cards": (np.int8, 10), "top": np.int64, "speed": np.int64}

    def reset(self, s):
        s.speed = 1
        for i in range(10):
            s.cards[i] = i

    def step(self, s, action):
        s.top += s.speed
        if s.top >= 10:
            s.top = 0
        return float(s.cards[s.top]), False

    def observe(self, s, obs):
        obs[0] = s.cards[s.top]


@pytest.mark.parametrize("num_threads", [1, rest(2)])
def test_an_index_out_of_bounds_is_found_when_it_is_used_and_checks_end_with_the_last_episode(num_threads: int) -> None:
    """Unchecked, these would read an address that the process does not have."""
    pool, actions = NativePool(Cards(), 4, num_threads=num_threads), np.zeros(4, np.int64)
    for field, value in (("top", -(10**15)), ("top", 10**15), ("speed", -(10**14))):
        pool.reset(1)
        snapshot = forged(pool, pool.snapshot(), **{field: value})
        with pytest.raises(WorldError, match="the saved state of an env is none of Cards") as found:  # noqa: PT012
            pool.restore(snapshot, is_own=False)
            pool.step(actions)
        assert FIX in str(found.value)
        pool.reset(2)
        assert pool.step(actions).reward.tolist() == [1.0] * 4
    for _ in range(19):
        pool.step(actions)
    fast = pool._kernels
    pool.restore(forged(pool, pool.snapshot(), _steps=40), is_own=False)
    for _ in range(30):  # the episode of one env ends before, those of all others with this
        assert pool._kernels is not fast
        pool.step(actions)
    pool.step(actions)
    assert pool._kernels is fast


def test_bounds_of_a_field_that_is_none_are_the_authors_mistake() -> None:
    class Typo(Cards):
        state_bounds = {"tpo": (0, 9)}

    with pytest.raises(WorldError, match=r"Typo.state_bounds names 'tpo'.*Did you mean 'top'"):
        NativePool(Typo(), 1, backend="interpreted")


# --- whole runs -----------------------------------------------------------------------------------------------------


def small_run(tmp_path: Path, env: str) -> scramjet.TrainResult:
    config = RunConfig(
        env=env, num_envs=4, num_steps=8, total_timesteps=128, device="cpu",
        checkpoint=CheckpointConfig(every=2, keep_last_n=None), eval=EvaluationConfig(every=0, final_episodes=0),
    )  # fmt: skip
    return scramjet.train(config, runs_dir=tmp_path, run_name=env.replace(":", "-"), display="quiet")


def back_to_the_middle(result: scramjet.TrainResult) -> None:
    """As if the run had been killed after its second update."""
    shutil.rmtree(result.run_path / "checkpoints" / "step_00000128")


def weights(result: scramjet.TrainResult) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensor in result.policy.state_dict().values())


@pytest.mark.parametrize("env", ["cartpole", rest("gym:CartPole-v1")])
def test_ones_own_checkpoint_is_taken_as_it_is_and_a_strangers_is_not(env, tmp_path, monkeypatch, capsys) -> None:
    """The stranger's is the same one, without the key; native worlds go on exactly even then, only checked."""
    result = small_run(tmp_path, env)
    seen = []
    monkeypatch.setattr(NativePool, "_go_on_probation", lambda pool: seen.append("checked"))
    for state, trust in (("", False), ("nobody", False), ("nobody", True)):
        back_to_the_middle(result)
        if state:
            monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / state))
        again = scramjet.train(resume=result.run_path, trust=trust, display="plain")
        has_fresh_episodes = "not saved by you" in capsys.readouterr().out
        is_strangers = state == "nobody" and not trust
        assert bool(seen) == (is_strangers and env == "cartpole")
        assert has_fresh_episodes == (is_strangers and env != "cartpole")
        assert (weights(again) == weights(result)) != has_fresh_episodes
        seen.clear()


def test_a_forged_run_is_one_message_and_loses_nothing(tmp_path, capsys) -> None:
    result = small_run(tmp_path, "cartpole")
    back_to_the_middle(result)
    checkpoint, _ = CheckpointStore(result.run_path / "checkpoints", None).load_latest_whole()
    assert checkpoint is not None
    states = checkpoint.trainer["pool/states"].numpy().view(NativePool(load_env("cartpole"), 1).states().dtype)
    states["_steps"] = 20_000
    record = encode(checkpoint.step, checkpoint.model, checkpoint.trainer, checkpoint.metadata, is_best=False)
    signature = json.loads(record["metadata.json"])["signature"].encode()
    for name, data in record.items():
        (checkpoint.path / name).write_bytes(data.replace(signature, b"0" * 64))
    said = refusal(capsys, "train", "--resume", result.run_path)
    assert "the saved state of env 0 is none of CartPole: _steps is 20000" in said
    assert "--fork" in said
    fork = ["--fork", result.run_path, "--total-timesteps", 128, "--runs-dir", tmp_path, "--display", "quiet"]
    assert call("train", *fork) == 0


def test_a_strangers_records_stay_so_when_the_user_saves_and_signs_them(tmp_path, monkeypatch) -> None:
    """Episodes of pendulum last 200 steps: after a few updates the stranger's records are still played."""
    result = small_run(tmp_path, "pendulum")
    checkpoint = load_checkpoint(result.run_path)
    pendulum, acrobot = (
        SimpleNamespace(config=resolve(RunConfig(env=name)), run=SimpleNamespace(path=result.run_path))
        for name in ("pendulum", "acrobot")
    )
    acrobot.pool = SimpleNamespace(env=load_env("acrobot"))
    assert resume._has_own_records(checkpoint, pendulum)
    assert not resume._has_own_records(checkpoint, acrobot)  # signed, and of another world
    assert not resume._has_own_records(replace(checkpoint, is_own=False), pendulum)
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "nobody"))
    seen = []

    def watched(pool: NativePool) -> None:
        seen.append("checked")
        pool._unchecked, pool._probation = pool._kernels, Probation(pool._states)

    monkeypatch.setattr(NativePool, "_go_on_probation", watched)
    for number in (1, 2):
        again = scramjet.train(resume=result.run_path, total_timesteps=128 + 32 * number, display="quiet")
        assert len(seen) == number
        assert load_checkpoint(again.run_path).is_own
    for steps in (32 * 60, 32 * 61):  # every episode has ended since
        scramjet.train(resume=result.run_path, total_timesteps=steps, display="quiet")
    assert len(seen) == 3
