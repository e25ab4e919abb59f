"""Tree search: what it finds, ends and time limits inside a tree, masks, records, threads, the GPU, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scramjet.adapters.make import make
from scramjet.algorithms.config import AlphaZeroConfig
from scramjet.engine import NativePool
from scramjet.envs import Box, Discrete, Env
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.search import tree
from scramjet.search.search import Rewards
from scramjet.search.tree import TreeSearch
from scramjet.search.tree_kernels import ACTION, CAN_STEP, PARENT, TURN, VISITS
from tests.helpers.search_worlds import (
    ALLOWS,
    ENDS,
    GAMMA,
    LEADS_TO,
    LOGITS,
    MOVER,
    PAYS,
    TIME_LIMIT,
    VALUES,
    Network,
    SeatedTableWorld,
    TableNetwork,
    TableWorld,
    search_from,
    tree_search,
)
from tests.helpers.small_games import best_result, cells


def after(pool: NativePool, *moves: int):
    """What a pool shows after these moves in every env."""
    out = pool.reset(0)
    for move in moves:
        out = pool.step(np.full(pool.num_envs, move))
    return out


def test_the_win_in_one_and_the_block_are_found_without_training() -> None:
    for world, moves, best in (
        (TicTacToe(), (0, 3, 1, 4), 2),  # three in the first row
        (TicTacToe(), (0, 3, 8, 4), 5),  # or else the other has the second row
        (ConnectFour(), (3, 0, 3, 0, 3, 0), 3),
        (ConnectFour(), (3, 0, 3, 0, 6, 0), 0),
    ):
        pool = NativePool(world, 2, num_threads=1)
        out = after(pool, *moves)
        search = tree_search(pool, gamma=1.0, simulations=128)
        search.is_deterministic = True
        result = search_from(search, out)
        assert result.action.tolist() == [best] * 2, moves
        assert result.policy.argmax(-1).tolist() == [best] * 2, moves


def test_many_simulations_keep_the_value_of_tic_tac_toe_positions() -> None:
    pool = NativePool(TicTacToe(opening_plies=6), 96, num_threads=1)
    out = pool.reset(2)
    search = tree_search(pool, gamma=1.0, simulations=400)
    search.is_deterministic = True
    actions = search_from(search, out).action.tolist()
    late = pool.states()["moves"] > 2
    assert late.sum() > 30
    for own, other, action in ((*map(cells, out.obs[env]), actions[env]) for env in np.flatnonzero(late)):
        assert -best_result(other, own | 1 << action) == best_result(own, other)


def before_the_limit(world: Env) -> tuple[NativePool, Any, np.ndarray]:
    """Envs, what they show, and their records a step before the time limit."""
    pool = NativePool(world, 64, num_threads=1)
    out = pool.reset(3)
    records = pool.states()
    records["_steps"] = TIME_LIMIT - 1
    return pool, out, records


def test_a_step_before_the_time_limit_values_are_the_reward_and_with_one_seat_the_value_there_but_after_an_end() -> (
    None
):
    """A game of two that is cut is worth nothing more, as where it is learned from."""
    for world in (TableWorld(), SeatedTableWorld()):
        pool, out, records = before_the_limit(world)
        result = search_from(tree_search(pool, TableNetwork(), simulations=40), out, records=records)
        place = records["place"]
        there = LEADS_TO[place]  # [N, actions]
        is_over = ENDS[there] | (world.num_seats == 2)
        expected = PAYS[place] + np.where(is_over, 0.0, GAMMA * VALUES[there])
        is_visited = result.visits.numpy() > 0
        np.testing.assert_allclose(result.q.numpy()[is_visited], expected[is_visited], atol=1e-6, err_msg=str(world))
        assert (ENDS[there] & is_visited).any()
        assert (result.visits.sum(-1) == 40).all()
        assert (result.visits.max(-1).values > 1).all()  # so that some were visited again


def test_every_node_is_a_legal_step_from_its_parent_which_goes_on() -> None:
    for world in (TableWorld(), SeatedTableWorld()):
        pool = NativePool(world, 64, num_threads=1)
        search = tree_search(pool, TableNetwork(), simulations=60)
        result = search_from(search, pool.reset(4))
        whole = search.trees.whole.numpy()
        places = search.trees.records.numpy().view(pool.states().dtype)["place"].reshape(whole.shape[:2])
        row, node = np.nonzero(whole[:, 1:, VISITS])
        node += 1
        parent, action = whole[row, node, PARENT], whole[row, node, ACTION]
        assert ALLOWS[places[row, parent], action].all()
        np.testing.assert_array_equal(places[row, node], LEADS_TO[places[row, parent], action])
        assert whole[row, parent, CAN_STEP].all()
        np.testing.assert_array_equal(whole[row, node, TURN], MOVER[places[row, node]] * (world.num_seats - 1))
        assert len(set(zip(row, parent, action, strict=True))) == len(row)  # no action twice
        assert (result.visits.numpy()[~ALLOWS[places[:, 0]]] == 0).all()
        assert (result.policy.numpy()[~ALLOWS[places[:, 0]]] == 0).all()
        torch.testing.assert_close(result.policy.sum(-1), torch.ones(64))
        torch.testing.assert_close(result.value, (result.policy * result.q).sum(-1))


def test_rewards_are_clipped_then_scaled() -> None:
    pool, out, records = before_the_limit(TableWorld())
    search = tree_search(pool, TableNetwork(), simulations=10)
    search.rewards = Rewards(0.0, torch.full((1,), 3.0), clip=0.5)
    result = search_from(search, out, records=records)
    is_visited = result.visits.numpy() > 0
    paid = PAYS[records["place"]][is_visited]
    np.testing.assert_allclose(result.q.numpy()[is_visited], 3 * np.clip(paid, -0.5, 0.5))


def test_no_more_actions_are_tried_than_considered_and_without_noise_those_are_the_likeliest() -> None:
    pool = NativePool(TableWorld(), 64, num_threads=1)
    search = tree_search(pool, TableNetwork(), simulations=16, considered=3)
    out = pool.reset(6)
    noisy = search_from(search, out).visits.clone()
    assert ((noisy > 0).sum(-1) <= 3).all()
    search.is_deterministic = True
    result = search_from(search, out)
    assert not torch.equal(result.visits, noisy)
    for row in range(64):
        legal = np.flatnonzero(out.mask[row])
        likeliest = legal[np.argsort(-result.logits[row].numpy()[legal])][:3]
        assert set(np.flatnonzero(result.visits[row])) == set(likeliest)
        assert result.action[row] in likeliest


def test_one_legal_action_is_visited_by_every_simulation_and_with_one_simulation_actions_follow_the_policy() -> None:
    pool = NativePool(TicTacToe(), 4, num_threads=1)
    out = after(pool, 0, 1, 2, 4, 3, 5, 7, 6)  # then 8 is free, and takes no line
    result = search_from(tree_search(pool, simulations=12), out)
    assert result.action.tolist() == [8] * 4
    assert result.visits[:, 8].tolist() == [12.0] * 4
    torch.testing.assert_close(result.policy[:, 8], torch.ones(4))
    assert result.q[:, 8].tolist() == [0.0] * 4  # a draw
    pool, num_drawn = NativePool(TableWorld(), 1, num_threads=1), 4000  # Gumbel-Top-k is then the Gumbel-max trick
    out = pool.reset(0)
    one = tree_search(pool, TableNetwork())
    search = tree.TreeSearch(pool, one.policy, num_drawn, one.rewards, AlphaZeroConfig(simulations=1))
    shown = [torch.from_numpy(each).expand(num_drawn, -1) for each in (out.obs, out.mask)]
    drawn = search.search(pool.state_bytes(), *shown, torch.zeros(0), torch.Generator().manual_seed(5)).action
    logits = LOGITS[pool.states()["place"][0]][out.mask[0]].astype(float)
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(np.bincount(drawn, minlength=7)[out.mask[0]] / num_drawn, expected, atol=0.03)


def test_results_do_not_depend_on_threads(monkeypatch) -> None:
    monkeypatch.setattr(tree, "ROOTS_FOR_THREADS", 1)
    pools = [NativePool(TicTacToe(opening_plies=6), 70, num_threads=num_threads) for num_threads in (1, 2)]
    first, second = (search_from(tree_search(pool), pool.reset(1)) for pool in pools)
    for name in ("action", "value", "policy", "visits", "q"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name


def test_worlds_that_a_tree_cannot_hold_and_trees_larger_than_memory_are_refused_with_what_to_lower() -> None:
    search = tree_search(NativePool(TableWorld(), 2, num_threads=1), TableNetwork())
    with pytest.raises(ConfigError, match="alphazero chooses one of several actions"):
        tree.TreeSearch(make("identity_continuous", 2), search.policy, 2, search.rewards, AlphaZeroConfig())
    with pytest.raises(ConfigError, match=r"num_envs=100000000, simulations=32.*lower --num-envs or --alphazero.sim"):
        tree.TreeSearch(search.pool, search.policy, 10**8, search.rewards, AlphaZeroConfig())


class EndsUnseen(Env):
    """Action 2 ends the episode with a reward of -1, and what it shows then is no number."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(3)
    state = {"is_over": np.bool_}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.is_over = action == 2
        return -1.0 if action == 2 else 0.0, action == 2

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = np.nan if s.is_over else 0.0


def test_what_the_network_says_of_an_end_does_not_count_even_if_it_is_no_number() -> None:
    pool = NativePool(EndsUnseen(), 2)
    out = pool.reset(0)
    repeats = Network(lambda obs: obs.expand(-1, 3), lambda obs: obs[:, 0])  # what it sees
    result = search_from(tree_search(pool, repeats, simulations=12), out)
    assert torch.equal(result.q[:, 2], torch.full((2,), -1.0))
    assert torch.isfinite(result.policy).all()
    assert (result.action != 2).all()


@pytest.mark.gpu
@pytest.mark.parametrize("world", [TableWorld, SeatedTableWorld])
def test_the_gpu_finds_what_the_cpu_finds_executed_recorded_and_replayed(world: type[Env]) -> None:
    from scramjet.engine.worlds.cuda_pool import CudaPool

    on_cpu, on_gpu = NativePool(world(), 300), CudaPool(world(), 300)
    out = on_cpu.reset(1)
    expected = tree_search(on_cpu, TableNetwork())
    policy = Policy(TableNetwork(), on_gpu.observation_space, on_gpu.action_space).to("cuda")
    rewards = Rewards(GAMMA, torch.ones(1, device="cuda"))
    search = TreeSearch(on_gpu, policy, 300, rewards, AlphaZeroConfig())
    search.is_deterministic = expected.is_deterministic = True
    generator = torch.Generator("cuda")
    for _ in range(4):
        theirs = search_from(expected, out)
        records = torch.from_numpy(on_cpu.states().view(np.uint8).reshape(300, -1)).cuda()
        shown = [torch.from_numpy(each).cuda() for each in (out.obs, out.mask, out.turn)]
        ours = search.search(records, *shown, generator)
        for name in ("visits", "action"):
            assert torch.equal(getattr(ours, name).cpu(), getattr(theirs, name))
        for name in ("q", "policy", "value"):
            torch.testing.assert_close(getattr(ours, name).cpu(), getattr(theirs, name), atol=1e-5, rtol=1e-5)
        out = on_cpu.step(theirs.action.numpy())
    assert search._stage.is_recorded
