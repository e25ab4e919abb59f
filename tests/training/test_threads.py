"""How many threads a run takes where torch's operators learn."""

from dataclasses import replace

import pytest
from torch import nn

import scramjet
from scramjet.policies import PolicyConfig
from scramjet.training import threads
from scramjet.training.config import resolution
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.threads import limit_threads

SMALL, LARGE = nn.Linear(64, 64), nn.Linear(1024, 1024)
PLAIN = RunConfig(num_envs=4096, num_steps=16, device="cpu")


@pytest.fixture
def machine(monkeypatch):
    """Eight cores, of which so many are free."""

    def with_free(free):
        for module in (resolution, threads):
            monkeypatch.setattr(module, "available_cores", lambda: 8)
        monkeypatch.setattr(threads, "free_cores", lambda: free)

    return with_free


def chosen(config, network=None):
    decided, note = limit_threads(resolve(config), network)
    return decided.num_threads, note


def test_operators_take_no_more_threads_than_there_are_free_cores_and_say_so(machine):
    machine(3)
    slow = replace(PLAIN, fused=False, policy=PolicyConfig(hidden=(1024, 1024)))
    note = "3 threads, since other work keeps 5 of 8 cores busy (--num-threads 8 takes all)"
    assert chosen(slow) == (3, note)
    machine(8)
    assert chosen(slow) == (8, "")


def test_compiled_functions_keep_their_threads_however_busy_the_machine_is(machine):
    machine(1)
    assert chosen(PLAIN) == (8, "")


def test_a_network_of_ones_own_is_judged_by_its_weights(machine):
    machine(8)
    assert chosen(PLAIN, SMALL) == (1, "")
    assert chosen(PLAIN, LARGE) == (8, "")
    assert chosen(PLAIN, nn.Sequential(nn.Conv2d(1, 1, 3))) == (8, "")  # few weights, used many times
    machine(2)
    assert chosen(PLAIN, LARGE)[0] == 2


class OneThread(nn.Module):
    """A network that is no default one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, obs):
        out = self.layer(obs)
        return out[:, :2], out[:, 2]


def test_the_choice_is_frozen_with_the_run_and_a_number_of_ones_own_is_kept(machine, tmp_path):
    machine(8)
    tiny = RunConfig(
        num_envs=4, num_steps=8, total_timesteps=32, device="cpu", eval=EvaluationConfig(every=0, final_episodes=0)
    )
    for given, expected in ((tiny, 1), (replace(tiny, num_threads=2), 2)):
        result = scramjet.train(given, network=OneThread(), runs_dir=tmp_path, display="quiet")
        assert f"num_threads = {expected}\n" in (result.run_path / "config.toml").read_text()
