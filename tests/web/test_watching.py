"""Performances that are watched: their frames, what the players in them think, and the socket that sends them."""

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from websockets.sync.client import ClientConnection, connect

import scramjet
from scramjet.errors import ConfigError
from scramjet.training.config.run_config import EvaluationConfig
from scramjet.training.pictures.stages import play
from scramjet.training.playing import load_trained
from scramjet.web import sockets
from scramjet.web.context import THINKING, Agents
from scramjet.web.watching import session
from scramjet.web.watching.casting import MOST_SEED, WatchRequest, make_cast
from scramjet.web.watching.performance import Frame, Performance
from tests.helpers.pages import PageServer
from tests.helpers.small_runs import train_small
from tests.helpers.world_files import COUNT

SEED = 7


@contextlib.contextmanager
def performance(runs: Path, run: str, **request: Any) -> Iterator[Performance]:
    cast = make_cast(Agents(runs), WatchRequest(run, **request))
    with contextlib.closing(cast.performance):
        yield cast.performance


def watched(shown: Performance, seed: int = SEED) -> list[Frame]:
    frames = [shown.begin(seed)]
    while not frames[-1].ended:
        frames.append(shown.advance())
    return frames


def test_the_frames_are_the_steps_and_returns_that_play_tells_of(runs: Path) -> None:
    for run in ("pole", "memory", "toe"):
        policy, config, _ = load_trained(runs / run)
        with performance(runs, run) as shown:
            frames = watched(shown)
        told = [(total, step, ended) for _, total, step, ended in play(policy, config, SEED, 1)]
        assert [(sum(frame.returns), frame.step, frame.ended) for frame in frames] == told, run


def test_the_episode_is_the_one_that_an_evaluation_plays_and_another_seed_is_another(runs: Path) -> None:
    with performance(runs, "pole") as shown:
        last = watched(shown)[-1]
    evaluation = scramjet.evaluate(runs / "pole", episodes=1, seed=SEED)
    assert (last.returns[0], last.step) == (evaluation.mean_return, evaluation.mean_length)
    with performance(runs, "pole", samples=True) as shown:
        first, again, other = watched(shown), watched(shown), watched(shown, SEED + 1)
    assert [frame.as_dict() for frame in first] == [frame.as_dict() for frame in again]
    assert first[0].thoughts != other[0].thoughts


def test_probabilities_and_value_are_those_of_the_network_and_the_taken_action_the_likeliest(runs: Path) -> None:
    agent = Agents(runs).load("pole")
    with performance(runs, "pole") as shown:
        frame = shown.begin(SEED)
        obs = torch.from_numpy(shown.scene.pool.views())
    with torch.inference_mode():
        output = agent.policy(obs)
    choice = frame.thoughts[0].choices[0]
    assert choice.probabilities == pytest.approx(output.logits.softmax(-1)[0].tolist(), abs=1e-6)
    assert choice.taken == int(np.argmax(choice.probabilities))
    assert frame.thoughts[0].value == pytest.approx(float(output.value) * agent.reward_scale, rel=1e-5)


def test_the_value_of_a_policy_with_memory_is_that_after_all_it_has_seen(runs: Path) -> None:
    agent = Agents(runs).load("memory")
    seen = []
    with performance(runs, "memory") as shown:
        frame = shown.begin(SEED)
        seen.append(shown.scene.pool.views().copy())
        for _ in range(3):
            frame = shown.advance()
            seen.append(shown.scene.pool.views().copy())
    sequence = torch.from_numpy(np.concatenate(seen))  # [T, ...]: four steps of one row
    with torch.inference_mode():
        output = agent.policy(sequence, agent.policy.initial_state(1), torch.zeros(4, 1, dtype=torch.bool))
    assert frame.thoughts[0].value == pytest.approx(float(output.value[-1]) * agent.reward_scale, rel=1e-4)


def test_illegal_actions_have_no_probability_and_are_never_taken(runs: Path) -> None:
    with performance(runs, "toe", samples=True) as shown:
        frames = watched(shown)
    for frame in frames[:-1]:
        choice = frame.thoughts[0].choices[0]
        assert choice.legal is not None or frame.step == 0
        legal = choice.legal or [True] * 9
        assert legal.count(False) == frame.step
        assert all(share == 0 for share, is_legal in zip(choice.probabilities, legal, strict=True) if not is_legal)
        assert sum(choice.probabilities) == pytest.approx(1)
        assert legal[choice.taken]


@pytest.mark.rest
def test_a_continuous_action_lies_between_its_bounds_with_its_spread_around_the_mean(tmp_path: Path) -> None:
    short = EvaluationConfig(every=0, final_episodes=0, max_steps=9)
    train_small(tmp_path, "pendulum", "pendulum", eval=short, total_timesteps=64)
    with performance(tmp_path, "pendulum") as shown:
        assert shown.actions.as_dict() == {"choices": [], "numbers": [[-2.0, 2.0]]}
        number = shown.begin(SEED).thoughts[0].numbers[0]
        assert watched(shown)[-1].step == 9
    assert -2 <= number.low < number.mean < number.high <= 2
    assert number.taken == number.mean


def test_two_agents_meet_with_names_and_networks_of_their_own_and_the_seed_says_who_begins(runs: Path) -> None:
    with performance(runs, "toe", against="toe/step_00000128") as shown:
        even, odd = shown.begin(0), shown.begin(1)
        frames = watched(shown, 0)
        shown.begin(0)
        second = shown.advance()
        obs = torch.from_numpy(shown.scene.pool.views()[1:2])  # what the second seat sees
    assert even.names == ["toe at 256", "toe at 128"]
    assert odd.names == ["toe at 128", "toe at 256"]
    assert [frame.thoughts[0].player for frame in frames[:-1]] == [step % 2 for step in range(len(frames) - 1)]
    assert all(frame.thoughts[0].value is not None for frame in frames[:-1])
    other = Agents(runs).load("toe", "step_00000128")
    with torch.inference_mode():
        value = float(other.policy(obs).value) * other.reward_scale
    assert second.thoughts[0].value == pytest.approx(value, rel=1e-4)


def test_games_that_begin_after_random_moves_say_so_unless_another_player_comes(tmp_path: Path) -> None:
    train_small(tmp_path, "toe", "tic_tac_toe", env_parameters={"opening_plies": 4}, total_timesteps=64)
    for against in (None, "random"):
        cast = make_cast(Agents(tmp_path), WatchRequest("toe", against=against))
        assert ("0 to 4 random moves" in " ".join(cast.facts["notes"])) == (against is None)
        cast.performance.close()


def test_other_players_and_searches_play_to_the_end(runs: Path) -> None:
    for request in ({"against": "random"}, {"against": "minimax:2"}, {"search": "alphazero:4"}):
        with performance(runs, "toe", **request) as shown:
            assert sorted(watched(shown)[-1].returns) in ([-1, 1], [0, 0]), request


@pytest.mark.rest
def test_an_env_of_gymnasium_draws_itself_and_plays_as_in_an_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    train_small(tmp_path, "gym", "gym:CartPole-v1", total_timesteps=64)
    with performance(tmp_path, "gym") as shown:
        frames = watched(shown)
    evaluation = scramjet.evaluate(tmp_path / "gym", episodes=1, seed=SEED)
    assert (frames[-1].returns[0], frames[-1].step) == (evaluation.mean_return, evaluation.mean_length)
    assert all(np.shape(frame.picture) == (400, 600, 3) for frame in frames)
    assert (frames[0].picture != frames[-1].picture).any()


def test_an_env_that_draws_nothing_is_watched_without_pictures(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    train_small(tmp_path / "runs", "count", f"{tmp_path / 'count.py'}:Count", total_timesteps=64)
    with performance(tmp_path / "runs", "count") as shown:
        frames = watched(shown)
    assert [frame.step for frame in frames] == list(range(7))  # its episodes are six steps long
    assert "draws no pictures" in str(frames[0].picture)


def test_what_cannot_be_watched_says_why(runs: Path) -> None:
    for run, request, message in (
        ("pole", {"against": "random"}, "played by one"),
        ("toe", {"against": "pole"}, "trained on cartpole"),
        ("toe", {"against": "os:system"}, "would run code"),
        ("toe", {"against": "player.py"}, "would run code"),
        ("toe", {"against": "greedy:choose"}, "would run code"),
        ("toe", {"against": "random:seed"}, "would run code"),
        ("toe", {"against": "random:/player.py"}, "would run code"),
        ("toe", {"against": "minimax:9"}, "too far ahead"),
        ("toe", {"search": "alphazero:9999"}, "too much to watch"),
        ("toe", {"search": "chess"}, "names no search"),
        ("pole", {"seed": -1}, "must be from 0"),
        ("pole", {"seed": MOST_SEED + 1}, "must be from 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_cast(Agents(runs), WatchRequest(run, **request))


MISTAKES = [
    {"do": "fly"}, {"speed": 3}, {"do": ["start"]}, {"do": "start"}, {"do": "start", "run": 5}, {"do": "step"},
    {"do": "restart", "seed": 1}, {"do": "speed", "speed": "fast"}, {"do": "speed", "speed": -1}, [], "start",
]  # fmt: skip


class Page:
    """What a browser does: sends messages, and reads what comes."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.pictures: list[bytes] = []
        self.frames: list[dict[str, Any]] = []

    def ask(self, do: str, until: str | None = None, **fields: Any) -> Any:
        """Send a message; returns the answer of the kind `until`."""
        self.socket.send(json.dumps({"do": do, **fields}))
        return self.answer(until) if until is not None else None

    def answer(self, kind: str) -> dict[str, Any]:
        """The next message of this kind; frames and pictures that come before it are kept."""
        while True:
            message = self.socket.recv(60)
            if isinstance(message, bytes):
                self.pictures.append(message)
                continue
            found: dict[str, Any] = json.loads(message)
            if found["kind"] == "frame":
                self.frames.append(found)
            if found["kind"] == kind:
                return found


Watch = Callable[..., Page]


@pytest.fixture
def watch(runs: Path, serve_page: Callable[..., PageServer]) -> Iterator[Watch]:
    """A function that opens the socket of a page; closed with the test."""
    with contextlib.ExitStack() as opened:
        servers: dict[Path, PageServer] = {}

        def open_one(folder: Path = runs) -> Page:
            servers[folder] = servers.get(folder) or serve_page(folder)
            return Page(opened.enter_context(connect(f"ws://{servers[folder].address}/api/watch", open_timeout=60)))

        yield open_one


def test_a_paused_start_shows_the_first_position_and_each_step_one_more(watch: Watch) -> None:
    page = watch()
    ready = page.ask("start", "ready", run="pole", paused=True, seed=3)
    assert (ready["env"], ready["checkpoint"], ready["seed"]) == ("cartpole", "step_00000256", 3)
    assert ready["checkpoints"][-1] == "step_00000256"
    page.answer("state")
    for _ in range(3):
        page.ask("step", "frame")
    page.ask("pause", "state")
    assert [frame["step"] for frame in page.frames] == [0, 1, 2, 3]
    assert len(page.pictures) == 4
    assert all(picture.startswith(b"\x89PNG") for picture in page.pictures)


def test_frames_come_no_faster_than_chosen_and_two_at_most_before_one_is_drawn(watch: Watch) -> None:
    page = watch()
    page.ask("start", "ready", run="pole", speed=60)
    time.sleep(0.3)  # eighteen frames, were they all played
    page.ask("pause")
    while page.answer("state")["is_playing"]:
        pass
    assert len(page.frames) == session.MOST_UNSEEN
    page.ask("resume")
    page.ask("seen", "frame")
    assert [frame["step"] for frame in page.frames] == [0, 1, 2]
    page = watch()
    page.ask("start", "frame", run="pole", speed=20)
    began = time.monotonic()
    for _ in range(8):
        page.ask("seen", "frame")
    assert time.monotonic() - began >= 7 / 20


def test_a_restart_begins_the_episode_of_its_seed_and_the_next_one_follows_by_itself(watch: Watch) -> None:
    page = watch()
    first = page.ask("start", "frame", run="pole", seed=1, paused=True)
    page.ask("step", "frame")
    assert page.ask("restart", "frame") == first
    frame = page.ask("restart", "frame", seed=5)
    while not frame["ended"]:
        frame = page.ask("step", "frame")
    following = page.ask("step", "frame")
    assert (frame["seed"], following["seed"], following["step"]) == (5, 6, 0)


def test_what_means_nothing_is_answered_with_an_error_and_ends_nothing(watch: Watch) -> None:
    page = watch()
    for text in (*map(json.dumps, MISTAKES), "{", "null", "9" * 20_000, "[" * 9_000):
        page.socket.send(text)
        assert page.answer("error")["error"], text[:40]
    for name in ("nobody", "../pole", "/etc", ""):
        error = page.ask("start", "error", run=name)
        assert (error["has_ended"], error["checkpoints"]) == (True, []), name
    page.ask("start", "state", run="pole", paused=True)
    assert not page.ask("restart", "error", seed=-3)["has_ended"]
    assert page.ask("step", "frame")["step"] == 1


def test_new_checkpoints_are_told_of_and_a_removed_one_plays_on(
    copied: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SECONDS_BETWEEN_LOOKS", 0.05)
    folder, page = copied / "pole/checkpoints", watch(copied)
    page.ask("start", "state", run="pole", paused=True)
    (folder / "step_00000999").mkdir()
    assert page.answer("checkpoints")["checkpoints"][-1] == "step_00000999"
    shutil.rmtree(folder / "step_00000256")
    assert "step_00000256" not in page.answer("checkpoints")["checkpoints"]
    assert page.ask("step", "frame")["step"] == 1


def playing() -> bool:
    return any(thread.name.startswith(f"{THINKING}-watch") for thread in threading.enumerate())


def test_one_page_too_many_is_told_so_and_when_a_page_leaves_its_thread_ends(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MOST_WATCHING", 1)
    page = watch()
    page.ask("start", "frame", run="pole", speed=60)
    assert playing()
    assert "watch already" in watch().answer("error")["error"]
    page.socket.close()
    deadline = time.monotonic() + 30
    while playing():
        assert time.monotonic() < deadline, "the thread goes on"
        time.sleep(0.02)
