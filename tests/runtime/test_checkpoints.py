"""Checkpoints come back exactly, or are refused with what is wrong; pruning takes only what is its own."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import random
import re
import threading
import time
from pathlib import Path

import pytest
import torch

from scramjet import __version__
from scramjet.errors import CheckpointError, ConfigError, RunError
from scramjet.runtime.checkpoints import FORMAT_VERSION, Background, CheckpointStore, load_checkpoint, step_name
from tests.helpers.cases import rest
from tests.helpers.children import comes_true
from tests.helpers.file_formats import write_tensors
from tests.helpers.forked_commands import begin
from tests.helpers.hostile_files import forge_metadata

MODEL = {"weight": torch.arange(12.0).reshape(3, 4), "bias": torch.zeros(4)}
TRAINER = {"moment": torch.linspace(0, 1, 7, dtype=torch.float64)}
FILES = ("metadata.json", "model.safetensors", "trainer.safetensors")


def fill(directory: Path, steps: list[int], keep_last_n: int | None = None, best: int = -1) -> CheckpointStore:
    store = CheckpointStore(directory, keep_last_n)
    for step in steps:
        store.save(step, MODEL, TRAINER, {"step_again": step}, is_best=step == best)
    return store


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A whole checkpoint, to damage."""
    return CheckpointStore(tmp_path / "c").save(1, MODEL, TRAINER, {"return": 123.456})


# --- saved and loaded ----------------------------------------------------------------------------------------


def test_what_was_saved_is_loaded_and_its_metadata_hold_the_hash_of_every_file(tmp_path: Path) -> None:
    metadata = {"world": "cartpole", "nested": {"list": [1, 2.5, None, True]}}
    path = CheckpointStore(tmp_path).save(12345, MODEL, TRAINER, metadata)
    assert path == tmp_path / "step_00012345"
    assert sorted(os.listdir(path)) == [*FILES]
    record = json.loads((path / "metadata.json").read_text())
    versions = record["format_version"], record["scramjet_version"], record["step"]
    assert versions == (FORMAT_VERSION, __version__, 12345)
    for name in FILES[1:]:
        data = (path / name).read_bytes()
        assert record["files"][name] == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    path = path.rename(tmp_path / "my-favourite")
    checkpoint = load_checkpoint(path)
    assert (checkpoint.path, checkpoint.step, checkpoint.metadata) == (path, 12345, metadata)
    for tensors, loaded in ((MODEL, checkpoint.model), (TRAINER, checkpoint.trainer)):
        assert tensors.keys() == loaded.keys()
        assert all(torch.equal(tensors[name], loaded[name]) for name in tensors)


def test_every_dtype_and_shape_comes_back_bit_for_bit_in_order_of_names(tmp_path: Path) -> None:
    generator, tensors = torch.Generator().manual_seed(3), {}
    integers, floats = (torch.bool, torch.uint8, torch.int32, torch.int64), (torch.float16, torch.bfloat16)
    for dtype in (*integers, *floats, torch.float32, torch.float64):
        high = 2 if dtype is torch.bool else 256  # random bytes: NaNs and infinities of every kind included
        for shape in ((), (0,), (5,), (2, 0, 3), (3, 4)):
            size = torch.empty((), dtype=dtype).element_size()
            content = torch.randint(0, high, (*shape, size), dtype=torch.uint8, generator=generator)
            tensors[f"{dtype} {shape}"] = content.view(dtype).reshape(shape)
    loaded = load_checkpoint(CheckpointStore(tmp_path).save(1, tensors, {}, {})).model
    assert list(loaded) == sorted(tensors)
    for name, tensor in tensors.items():
        assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(loaded[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), name
        loaded[name].zero_()  # it can be written to


def test_tensors_that_share_memory_or_have_gaps_are_saved_by_value(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    model = {
        "base": base,
        "same": base,
        "transposed": base.T,
        "strided": base[:, ::2],
        "expanded": torch.ones(1).expand(5),
        "channels_last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(base * 2),
    }
    loaded = load_checkpoint(CheckpointStore(tmp_path).save(1, model, {}, {})).model
    assert all(torch.equal(model[name], loaded[name]) for name in model)
    loaded["same"].zero_()
    assert (loaded["base"][2, 3], base[2, 3]) == (11, 11)


def test_equal_state_gives_equal_bytes_whatever_the_order_and_any_other_another_digest(tmp_path: Path) -> None:
    turned = dict(reversed(MODEL.items()))
    first = CheckpointStore(tmp_path / "a").save(1, MODEL, TRAINER, {"x": 1})
    second = CheckpointStore(tmp_path / "b").save(1, turned, TRAINER, {"x": 1})
    assert [(first / name).read_bytes() == (second / name).read_bytes() for name in FILES] == [True] * 3
    digests = {load_checkpoint(first).digest, load_checkpoint(second).digest}
    assert len(digests) == 1
    others = (2, MODEL, TRAINER, {"x": 1}), (1, TRAINER, TRAINER, {"x": 1}), (1, MODEL, MODEL, {"x": 1})
    for number, change in enumerate((*others, (1, MODEL, TRAINER, {"x": 2}))):
        digests.add(load_checkpoint(CheckpointStore(tmp_path / str(number)).save(*change)).digest)
    assert len(digests) == 5


def test_metadata_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for value in (float("nan"), float("inf"), object()):
        with pytest.raises((ValueError, TypeError)):
            CheckpointStore(tmp_path).save(1, MODEL, TRAINER, {"x": value})
    assert os.listdir(tmp_path) == []


# --- damaged and forged --------------------------------------------------------------------------------------


def test_a_damaged_file_is_refused_by_name(saved: Path) -> None:
    for name in FILES:
        data = (saved / name).read_bytes()
        size, is_json = len(data), name == "metadata.json"
        other_size = "is not valid JSON" if is_json else f"bytes instead of {size}"
        larger = "is not valid JSON" if is_json else f"has {size + 1:,} bytes, and at most {size:,} are expected"
        for content, problem in (
            (data[: size // 2], other_size),
            (b"", other_size),
            (data + b"x", larger),
            (None, "is missing"),
            ("folder", "is a folder, not a file"),
        ):
            (saved / name).unlink()
            if isinstance(content, bytes):
                (saved / name).write_bytes(content)
            elif content == "folder":
                (saved / name).mkdir()
            with pytest.raises(CheckpointError) as caught:
                load_checkpoint(saved)
            assert f"checkpoint {saved} is damaged: {name} " in str(caught.value)
            assert problem in str(caught.value), content
            if content == "folder":
                (saved / name).rmdir()
            (saved / name).write_bytes(data)


@pytest.mark.parametrize("every", [17, rest(1)])
def test_any_flipped_bit_is_noticed(saved: Path, every: int) -> None:
    for name in FILES:
        data = (saved / name).read_bytes()
        for position in range(0, len(data), every):
            flipped = bytearray(data)
            flipped[position] ^= 1 << (position % 8)
            (saved / name).write_bytes(flipped)
            try:
                loaded = load_checkpoint(saved)
            except CheckpointError:
                continue
            # White space between JSON values carries nothing, and another signature is a stranger's
            assert not loaded.is_own or json.loads(flipped) == json.loads(data), (name, position)
        (saved / name).write_bytes(data)


def test_a_million_tensors_without_numbers_are_not_made(saved: Path) -> None:
    named = ",".join(f'"{number}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for number in range(100_000))
    header = f"{{{named}}}".encode()
    write_tensors(saved / "model.safetensors", len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match="has a header of"):
        load_checkpoint(saved)


def test_a_newer_format_asks_for_an_upgrade(saved: Path) -> None:
    (saved / "metadata.json").write_text(json.dumps({"format_version": FORMAT_VERSION + 1, "new": "things"}))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(saved)
    assert str(caught.value) == (
        f"checkpoint {saved} was written by a newer scramjet (format {FORMAT_VERSION + 1}; this one reads up to "
        f"{FORMAT_VERSION}); upgrade scramjet"
    )


def test_metadata_of_another_kind_or_with_a_field_of_one_are_refused(saved: Path) -> None:
    for field in ({"step": "1"}, {"files": {}}, {"files": {"model.safetensors": 5}}, {"metadata": []}, {"is_best": 1}):
        before = (saved / "metadata.json").read_text()
        forge_metadata(saved, lambda record, field=field: record.update(field))
        with pytest.raises(CheckpointError, match="lacks a field or has one of the wrong kind"):
            load_checkpoint(saved)
        (saved / "metadata.json").write_text(before)
    for text in ("[]", "null", "{}", '{"format_version": "1"}', "[" * 100_000, "\0"):
        (saved / "metadata.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"damaged: metadata\.json"):
            load_checkpoint(saved)


class Payload:
    """Writes a file when unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple:
        return (Path.write_text, (self.target, "code was run"))


def test_a_pickle_named_safetensors_is_refused_and_not_run(tmp_path: Path, saved: Path) -> None:
    data = pickle.dumps(Payload(tmp_path / "proof"))
    (saved / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match="bytes instead of"):
        load_checkpoint(saved)
    honest = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    forge_metadata(saved, lambda record: record["files"].update({"model.safetensors": honest}))
    with pytest.raises(CheckpointError, match="is not a safetensors file"):
        load_checkpoint(saved)
    assert not (tmp_path / "proof").exists()
    pickle.loads(data)
    assert (tmp_path / "proof").exists(), "the payload must work, or this test shows nothing"


# --- links, and what is found --------------------------------------------------------------------------------


def test_links_lead_to_the_latest_and_the_best_also_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(target: str, link: Path) -> None:
        raise NotImplementedError

    fill(tmp_path, [100, 200, 300], best=200)
    assert [os.readlink(tmp_path / name) for name in ("latest", "best")] == ["step_00000300", "step_00000200"]
    assert load_checkpoint(tmp_path / "latest").step == 300
    best = load_checkpoint(tmp_path / "best")
    assert (best.step, best.path, best.is_best) == (200, tmp_path / "step_00000200", True)
    monkeypatch.setattr(os, "symlink", refuse)  # as on a filesystem without symlinks
    fill(tmp_path / "plain", [1, 2, 3, 4], keep_last_n=1, best=2)
    assert [load_checkpoint(tmp_path / "plain" / name).step for name in ("latest", "best")] == [4, 2]


def test_a_run_folder_stands_for_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    fill(tmp_path / "run" / "checkpoints", [1, 2])
    assert load_checkpoint(tmp_path / "run").step == 2
    (tmp_path / "run" / "checkpoints" / step_name(2) / "model.safetensors").unlink()
    assert load_checkpoint(tmp_path / "run").step == 1
    (tmp_path / "run" / "checkpoints" / step_name(1) / "metadata.json").unlink()
    with pytest.raises(CheckpointError, match=r"no whole checkpoint: .*step_00000002.*; .*step_00000001"):
        load_checkpoint(tmp_path / "run")


def test_a_path_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    fill(tmp_path, [2])
    (tmp_path / "gone").symlink_to("step_99999999")
    (tmp_path / "empty").mkdir()
    for name, words in {
        "step_00000020": "there is no checkpoint at .* Did you mean 'step_00000002'",
        "gone": "points at step_99999999, which is gone",
        "a\0b": "there is no checkpoint at",
        "x" * 5000: "there is no checkpoint at",
        "step_00000002/model.safetensors": "is a file, not a checkpoint",
        "step_00000002/model.safetensors/deeper": "there is no checkpoint at",
        "empty": "no whole checkpoint: none was saved yet",
    }.items():
        with pytest.raises(CheckpointError, match=words):
            load_checkpoint(tmp_path / name)


def test_resuming_falls_back_past_damaged_and_misnamed_checkpoints_and_names_each(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path).load_latest_whole() == (None, [])
    store = fill(tmp_path, [1, 2, 3, 4, 5])
    (tmp_path / step_name(5)).rename(tmp_path / step_name(9))
    (tmp_path / step_name(4) / "trainer.safetensors").write_bytes(b"")
    (tmp_path / step_name(3) / "metadata.json").write_bytes(b"{")
    checkpoint, problems = store.load_latest_whole()
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert len(problems) == 3
    for problem, words in zip(problems, ("is of step 5", f"{step_name(4)}.*trainer", step_name(3)), strict=True):
        assert re.search(words, problem), problem


def test_the_search_for_a_whole_checkpoint_ends_after_many_that_are_damaged(tmp_path: Path) -> None:
    """A stranger's run may hold thousands, with megabytes of metadata each."""
    store = fill(tmp_path / "checkpoints", [1])
    for step in range(2, 100):
        (store.directory / step_name(step)).mkdir()
    assert store.load_latest_whole()[0] is None
    with pytest.raises(CheckpointError, match="the newest 50 are damaged, older ones were not read"):
        load_checkpoint(tmp_path)
    assert load_checkpoint(store.directory / step_name(1)).step == 1


def test_the_newest_whole_checkpoint_does_not_depend_on_the_link(tmp_path: Path) -> None:
    store = fill(tmp_path, [1, 2])
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").symlink_to(step_name(1))
    assert store.load_latest_whole()[0].step == 2  # type: ignore[union-attr]
    CheckpointStore(tmp_path)  # and the next writer mends the link
    assert os.readlink(tmp_path / "latest") == step_name(2)


# --- pruning and replacing -----------------------------------------------------------------------------------


def test_only_the_last_n_the_best_and_the_latest_are_kept(tmp_path: Path) -> None:
    store = fill(tmp_path / "some", [1, 2, 3, 4, 5, 6], keep_last_n=2, best=3)
    assert store.steps() == [3, 5, 6]
    store.save(7, MODEL, TRAINER, {}, is_best=True)  # the best before has no privilege any more
    assert store.steps() == [6, 7]
    assert fill(tmp_path / "all", list(range(8))).steps() == list(range(8))
    for none in (0, -1):
        with pytest.raises(ConfigError, match=f"keep_last_n={none} .* use 1 or more"):
            CheckpointStore(tmp_path, none)


def test_pruning_never_touches_what_it_did_not_make(tmp_path: Path) -> None:
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "checkpoints"
    fill(elsewhere, [1])
    directory.mkdir()
    foreign = ["step_1", "step_000000001", "step_00000001-copy", "notes", ".hidden", "step_0000000x"]
    for name in foreign:
        (directory / name).mkdir()
        (directory / name / "precious").touch()
    (directory / "step_00000003").write_text("a file")
    (directory / "step_00000004").symlink_to(elsewhere)
    store = fill(directory, [10, 20, 30], keep_last_n=1)
    assert store.steps() == [30]
    assert all((directory / name / "precious").exists() for name in foreign)
    assert (directory / "step_00000003").read_text() == "a file"
    assert load_checkpoint(elsewhere / step_name(1)).step == 1


def test_a_damaged_later_checkpoint_stays_and_does_not_count_among_those_kept(tmp_path: Path) -> None:
    for keep in (1, 2):
        folder = tmp_path / str(keep)
        store = fill(folder, [1, 2, 300], keep_last_n=keep)
        (folder / step_name(300) / "model.safetensors").unlink()
        for step in (3, 4, 5):
            store.save(step, MODEL, TRAINER, {})
            assert store.steps() == [*range(step - keep + 1, step + 1), 300]
            assert os.readlink(folder / "latest") == step_name(step)
        store.save(300, MODEL, TRAINER, {})  # training comes by again and replaces the damaged one
        assert store.load_latest_whole()[0].step == 300  # type: ignore[union-attr]
        assert store.steps() == [5, 300][-keep:]


def test_saving_a_step_again_replaces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path / "exchanged", tmp_path / "in two steps"):
        store = fill(folder, [5])
        store.save(5, MODEL, TRAINER, {"new": "metadata"}, is_best=True)
        assert load_checkpoint(folder / "best").metadata == {"new": "metadata"}
        store.save(5, TRAINER, MODEL, {})
        checkpoint = load_checkpoint(folder / "latest")
        assert (list(checkpoint.model), list(checkpoint.trainer)) == (["moment"], ["bias", "weight"])
        assert sorted(os.listdir(folder)) == ["best", "latest", step_name(5)]
        monkeypatch.setattr("scramjet.runtime.checkpoints.exchange_paths", lambda first, second: False)


def test_a_full_disk_leaves_every_checkpoint_and_link_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").touch()
    directory, write = tmp_path / "checkpoints", os.write
    store = fill(directory, [1, 2], keep_last_n=2)
    names = sorted(os.listdir(directory))
    for calls_until_full in range(3):
        left = [calls_until_full]

        def write_until_full(descriptor: int, data: bytes, left: list[int] = left) -> int:
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", write_until_full)
        with pytest.raises(RunError) as caught:
            store.save(3, MODEL, TRAINER, {}, is_best=True)
        assert "the disk is full while writing" in str(caught.value)
        assert f"continue with `scramjet train --resume {tmp_path}`" in str(caught.value)
        assert sorted(os.listdir(directory)) == names
        assert load_checkpoint(directory / "latest").step == 2


def test_what_a_dead_process_left_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    fill(tmp_path, [1])
    (tmp_path / ".tmp-123-abc").mkdir()
    (tmp_path / ".tmp-123-abc" / "model.safetensors").touch()
    (tmp_path / ".tmp-123-link").symlink_to(step_name(1))
    (tmp_path / step_name(1) / ".tmp-123-def").touch()
    assert CheckpointStore(tmp_path).steps() == [1]
    assert sorted(os.listdir(tmp_path)) == ["latest", step_name(1)]
    assert load_checkpoint(tmp_path).step == 1
    assert len(os.listdir(tmp_path / step_name(1))) == 3


def test_a_pipe_in_place_of_what_a_dead_process_left_is_not_waited_for(tmp_path: Path) -> None:
    fill(tmp_path, [1])
    os.mkfifo(tmp_path / ".old-step_00000001")
    assert CheckpointStore(tmp_path).steps() == [1]


def test_a_reader_beside_a_writer_that_prunes_always_gets_a_checkpoint(tmp_path: Path) -> None:
    store, is_over = fill(tmp_path / "checkpoints", [0], keep_last_n=1), threading.Event()

    def write() -> None:
        for step in range(1, 10**6):
            if is_over.is_set():
                return
            store.save(step, MODEL, TRAINER, {})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for path in (tmp_path / "checkpoints" / "latest", tmp_path):
            seen, deadline = [load_checkpoint(path).step], time.monotonic() + 60
            while seen[-1] < seen[0] + 40:
                assert time.monotonic() < deadline, "the writer hardly wrote: nothing was tested"
                seen.append(load_checkpoint(path).step)
            assert seen == sorted(seen), path
    finally:
        is_over.set()
        writer.join(60)


def save_for_ever(directory: Path) -> None:
    store = CheckpointStore(directory, keep_last_n=2)
    for step in range(store.steps()[-1] + 1, 10**6):
        store.save(step, {"weight": MODEL["weight"] * step}, TRAINER, {"count": step}, is_best=step % 3 == 0)


@pytest.mark.rest
@pytest.mark.faults
def test_kills_at_random_moments_always_leave_a_whole_latest_checkpoint(tmp_path: Path) -> None:
    """Each moment of a save, and what a power cut leaves of it, is tried in `tests/faults/test_power_cuts.py`."""
    moments, latest = random.Random(17), tmp_path / "c" / "latest"
    fill(latest.parent, [1, 2], best=1)
    for _ in range(10):
        before = os.readlink(latest)
        saving = begin(save_for_ever, latest.parent, output=tmp_path / "output")
        assert comes_true(lambda before=before: os.readlink(latest) != before, 60), (tmp_path / "output").read_text()
        time.sleep(moments.uniform(0.0, 0.05))
        saving.kill()
        saving.join(60)
        for link in (latest, latest.with_name("best")):  # as a reader sees them
            load_checkpoint(link)
        store = CheckpointStore(latest.parent, keep_last_n=2)  # as the next writer does
        checkpoint, problems = store.load_latest_whole()
        assert problems == []
        assert checkpoint is not None
        assert torch.equal(checkpoint.model["weight"], MODEL["weight"] * checkpoint.metadata["count"])
        assert [load_checkpoint(latest.parent / step_name(step)).step for step in store.steps()] == store.steps()
        assert os.readlink(latest) == checkpoint.path.name
        assert not list(latest.parent.glob(".*"))


# --- Work on a thread of its own: results in order, errors where somebody looks, nothing left undone


def test_one_piece_of_work_after_the_other_goes_on_beside_its_caller_and_gives_its_result_once():
    begun, gate = threading.Event(), threading.Event()
    with Background() as background:
        assert background.start(lambda: (begun.set(), gate.wait(10)) and "first") == []
        assert begun.wait(10)  # it runs although nobody waits for it
        assert background.finished() == []
        gate.set()
        assert background.start(lambda: "second") == ["first"]
        assert background.wait() == ["second"]
        assert background.wait() == background.finished() == []


def test_an_error_is_raised_where_the_result_would_be():
    with Background() as background:
        background.start(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            background.wait()
        assert background.start(lambda: "next") == []


def test_leaving_waits_for_what_is_under_way_and_hides_no_error_of_the_caller():
    done = []
    with pytest.raises(ZeroDivisionError), Background() as background:
        background.start(lambda: done.append(1) or 1 / 0)
    assert done == [1]
    with pytest.raises(KeyError), Background() as background:  # noqa: PT012 - the block is what is tested
        background.start(lambda: 1 / 0)
        raise KeyError
