"""An algorithm of one's own: the example trains, resumes exactly, and is refused what its record does not claim."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.algorithms import algorithm as algorithms
from scramjet.algorithms.algorithm import ALGORITHMS, Algorithm, register_algorithm
from scramjet.errors import ConfigError
from tests.helpers import ROOT
from tests.helpers.run_files import NO_EVALUATION, assert_resumes_exactly

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def a2c(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    monkeypatch.setattr(algorithms, "ALGORITHMS", ALGORITHMS | {})
    record: Algorithm = runpy.run_path(str(ROOT / "examples" / "a2c.py"), run_name="a2c_example")["A2C"]
    register_algorithm(record)
    return record


def test_it_learns_which_arm_pays_and_a_resumed_run_ends_with_the_same_bytes(tmp_path: Path, a2c: Algorithm) -> None:
    config = replace(
        scramjet.starting_config("bandit", algorithm="a2c"), total_timesteps=20 * 1024, num_threads=1,
        ppo=scramjet.PPOConfig(learning_rate=0.01), eval=NO_EVALUATION,
    )  # fmt: skip
    whole = assert_resumes_exactly(config, tmp_path)
    assert whole.metrics["return_100"] > 0.9
    assert whole.metrics["epochs"] == 1
    assert 'algorithm = "a2c"' in (whole.run_path / "config.toml").read_text()


def test_what_its_record_does_not_claim_is_refused_by_its_name(a2c: Algorithm, monkeypatch: Any) -> None:
    assert scramjet.RunConfig(algorithm="a2c", ppo=scramjet.PPOConfig(entropy_coef=0.5)).traits is a2c
    for settings, words in (
        ({"ppo": scramjet.PPOConfig(clip_epsilon=0.1)}, "clip_epsilon=0.1 is PPO's, and algorithm='a2c'"),
        ({"mode": "async", "num_actors": 1}, "algorithm='a2c' plays and learns in turns"),
        ({"num_processes": 2, "num_envs": 64}, "algorithm='a2c' learns in one process"),
        ({"curiosity": "rnd"}, "curiosity='rnd' is for PPO's loss"),
    ):
        with pytest.raises(ConfigError, match=words):
            scramjet.RunConfig(algorithm="a2c", **settings)
    for record, words in (
        (replace(a2c, name="ppo"), "ppo is an algorithm of scramjet's"),
        (replace(a2c, name="a-b"), "cannot be named 'a-b'"),
        (replace(a2c, name="mine", loss="ppo"), "loss, settings and search are for scramjet's own"),
        ("a2c", "takes a scramjet.Algorithm"),
    ):
        with pytest.raises(ConfigError, match=words):
            register_algorithm(record)  # type: ignore[arg-type]


def test_an_installed_package_is_asked_for_an_algorithm_that_is_not_known(a2c: Algorithm, monkeypatch: Any) -> None:
    class Entry:
        name = "theirs"

        def load(self) -> Algorithm:
            return replace(a2c, name="theirs")

    monkeypatch.setattr(algorithms, "entry_points", lambda group: [Entry()] * (group == "scramjet.algorithms"))
    assert scramjet.RunConfig(algorithm="theirs").traits.summary == a2c.summary
    with pytest.raises(ConfigError, match=r"algorithm='their' must be one of .*theirs\. Did you mean 'theirs'\?"):
        scramjet.RunConfig(algorithm="their")
