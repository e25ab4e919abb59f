"""Numbers that the user names in Gymnasium's `info` reach the metrics as statistics of the episodes."""

import sys
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

import scramjet
from scramjet.adapters.factories import register_factory
from scramjet.adapters.info import InfoSelection
from scramjet.adapters.registry import ForeignWorld
from scramjet.errors import ConfigError
from tests.helpers.run_files import lines_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it

LENGTH = 5


class Telling(gymnasium.Env[Any, Any]):
    """Five steps; `info` counts them in numbers of every kind, so that only the last step's value is `LENGTH`."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = self.episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.episode = 0, self.episode + 1
        return np.zeros(2, np.float32), self._info()

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps == LENGTH, False, self._info()

    def _info(self) -> dict[str, Any]:
        """Numbers of this step; "odd" is there in every second episode alone."""
        odd = {"odd": float(self.episode)} if self.episode % 2 else {}
        return {
            "success": self.steps == LENGTH, "steps": self.steps, "of_one": np.array([2.0 * self.steps]),
            "reward": {"x": 3 * self.steps, "deep": {"y": np.float32(4 * self.steps), "text": "no number"}},
            "text": "no number", "many": np.zeros(3), **odd,
        }  # fmt: skip


def make_vector_env(num_envs: int) -> gymnasium.vector.VectorEnv:
    """Gymnasium's own vector env, which resets envs in the step in which they end."""
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([Telling] * num_envs, autoreset_mode=same_step)


LAST = {"success": 1.0, "reward/x": 3.0 * LENGTH, "reward/deep/y": 4.0 * LENGTH, "of_one": 2.0 * LENGTH}
"""What some are in the last step of every episode."""
SMALL: dict[str, Any] = {
    "env": Telling, "num_envs": 4, "num_steps": 16, "num_minibatches": 1, "total_timesteps": 128, "device": "cpu",
    "policy": {"hidden": [8]}, "eval": {"every": 2, "episodes": 4, "final_episodes": 0}, "display": "quiet",
}  # fmt: skip


def stats_of(record: dict[str, Any], prefix: str) -> dict[str, float]:
    return {key.removeprefix(prefix): value for key, value in record.items() if key.startswith(prefix)}


@pytest.mark.parametrize(
    "settings",
    [
        {"num_workers": 0},
        pytest.param({"num_workers": 2}, marks=pytest.mark.rest),
        pytest.param({"mode": "async", "num_actors": 2, "loss": "impala"}, marks=pytest.mark.rest),
        {"env": make_vector_env},
    ],
    ids=["serial", "workers", "async", "vector"],
)
def test_named_numbers_are_those_of_the_last_step_and_no_others_are_logged_also_when_resumed(tmp_path, settings):
    given = {**SMALL, **settings}
    run = scramjet.train(runs_dir=tmp_path, log_info=tuple(LAST), **given).run_path
    scramjet.load_policy(run)
    scramjet.train(resume=run, env=given["env"], total_timesteps=256, display="quiet")
    *_, record = lines_of(run)
    assert record["step"] == 256
    assert stats_of(record, "stat/") == LAST
    assert stats_of(record, "eval/stat/") == LAST


def test_without_names_all_numbers_that_are_not_nested_are_logged() -> None:
    pool = ForeignWorld(register_factory(Telling)).pool(2)
    pool.reset(1)
    for _ in range(LENGTH):
        pool.step(np.zeros(2, np.int64))
    pool.close()
    assert set(pool.episodes().stats) == {"success", "steps", "of_one", "odd"}


def test_a_number_that_some_episodes_lack_is_averaged_over_those_that_have_it_and_unknown_names_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"num_workers": 0, "num_envs": 1, "num_steps": 64, "display": "plain"}
    run = scramjet.train(runs_dir=tmp_path, log_info=("odd", "sucess"), **{**SMALL, **changes}).run_path
    # An episode ends every five steps; env 1 was reset once before, to look at it, and so begins with episode 2.
    odd = [number for number in range(2, 2 + 64 // LENGTH) if number % 2]
    assert lines_of(run)[0]["stat/odd"] == pytest.approx(np.mean(odd))
    told = [line for line in capsys.readouterr().out.splitlines() if "sucess" in line and "never gave" in line]
    assert len(told) == 1
    assert "Did you mean" in told[0]
    assert "reward/deep/y" in told[0]


def test_a_nested_number_gives_way_to_one_whose_own_name_has_the_stroke() -> None:
    assert InfoSelection(["a/b", "c"]).selected(["/a/b", "a/b", "/c/d"]) == {"a/b": "a/b"}
    assert InfoSelection(["a/b"]).selected(["/a/b"]) == {"a/b": "/a/b"}


def test_names_that_cannot_be_found_are_refused_with_the_fix() -> None:
    for env, names, said in [
        ("cartpole", ("win",), r"native world.*stat_names"),
        ("ale:Pong", ("lives",), r"gym:ALE/Pong-v5"),
        ("gym:CartPole-v1", ("a", "a"), "each once"),
        ("gym:CartPole-v1", ("/",), r"reward/x for"),
    ]:
        with pytest.raises(ConfigError, match=said):
            scramjet.RunConfig(env=env, log_info=names)


@pytest.mark.rest
def test_mujocos_own_numbers_are_logged() -> None:
    pytest.importorskip("mujoco")
    pool = ForeignWorld("mujoco:InvertedPendulum-v5", info=InfoSelection(["reward_survive"])).pool(1)
    pool.reset(1)
    stats: dict[str, np.ndarray] = {}
    while not stats:
        pool.step(np.full((1, 1), 3.0, np.float32))
        stats = pool.episodes().stats
    pool.close()
    assert stats["reward_survive"].tolist() == [0.0]  # it has just fallen
