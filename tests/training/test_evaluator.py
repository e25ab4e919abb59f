"""Evaluation: a fixed quota for each env, agent and seat, repeatable, apart from training; and which result is best."""

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
from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.algorithms.intervals import lower_bound
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, load_env, randint
from scramjet.errors import ConfigError
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.runs.results import Best, Evaluation, is_new_best
from scramjet.training import evaluations, evaluator
from scramjet.training.components import make_evaluator
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.evaluator import Evaluator
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.stopping import GraceTime

pytestmark = pytest.mark.usefixtures("one_thread")


def evaluator_of(env: Env, episodes: int, num_envs: int | None = None, *, backend="interpreted", **given) -> Evaluator:
    num_envs = num_envs or max(1, min(episodes, evaluator.MAX_ENVS))
    return Evaluator(NativePool(env, num_envs, num_threads=1, backend=backend), episodes=episodes, **given)


def make_policy(env):
    torch.manual_seed(0)
    spaces = env.observation_space, env.action_space
    return Policy(default_network(*spaces, PolicyConfig(hidden=(8,))), *spaces)


def evaluate(env: Env, *given, seed=0, **more) -> Evaluation:
    return evaluator_of(env, *given, **more)(make_policy(env), seed)


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


class Guess(ShortOrLong):
    """One step; the second action pays 1."""

    def step(self, s, action):
        return float(action), True


class OnlyOne(Guess):
    """The first action costs much and is masked."""

    def step(self, s, action):
        return (1.0 if action == 1 else -100.0), True

    def mask(self, s, mask):
        mask[0] = False


def test_every_env_plays_the_same_number_of_episodes_so_short_ones_are_not_over_counted():
    result = evaluate(ShortOrLong(), 64)
    assert (result.episodes, result.std_return, result.mean_length, result.stats) == (64, 20.0, 20.5, {"odd": 0.5})
    assert result.mean_return == 20.0  # the first 64 episodes to end would all be short: a mean of 0
    names = ["cut_episodes", "episodes", "lower_bound", "mean_length", "mean_return", "stats", "std_return"]
    assert sorted(result.as_dict()) == names  # as the command line prints them
    with pytest.raises(ConfigError, match="episodes=0 must be at least 1"):
        evaluator_of(ShortOrLong(), 0)


def test_drawn_actions_come_as_often_as_the_policy_says_and_from_the_seed_and_masks_are_obeyed():
    policy = make_policy(Guess())
    with torch.no_grad():
        policy.network.actor_head.weight.zero_()
        policy.network.actor_head.bias.copy_(torch.tensor([0.75, 0.25]).log())
    likely, drawn, again, other = (
        evaluator_of(Guess(), 1600, 32, samples=samples)(policy, seed).mean_return
        for samples, seed in ((False, 1), (True, 1), (True, 1), (True, 2))
    )
    assert likely == 0.0
    assert abs(drawn - 0.25) < 0.043  # four standard deviations
    assert drawn == again
    assert drawn != other
    assert evaluator_of(OnlyOne(), 4)(policy, 0).mean_return == 1.0


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


def test_the_episodes_are_the_first_few_of_each_env_with_the_most_likely_action():
    for env, backend, quotas in ((load_env("cartpole"), "cpu", (5,)), (RandomLength(), "interpreted", (1, 5, 43))):
        for episodes in quotas:
            policy, judge = make_policy(env), evaluator_of(env, episodes, backend=backend)
            other, result = judge(policy, 4), judge(policy, 11)  # what it played before changes nothing
            assert episodes == 1 or other != result
            num_envs = min(episodes, 32)
            returns = []
            for i in range(num_envs):
                quota = episodes // num_envs + (1 if i < episodes % num_envs else 0)
                returns += one_env_alone(env, policy, EpisodeSeed.of(11).part(i), quota, backend)
            assert result.episodes == episodes == len(returns)
            assert result.mean_return == pytest.approx(np.mean(returns))
            assert result.std_return == pytest.approx(np.std(returns))
            assert result.mean_length == pytest.approx(np.mean(returns))  # both worlds pay 1 a step


def test_evaluation_does_not_disturb_training():
    def train(is_evaluated):
        env = load_env("cartpole")
        policy = make_policy(env)
        judge = evaluator_of(env, 8, backend="cpu")
        pool = NativePool(env, 4, num_threads=1)
        player = RolloutPlayer(pool, TorchExecutor(policy), 20)
        pool.reset(0, out=player.buffers.last)
        generator = torch.Generator().manual_seed(0)
        torch.manual_seed(9)
        for _ in range(3):
            if is_evaluated:
                judge(policy, 0)
            rollout = player.play(generator)
        tensors = [rollout.obs.clone(), rollout.action.clone(), generator.get_state(), torch.get_rng_state()]
        return pool.episodes().returns.tolist(), [*tensors, *(p.detach().clone() for p in policy.parameters())]

    (plain_returns, plain), (returns, evaluated) = train(False), train(True)
    assert returns == plain_returns
    assert all(map(torch.equal, plain, evaluated))


def test_episodes_longer_than_the_bound_are_cut_and_counted_as_they_stand_and_all_others_are_played():
    cut = evaluate(ShortOrLong(), 12, 4, max_steps=30)
    assert (cut.episodes, cut.cut_episodes, cut.mean_return, cut.mean_length) == (12, 6, 15.0, 15.5)
    assert cut.stats == {"odd": 0.0}  # of those that ended
    just_long_enough = evaluate(ShortOrLong(), 12, 4, max_steps=41)
    assert (just_long_enough.cut_episodes, just_long_enough.mean_return) == (0, 20.0)


def test_where_all_first_episodes_reach_the_usual_bound_no_more_are_played(monkeypatch):
    monkeypatch.setattr(evaluator, "USUAL_MAX_STEPS", 30)
    assert evaluate(ShortOrLong(endless=True), 12, 4).episodes == 4
    assert evaluate(ShortOrLong(endless=True), 12, 4, max_steps=30).episodes == 12


def test_the_usual_bound_is_for_worlds_without_a_time_limit():
    assert evaluator_of(ShortOrLong(endless=True), 1).max_steps == evaluator.USUAL_MAX_STEPS
    assert evaluator_of(ShortOrLong(max_episode_steps=60), 1).max_steps is None
    makers = (CliffWalkingEnv, lambda: TimeLimit(CliffWalkingEnv(), 7), lambda: gymnasium.make("CartPole-v1"))
    assert [SerialPool("test", make, 1).has_time_limit for make in makers] == [False, True, True]


def test_progress_is_reported_from_the_moment_an_evaluation_takes_long(monkeypatch):
    monkeypatch.setattr(evaluator, "FIRST_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(evaluator, "REPORT_SECONDS", 0.0)
    told = []
    evaluator_of(ShortOrLong(), 2)(make_policy(ShortOrLong()), 0, lambda *news: told.append(news))
    assert told[0] == (0, 2, 1)
    assert told[-1] == (1, 2, 40)


def test_a_stop_leaves_a_short_evaluation_within_a_run_time_to_end(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("scramjet.training.stopping.time.perf_counter", lambda: now[0])
    asked = GraceTime(lambda: False, 105.0, seconds=2.0)
    found = []
    for now[0] in (104.9, 105.0, 106.9, 107.0):
        found.append(asked())
    assert found == [False, False, False, True]
    assert GraceTime(lambda: True, math.inf, seconds=0.0)()


class Staggered(Env):
    """Agent k of env i lives 1 + k + i % 3 steps and earns 10 ** k a step; an endless one never dies."""

    endless: bool = False
    num_agents = 3
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"age": np.int32}
    stat_names = ("agent",)

    def reset(self, s):
        pass

    def step(self, s, action, reward):
        s.age += 1
        for k in range(3):
            reward[k] = 10.0**k
        return False

    def alive(self, s, player):
        return s.age < 1 + player + s._index % 3 or (self.endless and player == 2)

    def observe(self, s, obs, player):
        obs[0] = 0.0

    def stats(self, s, stats, player):
        stats.agent = player


class Rounds(Staggered):
    """Two seats in turn; a game of env i lasts 1 + i % 4 turns, the one to move earns 1 and the other loses 2."""

    num_agents = 1
    num_seats = 2

    def seat(self, s):
        return s.age % 2

    def step(self, s, action, reward):
        mover = s.age % 2
        s.age += 1
        reward[mover] = 1.0
        reward[1 - mover] = -2.0
        return s.age > s._index % 4 and not self.endless


def of_an_agent(env: int) -> list[tuple[float, float]]:
    """Return and length of each agent of an env."""
    return [(10.0**k * (1 + k + env % 3), 1 + k + env % 3) for k in range(3)]


def of_a_seat(env: int) -> list[tuple[float, float]]:
    turns = 1 + env % 4
    first, second = (turns + 1) // 2, turns // 2
    return [(first - 2.0 * second, turns), (second - 2.0 * first, turns)]


def test_each_agent_and_each_seat_of_each_env_is_judged_by_its_own_share_of_games():
    for world, expected_of, stats in (
        (Staggered(), of_an_agent, {"agent": 1.0}),
        (Rounds(), of_a_seat, {"agent": 0.5}),
    ):
        for episodes, num_envs in [(8, 8), (6, 6), (7, 3), (1, 1), (10, 4)]:
            result = evaluate(world, episodes, num_envs)
            expected = []
            for i in range(num_envs):
                expected += expected_of(i) * (episodes // num_envs + (i < episodes % num_envs))
            returns, lengths = zip(*expected, strict=True)
            assert result.episodes == episodes  # a game of three is one episode
            assert result.mean_return == pytest.approx(np.mean(returns))
            assert result.std_return == pytest.approx(np.std(returns))
            assert result.mean_length == pytest.approx(np.mean(lengths))
            assert result.stats == stats


def test_of_a_game_that_never_ends_each_agents_episode_counts_once_a_game():
    """Agents 0 and 1 die, agent 2 does not, so that only a cut begins a second game."""
    for episodes in (1, 2):
        result = evaluate(Staggered(endless=True), episodes, 1, max_steps=30)
        assert (result.episodes, result.cut_episodes) == (episodes, episodes)
        assert result.mean_return == pytest.approx(np.mean([1.0 * 1, 10.0 * 2, 100.0 * 30]))
        assert result.mean_length == pytest.approx(np.mean([1, 2, 30]))
    result = evaluate(Rounds(endless=True), 1, 1, max_steps=31)
    assert (result.episodes, result.cut_episodes) == (1, 1)
    assert result.mean_return == pytest.approx(np.mean([16 - 2.0 * 15, 15 - 2.0 * 16]))


class Circle(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), -1.0, False, False, {}


def circling(**settings) -> RunConfig:
    small = {"num_envs": 2, "num_steps": 8, "num_workers": 0, "num_threads": 1, "policy": PolicyConfig(hidden=(8,))}
    return RunConfig(**small, device="cpu", **settings)


def test_a_world_that_never_ends_is_evaluated_in_training_and_afterwards_and_says_so(tmp_path, capsys):
    config = circling(total_timesteps=32, eval=EvaluationConfig(every=1, episodes=3, final_episodes=4, max_steps=20))
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
    config = circling(total_timesteps=16, time_limit="1s", eval=EvaluationConfig(every=0, max_steps=10**9))
    result = scramjet.train(config, env=Circle, runs_dir=tmp_path, display="quiet")
    assert (result.step, result.evaluation, result.exit_code) == (16, None, 0)
    assert (result.run_path / "checkpoints" / "step_00000016").exists()


def test_a_signal_ends_the_evaluation_after_training_and_the_run_is_whole(tmp_path, monkeypatch):
    """Games may take minutes; what was trained is saved all the same."""

    def interrupted(*arguments, **options):
        judge = make_evaluator(*arguments, **options)
        step = judge.pool.step

        def step_once(action):
            assert not os.kill(os.getpid(), signal.SIGTERM)
            monkeypatch.setattr(judge.pool, "step", pytest.fail)
            return step(action)

        monkeypatch.setattr(judge.pool, "step", step_once)
        return judge

    monkeypatch.setattr(evaluations, "make_evaluator", interrupted)
    config = RunConfig(num_envs=4, num_steps=16, total_timesteps=128, eval=EvaluationConfig(every=0), device="cpu")
    result = scramjet.train(config, runs_dir=tmp_path, display="quiet")
    assert (result.step, result.evaluation, result.stopped_by, result.exit_code) == (128, None, None, 143)
    assert (result.run_path / "checkpoints" / "step_00000128").exists()


# --- which result is better


def test_the_lower_bound_is_the_mean_less_1_645_standard_errors():
    def bound_of(returns):
        return Evaluation(float(np.mean(returns)), float(np.std(returns)), 1.0, len(returns), {}).lower_bound

    returns = [1.0, 2.0, 4.0, 8.0, 5.0]
    standard_error = statistics.stdev(returns) / math.sqrt(5)  # by n - 1
    assert bound_of(returns) == pytest.approx(4.0 - 1.645 * standard_error)
    assert bound_of([3.0] * 7) == bound_of([3.0]) == 3.0
    drawn = np.random.default_rng(0).normal(7.0, 3.0, size=(10_000, 100))
    bounds = np.array([lower_bound(float(row.mean()), float(row.std()), 100) for row in drawn])
    share = float((bounds < 7.0).mean())  # of evaluations whose bound lies below the true mean
    assert abs(share - 0.95) < 0.013  # six standard deviations; Student's t in place of 1.645 would add 0.002


def test_far_below_is_more_than_chance_and_more_than_one_deviation():
    greedy = Evaluation(mean_return=5.0, std_return=1.0, mean_length=1.0, episodes=17, stats={})
    least = 5.0 + 1.645 * 1.0 / 4 + 1.645 * 0.2 / 2  # the upper bound, and the standard error of five others
    for mean, std, count, is_far_below in [
        (6.0, 0.5, 101, True),
        (6.0, 1.1, 101, False),  # within one deviation
        (least + 0.001, 0.2, 5, True),
        (least - 0.001, 0.2, 5, False),  # by chance
        (4.0, 0.1, 101, False),
    ]:
        assert greedy.is_far_below(mean, std, count) == is_far_below, (mean, std)


def test_a_new_best_has_a_higher_lower_bound_and_another_mean():
    best = Best(500.0, 470.0)
    assert is_new_best(Best(-1000.0, -2000.0), None)
    for candidate, than, expected in [
        (Best(480.0, 471.0), best, True),  # a lower mean than the best's, but more certain
        (Best(520.0, 469.0), best, False),  # a higher mean by luck
        (Best(500.0, 470.0), best, False),  # the same twice
        (Best(500.0, 499.0), best, False),  # the same mean with less spread
        (Best(499.998, 499.0), best, False),  # reads as 500.00 too
        (Best(500.01, 499.0), best, True),
        (Best(0.9877, 0.98), Best(0.9876, 0.97), True),  # small returns are told apart by four decimals
        (Best(0.98762, 0.98), Best(0.98758, 0.97), False),
    ]:
        assert is_new_best(candidate, than) is expected, candidate
    for mean, text in [(500.0, "500.00"), (-12.3456, "-12.346"), (0.98765, "0.9877")]:
        assert Best(mean, 0.0).mean_text == text
