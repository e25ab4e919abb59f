"""Opponents in rollouts: who chooses which action, whose results are counted, what becomes a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.training.batches.samples import lay_out
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.self_play.members import plain_weights
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
        self.pool = NativePool(load_env(world, **parameters), ENVS, num_threads=1)
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
                drawn = (group.seat_draws[t].numpy() * games.pool.num_players).astype(np.int64)
                over = is_over(games, rollout, t)[first : first + len(now)]
                now = np.where(over, drawn, now)
            np.testing.assert_array_equal(group.learner_seat.numpy(), now)
        mine = mine_by_hand(games, rollout, seats)
        assert rollout.mine is not None
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


def check_actions(games: Games, rollout: Rollout, mine: np.ndarray) -> None:
    """Rows that are not the learner's hold what the slot's policy draws with the group's noise."""
    per_env = games.pool.num_rows // ENVS
    noise = games.opponents.groups[0].noise
    for slot in (0, 1):
        rows = slice(3 * per_env * slot, 3 * per_env * (slot + 1))
        for t in range(STEPS):
            policy, mask = games.others[slot], None if rollout.mask is None else rollout.mask[t, rows]
            action, log_prob = torch.zeros(3 * per_env, dtype=torch.int64), torch.zeros(3 * per_env)
            with torch.no_grad():
                logits = policy(rollout.obs[t, rows]).logits
            policy.distribution.sample(logits, mask, noise[t, rows], action, log_prob)
            theirs = ~torch.from_numpy(mine[t, rows])
            assert torch.equal(rollout.action[t, rows][theirs], action[theirs])


def test_new_opponents_begin_where_games_end_and_results_name_who_played() -> None:
    games = Games(*WORLDS["seats"], encoder="mlp")
    group = games.opponents.groups[0]
    games.play()
    group.waiting = [games.opponent(2), games.opponent(3)]
    rollout = games.play()
    assert group.members.tolist() == [[0, 1], [2, 3]]
    assert rollout.opponent is not None
    assert rollout.outcome is not None
    ended = rollout.outcome > 0
    assert torch.equal(ended, (rollout.terminated | rollout.truncated) & (torch.arange(ENVS) < 8))
    for env in range(6):
        told = rollout.opponent[ended[:, env], env].tolist()
        assert told == [env // 3] + [2 + env // 3] * (len(told) - 1)
    assert set(rollout.opponent[:, 6:8][ended[:, 6:8]].tolist()) == {9}
    for t, env in ended.nonzero().tolist():
        sat = games_seat(rollout, t, env)
        expected = {1.0: 3, 0.0: 2, -1.0: 1}[float(rollout.reward[t, env, sat])]
        assert int(rollout.outcome[t, env]) == expected


def games_seat(rollout: Rollout, t: int, env: int) -> int:
    """The learner's seat in the game that ended in step t, from any step of it: the seat that moved where it chose."""
    assert rollout.mine is not None
    assert rollout.seat is not None
    seat = int(rollout.seat[t, env])
    return seat if bool(rollout.mine[t, env]) else 1 - seat


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


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("memory", [None, "lstm"])
def test_only_the_learners_turns_become_samples(kind: str, memory: str | None) -> None:
    games = Games(*WORLDS[kind], encoder="mlp", memory=memory)
    rollout = games.play()
    samples = lay_out(rollout, torch.zeros_like(rollout.log_prob), torch.zeros_like(rollout.log_prob))
    places = samples.place if samples.counts is None else samples.place[samples.counts]
    assert rollout.mine is not None
    valid = rollout.mine if rollout.alive is None else rollout.mine & rollout.alive[:-1]
    assert sorted(places.tolist()) == valid.flatten().nonzero().squeeze(1).tolist()


def test_opponents_with_memory_remember_their_own_games_only() -> None:
    games = Games("connect_four", {"rows": 4, "cols": 4, "connect": 3}, encoder="mlp", memory="lstm", memory_size=8)
    policy, group = games.others[0], games.opponents.groups[0]
    rollout = games.play()
    state, told = torch.zeros(2, policy.state_size), False  # of both seats of env 0
    for t in range(STEPS):
        assert rollout.seat is not None
        assert rollout.mine is not None
        assert rollout.mask is not None
        seat = int(rollout.seat[t, 0])
        with torch.no_grad():
            output = policy(rollout.obs[t, :1], state[seat : seat + 1])
        assert output.state is not None
        state[seat] = output.state[0]
        if not bool(rollout.mine[t, 0]):
            action, log_prob = torch.zeros(1, dtype=torch.int64), torch.zeros(1)
            policy.distribution.sample(output.logits, rollout.mask[t, :1], group.noise[t, :1], action, log_prob)
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
        assert rollout.game is not None
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
    for parameter in games.policy.network.actor_head.parameters():  # type: ignore[union-attr]
        torch.nn.init.zeros_(parameter)
    counts = {1: 0, 2: 0, 3: 0}
    for _ in range(60):
        rollout = games.play()
        assert rollout.outcome is not None
        for outcome in rollout.outcome[rollout.outcome > 0].tolist():
            counts[outcome] += 1
    assert counts[1] + counts[3] > 300
    assert abs(counts[1] - counts[3]) < 4 * (counts[1] + counts[3]) ** 0.5
