"""Videos of trained policies, in frames that can be counted; and while a run trains, which they do not change."""

import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

import scramjet
from scramjet.adapters.factories import register_factory
from scramjet.errors import ConfigError
from scramjet.training.components import make_policy
from scramjet.training.config.run_config import RunConfig
from scramjet.training.pictures import recording as within_run
from scramjet.training.pictures.recording import record_policy
from scramjet.training.pictures.stages import newest_image, picture_stage, watch
from scramjet.training.seeds import unseen_episodes
from tests.helpers.run_files import last_checkpoint
from tests.helpers.videos import frames_of

pytest.importorskip("av")
pytest.importorskip("PIL")
pytestmark = pytest.mark.rest
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


class Painter(gymnasium.Env[Any, Any]):
    """Ends after as many steps as it was reset times, plus one; paints its count as a gray."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.count, self.length = render_mode, 0, 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.length = 2 + int(self.np_random.integers(4))
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.zeros(1, np.float32), 1.0, self.count == self.length, False, {}

    def render(self) -> Any:
        return np.full((48, 64, 3), 30 * self.count, np.uint8)


WORDY = """
import numpy as np
from scramjet.envs import Box, Discrete, Env

class Wordy(Env):
    max_episode_steps = 3
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"count": np.int32}

    def reset(self, s):
        s.count = 0

    def step(self, s, action):
        s.count += 1
        return 1.0, False

    def observe(self, s, obs):
        obs[0] = s.count / 3
"""
"""A world that draws itself as text alone."""


def untrained(env: str, **settings: Any) -> tuple[Any, RunConfig]:
    config = RunConfig(env=env, num_envs=1, num_steps=16, **settings)
    return make_policy(config).eval(), config


def test_every_step_is_a_frame_and_the_last_position_is_shown(tmp_path: Path) -> None:
    policy, config = untrained("cartpole", seed=3)  # these weights push to one side
    recording = record_policy(policy, config, tmp_path / "pole.gif", episodes=1, seed=3)
    assert recording.num_frames == recording.lengths[0] + 1 + 30  # and a second of the last one
    assert recording.frames_per_second == 30
    assert recording.returns.tolist() == [[float(recording.lengths[0])]]
    stage = picture_stage(config, 1)
    *_, last = watch(stage, policy, config, unseen_episodes(3))
    np.testing.assert_allclose(frames_of(recording.path)[-1], last.drawings[0], atol=24)
    angle = abs(np.arctan2(*_pole(last.drawings[0])))
    assert angle > np.deg2rad(10)  # it has fallen: the picture is no first one of a next episode


def _pole(picture: np.ndarray) -> tuple[float, float]:
    """Across and up from the lowest to the highest point of the orange pole."""
    rows, columns = np.nonzero((picture[..., 0] > 200) & (picture[..., 2] < 120))
    top, bottom = rows.argmin(), rows.argmax()
    return float(columns[top] - columns[bottom]), float(rows[bottom] - rows[top])


def test_episodes_are_those_of_an_evaluation_with_the_same_seed(tmp_path: Path) -> None:
    result = scramjet.train(
        "cartpole", runs_dir=tmp_path, display="quiet", device="cpu", total_timesteps=256, num_envs=4, num_steps=32,
        eval={"every": 0, "final_episodes": 0}, env_parameters={"max_episode_steps": 30},
    )  # fmt: skip
    recording = scramjet.record_video(result.run_path, tmp_path / "four.gif", episodes=4, seed=9, samples=True)
    evaluation = scramjet.evaluate(result.run_path, episodes=4, seed=9, samples=True)
    assert recording.returns.mean() == evaluation.mean_return
    assert recording.num_frames == recording.lengths.max() + 1 + 30


def test_a_cell_keeps_its_last_frame_until_all_episodes_have_ended(tmp_path: Path) -> None:
    policy, config = untrained(register_factory(Painter))
    recording = record_policy(policy, config, tmp_path / "grid.gif", episodes=4, seed=2)
    assert len(set(recording.lengths.tolist())) > 1
    assert recording.frames_per_second == 5  # the env's own
    frames = frames_of(recording.path)
    height, width = frames[0].shape[0], frames[0].shape[1]
    for number, frame in enumerate(frames):
        for cell, length in enumerate(recording.lengths.tolist()):
            row, column = divmod(cell, 2)
            middle = frame[(2 * row + 1) * height // 4, (2 * column + 1) * width // 4]
            assert middle.tolist() == [30 * min(number, length)] * 3


def test_a_world_without_pictures_is_drawn_by_its_text(tmp_path: Path) -> None:
    (tmp_path / "wordy.py").write_text(WORDY)
    policy, config = untrained(str(tmp_path / "wordy.py"))
    recording = record_policy(policy, config, tmp_path / "words.gif", episodes=1, seed=1)
    frames = frames_of(recording.path)
    assert recording.frames_per_second == 10
    assert len(frames) == 4 + 1  # those that stay the same are one; the last is stored again when it has stayed
    assert len({frame.tobytes() for frame in frames}) == 4


def test_frame_stacks_and_memories_are_played(tmp_path: Path) -> None:
    for settings in ({"frame_stack": 3}, {"policy": scramjet.PolicyConfig(memory="gru", hidden=(8,))}):
        policy, config = untrained("cartpole", env_parameters={"max_episode_steps": 8}, **settings)
        recording = record_policy(policy, config, tmp_path / "pole.gif", episodes=2, seed=1, fps=50)
        assert recording.num_frames == recording.lengths.max() + 1 + 50


def test_a_game_of_seats_is_shown_slowly_and_counts_both(tmp_path: Path) -> None:
    policy, config = untrained("tic_tac_toe")
    recording = record_policy(policy, config, tmp_path / "game.webm", episodes=1, seed=1)
    assert recording.frames_per_second == 2
    assert recording.returns.shape == (1, 2)
    assert recording.returns.sum() == 0
    assert len(frames_of(recording.path)) == recording.lengths[0] + 1 + 2


def test_pettingzoos_games_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo")
    pytest.importorskip("pygame")
    policy, config = untrained("pettingzoo:tictactoe_v3")
    recording = record_policy(policy, config, tmp_path / "game.gif", episodes=1, seed=1)
    frames = frames_of(recording.path)
    assert len(frames) == recording.lengths[0] + 1 + 1  # every move changed the picture; the last one stays


def test_atari_shows_what_the_policy_sees(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    config = RunConfig(env="ale:Pong", num_envs=1, num_steps=16, policy=scramjet.PolicyConfig(hidden=(8,)))
    stage = picture_stage(config, 1)
    out = stage.pool.reset(1)
    assert stage.drawings(out)[0].shape == (84, 84, 3)
    stage.pool.close()
    stacked = np.arange(4 * 84 * 84, dtype=np.uint8).reshape(4, 84, 84)
    np.testing.assert_array_equal(newest_image(stacked)[..., 1], stacked[3])


def test_too_many_cells_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 36"):
        scramjet.record_video("nowhere", tmp_path / "many.mp4", episodes=37)


SMALL: dict[str, Any] = {
    "num_envs": 4, "num_steps": 16, "total_timesteps": 64 * 6, "device": "cpu", "display": "quiet",
    "eval": {"every": 0, "final_episodes": 0}, "env_parameters": {"max_episode_steps": 12},
}  # fmt: skip


class Listener(scramjet.Callback):
    """Adds itself as a sink that takes videos, waits for each after its update, and keeps the news."""

    def __init__(self) -> None:
        self.videos: list[tuple[str, int, bool]] = []
        self.news: list[str] = []

    def on_start(self, session: scramjet.Session) -> None:
        session.sinks.append(self)

    def on_update(self, record: dict[str, Any], session: scramjet.Session) -> None:
        self.on_end(None, session)
        for thread in threading.enumerate():
            if thread.name == "scramjet-video":
                thread.join(60)

    def on_end(self, result: Any, session: scramjet.Session) -> None:
        self.news += [text for text in session.news if text not in self.news]

    def record(self, record: dict[str, Any]) -> None: ...

    def video(self, path: Path, step: int) -> None:
        on_training_thread = threading.current_thread() is threading.main_thread()
        self.videos.append((path.name, step, on_training_thread and path.is_file()))

    def close(self) -> None: ...


def train(tmp_path: Path, *callbacks: Any, **changes: Any) -> scramjet.TrainResult:
    return scramjet.train("cartpole", runs_dir=tmp_path, callbacks=callbacks, **{**SMALL, **changes})


def test_a_run_with_videos_is_bit_for_bit_the_run_without_and_sinks_get_them_once_also_when_it_is_resumed(tmp_path):
    first, later = Listener(), Listener()
    plain = train(tmp_path, run_name="plain")
    run = train(tmp_path, first, run_name="filmed", video_every=2).run_path
    assert last_checkpoint(run)["model.safetensors"] == last_checkpoint(plain.run_path)["model.safetensors"]
    made = {path: path.stat().st_mtime_ns for path in (run / "videos").iterdir()}
    scramjet.train(resume=run, total_timesteps=64 * 8, display="quiet", callbacks=[later])
    assert {path: path.stat().st_mtime_ns for path in made} == made  # none is made twice
    expected = [(f"step_{step:08d}.mp4", step, True) for step in (128, 256, 384, 512)]
    assert sorted(path.name for path in (run / "videos").iterdir()) == [name for name, *_ in expected]
    assert (first.videos, later.videos) == (expected[:3], expected[3:])
    assert 1 + 30 < len(frames_of(run / "videos" / expected[0][0])) <= 12 + 1 + 30


def test_a_failure_is_told_once_and_training_goes_on(tmp_path, monkeypatch):
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no ink")

    monkeypatch.setattr(within_run, "record_moments", broken)
    listener = Listener()
    assert train(tmp_path, listener, video_every=1).step == SMALL["total_timesteps"]
    told = [text for text in listener.news if "no video" in text]
    assert told == ["no video at step 64: ZeroDivisionError: no ink (training goes on)"]
    assert listener.videos == []


def test_one_that_is_due_while_another_is_made_is_left_out_and_told_once(tmp_path, monkeypatch):
    goes_on, made, news = threading.Event(), [], []

    def slow(moments: Any, path: Path, *_: Any, **__: Any) -> None:
        made.append(path.name)
        goes_on.wait(20)

    class Releases(scramjet.Callback):
        def on_update(self, record: dict[str, Any], session: scramjet.Session) -> None:
            news.extend(text for text in session.news if text not in news)
            if record["update"] == 5:
                goes_on.set()

    monkeypatch.setattr(within_run, "record_moments", slow)
    train(tmp_path, Releases(), video_every=1)
    assert made[0] == "step_00000064.mp4"
    assert made[-1] == "step_00000384.mp4"  # the last one is waited for
    assert not {"step_00000128.mp4", "step_00000192.mp4", "step_00000256.mp4"} & set(made)
    assert len([text for text in news if "one is still being made" in text]) == 1


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path):
    outside, listener = tmp_path / "outside", Listener()
    outside.mkdir()

    class Links(scramjet.Callback):
        def on_start(self, session: scramjet.Session) -> None:
            (session.run.path / "videos").symlink_to(outside)

    train(tmp_path / "runs", listener, Links(), video_every=3)
    assert list(outside.iterdir()) == []
    assert any("is no folder" in text for text in listener.news)


def test_a_missing_package_is_told_before_the_run_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"scramjet\[video\]"):
        train(tmp_path, video_every=3)
    assert list(tmp_path.iterdir()) == []
