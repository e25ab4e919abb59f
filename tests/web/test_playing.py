"""Games of the page: moves, clicks, hints, strength, undo; nothing hidden leaves the server; mistakes are answered."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import torch
from websockets.sync.client import connect

from scramjet.arena.solver.solver import Position, Solver
from scramjet.envs.api import Env
from scramjet.envs.games.kuhn import Kuhn
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.training.playing import load_policy
from scramjet.web import sockets
from scramjet.web.context import THINKING, Agents
from scramjet.web.playing.session import NOT_SHOWN, Session
from tests.helpers.pages import PageServer
from tests.helpers.small_runs import train_small

Message = dict[str, Any]


@pytest.fixture
def session(runs: Path) -> Session:
    return Session(Agents(runs))


def say(session: Session, do: str, **rest: Any) -> list[Message]:
    """All answers to a message, as the browser receives them."""
    return [json.loads(json.dumps(each, allow_nan=False)) for each in session.answers({"do": do, **rest})]


def play_to_the_end(session: Session, state: Message) -> Message:
    while state["result"] is None:
        left, right, top, bottom = (state["places"][0][side] for side in ("left", "right", "top", "bottom"))
        state = say(session, "click", x=(left + right) / 2, y=(top + bottom) / 2)[-1]
    return state


def test_a_game_against_a_run_is_played_to_its_end_by_clicks_in_either_seat(session: Session) -> None:
    for seat in ("first", "second", "random"):
        answers = say(session, "start", run="toe", seat=seat, seed=4)
        assert [each["kind"] for each in answers[:3]] == ["status", "table", "state"]
        state = answers[-1]
        person = state["person_to_move"]
        assert seat == "random" or person == (seat == "second")
        state = play_to_the_end(session, state)
        assert state["played"][person]["player"] == person
        assert state["legal_moves"] == []
        crosses, rings = state["text"].count("X"), state["text"].count("O")
        assert abs(crosses - rings) <= 2  # one more in "X wins"


def test_the_position_after_a_move_is_told_before_the_opponent_thinks_and_undo_goes_back_to_the_same(
    session: Session,
) -> None:
    before = say(session, "start", run="toe", seed=1, temperature=1)[-1]
    first, after = say(session, "move", number=4)
    assert (first["num_moves"], first["person_to_move"], first["to_move"], first["legal_moves"]) == (1, None, [1], [])
    assert (after["num_moves"], after["person_to_move"]) == (2, 0)
    assert after["picture"] != before["picture"]
    assert say(session, "undo")[-1] == before
    assert say(session, "move", number=4)[-1] == after  # gets the same reply
    assert say(session, "new")[-1]["num_moves"] == 0


def test_a_hint_has_the_networks_own_probabilities_and_value(session: Session, runs: Path) -> None:
    say(session, "start", run="toe", seed=1)
    (hint,) = say(session, "hint")
    with torch.no_grad():
        output = load_policy(runs / "toe")(torch.zeros(1, 2, 3, 3, dtype=torch.int8))
    expected = torch.softmax(output.logits[0], 0).tolist()
    assert [move["probability"] for move in hint["moves"]] == pytest.approx(expected, abs=1e-5)
    assert hint["value"] == pytest.approx(float(output.value) * Agents(runs).load("toe").reward_scale, rel=1e-4)
    assert 0 <= hint["chances"] <= 1


def test_connect_four_has_the_verdict_of_book_and_solver_on_each_move(session: Session) -> None:
    say(session, "start", world="connect_four", opponent="person", seed=1)
    (hint,) = say(session, "hint")
    assert [move["name"] for move in hint["moves"] if move["verdict"] == "best"] == ["4"]  # Allis 1988
    columns = "444444333332"
    for column in columns:
        state = say(session, "move", number=int(column) - 1)[-1]
    assert state["num_moves"] == len(columns)
    (hint,) = say(session, "hint")
    scores = Solver(6, 7).scores_of_moves(Position.from_moves(columns))
    for move in hint["moves"]:
        score = scores[move["number"]]
        assert score is not None
        assert move["verdict"].startswith("a draw" if score == 0 else "a win" if score > 0 else "a loss")


def test_search_strength_changes_during_a_game_and_survives_undo(session: Session) -> None:
    _, table, _ = say(session, "start", run="toe", seed=1, simulations=8)
    assert (table["search"]["strengths"][:2], table["simulations"]) == ([0, 8], 8)
    before = say(session, "move", number=0)[-1]
    assert say(session, "strength", simulations=256) == [{"kind": "strength", "simulations": 256}]
    other = before["played"][-1]["number"]
    own, closes = next(line for line in ((1, 2), (3, 6), (4, 8)) if other not in line)
    assert say(session, "move", number=own)[-1]["played"][-1]["number"] == closes  # who searches sees the line of three
    assert say(session, "undo")[-1] == before
    assert "must be one of 0, 8" in say(session, "strength", simulations=9)[0]["error"]


@pytest.mark.rest
def test_a_world_that_search_refuses_says_why(tmp_path: Path) -> None:
    train_small(tmp_path, "kuhn", "kuhn", total_timesteps=64)
    session = Session(Agents(tmp_path))
    _, table, *_ = say(session, "start", run="kuhn", seed=1)
    assert table["search"]["strengths"] == []
    assert "hidden" in table["search"]["reason"]
    assert "hidden" in say(session, "strength", simulations=8)[0]["error"]


def test_what_the_browser_gets_before_the_end_depends_on_the_persons_own_card_alone(session: Session) -> None:
    for world in ("kuhn", "leduc"):
        told: dict[Any, set[str]] = defaultdict(set)
        others: dict[Any, set[str]] = defaultdict(set)
        for seed in range(24):
            seat = ("first", "second")[seed % 2]
            messages = say(session, "start", world=world, opponent="random", seat=seat, seed=seed)
            state = messages[-1]
            assert state["result"] is None
            assert state["picture"] is not None
            person = state["person_to_move"]
            cards = session._required().game.pool.record(0).cards // (1 if world == "kuhn" else 2)
            key = seat, int(cards[person]), tuple(move["name"] for move in state["played"])
            told[key].add(json.dumps(messages, sort_keys=True))
            others[key].add(str(cards))
        assert any(len(each) > 1 for each in others.values()), "the deals must differ"
        assert all(len(each) == 1 for each in told.values()), world


def kuhn_to_the_end(session: Session) -> tuple[Message, Message]:
    """The first and the last position of a hand in which the person bets."""
    first = state = say(session, "start", world="kuhn", opponent="random", seed=2)[-1]
    while state["result"] is None:
        state = say(session, "move", number=1)[-1]
    return first, state


def test_the_cards_are_open_once_the_game_is_over(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = kuhn_to_the_end(session)
    assert "?" in first["text"]
    assert "?" not in last["text"]
    assert "bet" in {move["name"] for move in last["played"]}
    monkeypatch.setattr(Kuhn, "ascii_for", Env.ascii_for)  # a world that does not say what a player sees
    monkeypatch.setattr(Kuhn, "render_for", Env.render_for)
    first, last = kuhn_to_the_end(session)
    assert (first["picture"], first["text"]) == (None, NOT_SHOWN)
    assert last["picture"] is not None
    assert last["text"] != NOT_SHOWN


def test_a_pendulum_is_steered_by_numbers_and_steps_are_taken_back(session: Session) -> None:
    _, table, before = say(session, "start", world="pendulum", seed=1)
    assert (table["bounds"], table["is_real_time"], table["moves"]) == ([[-2.0, 2.0]], True, [])
    (left,) = say(session, "act", values=[-1.0])
    (undone,) = say(session, "undo")
    (right,) = say(session, "act", values=[99.0])  # brought within bounds
    assert undone == before
    assert left["num_moves"] == right["num_moves"] == 1
    assert left["returns"] != right["returns"]
    assert left["picture"] != right["picture"]
    assert "no moves" in say(session, "move", number=0)[0]["error"]
    assert "1 numbers" in say(session, "act", values=[1.0, 2.0])[0]["error"]


def test_worlds_to_balance_go_on_by_themselves_and_puzzles_wait(session: Session) -> None:
    worlds = ("cartpole", "mountain_car", "acrobot", "maze", "sokoban", "game_2048", "snake", "connect_four")
    goes_on = [world for world in worlds if say(session, "start", world=world, seed=1)[1]["is_real_time"]]
    assert goes_on == ["cartpole", "mountain_car", "acrobot"]


MISTAKES = [
    (None, "must be an object"),
    ({"do": "fly"}, "one of start"),
    ({"do": "start"}, "name a run or a world"),
    ({"do": "start", "run": "../../etc"}, "etc"),
    ({"do": "start", "run": "nothing"}, "nothing"),
    ({"do": "start", "run": "toe", "checkpoint": "../x"}, "no checkpoint"),
    ({"do": "start", "world": "evil.py"}, "no built-in world"),
    ({"do": "start", "world": "os:system"}, "no built-in world"),
    ({"do": "start", "world": "tic_tac_toe", "opponent": "evil.py:choose"}, "cannot be chosen"),
    ({"do": "start", "world": "tic_tac_toe", "opponent": "minimax:9"}, "cannot be chosen"),
    ({"do": "start", "world": "tic_tac_toe", "opponent": "perfect"}, "cannot be chosen"),
    ({"do": "start", "world": "kuhn", "opponent": "greedy"}, "cannot be chosen"),
    ({"do": "start", "world": "tic_tac_toe", "seat": "third"}, "seat='third'"),
    ({"do": "start", "world": "tic_tac_toe", "seed": -1}, "seed=-1"),
    ({"do": "start", "world": "tic_tac_toe", "temperature": "hot"}, "temperature"),
    ({"do": "move", "number": 99}, "not legal"),
    ({"do": "move"}, "number"),
    ({"do": "click", "x": 2, "y": 0}, "on the picture"),
    ({"do": "click", "x": "left", "y": 0}, "x="),
    ({"do": "hint"}, "no network"),
    ({"do": "undo"}, "no move to take back"),
    ({"do": "act", "values": [1]}, "no numbers"),
    ({"do": "strength", "simulations": 8}, "search"),
]


def test_mistakes_are_answered_and_the_session_goes_on(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for message, said in MISTAKES:
        mistaken = Session(session._agents)
        assert "no game" in say(mistaken, "move", number=0)[0]["error"]
        say(mistaken, "start", world="tic_tac_toe", opponent="person", seed=1)
        assert said in list(mistaken.answers(message))[-1]["error"], message
        assert say(mistaken, "start", world="tic_tac_toe", seed=1)[-1]["num_moves"] == 0, message
    assert "seat='banana'" in say(session, "start", run="toe", seat="banana")[-1]["error"]  # no game is half begun
    for do in ("undo", "hint", "new"):
        assert "no game has begun" in say(session, do)[-1]["error"]
    before = say(session, "start", world="tic_tac_toe", opponent="person", seed=1)[-1]
    assert say(session, "click", x=0.001, y=0.5) == [before]  # means no legal move and changes nothing
    after = say(session, "move", number=4)[-1]
    assert say(session, "click", x=0.5, y=0.5) == [after]
    monkeypatch.setattr(TicTacToe, "render", lambda self, s: 1 / 0)  # a world that raises
    answer = say(session, "start", world="tic_tac_toe", opponent="person", seed=1)[-1]
    assert "ZeroDivisionError: division by zero" in answer["error"]


def test_a_world_in_a_file_plays_if_its_user_trained_it_and_needs_trust_of_others(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Session(Agents(runs))
    assert Agents(runs).load("walk").note == ""
    state = say(own, "start", run="walk", seed=1)[-1]
    assert [move["name"] for move in state["legal_moves"]] == ["0", "1"]
    assert state["picture"] is None
    assert "at:" in state["text"]
    while state["result"] is None:
        state = say(own, "move", number=1)[-1]
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "of a stranger"))
    assert "--trust" in say(Session(Agents(runs)), "start", run="walk", seed=1)[-1]["error"]
    assert say(Session(Agents(runs, trust=True)), "start", run="walk", seed=1)[-1]["kind"] == "state"


def playing() -> bool:
    return any(thread.name.startswith(f"{THINKING}-play") for thread in threading.enumerate())


def test_a_socket_plays_refuses_a_second_one_and_leaves_no_thread_when_it_closes(
    runs: Path, serve_page: Callable[..., PageServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MOST_PLAYING", 1)
    server = serve_page(runs)
    address = f"ws://{server.address}/api/play"
    with connect(address, open_timeout=60) as socket:
        socket.send("no json")
        assert "must be an object" in json.loads(socket.recv(30))["error"]
        socket.send(json.dumps({"do": "start", "world": "tic_tac_toe", "seed": 1}))
        assert [json.loads(socket.recv(30))["kind"] for _ in range(3)] == ["status", "table", "state"]
        assert playing()
        with connect(address, open_timeout=60) as second:
            assert "play already" in json.loads(second.recv(30))["error"]
    deadline = time.monotonic() + 30
    while playing():
        assert time.monotonic() < deadline, "the thread of the game goes on"
        time.sleep(0.01)
    with urlopen(f"{server.url}api/play/worlds", timeout=30) as answer:
        names = {world["name"]: world["num_players"] for world in json.load(answer)["worlds"]}
    assert (names["connect_four"], names["cartpole"]) == (2, 1)
