"""What a remote actor does in its process: called here, without Ray."""

import sys
from dataclasses import replace

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch

from scramjet.adapters.factories import register_factory
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ScramjetError
from scramjet.training.asynchronous.ray.remote_actor import Order, RemoteActor
from scramjet.training.asynchronous.ray.sent_world import SentWorld
from scramjet.training.components import make_policy
from scramjet.training.config.resolution import resolve
from scramjet.version import __version__
from tests.helpers.async_runs import Corridor, settings

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Failing(Corridor):
    """Raises in its twentieth step."""

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


@pytest.mark.parametrize("on_env_error", ["restart", "fail"])
def test_envs_that_fail_are_made_anew_in_the_actor_if_they_may_be(on_env_error):
    Failing.num_steps = 0
    actor, policy = actor_of(register_factory(Failing), on_env_error=on_env_error)
    if on_env_error == "fail":
        with pytest.raises(ScramjetError, match="the door is missing"):
            actor.play(0, weights_of(policy))
        return
    first, second = (actor.play(0, weights_of(policy)) for _ in range(2))
    assert (first.restarts, second.restarts) == (1, 0)
    assert "restarted: " in first.messages[0]
    assert "the door is missing" in first.messages[0]
    assert not second.messages
    assert first.episodes.num_ended + second.episodes.num_ended >= 8
