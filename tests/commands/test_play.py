"""`scramjet play`: against a run, a scripted player or a person."""

from scramjet.arena.head_to_head import from_the_start
from scramjet.training.config.run_config import RunConfig
from tests.helpers.command_calls import call, refusal, type_lines
from tests.helpers.world_files import NIM


def test_a_run_is_played_with_hints_and_moves_taken_back(runs, monkeypatch, capsys):
    type_lines(monkeypatch, "hint", "1", "undo", "2", "quit")
    assert call("play", runs["four"], "--seed", 1) == 0
    told = capsys.readouterr().out
    assert "Connect Four: you against four. You move first." in told
    assert told.split("You played")[0].count("X") == 1  # only in "X to move"
    assert "How likely four would play each move here:" in told
    assert "four played" in told
    assert told.endswith("Goodbye.\n")
    type_lines(monkeypatch, "hint", "1")
    assert call("play", "four", "--against", "greedy", "--seat", "second", "--seed", 1) == 0
    told = capsys.readouterr().out
    assert "you against greedy. greedy moves first." in told
    assert "How likely four would play each move here:" in told, "hints come from the run while somebody else plays"


def test_a_person_begins_without_the_openings_of_training_unless_they_ask_for_them():
    config = RunConfig(env="connect_four", env_parameters={"opening_plies": 8, "rows": 5})
    changed, note = from_the_start(config, {})
    assert "--env.opening-plies" in note
    assert changed.env_parameters == {"opening_plies": 0, "rows": 5}
    assert from_the_start(config, {"opening_plies": "8"}) == (config, "")
    assert from_the_start(RunConfig(), {}) == (RunConfig(), "")


def test_a_world_of_the_users_own_is_played_by_the_names_of_its_actions(tmp_path, monkeypatch, capsys):
    (tmp_path / "nim.py").write_text(NIM)
    type_lines(monkeypatch, "one", "two", "1", "TWO", "no")  # 7, 6, 4, 2, 0: the one who moves second wins
    assert call("play", tmp_path / "nim.py", "--against", "person") == 0
    told = capsys.readouterr().out
    for part in ("Nim: 2 people.", "Player 1 played one.", "Player 2 won."):
        assert part in told


def test_a_world_for_one_is_played_alone_with_the_run_to_ask(runs, monkeypatch, capsys):
    for place in (runs["tiny"], "cartpole"):
        type_lines(monkeypatch, "hint", *30 * ["1"], "no")
        assert call("play", place, "--seed", 1) == 0
        told = capsys.readouterr().out
        assert "you alone." in told
        assert "The game is over. Return: " in told
        assert ("How likely tiny would play each move here:" in told) == (place != "cartpole")


def test_the_same_seed_is_the_same_game(monkeypatch, capsys):
    told = []
    for seed in (5, 5, 6):
        type_lines(monkeypatch, "4", "4", "3")
        assert call("play", "connect_four", "--against", "random", "--seat", "random", "--seed", seed) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != told[2]
    monkeypatch.setattr("builtins.input", interrupted)
    assert call("play", "connect_four", "--against", "random", "--seed", 1) == 0
    assert capsys.readouterr().out.endswith("Goodbye.\n"), "Ctrl-C leaves politely"


def interrupted(prompt: str) -> str:
    raise KeyboardInterrupt


def test_a_run_that_is_not_there_is_answered_with_the_nearest(capsys, tmp_path):
    (tmp_path / "runs" / "four-1").mkdir(parents=True)
    (tmp_path / "runs" / "four-1" / "config.toml").write_text("")
    for command in ("play", "eval"):
        told = refusal(capsys, command, tmp_path / "runs" / "four-2")
        assert "there is no run 'four-2' in" in told
        assert "Did you mean 'four-1'?" in told
