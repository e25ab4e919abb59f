"""Opponents in rollouts: who is drawn and who chooses which action, whose results count, what becomes a sample."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from scramjet.engine import NativePool, Pool
from scramjet.engine.layout import PlayedBy
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.envs.registry import load_env
from scramjet.executors.choice import choose_executor
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.selfplay.members import Member, plain_weights
from scramjet.training.batches.samples import lay_out
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Outcome, Rollout
from scramjet.training.self_play.league import League, draw_members, draw_probabilities, least_missed
from scramjet.training.self_play.opponents import GroupSize, Opponent, Opponents

STEPS, ENVS = 24, 12


def make_policy(pool: Pool, seed: int, **settings: Any) -> Policy:
    torch.manual_seed(seed)
    config = PolicyConfig(hidden=(16,), **settings)
    network = default_network(pool.observation_space, pool.action_space, config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Policy(network, pool.observation_space, pool.action_space, config)


class Games:
    """A pool with two groups: envs 0 to 5 against two opponents that change, 6 and 7 against random moves."""

    def __init__(self, world: str, parameters: dict[str, Any], *, fused: bool = True, **settings: Any) -> None:
        self.pool = NativePool(load_env(world, **parameters), ENVS, backend="interpreted")
        self.policy = make_policy(self.pool, 0, **settings)
        self.others = [make_policy(self.pool, seed, **settings) for seed in (1, 2, 3, 4)]
        self.sizes = [GroupSize(0, 6, 2, 2), GroupSize(6, 2, 1, 1)]
        self.opponents = Opponents(self.pool, self.policy, self.sizes, STEPS, fused=fused, seed=5)
        self.player = RolloutPlayer(self.pool, TorchExecutor(self.policy), STEPS, others=self.opponents)
        self.opponents.groups[0].seat_opponents(0, [self.opponent(0), self.opponent(1)])
        self.opponents.groups[1].seat_opponents(0, [Opponent(9, None)])
        self.pool.reset(3, out=self.player.buffers.last)
        self.generator = torch.Generator().manual_seed(7)

    def opponent(self, i: int) -> Opponent:
        return Opponent(i, plain_weights(self.others[i].state_dict()))

    def play(self) -> Rollout:
        return self.player.play(self.generator)


WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "seats": ("connect_four", {"rows": 4, "cols": 4, "connect": 3}),
    "agents": ("snake", {"size": 5, "snakes": 3, "start_length": 2}),
}


def mine_by_hand(games: Games, rollout: Rollout, seats: np.ndarray) -> np.ndarray:
    """Which rows [T, R] are the learner's, if it has seat `seats[t, env]` of each env."""
    rows_per_env = games.pool.num_rows // games.pool.num_envs
    envs = np.arange(games.pool.num_rows) // rows_per_env
    who = np.arange(games.pool.num_rows) % rows_per_env
    mover = rollout.seat[:-1].numpy() if rollout.seat is not None else np.broadcast_to(who, rollout.log_prob.shape)
    return (envs >= 8) | (mover == seats[:, np.minimum(envs, 7)])


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("fused", [True, False])
def test_opponents_choose_what_their_own_policies_draw_and_the_rest_is_the_learners(kind: str, fused: bool) -> None:
    games = Games(*WORLDS[kind], fused=fused, encoder="mlp")
    for _ in range(2):
        before = [group.learner_seat.numpy().copy() for group in games.opponents.groups]
        rollout = games.play()
        seats = np.zeros((STEPS, 8), np.int64)
        for group, first, now in zip(games.opponents.groups, (0, 6), before, strict=True):
            for t in range(STEPS):
                seats[t, first : first + len(now)] = now
                next_seats = (group.seat_draws[t].numpy() * games.pool.num_players).astype(np.int64)
                over = is_over(games, rollout, t)[first : first + len(now)]
                now = np.where(over, next_seats, now)
            np.testing.assert_array_equal(group.learner_seat.numpy(), now)
        mine = mine_by_hand(games, rollout, seats)
        np.testing.assert_array_equal(rollout.mine.numpy(), mine)
        assert 0 < mine[:, : 8 * games.pool.num_rows // ENVS].mean() < 1
        check_actions(games, rollout, mine)
    assert len(np.unique(seats)) == games.pool.num_players


def is_over(games: Games, rollout: Rollout, t: int) -> np.ndarray:
    """Whose games [N] ended in step t: all who were alive have ended."""
    ended = (rollout.terminated[t] | rollout.truncated[t]).numpy().reshape(ENVS, -1)
    if rollout.alive is None:
        return ended[:, 0]
    return (ended | ~rollout.alive[t].numpy().reshape(ENVS, -1)).all(1)


def drawn(
    policy: Policy, rollout: Rollout, t: int, rows: slice, noise: torch.Tensor, state: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The actions that a policy draws for some rows in step t, and its state after them."""
    with torch.no_grad():
        output = policy(rollout.obs[t, rows], state)
    log_prob = torch.zeros(len(output.logits), device=policy.device)
    action = torch.zeros_like(log_prob, dtype=torch.int64)
    mask = None if rollout.mask is None else rollout.mask[t, rows]
    policy.distribution.sample(output.logits, mask, noise[t, rows], action, log_prob)
    return action, output.state


def check_actions(games: Games, rollout: Rollout, mine: np.ndarray) -> None:
    """Rows that are not the learner's hold what the slot's policy draws with the group's noise."""
    per_env = games.pool.num_rows // ENVS
    noise = games.opponents.groups[0].noise
    for slot in (0, 1):
        rows = slice(3 * per_env * slot, 3 * per_env * (slot + 1))
        for t in range(STEPS):
            action, _ = drawn(games.others[slot], rollout, t, rows, noise)
            theirs = ~torch.from_numpy(mine[t, rows])
            assert torch.equal(rollout.action[t, rows][theirs], action[theirs])


def test_new_opponents_begin_where_games_end_and_results_name_who_played() -> None:
    games = Games(*WORLDS["seats"], encoder="mlp")
    group = games.opponents.groups[0]
    games.play()
    group.waiting = [games.opponent(2), games.opponent(3)]
    rollout = games.play()
    assert group.members.tolist() == [[0, 1], [2, 3]]
    ended = rollout.outcome > 0
    assert torch.equal(ended, (rollout.terminated | rollout.truncated) & (torch.arange(ENVS) < 8))
    for env in range(6):
        told = rollout.opponent[ended[:, env], env].tolist()
        assert told == [env // 3] + [2 + env // 3] * (len(told) - 1)
    assert set(rollout.opponent[:, 6:8][ended[:, 6:8]].tolist()) == {9}
    for t, env in ended.nonzero().tolist():
        mover = int(rollout.seat[t, env])
        sat = mover if bool(rollout.mine[t, env]) else 1 - mover  # the learner
        expected = {1.0: 3, 0.0: 2, -1.0: 1}[float(rollout.reward[t, env, sat])]
        assert int(rollout.outcome[t, env]) == expected


def test_a_third_generation_waits_for_the_last_game_of_the_first() -> None:
    games = Games("connect_four", {"rows": 6, "cols": 7}, encoder="mlp")
    group = games.opponents.groups[0]
    group.generation[2] = 1  # a game that goes on against another generation
    group.waiting = [games.opponent(2), games.opponent(3)]
    games.opponents.begin(STEPS)
    assert group.waiting is not None
    group.generation[2] = 0
    games.opponents.begin(STEPS)
    assert group.waiting is None
    assert int(group.newest) == 1


@pytest.mark.parametrize("memory", [None, "lstm"])
@pytest.mark.parametrize("kind", WORLDS)
def test_only_the_learners_turns_become_samples(kind: str, memory: str | None) -> None:
    games = Games(*WORLDS[kind], encoder="mlp", memory=memory)
    rollout = games.play()
    samples = lay_out(rollout, torch.zeros_like(rollout.log_prob), torch.zeros_like(rollout.log_prob))
    places = samples.place if samples.counts is None else samples.place[samples.counts]
    valid = rollout.mine if rollout.alive is None else rollout.mine & rollout.alive[:-1]
    assert sorted(places.tolist()) == valid.flatten().nonzero().squeeze(1).tolist()


def test_opponents_with_memory_remember_their_own_games_only() -> None:
    games = Games("connect_four", {"rows": 4, "cols": 4, "connect": 3}, encoder="mlp", memory="lstm", memory_size=8)
    policy, group = games.others[0], games.opponents.groups[0]
    rollout = games.play()
    state, told = torch.zeros(2, policy.state_size), False  # of both seats of env 0
    for t in range(STEPS):
        seat = int(rollout.seat[t, 0])
        action, after = drawn(policy, rollout, t, slice(0, 1), group.noise, state[seat : seat + 1])
        state[seat] = after[0]
        if not bool(rollout.mine[t, 0]):
            assert int(action) == int(rollout.action[t, 0])
            told = True
        if bool(rollout.terminated[t, 0] | rollout.truncated[t, 0]):
            state.zero_()
    assert told
    torch.testing.assert_close(group.recurrent.states[:2], state, atol=1e-5, rtol=1e-5)


def test_games_with_the_same_moves_have_the_same_hash_and_others_another() -> None:
    games = Games("connect_four", {"rows": 3, "cols": 3, "connect": 3}, encoder="mlp")
    seen: dict[tuple[int, ...], int] = {}
    moves: list[list[int]] = [[] for _ in range(ENVS)]
    for _ in range(20):
        rollout = games.play()
        for t in range(STEPS):
            for env in range(ENVS):
                moves[env].append(int(rollout.action[t, env]))
                hashed = int(rollout.game[t, env])
                if bool(rollout.terminated[t, env]):
                    assert seen.setdefault(tuple(moves[env]), hashed) == hashed
                    moves[env] = []
                else:
                    assert hashed == 0
    assert len(set(seen.values())) == len(seen) > 100
    assert games.pool.played_by is PlayedBy.SEATS


def test_among_equals_of_more_than_two_wins_are_as_likely_as_losses() -> None:
    games = Games(*WORLDS["agents"], encoder="mlp")
    for group in games.opponents.groups:
        group.seat_opponents(0, [Opponent(i, None) for i in range(group.size.num_slots)])
    for parameter in games.policy.network.actor_head.parameters():
        torch.nn.init.zeros_(parameter)
    counts = sum(torch.bincount(games.play().outcome.flatten().long(), minlength=4) for _ in range(13)).tolist()
    assert counts[1] + counts[3] > 120
    assert abs(counts[1] - counts[3]) < 4 * (counts[1] + counts[3]) ** 0.5


KINDS: dict[str, dict[str, Any]] = {
    "mlp": {"encoder": "mlp"},
    "board": {"encoder": "grid_cnn", "grid_channels": (8,), "grid_blocks": 1, "shared_trunk": True},
    "memory": {"encoder": "mlp", "memory": "gru", "memory_size": 8},
}


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_gpu_the_whole_rollout_is_one_graph_and_opponents_choose_what_their_policies_draw(kind: str) -> None:
    world, parameters = WORLDS["seats"]
    pool = CudaPool(load_env(world, **parameters), 64)
    policy = make_policy(pool, 0, **KINDS[kind]).to("cuda")
    others = [make_policy(pool, seed, **KINDS[kind]).to("cuda") for seed in (1, 2, 3, 4)]
    weights = [plain_weights(other.state_dict()) for other in others]
    opponents = Opponents(pool, policy, [GroupSize(0, 32, 2, 2)], STEPS, fused=True, seed=5)
    player = RolloutPlayer(pool, choose_executor(policy, pool, fused=True), STEPS, others=opponents)
    group = opponents.groups[0]
    group.seat_opponents(0, [Opponent(0, weights[0]), Opponent(1, weights[1])])
    pool.reset(3, out=player.buffers.last)
    generator, told = torch.Generator("cuda").manual_seed(7), set()
    for number in range(8):
        if number == 3:
            group.waiting = [Opponent(2, weights[2]), Opponent(3, None)]
        rollout = player.play(generator)
        told |= set(rollout.opponent[rollout.outcome > 0].tolist())
        assert bool(rollout.mine[:, 32:].all())
        assert 0.2 < float(rollout.mine[:, :32].float().mean()) < 0.8
        if kind == "mlp" and number < 3:
            for slot in (0, 1):
                rows = slice(16 * slot, 16 * (slot + 1))
                for t in range(STEPS):
                    action, _ = drawn(others[slot], rollout, t, rows, group.noise)
                    theirs = ~rollout.mine[t, rows]
                    same = (rollout.action[t, rows] == action)[theirs].float()
                    assert float(same.mean()) > 0.9 if len(same) else True  # rounding may move a draw at an edge
    assert player.is_recorded
    assert told == {0, 1, 2, 3}


# --- who is drawn, who stays, and how results are counted ------------------------------------------------------------

SETTINGS = {"exponent": 2.0, "uniform_share": 0.2, "num_newest": 2}


def test_prioritized_draws_follow_the_power_of_the_loss_rate_over_a_floor_and_others_ignore_it() -> None:
    drawn = draw_probabilities([0.5, 0.8, 1.0], "prioritized", **SETTINGS)
    total = 0.25 + 0.04
    expected = [0.8 * 0.25 / total + 0.2 / 3, 0.8 * 0.04 / total + 0.2 / 3, 0.2 / 3]
    assert drawn.tolist() == pytest.approx(expected)
    assert draw_probabilities([1.0, 1.0], "prioritized", **SETTINGS).tolist() == [0.5, 0.5]
    # Uniform and newest ignore win rates.
    assert draw_probabilities([0.0, 1.0], "uniform", **SETTINGS).tolist() == [0.5, 0.5]
    newest = draw_probabilities([0.0, 1.0, 1.0], "newest", **SETTINGS)
    assert newest.tolist() == [0, 0.5, 0.5]


def test_opponents_are_distinct_while_there_are_enough_and_draws_follow_their_probabilities() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        assert sorted(draw_members(torch.full((4,), 0.25), 4, generator)) == [0, 1, 2, 3]
        few = draw_members(torch.tensor([0.0, 0.5, 0.5]), 4, generator)
        assert set(few) == {1, 2}
        assert len(few) == 4
    first = [draw_members(torch.tensor([0.7, 0.2, 0.1]), 1, generator)[0] for _ in range(2000)]
    assert [first.count(i) / 2000 for i in range(3)] == pytest.approx([0.7, 0.2, 0.1], abs=0.04)


def test_snapshots_that_stay_are_spread_over_time() -> None:
    kept: list[int] = []
    for step in range(100):
        kept.append(step)
        if len(kept) > 8:
            del kept[least_missed(kept)]
    assert kept[0] == 0
    assert kept[-1] == 99
    gaps = [later - earlier for earlier, later in itertools.pairwise(kept)]
    assert max(gaps) <= 2 * 99 / 7 + 1


class Ended:
    """The part of a rollout that a league looks at: 500 games against each of four members."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.opponent = torch.arange(4, dtype=torch.int32).repeat(500, 1)
        self.outcome = torch.tensor([int(each) for each in outcomes], dtype=torch.int8).repeat(500, 1)
        self.game = torch.arange(1, 2001).view(500, 4)


def test_the_win_rate_is_over_all_members_alike() -> None:
    for lost in range(4):
        members = [Member(number, str(number), "self", number, rating=1000.0) for number in range(4)]
        anything: Any = None
        league = League(SelfPlayConfig(pool_fraction=0.5), anything, [], members, anything, anything, seed=0)
        rollout: Any = Ended([Outcome.LOSS if number == lost else Outcome.WIN for number in range(4)])
        league.count(rollout)
        assert league.win_rate == pytest.approx(0.75)
        assert [member.win_rate > 0.9 for member in members] == [number != lost for number in range(4)]
        assert league.metrics()["self_play/distinct_games"] == 1.0
        assert 1100 < league.rating < 1300  # three quarters of the points: 191 above equals, less the prior's pull
