"""SPO and AlphaZero: learners, returns and replay against sums by hand; and runs that resume, fork or are refused."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scramjet.algorithms.config import AlphaZeroConfig, PPOConfig, SPOConfig
from scramjet.algorithms.reward_scaling import SCALED_CLIP
from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.errors import CheckpointError, ConfigError, TrainingError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.search.particles import ParticleSearch
from scramjet.search.search import Rewards, Search
from scramjet.search.tree import TreeSearch
from scramjet.training.config.run_config import RunConfig
from scramjet.training.search.replay import Replay, num_rollouts_kept
from scramjet.training.search.seats import check_zero_sum, lambda_returns
from scramjet.training.state import trainer_tensors
from tests.helpers.command_calls import call, refusal
from tests.helpers.run_files import assert_resumes_exactly, last_checkpoint, lines_of, train
from tests.helpers.sessions import SMALL, begun
from tests.helpers.sessions import train as train_session

pytestmark = pytest.mark.usefixtures("one_thread")

UPDATE = 8 * 6

PARTICLES = SPOConfig(particles=4, depth=3, resample_period=2, replay_size=3 * UPDATE)
TREES = AlphaZeroConfig(simulations=4, considered=4, replay_size=3 * UPDATE)
BY_RESULTS = replace(TREES, value_target="result")
BOARD = {"rows": 4, "cols": 4, "connect": 3, "opening_plies": 0}
CONVOLUTIONS = PolicyConfig(hidden=(8,), encoder="grid_cnn", grid_channels=(8,), grid_blocks=1, shared_trunk=True)


def searching_config(env: str, algorithm: str, num_updates: int = 6, **changes: Any) -> RunConfig:
    """A config of so many short updates with few particles or small trees; `changes` are other fields."""
    ppo = PPOConfig(num_epochs=2, num_minibatches=2, learning_rate=0.003, gamma=0.97, normalize_rewards=False)
    search: dict[str, Any] = {"spo": PARTICLES} if algorithm == "spo" else {"alphazero": TREES}
    policy = PolicyConfig(hidden=(8,), encoder="mlp")
    settings = {"num_envs": 8, "num_steps": 6, "ppo": ppo, "policy": policy, **search, **changes}
    return replace(SMALL, env=env, algorithm=algorithm, total_timesteps=UPDATE * num_updates, **settings)


def normalized(config: RunConfig) -> RunConfig:
    return replace(config, ppo=replace(config.ppo, normalize_rewards=True, normalize_observations=True))


RUNS: dict[str, RunConfig] = {
    "particles": searching_config("cartpole", "spo"),
    "particles, normalized": normalized(searching_config("cartpole", "spo")),
    "particles, by effective size": searching_config("maze", "spo", spo=replace(PARTICLES, resample="ess")),
    "particles, continuous": normalized(searching_config("pendulum", "spo")),
    "particles, two seats": searching_config("tic_tac_toe", "spo"),
    "trees": normalized(searching_config("maze", "alphazero")),
    "trees, two seats": searching_config("tic_tac_toe", "alphazero"),
    "trees, two seats, results": searching_config("tic_tac_toe", "alphazero", alphazero=BY_RESULTS),
    "trees, convolutions": searching_config("connect_four", "alphazero", env_parameters=BOARD, policy=CONVOLUTIONS),
}
"""Six updates each; the replay holds three rollouts."""


@pytest.fixture
def spo(tmp_path: Path) -> Iterator[Any]:
    """A learner of SPO on games with masks and two seats, after one update."""
    with begun(searching_config("tic_tac_toe", "spo"), tmp_path) as session:
        train_session(session, 1)
        yield session.learner


def test_the_loss_of_particles_never_touches_the_logit_of_an_illegal_action(spo: Any) -> None:
    record = spo.replay.record
    record.mask[..., 4], record.mask[..., 3] = False, True
    record.root_actions[record.root_actions == 4] = 3
    bias = spo.policy.get_parameter("network.actor_head.bias")
    for _ in range(3):  # from the second step on, the policy differs from the target policy
        spo._draw()
        spo._recorded_step()
        assert float(bias.grad[4]) == 0.0
        assert float(bias.grad[3].abs()) > 0.0


def test_the_target_network_moves_by_its_rate_towards_the_network_after_each_step(spo: Any) -> None:
    before = [weight.clone() for weight in spo.target.parameters()]
    spo._draw()
    spo._recorded_step()
    rate = spo.spo.target_rate
    for old, now, weight in zip(before, spo.target.parameters(), spo.policy.parameters(), strict=True):
        torch.testing.assert_close(now, (1 - rate) * old + rate * weight)


def test_the_search_uses_the_learned_temperature_which_falls_where_particles_hardly_differ(spo: Any) -> None:
    eta = float(torch.nn.functional.softplus(spo.duals.detach()[0]))
    assert eta != spo.spo.temperature
    assert float(spo._search.eta) == pytest.approx(eta, abs=2e-6)
    spo.replay.record.advantages.zero_()  # no divergence at all
    before = spo.duals.detach()[0].clone()
    spo._draw()
    spo._recorded_step()
    assert spo.duals.detach()[0] < before


def test_a_replay_with_actions_that_the_world_does_not_have_is_refused(spo: Any) -> None:
    saved = {name: tensor.clone() for name, tensor in spo.tensors().items()}
    spo.restore(saved)
    for action in (-1, 9):
        saved["replay/root_actions"][0, 0, 0] = action
        with pytest.raises(CheckpointError, match="actions that the world does not have"):
            spo.restore(saved)


def hand_written_loss(session: Any, sample: Any) -> Tensor:
    """Cross-entropy to the improved policy over legal actions, and half the squared error of the value."""
    output = session.policy(sample.obs)
    legal = sample.mask[0]
    log_prob = output.logits[0, legal] - output.logits[0, legal].exp().sum().log()
    error = output.value[0] - sample.returns[0]
    return -(sample.policy[0, legal] * log_prob).sum() + session.config.ppo.value_coef * 0.5 * error**2


def test_a_gradient_step_of_alphazero_follows_the_gradient_of_the_loss_written_out(tmp_path: Path) -> None:
    config = searching_config("tic_tac_toe", "alphazero")
    config = replace(config, ppo=replace(config.ppo, max_grad_norm=None, num_minibatches=config.batch_size))
    with begun(config, tmp_path) as session:
        learner: Any = session.learner
        learner.prepare(session.collector.collect())
        for _ in range(5):
            learner._draw()
            sample = learner.replay.samples(learner._steps, learner._numbers)
            assert len(sample.returns) == 1
            weights = list(session.policy.parameters())
            expected = torch.autograd.grad(hand_written_loss(session, sample), weights)
            learner._gradient_step()
            for weight, gradient in zip(weights, expected, strict=True):
                torch.testing.assert_close(weight.grad, gradient, rtol=1e-4, atol=1e-5)
        record = learner.replay.record  # targets of the policy are distributions over legal actions
        policy, legal = (each[:, : config.num_envs] for each in (record.policy, record.mask))
        assert float(policy[~legal[: len(policy)]].abs().max()) == 0.0
        torch.testing.assert_close(policy.sum(-1), torch.ones(policy.shape[:-1]))


def test_rewards_are_clipped_scaled_and_clipped_again_for_search_and_learner_alike() -> None:
    config = searching_config("cartpole", "spo").ppo
    scale = torch.tensor([4.0])
    reward = torch.tensor([-9.0, -1.0, 0.5, 2.0, 100.0])
    scaled = Rewards.of(replace(config, normalize_rewards=True, reward_clip=5.0), scale)
    assert scaled.counted(reward).tolist() == [-SCALED_CLIP, -4.0, 2.0, 8.0, SCALED_CLIP]
    assert Rewards.of(config, torch.ones(1)).counted(reward).tolist() == reward.tolist()


def test_target_network_and_returns_use_the_newest_statistics(tmp_path: Path) -> None:
    with begun(normalized(searching_config("pendulum", "spo")), tmp_path) as session:
        learner: Any = session.learner
        before = [each.clone() for each in session.policy.buffers()]
        train_session(session, 1)
        after = list(session.policy.buffers())
        assert not all(torch.equal(mine, other) for mine, other in zip(before, after, strict=True))
        for mine, other in zip(learner.target.buffers(), after, strict=True):
            assert torch.equal(mine, other)
        batch = learner.replay.record
        batch.final_value.zero_()
        zeros = torch.zeros(batch.final_value.shape[0] + 1, batch.final_value.shape[1]).flatten()
        learner._rewards.scale.fill_(0.01)
        small = learner._returns(batch, zeros)
        learner._rewards.scale.fill_(0.02)
        torch.testing.assert_close(learner._returns(batch, zeros), 2 * small)
        assert float(small.abs().max()) > 0
        train_session(session, 1)
        assert torch.equal(learner._rewards.scale, learner.reward_scaler.factor)


# --- returns: plain ones, and those of two seats, where values are turned --------------------------------------------

GAMMA, LAMBDA = 0.9, 0.7


def return_for(
    player: int, t: int, reward: Tensor, value: Tensor, seat: Tensor, terminated: Tensor, truncated: Tensor
) -> float:
    """The lambda-return of one game for `player` from step t on, by its definition: r + gamma of what follows.

    What follows is the mixture of the next value and the next return, both for `player`.
    """
    earned = float(reward[t, player])
    if terminated[t] or truncated[t]:  # a game that is cut is worth 0
        return earned
    sign = 1.0 if int(seat[t + 1]) == player else -1.0
    following = sign * float(value[t + 1])
    if t + 1 < len(reward):
        ahead = return_for(player, t + 1, reward, value, seat, terminated, truncated)
        following = (1 - LAMBDA) * following + LAMBDA * ahead
    return earned + GAMMA * following


def test_the_return_of_two_seats_is_that_of_whoever_moves_by_the_recursion() -> None:
    num_steps, num_games = 7, 15
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(num_steps, num_games, generator=generator)
    reward = torch.stack([first, -first], -1)
    value = torch.randn(num_steps + 1, num_games, generator=generator)
    seat = torch.randint(2, (num_steps + 1, num_games), generator=generator).to(torch.int8)  # in any order
    terminated = torch.rand(num_steps, num_games, generator=generator) < 0.2
    truncated = ~terminated & (torch.rand(num_steps, num_games, generator=generator) < 0.2)
    game, nothing = (reward, value, seat, terminated, truncated), torch.zeros_like(first)
    found = lambda_returns(*game, nothing, gamma=GAMMA, gae_lambda=LAMBDA)
    for t in range(num_steps):
        for n in range(num_games):
            game = (each[:, n] for each in (reward, value, seat, terminated, truncated))
            assert float(found[t, n]) == pytest.approx(return_for(int(seat[t, n]), t, *game), abs=1e-5)


def test_without_seats_a_truncated_episode_is_worth_its_last_observation() -> None:
    reward, value = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [0.0], [100.0]])
    never, cut = torch.zeros(2, 1, dtype=torch.bool), torch.tensor([[False], [True]])
    final_value = torch.tensor([[0.0], [10.0]])
    found = lambda_returns(reward, value, None, never, cut, final_value, gamma=0.5, gae_lambda=1.0)
    assert found.flatten().tolist() == [1 + 0.5 * (2 + 0.5 * 10), 2 + 0.5 * 10]


def test_rewards_that_do_not_cancel_out_are_refused_by_world_and_numbers() -> None:
    reward = torch.tensor([[[1.0, -1.0], [2.0, -1.5]]])
    with pytest.raises(TrainingError, match=r"Duel gave its two seats the rewards \[2.0, -1.5\].*--algorithm ppo"):
        check_zero_sum(reward, "Duel")
    check_zero_sum(reward[:, :1], "Duel")
    check_zero_sum(torch.tensor([[[5.0]]]), "a world with one seat")


# --- the replay: a ring of rollouts, drawn from by sequence or by sample ---------------------------------------------

NUM_STEPS, NUM_SEQUENCES = 3, 2


@dataclass(slots=True)
class Record:
    obs: Any  # {"a": [T + 1, N]}
    mask: Tensor | None
    reward: Tensor  # [T, N]


def rollout(number: int) -> Record:
    """The reward of step t of sequence n in rollout k is 100 k + 10 t + n."""
    t, n = torch.arange(NUM_STEPS + 1.0).unsqueeze(1), torch.arange(float(NUM_SEQUENCES))
    whole = 100 * number + 10 * t + n
    return Record({"a": whole}, None, whole[:-1])


def filled(num_added: int, num_rollouts: int = 3) -> Replay[Record]:
    replay = Replay(rollout(0), num_rollouts, "lower it")
    for number in range(num_added):
        replay.add(rollout(number))
    return replay


def test_the_newest_rollouts_are_kept_and_only_they_can_be_drawn() -> None:
    for num_added in (1, 2, 3, 4, 7):
        replay = filled(num_added)
        kept = range(max(0, num_added - 3), num_added)
        assert replay.num_kept == NUM_SEQUENCES * len(kept)
        drawn = replay.sequences(torch.arange(replay.num_kept))
        assert sorted((drawn.reward[0] // 100).unique().tolist()) == [float(number) for number in kept]
        assert drawn.mask is None


def test_a_sequence_is_whole_and_a_sample_is_one_step_of_it() -> None:
    replay = filled(2)
    sequences = replay.sequences(torch.tensor([3, 0]))
    assert sequences.reward.T.tolist() == [[101, 111, 121], [0, 10, 20]]
    assert sequences.obs["a"].T.tolist() == [[101, 111, 121, 131], [0, 10, 20, 30]]
    samples = replay.samples(torch.tensor([2, 0]), torch.tensor([3, 1]))
    assert samples.reward.tolist() == [121, 1]
    assert samples.obs["a"].tolist() == [121, 1]


def test_a_replay_put_back_goes_on_as_the_saved_one() -> None:
    saved, restored = filled(4), filled(0)
    restored.restore({name: tensor.clone() for name, tensor in saved.tensors().items()})
    for replay in (saved, restored):
        replay.add(rollout(9))
    assert restored.num_kept == saved.num_kept
    assert torch.equal(restored.record.reward, saved.record.reward)
    assert torch.equal(restored.record.obs["a"], saved.record.obs["a"])


def test_a_replay_that_does_not_fit_is_refused() -> None:
    replay = filled(1)
    for name, value in (
        ("reward", torch.zeros(NUM_STEPS, 5)),
        ("reward", torch.zeros(NUM_STEPS, 6, dtype=torch.int64)),
        ("reward", torch.full((NUM_STEPS, 6), float("nan"))),
        *(("counts", torch.tensor(counts)) for counts in ([4, 0], [1, 1, 1], [1, 3], [-1, 0], [2, 0])),
    ):
        with pytest.raises(CheckpointError, match="checkpoint"):
            replay.restore({**replay.tensors(), f"replay/{name}": value})


def test_whole_rollouts_are_kept_one_at_least_and_a_replay_larger_than_memory_says_what_to_lower() -> None:
    for replay_size, expected in ((1, 1), (48, 1), (95, 1), (96, 2), (1000, 20)):
        assert num_rollouts_kept(replay_size, 48) == expected
    with pytest.raises(ConfigError, match=r"a replay of 1000000000000 rollouts .* lower it"):
        Replay(rollout(0), 10**12, "lower it")


# --- on the GPU: searches and gradient steps are graphs ---------------------------------------------------------------


ON_GPU = {kind: replace(config, device="cuda") for kind, config in RUNS.items()}


def shapes(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Shapes and types of what the learner owns: generators, episodes and records differ between devices."""
    others = ("rng/", "pool/", "progress/")
    return {name: (each.shape, each.dtype) for name, each in tensors.items() if not name.startswith(others)}


@pytest.mark.gpu
@pytest.mark.parametrize("kind", RUNS)
def test_searches_and_gradient_steps_are_recorded_and_keep_the_shapes_of_the_cpu(kind: str, tmp_path: Path) -> None:
    with begun(RUNS[kind], tmp_path, run_name="cpu") as session:
        train_session(session, 1)
        expected = shapes(trainer_tensors(session))
    with begun(ON_GPU[kind], tmp_path, run_name="gpu") as session:
        train_session(session, 3)
        assert session.player._search._stage.is_recorded
        assert session.learner._stage.is_recorded
        assert shapes(trainer_tensors(session)) == expected
        assert all(bool(weight.isfinite().all()) for weight in session.policy.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", RUNS)
def test_recorded_gradient_steps_learn_what_plain_ones_learn(kind: str, tmp_path: Path) -> None:
    weights = []
    for is_refused in (True, False):
        with begun(ON_GPU[kind], tmp_path, run_name="plain" if is_refused else "graph") as session:
            session.learner._stage.is_refused = is_refused
            train_session(session, 1)  # of four gradient steps: executed, recorded, replayed
            assert session.learner._stage.is_recorded != is_refused
            weights.append({name: tensor.cpu().clone() for name, tensor in session.policy.state_dict().items()})
    for name, plain in weights[0].items():
        torch.testing.assert_close(weights[1][name], plain, rtol=1e-2, atol=1e-3, msg=name)


NUM_ROOTS = 32
WORLDS: dict[str, tuple[Any, PolicyConfig]] = {
    "mlp": (load_env("tic_tac_toe"), PolicyConfig(hidden=(16,))),
    "convolutions": (load_env("connect_four", **BOARD), CONVOLUTIONS),
}


def make_search(kind: str, pool: Any, policy: Policy) -> Search[Any]:
    rewards = Rewards(0.97, torch.ones(1, device=policy.device))
    if kind == "spo":
        return ParticleSearch(pool, policy, NUM_ROOTS, rewards, SPOConfig(particles=8, resample_period=2))
    return TreeSearch(pool, policy, NUM_ROOTS, rewards, AlphaZeroConfig(simulations=12, considered=4))


@pytest.mark.gpu
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", ["spo", "alphazero"])
def test_a_search_finds_what_the_cpu_finds_with_the_same_noise(kind: str, world: str) -> None:
    from scramjet.engine.worlds.cuda_pool import CudaPool

    env, config = WORLDS[world]
    torch.manual_seed(0)
    network = default_network(env.observation_space, env.action_space, config)
    pools = NativePool(env, NUM_ROOTS), CudaPool(env, NUM_ROOTS)
    searches = []
    for pool, device in zip(pools, ("cpu", "cuda"), strict=True):
        policy = Policy(copy.deepcopy(network), env.observation_space, env.action_space, config).to(device)
        searches.append(make_search(kind, pool, policy))
    on_cpu, on_gpu = searches
    names = ("_noise", "_log_gammas", "_uniform") if kind == "spo" else ("_gumbel",)

    def draw_same(generator: torch.Generator) -> None:
        for name in ("_key", *names):
            getattr(on_gpu, name).copy_(getattr(on_cpu, name))

    on_gpu._draw = draw_same  # type: ignore[method-assign]
    generators = torch.Generator().manual_seed(3), torch.Generator("cuda")
    out = pools[0].reset(1)
    for _ in range(4):  # executed, recorded, replayed
        records = torch.from_numpy(pools[0].states().view(np.uint8).reshape(NUM_ROOTS, -1))
        shown = [torch.from_numpy(each) for each in (out.obs, out.mask, out.turn)]
        expected = on_cpu.search(records, *shown, generators[0])
        got = on_gpu.search(records.cuda(), *[each.cuda() for each in shown], generators[1])
        for name in expected.__dataclass_fields__:
            theirs, ours = getattr(expected, name), getattr(got, name).cpu()
            agrees = torch.isclose(ours.float(), theirs.float(), rtol=1e-3, atol=1e-3).view(NUM_ROOTS, -1).all(1)
            # Rounding may turn a choice between two nearly equal actions, and with it all that follows there.
            assert agrees.float().mean() > 0.9, name
        out = pools[0].step(expected.action.numpy())
    assert on_gpu._stage.is_recorded


# --- runs: they stop and resume bit for bit, go on from others' checkpoints, and refuse what cannot be ---------------


FEW = ("particles, normalized", "particles, by effective size", "trees, two seats, results")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.rest) for kind in RUNS])
def test_a_run_that_stopped_ends_as_one_that_never_stopped(kind: str, device: Any, tmp_path: Path) -> None:
    """The replay is full from the third update on."""
    stop, config = 2 if kind == "particles, normalized" else 4, replace(RUNS[kind], device=device)
    assert_resumes_exactly(config, tmp_path, stop * UPDATE)


@pytest.mark.parametrize(("env", "algorithm"), [("cartpole", "spo"), ("tic_tac_toe", "alphazero")])
def test_a_rollout_that_is_given_up_has_never_been_played(env: str, algorithm: str, tmp_path: Path) -> None:
    played = []
    for gives_up in (True, False):
        with begun(searching_config(env, algorithm), tmp_path) as session:
            train_session(session, 1)
            if gives_up:
                before = {name: tensor.clone() for name, tensor in trainer_tensors(session).items()}
                asked = iter([False, False, False, True])
                assert session.collector.collect(lambda asked=asked: next(asked)) is None
                after = trainer_tensors(session)
                assert all(torch.equal(before[name], after[name]) for name in before)
            played.append(session.collector.collect(lambda: False).action.clone())
    assert torch.equal(*played)


AGAINST_RANDOM = {**BOARD, "random_opponent": True}
MORE = [
    ("snake", {}, "alphazero"),
    ("connect_four", AGAINST_RANDOM, "spo"),
    ("connect_four", AGAINST_RANDOM, "alphazero"),
]


@pytest.mark.parametrize("case", [("snake", {}, "spo"), *(pytest.param(case, marks=pytest.mark.rest) for case in MORE)])
def test_worlds_of_several_players_can_be_learned_with_one(case: tuple[str, Any, str], tmp_path: Path) -> None:
    env, parameters, algorithm = case
    assert train(searching_config(env, algorithm, 2, env_parameters=parameters), tmp_path).stopped_by is None


def test_a_game_that_is_not_zero_sum_stops_at_its_first_rollout_with_the_name_of_the_world(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="Duel gave its two seats the rewards"):
        train(searching_config("tests.helpers.player_worlds:Duel", "spo"), tmp_path)


MANY = """
import numpy as np
from scramjet.envs import Box, Env, MultiDiscrete
class Many(Env):
    observation_space, action_space, state = Box(0, 1, (1,), np.float32), MultiDiscrete([2, 3]), {"n": np.int32}
    def reset(self, s): s.n = 0
    def step(self, s, action): return 0.0, True
    def observe(self, s, obs): obs[0] = 0
"""
PROBLEMS = {
    "gym:CartPole-v1 --algorithm spo": "spo cannot search gym:CartPole-v1: a world of another library cannot be "
    "branched",
    "gym:CartPole-v1 --algorithm alphazero": "worlds written for scramjet can: `scramjet list`",
    "kuhn --algorithm alphazero": "alphazero cannot search Kuhn: its record holds what players must not see",
    "memory --algorithm spo": "use the policy alone, with --policy.memory gru where it must remember",
    "tests.helpers.player_worlds:Mortals --algorithm spo": "spo cannot search Mortals: its 3 agents act at once",
    "cartpole --policy.memory gru --algorithm spo": "cannot search with a policy that has memory: it would have to "
    "remember along every branch; train without --policy.memory",
    "cartpole --frame-stack 2 --algorithm spo": "train with --frame-stack 1",
    "cartpole --frame-stack 2 --algorithm alphazero": "train with --frame-stack 1",
    "cartpole --algorithm spo --mode async": "use --mode sync, or --algorithm ppo",
    "connect_four --algorithm alphazero --self-play.pool-fraction 0.5": "leave --self-play settings out, or use "
    "--algorithm ppo",
    "pendulum --algorithm alphazero": "alphazero chooses one of several actions, and Pendulum has Box",
    "{MANY} --algorithm alphazero": "use spo, whose particles take any actions",
    "cartpole --algorithm spo --spo.depth 0": "spo.depth=0",
    "cartpole --algorithm spo --spo.particles 0": "spo.particles=0",
    "cartpole --algorithm alphazero --alphazero.simulations 0": "alphazero.simulations=0",
    "cartpole --algorithm spo --spo.particles 1000000000": "lower --num-envs or --spo.particles",
    "cartpole --algorithm spo --num-envs 8 --num-steps 10000000 --spo.particles 1000": "what particles find in a "
    "rollout",
    "cartpole --algorithm spo --spo.replay-size 2000000000": "lower --num-envs, --spo.particles or --spo.replay-size",
    "tic_tac_toe --algorithm alphazero --num-envs 400000 --alphazero.simulations 10000": "lower --num-envs or "
    "--alphazero.simulations",
    "cartpole --algorithm spo --num-envs 100000000000": "num_envs=100000000000",
    "cartpole --algorithm alphazero --device cuda --env-device cpu": "use --env-device auto",
    "cartpole --algorithm spo --clip-epsilon 0.1": "clip_epsilon=0.1 is PPO's, and algorithm='spo' does not use it",
    "cartpole --spo.particles 8": "spo.particles=8 is for another algorithm; add --algorithm spo",
    "cartpole --algorithm dqn": "dqn",
}


def test_it_is_refused_with_the_reason_and_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "many.py").write_text(MANY)
    for words, reason in PROBLEMS.items():
        device = "" if "--device" in words else " --device cpu --no-fused"
        given = (words + device).replace("{MANY}", f"{tmp_path}/many.py:Many").split()
        said = refusal(capsys, "train", *given, "--runs-dir", tmp_path / "runs", "--display", "plain")
        assert reason in said, words
        assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir()), words


SMALL_PPO = normalized(replace(SMALL, policy=PolicyConfig(hidden=(8,), encoder="mlp")))
SIZES: dict[str, Any] = {"num_envs": 8, "num_steps": 6, "num_epochs": 2, "num_minibatches": 2}
SEARCHES: dict[str, dict[str, Any]] = {"spo": {**SIZES, "spo": PARTICLES}, "alphazero": {**SIZES, "alphazero": TREES}}


@pytest.fixture(scope="module")
def ppo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(SMALL_PPO, tmp_path_factory.mktemp("ppo"), run_name="parent").run_path


def newest(run: Path) -> Any:
    return CheckpointStore(run / "checkpoints", None).load_latest_whole()[0]


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_a_ppo_checkpoint_goes_on_by_search_and_back(algorithm: str, ppo_run: Path, tmp_path: Path) -> None:
    parent = newest(ppo_run)
    given = {"algorithm": algorithm, **SEARCHES[algorithm]}
    end = parent.step + 2 * UPDATE
    with begun(None, tmp_path, fork=ppo_run, total_timesteps=end, settings=given) as session:
        learner: Any = session.learner
        assert (session.first_step, session.config.algorithm) == (parent.step, algorithm)
        assert session.config.ppo.gamma == SMALL_PPO.ppo.gamma
        for name, weight in session.policy.state_dict().items():  # the normalizer's statistics among them
            assert torch.equal(weight, parent.model[name]), name
        if algorithm == "spo":
            for name, weight in learner.target.state_dict().items():
                assert torch.equal(weight, parent.model[name]), name
        count, _, squares = parent.trainer["reward_scaler/moments"].tolist()
        assert float(learner._rewards.scale) == pytest.approx((squares / count + 1e-8) ** -0.5)
        assert learner.replay.num_kept == 0
    there = train(None, tmp_path, fork=ppo_run, run_name="there", total_timesteps=end, **given)
    assert [record["step"] for record in lines_of(there.run_path)] == [end - UPDATE, end]
    given = {"algorithm": "ppo", "total_timesteps": end + 2 * UPDATE, **SIZES}
    back = train(None, tmp_path, fork=there.run_path, run_name="back", **given)
    assert back.step == end + 2 * UPDATE
    assert "clip_fraction" in back.metrics
    assert not any(name.startswith(("replay/", "spo/", "target/")) for name in newest(back.run_path).trainer)


def test_a_fork_begun_by_search_resumes_bit_for_bit(ppo_run: Path, tmp_path: Path) -> None:
    first = newest(ppo_run).step
    for name, num_updates in (("whole", 3), ("parts", 1)):
        end = first + num_updates * UPDATE
        train(None, tmp_path, fork=ppo_run, run_name=name, algorithm="spo", total_timesteps=end, **SEARCHES["spo"])
    train(None, tmp_path, resume="parts", total_timesteps=first + 3 * UPDATE)
    assert last_checkpoint(tmp_path / "parts") == last_checkpoint(tmp_path / "whole")


def test_a_fork_may_change_settings_of_the_search_and_begins_with_an_empty_replay(tmp_path: Path) -> None:
    run = train(searching_config("cartpole", "spo", 3), tmp_path).run_path
    forked = {"spo": {"particles": 6, "depth": 2, "replay_size": UPDATE}}
    with begun(None, tmp_path, fork=run, total_timesteps=6 * UPDATE, settings=forked) as session:
        assert (session.config.spo.particles, session.config.spo.depth) == (6, 2)
        assert session.config.spo.resample_period == PARTICLES.resample_period
        learner: Any = session.learner
        assert learner.replay.num_kept == 0
        assert learner.replay.record.weights.shape == (6, 8, 6)


def test_a_fork_by_command_takes_the_algorithms_defaults_and_its_network(ppo_run: Path, tmp_path: Path) -> None:
    words = ["train", "--fork", ppo_run, "--algorithm", "spo", "--total-timesteps", "200", "--runs-dir", tmp_path]
    sizes = "--num-envs 8 --num-steps 6 --num-epochs 1 --spo.particles 4 --display quiet --run-name forked"
    assert call(*words, *sizes.split()) == 0
    written = (tmp_path / "forked" / "config.toml").read_text()
    assert 'algorithm = "spo"' in written
    assert "learning_rate = 0.0003" in written  # and not what was tuned for the other
    with pytest.raises(CheckpointError, match="holds another network"):
        train(None, tmp_path, fork=ppo_run, algorithm="spo", total_timesteps="1K", policy={"hidden": [9]})
