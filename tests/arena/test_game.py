"""One game between people and players: moves, replies, the end, taking moves back, and what a page is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from scramjet.arena.game import Game
from scramjet.arena.network_players import NetworkPlayer, Temperature
from scramjet.arena.play.moves import Result
from scramjet.arena.play.thoughts import Adviser
from scramjet.arena.solver.solver import Position, Solver
from scramjet.engine import FrameStackPool, NativePool, Pool
from scramjet.envs.api import Env
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.kuhn import Kuhn
from scramjet.envs.games.leduc import Leduc
from scramjet.envs.games.snake import Snake
from scramjet.errors import ConfigError, PlayError
from scramjet.players.player import Player, UserPlayer
from scramjet.players.scripted import RandomPlayer
from scramjet.policies import Policy, PolicyConfig
from scramjet.training.components import policy_for
from scramjet.training.config.run_config import RunConfig
from tests.helpers.player_worlds import Duel, Trio
from tests.helpers.table_players import AnyMove, Counting, Fixed, Forgetful

SMALL = ConnectFour(rows=2, cols=3, connect=3)


def pool_of(env: Env) -> Pool:
    return NativePool(env, 1, backend="interpreted")


def a_game(*players: Player | None, env: Env | None = None, seed: int = 1, adviser: Adviser | None = None) -> Game:
    game = Game(pool_of(env or ConnectFour()), adviser)
    game.begin(players, seed)
    return game


def a_policy(env: Env, memory: str | None = None) -> Policy:
    config = RunConfig(policy=PolicyConfig(encoder="mlp", hidden=(8,), memory=memory, memory_size=8))
    return policy_for(env.observation_space, env.action_space, config).eval()


def play(game: Game, *numbers: int) -> None:
    """People make these moves, the others reply to each."""
    let_reply(game)
    for number in numbers:
        game.move(number)
        let_reply(game)


def let_reply(game: Game) -> None:
    while not game.is_over and game.person_to_move is None:
        game.reply()


def play_on(game: Game, choose: Callable[[list[int]], int] = min) -> Iterator[Game]:
    """Play to the end, a person by a choice among the legal moves; yields before each move."""
    while not game.is_over:
        yield game
        if game.person_to_move is None:
            game.reply()
        else:
            game.move(choose(legal(game)))


def legal(game: Game) -> list[int]:
    return [move.number for move in game.legal_moves()]


def moves_of(game: Game) -> list[int]:
    return [played.move.number for played in game.played]


def result_of(game: Game) -> Result:
    assert game.result is not None
    return game.result


def test_four_in_a_column_win_a_full_board_is_a_draw_and_the_final_board_is_shown() -> None:
    game = a_game(None, None)
    play(game, 0, 1, 0, 1, 0, 1)
    assert (game.is_over, game.to_move, game.person_to_move) == (False, (0,), 0)
    play(game, 0)
    result = result_of(game)
    assert (result.returns, result.winners, result.is_draw) == ((1.0, -1.0), (0,), False)
    assert game.text().count("X") >= 4 + 1  # four pieces, and "X wins"
    assert "X wins" in game.text()
    assert (game.to_move, legal(game), game.person_to_move) == ((), [], None)
    game = a_game(None, None, env=SMALL)
    play(game, 0, 1, 2, 0, 1, 2)
    result = result_of(game)
    assert (result.is_draw, result.winners, result.returns) == (True, (0, 1), (0.0, 0.0))


def test_legal_moves_are_those_of_the_mask_one_for_each_combination_of_choices() -> None:
    game = a_game(None, None, env=SMALL)
    assert legal(game) == [0, 1, 2]
    play(game, 1, 1)
    assert legal(game) == [0, 2]
    for move in (1, 99):
        with pytest.raises(PlayError, match=f"move {move} is not legal here"):
            game.move(move)
    game = a_game(None, AnyMove(), None, env=Trio())
    mask = game._out.mask[0]
    assert len(game.moves) == 12
    expected = {f"{a},{b}" for a in range(3) for b in range(4) if mask[a] and mask[3 + b]}
    assert {move.name for move in game.legal_moves()} == expected
    assert game.moves.number_of(game.moves.actions[legal(game)[-1]]) == legal(game)[-1]


def test_people_move_in_their_own_turn_only_and_their_number_and_that_of_envs_must_fit() -> None:
    game = a_game(AnyMove(), None)
    with pytest.raises(PlayError, match="not a person's move"):
        game.move(0)
    game.reply()
    with pytest.raises(PlayError, match="a person's move"):
        game.reply()
    with pytest.raises(ConfigError, match="3 players for a game of ConnectFour, which has 2 places"):
        a_game(None, None, None)
    with pytest.raises(ConfigError, match="num_envs=2"):
        Game(NativePool(ConnectFour(), 2, backend="interpreted"))


def test_a_game_against_random_moves_ends_with_the_returns_of_the_pools_episode() -> None:
    for env in (ConnectFour(), Duel()):
        game = a_game(None, AnyMove(), env=env)
        list(play_on(game, np.random.default_rng(3).choice))
        episodes = game.pool.episodes()
        assert result_of(game).returns == pytest.approx(episodes.returns.tolist())
        assert len(game.played) == episodes.lengths[0]
        for more in (lambda game=game: game.move(0), game.reply):
            with pytest.raises(PlayError, match="over"):
                more()


def test_an_illegal_move_of_a_player_loses_the_game() -> None:
    game = a_game(None, Fixed(2), env=ConnectFour(rows=2, cols=4, connect=4))
    play(game, 2)
    game.move(0)
    assert game.reply() == []
    assert (result_of(game).forfeited, result_of(game).winners) == (1, (0,))
    game.undo()
    assert game.result is None


# --- taking moves back -----------------------------------------------------------------------------------------


def everything(game: Game) -> dict[str, object]:
    """All that the rest of a game follows from."""
    return {
        **game.as_dict(),
        "pool": {name: array.tobytes() for name, array in game.pool.snapshot().items()},
        "obs": game._out.obs.tobytes(),
        "random": game._generator.bit_generator.state,
        "memories": [player.memory() for player in game.players if player is not None],
        "adviser": None if game.adviser is None else game.adviser.memory().tolist(),
    }


def test_undo_goes_back_exactly_memories_and_random_numbers_included() -> None:
    for other, memory in ((AnyMove(), None), (Counting(), "gru")):
        game, same = (
            a_game(other, None, adviser=Adviser(a_policy(ConnectFour(), memory), "net"), seed=5) for _ in range(2)
        )
        play(game, 3, 4)
        before = everything(game)
        play(game, 2)
        after = everything(game)
        game.undo()
        assert everything(game) == before, other.name
        play(game, 2)
        assert everything(game) == after, other.name
        if memory is None:  # the same seed and moves are the same game
            play(same, 3, 4, 2)
            assert same.as_dict() == game.as_dict()
        for _ in range(3):
            game.undo()
        assert len(game.played) == 1
        with pytest.raises(PlayError, match="no move to take back"):
            game.undo()


def test_undo_brings_a_finished_game_back_to_life_and_two_people_take_back_one_move_at_a_time() -> None:
    game = a_game(None, Fixed(6))
    play(game, 0, 0, 0, 0)
    assert game.is_over
    game.undo()
    assert not game.is_over
    assert legal(game) == list(range(7))
    assert game.text().count("X") == 3 + 1  # three pieces, and "X to move"
    play(game, 0)
    assert result_of(game).winners == (0,)
    game = a_game(None, None)
    play(game, 0, 1, 2)
    game.undo()
    assert (moves_of(game), game.person_to_move) == ([0, 1], 0)


class Remembering:
    """Chooses by how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def choose(self, view: Any) -> int:
        self.asked.append(len(self.asked))
        return int(view.legal[len(self.asked) % len(view.legal)])


def test_an_object_of_the_users_forgets_what_was_taken_back_and_one_that_cannot_takes_nothing_back() -> None:
    chooser = Remembering()
    game = a_game(None, UserPlayer(chooser))
    play(game, 0, 1)
    assert chooser.asked == [0, 1]
    before = moves_of(game)
    game.undo()
    assert chooser.asked == [0]
    play(game, 1)
    assert moves_of(game) == before
    streaming = Remembering()
    streaming.stream = (each for each in ())  # type: ignore[attr-defined]
    for player, problem in (
        (Forgetful(), "its memory cannot be copied"),
        (UserPlayer(streaming, "streaming"), "streaming remembers what cannot be copied"),
    ):
        game = a_game(None, player)
        play(game, 0)
        told = game.as_dict()
        with pytest.raises(PlayError, match=problem):
            game.undo()
        assert game.as_dict() == told


def test_a_network_with_memory_replies_the_same_after_moves_were_taken_back() -> None:
    policy = a_policy(ConnectFour(), "gru")
    for temperature in (0.0, 1.0):
        games = [a_game(None, NetworkPlayer(policy, "net", Temperature(temperature)), seed=3) for _ in range(2)]
        for number in (3, 3, 2, 4):
            play(games[0], 6)  # another move, which is taken back
            games[0].undo()
            for game in games:
                play(game, number)
        assert moves_of(games[0]) == moves_of(games[1]), temperature


# --- what a network thinks -------------------------------------------------------------------------------------


def test_thoughts_are_the_softmax_of_the_policys_logits_over_legal_moves_and_its_value() -> None:
    policy = a_policy(SMALL)
    game = a_game(None, None, env=SMALL, adviser=Adviser(policy, "net", reward_scale=0.5))
    play(game, 1, 1)
    thoughts = game.thoughts()
    with torch.no_grad():
        output = policy(torch.from_numpy(game._out.obs.copy()))
    logits = output.logits[0, [0, 2]].double()
    assert [move.number for move in thoughts.moves] == [0, 2]
    assert thoughts.probabilities == pytest.approx(torch.softmax(logits, 0).tolist(), rel=1e-5)
    assert thoughts.value == pytest.approx(0.5 * float(output.value[0]))
    assert thoughts.chances == pytest.approx((1 + thoughts.value) / 2)
    several = a_game(None, None, None, env=Trio(), adviser=Adviser(a_policy(Trio()), "net")).thoughts()
    assert sum(several.probabilities) == pytest.approx(1)
    assert len(several.moves) == 9  # one of the four second choices is masked
    duel = a_game(None, None, env=Duel(), adviser=Adviser(a_policy(Duel()), "net"))
    assert duel.thoughts().chances is None  # no win, draw or loss
    with pytest.raises(PlayError, match="no network"):
        a_game(None, None).thoughts()


def test_thoughts_with_memory_are_those_of_a_policy_that_has_played_every_seat() -> None:
    policy = a_policy(ConnectFour(), "gru")
    game = a_game(None, AnyMove(), adviser=Adviser(policy, "net"))
    states = [policy.initial_state(1), policy.initial_state(1)]
    for number in (3, 3, 2):
        for seat in (0, 1):
            with torch.no_grad():
                output = policy(torch.from_numpy(game._out.obs.copy()), states[seat])
            states[seat] = output.state
            assert game.thoughts().value == pytest.approx(float(output.value[0]), abs=1e-6)
            assert game.thoughts().player == seat
            _ = game.move(number) if seat == 0 else game.reply()


def test_what_a_page_is_told_is_json_and_says_whose_move_it_is() -> None:
    game = a_game(None, Counting(), adviser=Adviser(a_policy(ConnectFour()), "net"))
    play(game, 3)
    told = json.loads(json.dumps(game.as_dict()))
    assert told["players"] == [{"name": "person", "is_person": True}, {"name": "counting", "is_person": False}]
    assert (told["to_move"], told["person_to_move"], told["result"], told["can_undo"]) == ([0], 0, None, True)
    assert [each["number"] for each in told["legal_moves"]] == list(range(7))
    assert [(each["player"], each["number"]) for each in told["played"]] == [(0, 3), (1, 1)]
    thoughts = json.loads(json.dumps(game.thoughts().as_dict()))
    assert sum(each["probability"] for each in thoughts["moves"]) == pytest.approx(1)
    assert game.picture().shape[2] == 3


def test_perfect_verdicts_are_the_solvers_and_only_where_it_is_quick() -> None:
    game = a_game(None, None)
    assert game.perfect_verdicts() == {}
    moves = "112233555511"
    play(game, *(int(each) - 1 for each in moves))
    verdicts = game.perfect_verdicts()
    assert verdicts[3] == "a win in 1 ply"
    for number, score in enumerate(Solver().scores_of_moves(Position.from_moves(moves))):
        assert score is not None
        assert verdicts[number].startswith("a draw" if score == 0 else "a win" if score > 0 else "a loss")
    for env in (Duel(), ConnectFour(rows=4, cols=4, connect=3)):
        assert a_game(None, None, env=env).perfect_verdicts() == {}


# --- other worlds ----------------------------------------------------------------------------------------------


def test_one_of_several_agents_can_be_a_person_and_the_others_move_at_the_same_time() -> None:
    game = a_game(None, Fixed(0), Fixed(0), env=Snake(snakes=3))
    assert game.to_move == (0, 1, 2)
    assert [played.player for played in game.move(1)] == [0, 1, 2]
    game.undo()
    assert game.played == []
    list(play_on(game))  # the person goes up as well, into the wall at last
    assert len(result_of(game).returns) == 3
    with pytest.raises(ConfigError, match="at most one of them can be a person"):
        game.begin([None, None, Fixed(0)], 1)


def test_a_world_for_one_is_played_alone_with_frames_stacked_too() -> None:
    game = Game(FrameStackPool(pool_of(CartPole()), 2))
    game.begin([None], 1)
    game.move(1)
    before = game.pool.snapshot()
    game.move(1)
    game.undo()
    assert all(np.array_equal(before[name], array) for name, array in game.pool.snapshot().items())
    list(play_on(game, max))
    assert result_of(game).returns == (float(len(game.played)),)
    assert not result_of(game).is_draw


class Secret(Duel):
    """A duel in which each seat has a secret of its own."""

    def ascii(self, s: object) -> str:
        return "secrets of 0 and 1"

    def ascii_for(self, s: object, player: int) -> str:
        return f"secret of {player}"


def test_a_person_sees_what_their_seat_may_see_until_the_game_is_over() -> None:
    game = a_game(AnyMove(), None, env=Secret(), seed=2)
    assert {shown.text() for shown in play_on(game)} == {"secret of 1"}
    assert game.text() == "secrets of 0 and 1"
    two = a_game(None, None, env=Secret())
    for _ in range(3):
        assert two.text() == f"secret of {two.person_to_move}"
        play(two, legal(two)[0])
    for env in (Kuhn(), Leduc()):
        game = a_game(None, RandomPlayer(), env=env)
        everybodys = env.ascii(game._record(0)).splitlines()[0]
        assert game.text().splitlines()[0].startswith(f"1: {everybodys.split()[1]}  2: ?")
        list(play_on(game, max))
        assert game.text().splitlines()[0].startswith(everybodys.split("  public")[0])
