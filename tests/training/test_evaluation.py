"""Evaluation: a fixed quota for each env, repeatable, apart from training."""

import math
import os
import signal
import statistics

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.wrappers import TimeLimit

import scramjet
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.adapters.gymnasium.serial import SerialPool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env
from scramjet.envs.registry import load_env
from scramjet.envs.rng import randint
from scramjet.errors import ConfigError
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.components import make_evaluator
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.evaluation import evaluator, limits, reports, within_run
from scramjet.training.evaluation.evaluator import Evaluator
from scramjet.training.evaluation.limits import GraceTime
from scramjet.training.evaluation.results import Evaluation, lower_bound
from scramjet.training.rollout.player import RolloutPlayer

pytestmark = pytest.mark.usefixtures("one_thread")


def evaluator_of(env: Env, *, episodes: int, backend="cpu") -> Evaluator:
    num_envs = max(1, min(episodes, evaluator.MAX_ENVS))
    return Evaluator(NativePool(env, num_envs, num_threads=1, backend=backend), episodes=episodes)


class ShortOrLong(Env):
    """Envs of even number play one step for nothing; envs of odd number play `long` steps for 1 each."""

    long: int = 40
    endless: bool = False

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"count": np.int32}
    stat_names = ("odd",)

    def reset(self, s):
        s.count = 0

    def step(self, s, action):
        s.count += 1
        if s._index % 2 == 0:
            return 0.0, not self.endless
        return 1.0, s.count == self.long and not self.endless

    def observe(self, s, obs):
        obs[0] = 0.0

    def stats(self, s, stats):
        stats.odd = s._index % 2


class RandomLength(ShortOrLong):
    """Every episode lasts a random number of steps and pays that number."""

    def reset(self, s):
        s.count = 1 + randint(s, 20)

    def step(self, s, action):
        s.count -= 1
        return 1.0, s.count == 0


def make_policy(env):
    torch.manual_seed(0)
    network = default_network(env.observation_space, env.action_space, PolicyConfig(hidden=(8,)))
    return Policy(network, env.observation_space, env.action_space)


def test_every_env_plays_the_same_number_of_episodes_so_short_ones_are_not_over_counted():
    env = ShortOrLong()
    result = evaluator_of(env, episodes=64, backend="interpreted")(make_policy(env), 1)
    assert result.episodes == 64
    assert result.mean_return == 20.0  # the first 64 episodes to end would all be short: a mean of 0
    assert result.std_return == 20.0
    assert result.mean_length == 20.5
    assert result.stats == {"odd": 0.5}


class Guess(ShortOrLong):
    """One step; the second action pays 1."""

    def step(self, s, action):
        return float(action), True


def test_drawn_actions_come_as_often_as_the_policy_says_and_from_the_seed():
    env = Guess()
    policy = make_policy(env)
    with torch.no_grad():
        policy.network.actor_head.weight.zero_()
        policy.network.actor_head.bias.copy_(torch.tensor([0.75, 0.25]).log())
    pool = NativePool(env, 32, num_threads=1, backend="interpreted")
    likely, drawn, again, other = (
        Evaluator(pool, episodes=3200, samples=samples)(policy, seed).mean_return
        for samples, seed in ((False, 1), (True, 1), (True, 1), (True, 2))
    )
    assert likely == 0.0
    assert abs(drawn - 0.25) < 0.03  # four standard deviations
    assert drawn == again
    assert drawn != other


def one_env_alone(env, policy, seeds, episodes, backend):
    """Returns of the first episodes of a single env, played apart from all others."""
    pool = NativePool(env, 1, num_threads=1, backend=backend)
    out, returns, total = pool.reset(seeds), [], 0.0
    while len(returns) < episodes:
        with torch.no_grad():
            action = policy(torch.from_numpy(out.obs)).logits.argmax(1)
        out = pool.step(action.numpy())
        total += float(out.reward[0])
        if out.terminated[0] or out.truncated[0]:
            returns.append(total)
            total = 0.0
    return returns


@pytest.mark.parametrize("episodes", [1, 5, 43])
@pytest.mark.parametrize(("env", "backend"), [(load_env("cartpole"), "cpu"), (RandomLength(), "interpreted")])
def test_the_episodes_are_the_first_few_of_each_env_with_the_most_likely_action(env, backend, episodes):
    policy = make_policy(env)
    result = evaluator_of(env, episodes=episodes, backend=backend)(policy, 11)
    num_envs = min(episodes, 32)
    returns = []
    for i in range(num_envs):
        quota = episodes // num_envs + (1 if i < episodes % num_envs else 0)
        returns += one_env_alone(env, policy, EpisodeSeed.of(11).part(i), quota, backend)
    assert result.episodes == episodes == len(returns)
    assert result.mean_return == pytest.approx(np.mean(returns))
    assert result.std_return == pytest.approx(np.std(returns))
    assert result.mean_length == pytest.approx(np.mean(returns))  # both worlds pay 1 a step


def test_the_same_policy_gets_the_same_result_twice_by_the_same_seed_also_from_the_same_evaluator():
    env = load_env("cartpole")
    policy = make_policy(env)
    evaluator = evaluator_of(env, episodes=40)
    first = evaluator(policy, 3)
    assert evaluator(policy, 4) != first
    assert evaluator(policy, 3) == first
    assert evaluator_of(env, episodes=40)(policy, 3) == first


def test_evaluation_does_not_disturb_training():
    env = load_env("cartpole")

    def train(evaluate):
        policy = make_policy(env)
        evaluator = evaluator_of(env, episodes=8)
        pool = NativePool(env, 4, num_threads=1)
        player = RolloutPlayer(pool, TorchExecutor(policy), 20)
        rollout = player.rollout
        pool.reset(0, out=player.buffers.last)
        generator = torch.Generator().manual_seed(0)
        torch.manual_seed(9)
        for _ in range(3):
            if evaluate:
                evaluator(policy, 0)
            player.play(generator)
        returns = pool.episodes().returns.tolist()
        tensors = [rollout.obs.clone(), rollout.action.clone(), generator.get_state(), torch.get_rng_state()]
        weights = [parameter.detach().clone() for parameter in policy.parameters()]
        return returns, tensors + weights

    plain_returns, plain = train(False)
    returns, evaluated = train(True)
    assert returns == plain_returns
    for a, b in zip(plain, evaluated, strict=True):
        assert torch.equal(a, b)


def test_evaluation_obeys_masks():
    class OnlyOne(ShortOrLong):
        def step(self, s, action):
            return (1.0 if action == 1 else -100.0), True

        def mask(self, s, mask):
            mask[0] = False

    env = OnlyOne()
    policy = make_policy(env)
    with torch.no_grad():
        policy.network.actor_head.bias.copy_(torch.tensor([50.0, 0.0]))
    assert evaluator_of(env, episodes=4, backend="interpreted")(policy, 0).mean_return == 1.0


def test_episodes_longer_than_the_bound_are_cut_and_counted_as_they_stand_and_all_others_are_played():
    env = ShortOrLong(long=40)
    pool = NativePool(env, 4, num_threads=1, backend="interpreted")
    cut = Evaluator(pool, episodes=12, max_steps=30)(make_policy(env), 0)
    assert (cut.episodes, cut.cut_episodes, cut.mean_return, cut.mean_length) == (12, 6, 15.0, 15.5)
    assert cut.stats == {"odd": 0.0}  # of those that ended
    just_long_enough = Evaluator(pool, episodes=12, max_steps=41)(make_policy(env), 0)
    assert (just_long_enough.cut_episodes, just_long_enough.mean_return) == (0, 20.0)


def test_where_all_first_episodes_reach_the_usual_bound_no_more_are_played(monkeypatch):
    monkeypatch.setattr(limits, "USUAL_MAX_STEPS", 30)
    env = ShortOrLong(endless=True)
    pool = NativePool(env, 4, num_threads=1, backend="interpreted")
    assert Evaluator(pool, episodes=12)(make_policy(env), 0).episodes == 4
    assert Evaluator(pool, episodes=12, max_steps=30)(make_policy(env), 0).episodes == 12


def test_the_usual_bound_is_for_worlds_without_a_time_limit():
    endless, limited = ShortOrLong(endless=True), ShortOrLong(max_episode_steps=60)
    assert evaluator_of(endless, episodes=1, backend="interpreted").max_steps == limits.USUAL_MAX_STEPS
    assert evaluator_of(limited, episodes=1, backend="interpreted").max_steps is None
    pools = [
        SerialPool("test", lambda: CliffWalkingEnv(), 1),
        SerialPool("test", lambda: TimeLimit(CliffWalkingEnv(), 7), 1),
        SerialPool("test", lambda: gymnasium.make("CartPole-v1"), 1),
    ]
    assert [pool.has_time_limit for pool in pools] == [False, True, True]


def test_progress_is_reported_from_the_moment_an_evaluation_takes_long(monkeypatch):
    monkeypatch.setattr(reports, "FIRST_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(reports, "REPORT_SECONDS", 0.0)
    env, told = ShortOrLong(long=40), []
    evaluator_of(env, episodes=2, backend="interpreted")(make_policy(env), 0, lambda *news: told.append(news))
    assert told[0] == (0, 2, 1)
    assert told[-1] == (1, 2, 40)


def test_a_stop_leaves_a_short_evaluation_within_a_run_time_to_end(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(limits.time, "perf_counter", lambda: now[0])
    asked = GraceTime(lambda: False, 105.0, seconds=2.0)
    found = []
    for now[0] in (104.9, 105.0, 106.9, 107.0):
        found.append(asked())
    assert found == [False, False, False, True]
    assert GraceTime(lambda: True, math.inf, seconds=0.0)()


class Circle(gymnasium.Env):
    """Never ends: a greedy policy walks in a circle."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), -1.0, False, False, {}


def test_a_world_that_never_ends_is_evaluated_in_training_and_afterwards_and_says_so(tmp_path, capsys):
    config = RunConfig(
        num_envs=2, num_steps=8, total_timesteps=32, num_workers=0, num_threads=1, device="cpu",
        policy=PolicyConfig(hidden=(8,)),
        eval=EvaluationConfig(every=1, episodes=3, final_episodes=4, max_steps=20),
    )  # fmt: skip
    result = scramjet.train(config, env=Circle, runs_dir=tmp_path, display="plain")
    final = result.evaluation
    assert (final.episodes, final.cut_episodes, final.mean_return, final.mean_length) == (4, 4, -20.0, 20.0)
    assert result.metrics["eval/cut_episodes"] == 4
    told = capsys.readouterr().out
    assert "3 of 3 episodes did not end within 20 steps and count with their return so far; --eval.max-steps" in told
    assert "over 4 episodes, length 20.00, 4 cut" in told
    later = scramjet.evaluate(result.run_path, 2, env=Circle, max_steps=5, samples=True)
    assert (later.episodes, later.cut_episodes, later.mean_return) == (2, 2, -5.0)


def test_the_time_limit_ends_the_evaluation_after_training(tmp_path):
    config = RunConfig(
        num_envs=2, num_steps=8, total_timesteps=16, num_workers=0, num_threads=1, device="cpu", time_limit="1s",
        policy=PolicyConfig(hidden=(8,)), eval=EvaluationConfig(every=0, max_steps=10**9),
    )  # fmt: skip
    result = scramjet.train(config, env=Circle, runs_dir=tmp_path, display="quiet")
    assert (result.step, result.evaluation, result.exit_code) == (16, None, 0)
    assert (result.run_path / "checkpoints" / "step_00000016").exists()


def test_a_signal_ends_the_evaluation_after_training_and_the_run_is_whole(tmp_path, monkeypatch):
    """Games may take minutes; what was trained is saved all the same."""

    def interrupted(*arguments, **options):
        evaluator = make_evaluator(*arguments, **options)
        step = evaluator.pool.step

        def step_once(action):
            assert not os.kill(os.getpid(), signal.SIGTERM)
            monkeypatch.setattr(evaluator.pool, "step", pytest.fail)
            return step(action)

        monkeypatch.setattr(evaluator.pool, "step", step_once)
        return evaluator

    monkeypatch.setattr(within_run, "make_evaluator", interrupted)
    config = RunConfig(num_envs=4, num_steps=16, total_timesteps=128, eval=EvaluationConfig(every=0), device="cpu")
    result = scramjet.train(config, runs_dir=tmp_path, display="quiet")
    assert (result.step, result.evaluation, result.stopped_by, result.exit_code) == (128, None, None, 143)
    assert (result.run_path / "checkpoints" / "step_00000128").exists()


def test_no_episodes_is_refused():
    with pytest.raises(ConfigError, match="episodes=0 must be at least 1"):
        evaluator_of(ShortOrLong(), episodes=0, backend="interpreted")


def test_the_result_as_a_dict_has_the_names_the_command_line_prints():
    env = ShortOrLong()
    result = evaluator_of(env, episodes=2, backend="interpreted")(make_policy(env), 0).as_dict()
    names = ["cut_episodes", "episodes", "lower_bound", "mean_length", "mean_return", "stats", "std_return"]
    assert sorted(result) == names


def evaluation_of(returns: list[float]) -> Evaluation:
    return Evaluation(float(np.mean(returns)), float(np.std(returns)), 1.0, len(returns), {})


def test_the_lower_bound_is_the_mean_less_1_645_standard_errors():
    returns = [1.0, 2.0, 4.0, 8.0, 5.0]
    standard_error = statistics.stdev(returns) / math.sqrt(5)  # by n - 1
    assert evaluation_of(returns).lower_bound == pytest.approx(4.0 - 1.645 * standard_error)
    assert evaluation_of([3.0] * 7).lower_bound == 3.0
    assert evaluation_of([3.0]).lower_bound == 3.0


def test_the_true_mean_lies_above_the_lower_bound_in_95_of_100_evaluations():
    drawn = np.random.default_rng(0).normal(7.0, 3.0, size=(10_000, 100))
    bounds = np.array([lower_bound(float(row.mean()), float(row.std()), 100) for row in drawn])
    share = float((bounds < 7.0).mean())
    assert abs(share - 0.95) < 0.013  # six standard deviations; Student's t in place of 1.645 would add 0.002


def test_far_below_is_more_than_chance_and_more_than_one_deviation():
    greedy = Evaluation(mean_return=5.0, std_return=1.0, mean_length=1.0, episodes=17, stats={})
    upper_bound = 5.0 + 1.645 * 1.0 / 4
    assert greedy.is_far_below(mean=6.0, std=0.5, count=101)
    assert not greedy.is_far_below(mean=6.0, std=1.1, count=101)  # within one deviation
    least = upper_bound + 1.645 * 0.2 / 2  # of five others
    assert greedy.is_far_below(mean=least + 0.001, std=0.2, count=5)
    assert not greedy.is_far_below(mean=least - 0.001, std=0.2, count=5)  # by chance
    assert not greedy.is_far_below(mean=4.0, std=0.1, count=101)
