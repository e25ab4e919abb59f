"""Rollouts: what is stored is what happened, and what the policy then thought of it."""

import itertools
import sys
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium import spaces

import scramjet
from scramjet.engine.trees import leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, load_env
from scramjet.errors import TrainingError, WorldError
from scramjet.executors import torch_executor
from scramjet.executors.choice import choose_executor
from scramjet.executors.numba_executor import NumbaExecutor
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network, make_distribution
from scramjet.runtime.ranks import ALONE
from scramjet.training.components import make_pool
from scramjet.training.rollout import checks, final_observations
from scramjet.training.rollout.compiled_steps import MOST_ENVS
from scramjet.training.rollout.noise import NoiseOfRank
from scramjet.training.rollout.parts import CopiedPart
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.choosing import choosing_world
from tests.helpers.staircase import settings
from tests.helpers.thread_ranks import on_ranks

pytestmark = pytest.mark.usefixtures("one_thread")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it

RESET_SEED = 100
SMALL = PolicyConfig(hidden=(8,))
FIELDS = ("obs", "mask", "action", "log_prob", "value", "reward", "terminated", "truncated", "final_value", "states")


class Counting(Env):
    """A counter; the actions that are legal next, two of four, depend on it, and rewards tell them apart."""

    failing_episode: int = 1000
    max_episode_steps = 7

    observation_space = Box(-10, 10, (2,), np.float32)
    action_space = Discrete(4)
    state = {"count": np.int32}
    stat_names = ("count",)

    def reset(self, s):
        s.count = s._index % 3

    def step(self, s, action):
        if s._episode == self.failing_episode:
            raise ValueError("a rule failed")
        s.count += 1 + action
        return float(action) - 0.5 * s.count, s.count > 15

    def observe(self, s, obs):
        obs[0] = s.count / 4
        obs[1] = s.count % 2

    def mask(self, s, mask):
        for action in range(4):
            mask[action] = (action + s.count) % 2 == 0

    def stats(self, s, stats):
        stats.count = s.count


def start(
    env, num_envs=4, num_steps=20, *, backend="interpreted", config=SMALL, normalize=False, executor=None,
    sharpness=100, **options,
):  # fmt: skip
    """What plays rollouts of an env, or of a pool, with a policy away from uniform; and a generator."""
    pool = NativePool(env, num_envs, num_threads=1, backend=backend) if isinstance(env, Env) else env
    torch.manual_seed(0)
    shapes = pool.observation_space, pool.action_space
    policy = Policy(default_network(*shapes, config), *shapes, config, normalize_observations=normalize)
    with torch.no_grad():
        for weight in policy.network.actor_head.parameters():
            weight.mul_(sharpness if weight.dim() == 2 else 1)
    player = RolloutPlayer(pool, (executor or TorchExecutor)(policy), num_steps, **options)
    pool.reset(RESET_SEED, out=player.buffers.last)
    return player, torch.Generator().manual_seed(5)


WORLDS = {
    "cartpole": lambda **options: start(load_env("cartpole", max_episode_steps=9), 6, 40, backend="cpu", **options),
    "masked": lambda **options: start(Counting(), 5, 30, **options),
}


def test_stored_log_probs_and_values_are_those_the_policy_computes_on_the_stored_observations():
    networks = {"separate": {}, "shared": {"config": PolicyConfig(hidden=(8,), shared_trunk=True)}}
    for case in itertools.product(WORLDS, (networks | {"normalized": {"normalize": True}}).items()):
        world, (_, options) = case
        player, generator = WORLDS[world](**options)
        policy, rollout = player.executor.policy, player.rollout
        if policy.normalizer is not None:
            policy.normalizer.update(torch.randn(50, *player.pool.observation_space.shape) * 2 + 1)
        for _ in range(2):
            player.play(generator)
            with torch.no_grad():
                logits, value, _ = policy(rollout.obs.flatten(0, 1))
            logits = logits.reshape(*rollout.value.shape, -1)[:-1]
            if rollout.mask is not None:
                logits = torch.where(rollout.mask[:-1], logits, -torch.inf)
            expected = torch.distributions.Categorical(logits=logits, validate_args=False).log_prob(rollout.action)
            assert torch.allclose(rollout.log_prob, expected, rtol=1e-5, atol=1e-5), case
            assert torch.allclose(rollout.value, value.reshape(rollout.value.shape), rtol=1e-5, atol=1e-5), case


def test_a_rollout_is_what_a_replay_of_its_actions_gives_and_values_where_episodes_were_cut(monkeypatch):
    """Final values stand only there, and value the true last observation; also in small chunks as they come."""
    for world, chunk in itertools.product(WORLDS, (1, 4096)):
        monkeypatch.setattr(torch_executor, "VALUE_CHUNK", chunk)
        monkeypatch.setattr(final_observations, "VALUED_AT_ONCE", chunk)
        player, generator = WORLDS[world]()
        pool, policy, rollout = player.pool, player.executor.policy, player.rollout
        replay = NativePool(pool.env, pool.num_envs, num_threads=1, backend=pool.backend)
        out = replay.reset(RESET_SEED)
        ended = cut = 0
        for _ in range(3):
            player.play(generator)
            expected = torch.zeros_like(rollout.final_value)
            for t in range(rollout.num_steps):
                np.testing.assert_array_equal(rollout.obs[t], out.obs)
                if rollout.mask is not None:
                    np.testing.assert_array_equal(rollout.mask[t], out.mask)
                    assert out.mask[np.arange(pool.num_envs), rollout.action[t]].all()
                out = replay.step(rollout.action[t].numpy().copy())
                for name in ("reward", "terminated", "truncated"):
                    np.testing.assert_array_equal(getattr(rollout, name)[t], getattr(out, name))
                for n in np.flatnonzero(out.truncated):
                    with torch.no_grad():
                        expected[t, n] = policy.value(torch.from_numpy(out.final_obs[n : n + 1]))[0]
                    assert abs(expected[t, n] - rollout.value[t + 1, n]) > 1e-4  # the next episode's first is another
            np.testing.assert_array_equal(rollout.obs[-1], out.obs)
            torch.testing.assert_close(rollout.final_value, expected, rtol=1e-5, atol=1e-5)
            ended += int(rollout.terminated.sum())
            cut += int(rollout.truncated.sum())
        assert ended > 0, world
        assert cut > 5, world


def test_the_generator_alone_decides_however_steps_are_divided_into_rollouts():
    def steps(num_steps=24, seed=5):
        player, _ = start(Counting(), 4, num_steps)
        rollout, generator, parts = player.rollout, torch.Generator().manual_seed(seed), []
        for _ in range(24 // num_steps):
            player.play(generator)
            parts.append([x.clone() for x in (rollout.obs[:-1], rollout.action, rollout.reward, rollout.final_value)])
        return [torch.cat(column) for column in zip(*parts, strict=True)]

    long, before = steps(), torch.get_rng_state()
    for one, other in zip(long, steps(12), strict=True):
        torch.testing.assert_close(one, other)
    assert not torch.equal(long[1], steps(seed=6)[1])
    player, generator = start(Counting())
    before = torch.get_rng_state()
    player.play(generator)
    assert torch.equal(before, torch.get_rng_state())


def test_actions_come_out_as_often_as_the_policy_says():
    player, generator = start(load_env("bandit"), 200, 50, backend="cpu")
    policy, rollout = player.executor.policy, player.rollout
    logits = torch.tensor([0.0, 1.0, -1.0, 0.5])
    with torch.no_grad():
        policy.network.actor_head.weight.zero_()
        policy.network.actor_head.bias.copy_(logits)
    player.play(generator)
    expected = torch.softmax(logits.double(), 0) * 10_000
    counts = torch.bincount(rollout.action.flatten(), minlength=4)
    assert ((counts - expected) ** 2 / expected).sum() < 16.27  # the 0.999 quantile with 3 degrees of freedom


def test_each_rank_keeps_its_own_rows_of_the_noise_that_one_process_draws():
    shapes = (spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,)))
    for space, size in itertools.product(shapes, (1, 2, 4)):
        distribution = make_distribution(space, PolicyConfig())
        whole = distribution.noise(5, 8, torch.Generator().manual_seed(3))

        def draw(ranks, whole=whole, size=size, distribution=distribution):
            own = torch.zeros_like(whole[:, : 8 // size]).contiguous()
            generator = torch.Generator().manual_seed(3)
            NoiseOfRank(distribution, own, ranks).draw(generator)
            return own, generator.get_state()

        drawn = [draw(ALONE)] if size == 1 else on_ranks(size, draw)
        assert torch.equal(torch.cat([own for own, _ in drawn], dim=1), whole), (space, size)
        assert all(torch.equal(state, drawn[0][1]) for _, state in drawn), (space, size)


# --- worlds that give what must not reach the weights ---------------------------------------------------------------


class Faulty(Env):
    """Pays or shows what it should not in env 3 alone, in the step that makes its count 5."""

    max_episode_steps = 1000
    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Discrete(2)
    state = {"count": np.int32}
    usual, paid, shown, at, env_index = 1.0, 1.0, 1.0, 5, 3

    def reset(self, s):
        s.count = 0

    def step(self, s, action):
        s.count += 1
        return (self.paid if s.count == self.at and s._index == self.env_index else self.usual), False

    def observe(self, s, obs):
        obs[:] = 1
        if s.count == self.at and s._index == self.env_index:
            obs[0] = self.shown


CHOICE = {"shown": 7, "observation_space": Discrete(3)}
FAULTS = [
    ({"paid": np.nan}, "a reward of nan in env 3 at step 5"),
    ({"paid": np.inf}, "a reward of inf in env 3 at step 5"),
    ({"paid": np.nan, "at": 13, "env_index": 0}, "a reward of nan in env 0 at step 13"),
    ({"shown": np.nan}, "an observation of nan in env 3 at step 5"),
    # Where an episode is cut the next one's first observation takes its place in the rollout; yet it would be valued.
    ({"shown": np.nan, "max_episode_steps": 5}, "an observation of nan in env 3 at step 5"),
    ({"shown": 1e39}, r"an observation of 1e\+39, too large for .* in env 3 at step 5"),
    ({"shown": 1e39, "max_episode_steps": 5}, r"an observation of 1e\+39, too large for .* in env 3 at step 5"),
    (CHOICE, "7, outside its space, in env 3 at step 5"),
]


def test_a_number_that_networks_must_not_see_is_named_with_its_env_and_step():
    for (changes, message), apart in itertools.product(FAULTS, (False, True)):
        env = type("Faulty", (Faulty,), changes)()
        player, generator = start(env, 6, 8, apart=apart)
        if changes.get("at") == 13:
            player.play(generator)
        with pytest.raises(TrainingError, match=rf"{message}\b"):
            player.play(generator)


def test_a_choice_that_is_none_is_told_even_where_the_device_is_lost_over_it(monkeypatch):
    def decide(part, t):
        if t == 6:
            raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(CopiedPart, "show", lambda part, t: None)  # what is there cannot be looked at any more
    monkeypatch.setattr(CopiedPart, "decide", decide)
    player, generator = start(type("Faulty", (Faulty,), CHOICE)(), 6, 8, apart=True)
    with pytest.raises(TrainingError, match="7, outside its space, in env 3 at step 5"):
        player.play(generator)


def test_large_finite_numbers_whose_sum_overflows_are_no_error():
    player, generator = start(type("Large", (Faulty,), {"usual": 3e38})())
    player.play(generator)
    assert torch.isinf(player.rollout.reward.sum())


def test_a_glance_finds_what_a_check_finds_and_nothing_in_a_sound_rollout():
    player, generator = start(choosing_world("dict", "multi", "one"), 4, 3)
    pool, rollout = player.pool, player.play(generator)
    glance = checks.Glance(pool, rollout)
    assert glance.is_fine()
    spoiled = [(rollout.reward, torch.inf), (rollout.final_value, torch.nan)]
    spoiled += [(leaf, torch.nan if leaf.is_floating_point() else 99) for leaf in leaves(rollout.obs)]
    for data, value in spoiled:
        kept = data.clone()
        data.view(-1)[-1] = value
        assert not glance.is_fine()
        with pytest.raises(TrainingError):
            checks.check(pool, rollout)
        data.copy_(kept)
    assert glance.is_fine()
    rollout.final_value[1, 2] = torch.nan
    with pytest.raises(TrainingError, match=r"a last observation with a value of nan in env 2 at step 2;"):
        checks.check(pool, rollout)


def test_an_index_out_of_range_on_the_gpu_sends_the_user_to_the_cpu():
    player, _ = start(Counting())
    obs = SimpleNamespace(is_cuda=True)  # which cannot be looked at any more
    told = pytest.raises(TrainingError, match=r"out of range.*Counting|Counting.*out of range.*--device cpu")
    with told, checks.errors_explained(player.pool, obs, 1):
        raise RuntimeError("CUDA error: device-side assert triggered")
    with pytest.raises(RuntimeError, match="another"), checks.errors_explained(player.pool, obs, 1):
        raise RuntimeError("another")


# --- ways to play that give the same --------------------------------------------------------------------------------


def test_deciding_by_halves_gives_what_deciding_at_once_gives():
    """Up to the rounding of products of fewer rows."""
    for memory, fused in itertools.product((None, "gru"), (True, False)):
        rollouts = []
        for in_halves in (True, False):
            pool = make_pool(settings("gym:CartPole-v1", num_workers=0, num_envs=5), num_envs=5, learns=True)
            player, generator = start(
                pool, num_steps=64, config=PolicyConfig(memory=memory, memory_size=8), in_halves=in_halves,
                executor=lambda policy, pool=pool, fused=fused: choose_executor(policy, pool, fused=fused),
            )  # fmt: skip
            assert player.executor.name == ("numba" if fused else "torch")
            assert [len(part.rollout.action[0]) for part in player.parts] == ([2, 3] if in_halves else [5])
            for _ in range(2):
                player.play(generator)
            rollouts.append(player.rollout)
        pairs = [[getattr(rollout, name) for rollout in rollouts] for name in FIELDS if name != "mask"]
        for mine, other in [*pairs, [rollout.recurrent.states for rollout in rollouts]]:
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.rest
def test_envs_receive_the_actions_that_a_kernel_wrote_for_them(triton_device, monkeypatch):
    """Steps of a continuous world need no operator between the kernel that draws and the envs."""
    from scramjet.executors.triton_executor import TritonExecutor
    from tests.helpers.fused_mlps import TritonMLP, plan_of

    pool = scramjet.make("pendulum", 5, **({"backend": "cuda"} if triton_device.type == "cuda" else {}))
    shapes, config = (pool.observation_space, pool.action_space), PolicyConfig(hidden=(16, 16))
    policy = Policy(default_network(*shapes, config), *shapes, config).to(triton_device)
    played, calls, kind = [], [], type(policy.distribution)
    usual = kind.env_action
    monkeypatch.setattr(kind, "env_action", lambda self, action: calls.append(1) or usual(self, action))
    for is_written in (True, False):
        executor = TritonExecutor(policy, TritonMLP(plan_of(policy), precision="float32"))
        assert executor.writes_env_actions
        executor.writes_env_actions = is_written
        player = RolloutPlayer(pool, executor, 3)
        pool.reset(0, out=player.buffers.last)
        calls.clear()
        played.append(player.play(torch.Generator(triton_device).manual_seed(0)))
        assert bool(calls) != is_written
    for name in ("obs", "action", "reward"):
        torch.testing.assert_close(getattr(played[0], name), getattr(played[1], name), rtol=0, atol=0, msg=name)


class Brief(Counting):
    max_episode_steps = 4


def compiled_player(env, num_envs=5, **shape):
    config = PolicyConfig(hidden=(16, 16), **shape)
    return start(env, num_envs, backend="cpu", config=config, executor=NumbaExecutor, sharpness=1)[0]


def step_by_step(env):
    player = compiled_player(env)
    player._compiled = None
    return player


def test_compiled_steps_give_the_bits_of_single_steps_and_errors_of_rules_as_well():
    for env in (Brief(), load_env("cartpole", max_episode_steps=9)):
        compiled, single = compiled_player(env), step_by_step(env)
        assert compiled._compiled is not None
        generators = [torch.Generator().manual_seed(1) for _ in range(2)]
        for _ in range(3):
            played = [player.play(random) for player, random in zip((compiled, single), generators, strict=True)]
            for name in FIELDS:
                one, other = (getattr(rollout, name) for rollout in played)
                assert (one is None and other is None) or torch.equal(one, other), name
            ended, expected = compiled.pool.episodes(), single.pool.episodes()
            assert ended.num_ended == expected.num_ended > 0
            assert np.array_equal(ended.returns, expected.returns)
        assert bool((played[0].final_value != 0).any())  # episodes were cut, and more than once
        assert compiled.pool.steps_taken == single.pool.steps_taken == 3 * 20
        assert compiled.pool.states().tobytes() == single.pool.states().tobytes()
        kept = [path.name.partition("-")[0] for path in single.pool._kernels.step._cache.directory.iterdir()]
        assert "play" in kept
        assert kept.count("step") == 1  # compiled once, for Python and for `play`
    told = []
    for player in (compiled_player(Brief(failing_episode=1)), step_by_step(Brief(failing_episode=1))):
        with pytest.raises(WorldError, match="a rule failed") as error:
            player.play(torch.Generator().manual_seed(1))
        told.append((str(error.value), player.pool.steps_taken))
    assert told[0] == told[1]
    assert told[0][1] == 5


def test_steps_are_played_one_by_one_where_a_compiled_function_cannot_play_them():
    """With memory, many envs or bounded actions; and while a record of a file is left, which rules must check."""
    assert compiled_player(Brief(), memory="gru", memory_size=8)._compiled is None
    assert compiled_player(Brief(), MOST_ENVS + 1)._compiled is None
    assert compiled_player(load_env("pendulum"))._compiled is None
    player = compiled_player(Brief())
    assert player._compiled is not None
    player.pool.restore(player.pool.snapshot(), out=player.buffers.last, is_own=False)
    assert not player._compiled.can_play
    player.play(torch.Generator().manual_seed(1))  # every episode ends within it
    player.pool.rollout_step(player.rollout.action[0].numpy(), player.buffers.last)  # looks whether the watch is over
    assert player._compiled.can_play
