"""TensorBoard: what a run writes is what TensorBoard's own reader finds, each step once, however the run went on."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.runtime.logs import read_metrics
from tests.helpers.tracked_runs import STEPS, cut_after, fed, feed_twice, fork_of, records, send
from tests.helpers.written_runs import append_records, write_run

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.rest

TINY: dict[str, Any] = {
    "num_envs": 4, "num_steps": 4, "policy": {"hidden": [8]}, "eval": {"every": 2, "episodes": 2, "final_episodes": 2},
    "display": "quiet",
}  # fmt: skip


def read(run: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0, "images": 0})
    return events.Reload()


def text(events: Any, tag: str) -> str:
    return events.Tensors(tag)[-1].tensor_proto.string_val[0].decode()


def test_a_run_and_its_resume_are_in_tensorboard_as_in_metrics_jsonl_and_train_as_without(tmp_path: Path):
    plain = scramjet.train("bandit", runs_dir=tmp_path, total_timesteps=64, **TINY)
    result = scramjet.train("bandit", runs_dir=tmp_path, total_timesteps=48, track=["tensorboard"], **TINY)
    scramjet.train(resume=result.run_path, total_timesteps=64, display="quiet")
    lines = read_metrics(result.run_path / "metrics.jsonl")
    without = read_metrics(plain.run_path / "metrics.jsonl")
    assert [line["entropy"] for line in lines] == [line["entropy"] for line in without]
    events = read(result.run_path)
    for name in ("entropy", "return_100", "eval/mean_return"):
        expected = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(step, pytest.approx(value)) for step, value in expected]
    seconds = [event.value for event in events.Scalars("time/elapsed_seconds")]
    assert seconds == pytest.approx([line["time"]["elapsed_seconds"] for line in lines])
    assert "| env.name | bandit |" in text(events, "config")
    assert "| state | finished |" in text(events, "summary")
    assert "| step | 64 |" in text(events, "summary")


def test_a_resume_takes_back_what_came_after_its_checkpoint_also_without_the_note_of_it(tmp_path: Path):
    run = feed_twice("tensorboard", tmp_path)
    assert [event.step for event in read(run).Scalars("update")] == STEPS
    shutil.rmtree(run / "tracking")  # as after a kill before anything was noted
    cut_after(run, 1)
    with fed("tensorboard", run, goes_on_from=1000) as feed:
        append_records(run, records(2, 2))
        assert feed.send() == 1
    assert [event.step for event in read(run).Scalars("update")] == [1000, 2000]


def test_a_fork_names_its_parent_and_pictures_are_shown(tmp_path: Path):
    feed_twice("tensorboard", tmp_path)
    fork = fork_of(tmp_path)
    picture = Path(__file__).with_name("dot.gif")
    with fed("tensorboard", fork) as feed:
        feed.video(picture, 3000)
        feed.close("stopped")
    events = read(fork)
    assert "| parent_run | first |" in text(events, "lineage")
    (image,) = events.Images("video")
    assert (image.step, image.width, image.height) == (3000, 2, 1)
    assert image.encoded_image_string == picture.read_bytes()


def test_nothing_is_written_through_a_link(tmp_path: Path):
    run = write_run(tmp_path, "run", records(1, 1))
    (tmp_path / "elsewhere").mkdir()
    (run / "tensorboard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(scramjet.ScramjetError, match="symbolic link"):
        send("tensorboard", run)
    assert not [*(tmp_path / "elsewhere").iterdir()]
