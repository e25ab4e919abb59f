"""What a remote actor does in its process, and how worlds of the user's own reach it: called here, without Ray."""

import importlib.util
import os
import pickle
import sys
from dataclasses import replace

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch

from scramjet.adapters.factories import register_factory
from scramjet.adapters.registry import load_world
from scramjet.adapters.world_code import file_in
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ConfigError, ScramjetError
from scramjet.training.asynchronous.remote_actor import Order, RemoteActor, SentWorld
from scramjet.training.components import make_policy
from scramjet.training.config.resolution import resolve
from scramjet.version import __version__
from tests.helpers.async_runs import Corridor, settings
from tests.helpers.run_files import train

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Failing(Corridor):
    num_steps = 0

    def step(self, action):
        Failing.num_steps += 1
        if Failing.num_steps == 20:
            raise KeyError("the door is missing")
        return super().step(action)


def actor_of(env, **changes):
    """An actor of four envs that has begun, and its policy."""
    config = replace(resolve(settings(env, actors="ray", **changes)), num_workers=0)
    policy = make_policy(config)
    actor = RemoteActor(Order(1, config, SentWorld.of(env), 4, EpisodeSeed(7), seed=3))
    greeting = actor.begin(policy)
    assert greeting.version == __version__
    return actor, policy


def weights_of(policy):
    return {name: tensor.numpy() for name, tensor in policy.state_dict().items()}


def test_a_trajectory_is_played_by_the_weights_that_were_sent_and_goes_on_where_the_last_one_ended():
    actor, policy = actor_of("cartpole")
    torch.manual_seed(5)
    with torch.no_grad():
        sent = {name: tensor + 0.1 * torch.randn_like(tensor) for name, tensor in policy.state_dict().items()}
    arrays = {name: tensor.numpy() for name, tensor in sent.items()}
    for array in arrays.values():
        array.flags.writeable = False  # as those in an object store
    rollout = actor._player.rollout
    names = [id(tensor) for tensor in rollout.learned_tensors]
    obs, action, log_prob = (names.index(id(each)) for each in (rollout.obs, rollout.action, rollout.log_prob))
    shown_last = actor.play(3, arrays).arrays[obs][-1].copy()
    played = actor.play(3, None)
    assert played.version == 3
    shown, acted = played.arrays[obs], played.arrays[action]
    np.testing.assert_array_equal(shown[0], shown_last)
    rules = gymnasium.make("CartPole-v1").unwrapped  # by somebody else
    rules.reset(seed=0)
    rules.state = shown[0, 0].astype(np.float64)
    np.testing.assert_allclose(rules.step(int(acted[0, 0]))[0], shown[1, 0], atol=1e-5)
    policy.load_state_dict(sent)
    with torch.no_grad():
        drawn = torch.distributions.Categorical(logits=policy(torch.from_numpy(shown[:-1].reshape(-1, 4)))[0])
        wanted = drawn.log_prob(torch.from_numpy(acted.reshape(-1)))
    np.testing.assert_allclose(played.arrays[log_prob].reshape(-1), wanted.numpy(), atol=1e-5)


def test_envs_that_fail_are_made_anew_in_the_actor_if_they_may_be():
    Failing.num_steps = 0
    actor, policy = actor_of(register_factory(Failing), on_env_error="fail")
    with pytest.raises(ScramjetError, match="the door is missing"):
        actor.play(0, weights_of(policy))
    Failing.num_steps = 0
    actor, policy = actor_of(register_factory(Failing), on_env_error="restart")
    first, second = (actor.play(0, weights_of(policy)) for _ in range(2))
    assert (first.restarts, second.restarts) == (1, 0)
    assert "restarted: " in first.messages[0]
    assert "the door is missing" in first.messages[0]
    assert not second.messages
    assert first.episodes.num_ended + second.episodes.num_ended >= 8


def test_without_ray_the_extra_to_install_is_named_and_no_run_is_begun(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    with pytest.raises(ConfigError, match=r"pip install 'scramjet\[ray\]'"):
        train(settings(actors="ray"), tmp_path)
    assert not list(tmp_path.iterdir())


FACTORY = "import gymnasium\nfrom {helper} import NAME\ndef make():\n    return gymnasium.make(NAME)\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "far_names.py").write_text("NAME = 'CartPole-v1'\n")
    (tmp_path / "far_envs.py").write_text(FACTORY.format(helper="far_names"))
    return tmp_path


def on_another_machine(sent, files):
    """What is left of a world there: the bytes that were sent, and none of the files."""
    data = pickle.dumps(sent)
    for path in files.glob("*.py"):
        path.unlink()
    for name in ("far_envs", "far_names"):
        sys.modules.pop(name, None)
    return pickle.loads(data)


def test_a_file_and_what_it_imports_are_sent_and_the_users_own_file_is_used_where_it_is(files):
    name = f"factory:{files / 'far_envs.py'}:make"
    sent = SentWorld.of(name)
    assert sent.open() == name
    (files / "far_names.py").write_text("NAME = 'Acrobot-v1'\n")  # a file with other contents there is not used
    assert load_world(sent.open(), {}).env_factory()().spec.id == "CartPole-v1"
    opened = on_another_machine(sent, files).open()
    assert opened != name
    assert os.path.basename(file_in(opened).path) == "far_envs.py"
    assert load_world(opened, {}).env_factory()().spec.id == "CartPole-v1"


def test_a_module_of_the_users_is_sent_and_an_installed_one_is_not(files, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(files)])
    sent = SentWorld.of("factory:far_envs:make")
    assert set(sent.sources) == {"far_envs.py", "far_names.py"}
    assert SentWorld.of("gym:gymnasium:CartPole-v1").sources is None
    there = on_another_machine(sent, files)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(files)])
    assert load_world(there.open(), {}).env_factory()().spec.id == "CartPole-v1"
