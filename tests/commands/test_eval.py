"""`scramjet eval`, alone and against others, shown and filmed; `--search` everywhere; `grade` and `tournament`."""

import io
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import scramjet
from scramjet.arena.game import Game
from scramjet.arena.grading import grade_policy
from scramjet.arena.play import watching
from scramjet.arena.play.screen import Screen
from scramjet.arena.play.watching import Watcher
from scramjet.arena.tournaments import tournament
from scramjet.arena.tournaments.tournament import round_robin
from scramjet.commands.tournament import duration
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.snake import Snake
from scramjet.errors import ConfigError, WorldError
from tests.commands.conftest import Runs
from tests.helpers.command_calls import answer, call, refusal, type_lines
from tests.helpers.hostile_files import forge
from tests.helpers.table_players import AnyMove, Fixed
from tests.helpers.videos import frames_of


def test_a_run_is_evaluated_by_name_by_checkpoint_and_from_python(runs, capsys):
    result = answer(capsys, "eval", runs["tiny"], "--episodes", 7)
    assert set(result) >= {"mean_return", "std_return", "mean_length", "episodes", "stats"}
    assert result["episodes"] == 7
    assert 1 <= result["mean_return"] <= 500
    for run in ("tiny", "runs/tiny/checkpoints/latest"):
        assert answer(capsys, "eval", run, "--episodes", 7)["mean_return"] == result["mean_return"]
    assert scramjet.evaluate(runs["tiny"], episodes=7).mean_return == result["mean_return"]
    assert scramjet.load_policy(runs["tiny"]).act(torch.zeros(3, 4)).shape == (3,)
    assert call("eval", "runs/tiny/checkpoints/latest", "--episodes", 1) == 0
    assert capsys.readouterr().out.startswith("runs/tiny/checkpoints/step_")
    assert call("eval", "tiny", "--render") == 0
    assert "(end)" in capsys.readouterr().out


def test_a_game_of_two_is_averaged_over_both_seats_and_keeps_what_the_policy_sees(runs, capsys):
    result = answer(capsys, "eval", runs["four"], "--episodes", 20)
    assert (result["episodes"], result["stats"]["first"]) == (20, 0.5)
    with pytest.raises(ConfigError, match=r"--env.rows 5 changes the observation space of connect_four: the policy"):
        scramjet.evaluate(runs["four"], 1, env_parameters={"rows": 5})
    with pytest.raises(WorldError, match=r"has no parameter 'row'.*Did you mean 'rows'"):
        scramjet.evaluate(runs["four"], 1, env_parameters={"row": 5})


@pytest.mark.rest  # another world to compile
def test_a_game_against_random_moves_is_evaluated_as_that_and_played_by_two(runs, monkeypatch, capsys):
    words = ["--episodes", 20, "--env.random-opponent"]
    result, again = (answer(capsys, "eval", runs[name], *words) for name in ("four", "four"))
    stats = result["stats"]
    assert stats["win"] + stats["draw"] + stats["loss"] == pytest.approx(1.0)
    assert result["mean_return"] == pytest.approx(stats["win"] - stats["loss"])
    assert again == result
    again = scramjet.evaluate(runs["four"], 20, env_parameters={"random_opponent": True})
    assert (result["episodes"], again.mean_return) == (20, result["mean_return"])
    expected = answer(capsys, "eval", runs["single"], "--against", "greedy", "--games", 20, "--seed", 7)
    with pytest.warns(UserWarning, match="--env.no-random-opponent"):  # the world was trained with one seat
        result = scramjet.play_match(runs["single"], "greedy", games=20, seed=7)
    assert {**result.as_dict(), "checkpoint": expected["checkpoint"], "step": expected["step"]} == expected
    type_lines(monkeypatch, "quit")
    assert call("play", runs["single"], "--seed", 1) == 0
    assert capsys.readouterr().out.count("X") == 1, "an empty board: only in `X to move`"


def test_samples_draws_actions_and_max_steps_cuts_games_also_where_they_are_shown(runs, capsys):
    words = ["eval", runs["four"], "--episodes", 8]
    likely, drawn = answer(capsys, *words), answer(capsys, *words, "--samples")
    assert likely["std_return"] == drawn["std_return"] == 1.0  # somebody wins each game
    assert likely["mean_length"] != drawn["mean_length"]
    cut = answer(capsys, *words, "--max-steps", 5)
    assert (cut["episodes"], cut["cut_episodes"], cut["mean_length"], cut["mean_return"]) == (8, 8, 5.0, 0.0)
    assert call(*words, "--max-steps", 5) == 0
    told = capsys.readouterr().out
    assert "8 of 8 episodes did not end within 5 steps and count with their return so far; --max-steps" in told
    shown = []
    for sampling in ([], ["--samples"]):
        assert call("eval", "four", "--render", "--episodes", 2, "--max-steps", 5, *sampling) == 0
        shown.append(capsys.readouterr().out)
    assert [text.count("step 5   return 0.00   (end)") for text in shown] == [2, 2]
    assert shown[0] != shown[1]


def test_wins_draws_and_losses_are_told_by_seat_and_add_up(runs, capsys):
    assert call("eval", runs["four"], "--against", "random", "--games", 40) == 0
    captured = capsys.readouterr()
    assert "against random, 40 games of connect_four" in captured.out
    rows = [line.split() for line in captured.out.splitlines() if line.startswith(("  seat", "  all"))]
    assert [row[2] if row[0] == "seat" else row[1] for row in rows] == ["20", "20", "40"]
    found = answer(capsys, "eval", "four", "--against", "random", "--games", 41, "--temperature", 1)
    assert [seat["games"] for seat in found["by_seat"]] == [21, 20]
    for name in ("wins", "draws", "losses"):
        assert sum(seat[name] for seat in found["by_seat"]) == found[name]
        low, high = found[f"{name}_interval"]
        assert low <= found[name] / 41 <= high
    assert found["wins"] - found["losses"] == pytest.approx(41 * found["mean_return"])
    assert found["distinct_games"] > 30


def test_an_agent_draws_the_score_against_itself_and_most_likely_moves_repeat(runs, capsys):
    found = answer(capsys, "eval", runs["four"], "--against", "four", "--games", 10)
    first, second = found["by_seat"]
    assert (first["wins"], first["draws"]) == (second["losses"], second["draws"])
    assert found["distinct_games"] == 1
    for sampling, is_told in (([], True), (["--samples"], False)):
        assert call("eval", "four", "--against", "four", "--games", 40, *sampling) == 0
        assert ("--temperature 1 draws them" in capsys.readouterr().out) == is_told, sampling


@pytest.mark.rest
def test_checkpoints_with_and_without_memory_meet_each_other(runs, capsys):
    meeting = ["eval", runs["four"], "--against", runs["memory"] / "checkpoints" / "latest"]
    drawn = [answer(capsys, *meeting, "--games", 20, "--temperature", 1, "--seed", 3) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert drawn[0]["games"] == 20
    assert answer(capsys, "eval", "memory", "--against", "memory", "--games", 10)["distinct_games"] == 1
    assert "has memory" in refusal(capsys, "eval", "memory", "--search", "spo:4x2")


def test_play_match_gives_what_the_command_gives_and_takes_functions(runs, capsys):
    expected = answer(capsys, "eval", runs["four"], "--against", "greedy", "--games", 20, "--seed", 7)
    result = scramjet.play_match(runs["four"], "greedy", games=20, seed=7)
    assert {**result.as_dict(), "checkpoint": expected["checkpoint"], "step": expected["step"]} == expected
    assert scramjet.play_match(runs["four"], lambda view: view.legal[0], games=6).total.games == 6


@pytest.mark.rest  # another world to compile
def test_agents_of_a_world_with_more_of_them_compete(runs, capsys):
    found = answer(capsys, "eval", runs["snakes"], "--against", "random", "--games", 6, "--env.snakes", 2)
    assert [seat["games"] for seat in found["by_seat"]] == [3, 3]
    assert "add --env.snakes 2" in refusal(capsys, "eval", "snakes", "--against", "random")


def test_a_player_of_the_users_that_fails_or_makes_illegal_moves_is_told_of_once(runs, tmp_path, capsys):
    bot, words = tmp_path / "bot.py", ["eval", runs["four"], "--against", tmp_path / "bot.py", "--games", 10]
    bot.write_text("def choose(view):\n    return view.legl[0]\n")
    assert "bot.py failed in bot.py line 2: AttributeError" in refusal(capsys, *words)
    bot.write_text("def choose(view):\n    return 7\n")
    assert call(*words) == 0
    assert capsys.readouterr().out.count("chose the illegal action 7") == 1
    found = answer(capsys, *words)
    assert (found["wins"], found["opponent_forfeits"], found["forfeits"]) == (10, 10, 0)


def test_an_opponent_of_a_stranger_runs_nothing_and_a_damaged_one_is_named(runs, tmp_path, monkeypatch, capsys):
    words = ["eval", runs["four"], "--games", 2, "--against"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('canary', 'w')")
    for number, world in enumerate(("evil.py", "evil:World", "factory:evil.py:make")):
        opponent = shutil.copytree(runs["four"], tmp_path / f"given-{number}", symlinks=True)
        forge(opponent, {"name": world})
        call(*words, opponent)
        capsys.readouterr()
        forge(opponent, {"name": world}, rules="others", policy_spaces=None)
        assert "was trained on" in refusal(capsys, *words, opponent), world
        assert not (tmp_path / "canary").exists(), world
    opponent = shutil.copytree(runs["four"], tmp_path / "broken", symlinks=True)
    (opponent / "checkpoints" / "latest" / "model.safetensors").write_bytes(b"nothing")
    message = refusal(capsys, *words, opponent / "checkpoints" / "latest")
    assert "broken" in message
    assert "damaged" in message


def test_every_game_ends_with_its_last_position_and_the_winner(runs, capsys):
    assert call("eval", runs["four"], "--against", "random", "--render", "--games", 2, "--seed", 1) == 0
    told = capsys.readouterr().out
    assert told.count(" won.") + told.count("A draw.") == 2
    assert told.count("│  ") >= 2 * 6
    assert "to move" not in told  # only final positions, as this is no terminal


def test_with_step_each_move_waits_for_enter_and_the_other_begins_the_second_game(runs, monkeypatch, capsys):
    four, answers = runs["four"], iter(["", "", "q"])
    words = ["eval", four, "--render", "--step", "--seed", 1, "--against"]
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert call(*words, "greedy") == 0
    told = capsys.readouterr().out
    assert told.count("to move\n") == 3  # the beginning and two moves
    assert told.index(f"1. {four} played") < told.index("2. greedy played")
    assert f"Chances of {four}, to move: " in " ".join(told.split())
    monkeypatch.setattr("builtins.input", lambda prompt: "")
    assert call(*words, "random", "--games", 2) == 0
    first_moves = [line for line in capsys.readouterr().out.splitlines() if line.startswith("1. ")]
    assert [line.split()[1] for line in first_moves] == [str(four), "random"]
    for leaving in (EOFError, KeyboardInterrupt):  # who has seen enough

        def leave(prompt: str, leaving: type[BaseException] = leaving) -> str:
            raise leaving

        monkeypatch.setattr("builtins.input", leave)
        assert call(*words, "random") == 0, leaving
        assert "Traceback" not in capsys.readouterr().err, leaving


def watched(world: object, players: list[object], **settings: object) -> tuple[str, Game]:
    """What is written while a game is watched."""
    written = io.StringIO()
    screen = Screen(Console(file=written, width=80, highlight=False, **settings))  # type: ignore[arg-type]
    game = Game(NativePool(world, 1, backend="interpreted"))  # type: ignore[arg-type]
    game.begin(players, 1)  # type: ignore[arg-type]
    Watcher(game, screen, None).watch()
    assert game.is_over
    return written.getvalue(), game


def test_a_watched_game_pauses_in_a_terminal_and_tells_players_apart(monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(watching.time, "sleep", pauses.append)
    told, _ = watched(ConnectFour(), [Fixed(0), Fixed(1)], force_terminal=True)  # seat 0 wins with its fourth move
    assert len(pauses) == 1 + 7 + 1  # the beginning, seven moves, the result
    assert told.count("\x1b[2J") == 1 + 7
    assert told.rstrip().endswith("always 0 won.")
    assert "any move in seat " in watched(ConnectFour(), [AnyMove(), AnyMove()])[0]
    told, _ = watched(Snake(snakes=2, size=6), [Fixed(0), Fixed(2)])  # agents that act at once
    assert "always 0 played" in told or "always 2 played" in told


@pytest.mark.rest
def test_episodes_are_filmed_with_their_returns_and_games_side_by_side(runs, tmp_path, capsys):
    pytest.importorskip("av")
    pytest.importorskip("PIL")
    video, games = tmp_path / "pole.gif", tmp_path / "games.webm"
    assert call("eval", runs["tiny"], "--video", video, "--fps", 4, "--episodes", 2, "--max-steps", 6) == 0
    printed = capsys.readouterr().out
    assert printed == f"{video}: 11 frames, 4 a second, 2.8 s\n  returns  6.00, 6.00 (mean 6.00)\n"
    assert len(frames_of(video)) == 8  # the last one stays for a second, and is stored again at its end
    told = answer(capsys, "eval", runs["four"], "--against", "greedy", "--video", games, "--games", 4)
    assert told["frames"] == max(told["lengths"]) + 1 + 2  # and the last one for a second
    assert len(told["returns"]) == 4
    assert all(sum(returns) == 0 for returns in told["returns"])
    frames = frames_of(games)
    assert len(frames) == told["frames"]
    assert frames[0].shape[1] == pytest.approx(frames[0].shape[0], rel=0.2)  # two by two
    for words, said in (
        (["--video", "x.mp4", "--render"], "give one of them"),
        (["--fps", "3"], "--video FILE"),
        (["--video", "x.mkv"], "x.mp4"),
        (["--video", "nowhere/x.mp4"], "no folder"),
        (["--video", "x.mp4", "--episodes", "99"], "at most 36"),
        (["--video", "x.mp4", "--games", "2"], "--against"),
    ):
        assert said in refusal(capsys, "eval", "tiny", *words), words


def test_evaluations_with_search_are_told_and_the_same_again_and_from_python(runs, capsys):
    words = ["eval", runs["four"], "--episodes", 4, "--seed", 5]
    assert "search" not in answer(capsys, *words)
    found = answer(capsys, *words, "--search", "alphazero:4")
    assert found["search"] == "alphazero:4"
    assert scramjet.evaluate(runs["four"], 4, 5, search="alphazero:4").mean_length == found["mean_length"]


@pytest.mark.rest
def test_continuous_actions_are_searched_by_particles_and_other_worlds_not_at_all(runs, capsys):
    words = ["eval", runs["swing"], "--episodes", 4, "--max-steps", 20]
    assert call(*words, "--search", "spo:8x2") == 0
    assert "with spo:8x2, 4 episodes of pendulum" in capsys.readouterr().out
    assert "use spo" in refusal(capsys, *words, "--search", "alphazero:8")
    for name, problem in (
        ("frames", "stacked frames"),
        ("cards", "hidden = True"),
        ("other", "a world of another library cannot be branched"),
    ):
        assert problem in refusal(capsys, "eval", runs[name], "--search", "spo:4x2"), name
    assert "hidden = True" in refusal(capsys, "eval", "cards", "--against", "cards@spo:4x2")


@pytest.mark.rest
def test_an_agent_beats_itself_by_search_from_either_side(runs, capsys):
    words = ["eval", runs["four"], "--games", 20, "--temperature", 1, "--seed", 2, "--against"]
    forth = answer(capsys, *words, "four", "--search", "alphazero:32")
    assert forth["wins"] > 12
    assert forth["agent"] == f"{runs['four']}@alphazero:32"
    assert answer(capsys, *words, "four@alphazero:32")["losses"] > 12
    result = scramjet.play_match(runs["four"], f"{runs['four']}@alphazero:2", games=4, search="alphazero:4")
    assert (result.agent, result.opponent) == (f"{runs['four']}@alphazero:4", f"{runs['four']}@alphazero:2")
    assert result.total.games == 4


def test_games_with_search_are_shown_and_played_by_a_person(runs, monkeypatch, capsys):
    assert call("eval", runs["four"], "--render", "--episodes", 1, "--search", "alphazero:2") == 0
    assert "(end)" in capsys.readouterr().out
    assert call("eval", "four", "--render", "--search", "alphazero:4", "--against", "random") == 0
    assert "four@alphazero:4" in capsys.readouterr().out
    type_lines(monkeypatch, "4", "undo", "4", "quit")
    assert call("play", f"{runs['four']}@alphazero:8", "--seed", 1) == 0
    assert "four@alphazero:8" in capsys.readouterr().out


def test_a_tournament_rates_a_run_with_and_without_search(runs, tmp_path, capsys):
    words = ["tournament", runs["four"].name, "four@none", "--search", "alphazero:2", "--players", "random"]
    words += ["four@alphazero:4", "--limit-per-run", 1, "--games", 8, "--out", tmp_path / "games"]
    names = {"four@512@alphazero:2", "four@512", "random", "four@512@alphazero:4"}
    assert {player["name"] for player in answer(capsys, *words)["players"]} == names


@pytest.mark.rest
def test_games_begin_at_the_beginning_and_a_warning_tells(runs):
    with pytest.warns(UserWarning, match="games begin at the beginning"):
        scramjet.play_match(runs["opened"], "random", games=4, search="alphazero:4")


def test_a_run_has_the_grades_of_its_policy_in_json_and_markdown_and_better_ones_with_search(runs, tmp_path, capsys):
    result = answer(capsys, "grade", runs["four"], "--markdown", tmp_path / "grades.md")
    expected = grade_policy(scramjet.load_policy(runs["four"]))
    assert (result["grades"], result["step"]) == (expected.as_dict(), 512)
    assert (tmp_path / "grades.md").read_text() == f"{expected.markdown()}\n"
    low, high = result["grades"]["All"]["value_kept_interval"]
    assert low < result["grades"]["All"]["value_kept"] < high
    found = answer(capsys, "grade", "four", "--search", "alphazero:8")
    assert found["search"] == "alphazero:8"
    assert answer(capsys, "grade", "four@alphazero:8") == found
    assert found["grades"]["All"]["value_kept"] > result["grades"]["All"]["value_kept"]


def test_a_scripted_player_is_graded_by_its_name_in_a_table(capsys):
    assert call("grade", "greedy", "--seed", 3) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "greedy, moves judged by perfect play:"
    (kept,) = [line.split("|")[3].strip() for line in lines if line.startswith("| Middle-Easy ")]
    assert 85.0 < float(kept.removesuffix(" %")) < 100.0  # it never overlooks a line


@pytest.fixture
def four(runs: Runs) -> Path:
    """A run of Connect Four with four checkpoints; games go to folders of the tests' own."""
    return runs["four"]


def test_checkpoints_of_two_runs_and_random_are_rated(four, runs, tmp_path, capsys):
    words = ["four", runs["second"].name, "--limit-per-run", 2, "--random", "--games", 9, "--out", tmp_path / "games"]
    found = answer(capsys, "tournament", *words, "--plot", tmp_path / "ratings.svg")
    ratings = {player["name"]: player["rating"] for player in found["players"]}
    assert set(ratings) == {"four@128", "four@512", "second@128", "second@512", "random"}
    assert (found["style"], found["is_complete"], found["games"]) == ("round-robin", True, 10 * len(round_robin(5, 2)))
    assert {player["games"] for player in found["players"]} == {40}
    assert ratings["random"] == 1000
    assert list(ratings.values()) == sorted(ratings.values(), reverse=True)
    picture = ElementTree.parse(tmp_path / "ratings.svg")
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 4
    assert Path(found["file"]).parent == tmp_path / "games"


def stopped_after(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Have Ctrl-C come when so many batches of games have been played."""
    play_games, left = tournament.play_games, iter(range(rounds))

    def stopping(*arguments: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return play_games(*arguments, **options)

    monkeypatch.setattr(tournament, "play_games", stopping)


def test_ctrl_c_keeps_the_games_shows_the_table_and_the_same_command_goes_on(four, tmp_path, monkeypatch, capsys):
    words = ["tournament", "four", "--players", "random", "--games", 10, "--swiss", "--rounds", 3]
    whole = answer(capsys, *words, "--out", tmp_path / "whole.jsonl")
    words += ["--out", tmp_path / "games"]
    with monkeypatch.context() as patch:
        stopped_after(patch, 0)
        assert call(*words) == 130
        captured = capsys.readouterr()
        assert captured.out == "", "no table before the first game"
        assert "stopped with 60 of 60 games to play" in captured.err
    with monkeypatch.context() as patch:
        stopped_after(patch, 3)
        assert call(*words) == 130
    captured = capsys.readouterr()
    assert "stopped with 30 of 60 games to play; the same command goes on" in captured.err
    assert "5 players, 30 games" in captured.out
    continued = answer(capsys, *words)
    assert {**continued, "file": ""} == {**whole, "file": ""}
    monkeypatch.setattr(tournament, "play_games", None)  # a finished tournament is shown again without playing
    assert answer(capsys, *words) == continued


def test_ratings_without_random_have_the_mean_1000_and_scripted_players_need_a_world(four, tmp_path, capsys):
    assert call("tournament", "four", "--games", 2, "--out", tmp_path / "games") == 0
    assert "their mean is 1000" in capsys.readouterr().out
    words = ["tournament", "--players", "random", "minimax:2", "--games", 40, "--out", tmp_path / "others"]
    assert "add --env connect_four" in refusal(capsys, *words)
    assert answer(capsys, *words, "--env", "connect_four")["players"][0]["name"] == "minimax:2"


def test_a_damaged_checkpoint_is_refused(four, tmp_path, capsys):
    weights = four / "checkpoints/step_00000256/model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + b"\xff")
    try:
        message = refusal(capsys, "tournament", "four", "--out", tmp_path / "games")
    finally:
        weights.write_bytes(whole)
    assert "step_00000256" in message
    assert "To play without it, remove it" in message


def test_durations_are_short():
    assert [duration(seconds) for seconds in (4.6, 75, 3599, 3600 * 2 + 60)] == ["0:05", "1:15", "59:59", "2 h 01 min"]
