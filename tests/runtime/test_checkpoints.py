"""Checkpoints come back exactly, or are refused with what is wrong; pruning takes only what is its own."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from scramjet import __version__
from scramjet.errors import CheckpointError, ConfigError, RunError
from scramjet.runtime.checkpoint_format import _digest
from scramjet.runtime.checkpoints import FORMAT_VERSION, CheckpointStore, load_checkpoint, step_name

MODEL = {"weight": torch.arange(12.0).reshape(3, 4), "bias": torch.zeros(4)}
TRAINER = {"moment": torch.linspace(0, 1, 7, dtype=torch.float64)}

SAVE_WITH_SMALL_FILES_ONLY = """
import resource, sys
from pathlib import Path
import torch
from scramjet.errors import RunError
from scramjet.runtime.checkpoints import CheckpointStore
store = CheckpointStore(Path(sys.argv[1]))
store.save(1, {"w": torch.ones(10)}, {}, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    store.save(2, {"w": torch.ones(100_000)}, {}, {})
except RunError as error:
    print(error)
"""


def fill(directory: Path, steps: list[int], keep_last_n: int | None = None, best: int = -1) -> CheckpointStore:
    store = CheckpointStore(directory, keep_last_n)
    for step in steps:
        store.save(step, MODEL, TRAINER, {"step_again": step}, is_best=step == best)
    return store


def rewrite_metadata(path: Path, **changes: object) -> None:
    """Change metadata.json as someone would who also knows how to make its hash right."""
    record = json.loads((path / "metadata.json").read_text())
    record.update(changes)
    del record["sha256"], record["signature"]
    record["sha256"] = _digest(record)
    (path / "metadata.json").write_text(json.dumps(record))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    metadata = {"world": "cartpole", "nested": {"list": [1, 2.5, None, True]}}
    path = CheckpointStore(tmp_path).save(12345, MODEL, TRAINER, metadata)
    assert path == tmp_path / "step_00012345"
    assert sorted(os.listdir(path)) == ["metadata.json", "model.safetensors", "trainer.safetensors"]
    checkpoint = load_checkpoint(path)
    assert (checkpoint.path, checkpoint.step, checkpoint.metadata) == (path, 12345, metadata)
    for saved, loaded in ((MODEL, checkpoint.model), (TRAINER, checkpoint.trainer)):
        assert saved.keys() == loaded.keys()
        assert all(torch.equal(saved[name], loaded[name]) for name in saved)


def test_metadata_holds_versions_and_the_hash_of_every_file(tmp_path: Path) -> None:
    path = CheckpointStore(tmp_path).save(1, MODEL, TRAINER, {})
    record = json.loads((path / "metadata.json").read_text())
    assert (record["format_version"], record["scramjet_version"], record["step"]) == (FORMAT_VERSION, __version__, 1)
    for name in ("model.safetensors", "trainer.safetensors"):
        data = (path / name).read_bytes()
        assert record["files"][name] == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


INTEGERS = [torch.bool, torch.uint8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (3, 4)], ids=str)
def test_every_dtype_and_shape_comes_back_bit_for_bit(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(3)
    item_bytes = torch.empty((), dtype=dtype).element_size()
    high = 2 if dtype is torch.bool else 256  # random bytes: NaNs and infinities of every kind included
    content = torch.randint(0, high, (*shape, item_bytes), dtype=torch.uint8, generator=generator)
    tensor = content.view(dtype).reshape(shape)
    store = CheckpointStore(tmp_path)
    loaded = load_checkpoint(store.save(1, {"x": tensor}, {}, {})).model["x"]
    assert (loaded.dtype, loaded.shape) == (dtype, tensor.shape)
    assert torch.equal(loaded.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))
    loaded.zero_()  # it can be written to


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
    assert loaded["base"][2, 3] == 11
    assert base[2, 3] == 11


def test_tensors_come_back_in_order_of_their_names(tmp_path: Path) -> None:
    model = {f"{number:02d}": torch.ones(number) for number in (3, 1, 11, 7, 2, 30)}
    path = CheckpointStore(tmp_path).save(1, model, {}, {})
    assert list(load_checkpoint(path).model) == sorted(model)


def test_equal_state_gives_equal_bytes_whatever_the_order(tmp_path: Path) -> None:
    turned = dict(reversed(MODEL.items()))
    first = CheckpointStore(tmp_path / "a").save(1, MODEL, TRAINER, {"x": 1})
    second = CheckpointStore(tmp_path / "b").save(1, turned, TRAINER, {"x": 1})
    for name in os.listdir(first):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert load_checkpoint(first).digest == load_checkpoint(second).digest


def test_the_digest_changes_with_any_content(tmp_path: Path) -> None:
    changes = [
        (1, MODEL, TRAINER, {"x": 1}),
        (2, MODEL, TRAINER, {"x": 1}),
        (1, TRAINER, TRAINER, {"x": 1}),
        (1, MODEL, MODEL, {"x": 1}),
        (1, MODEL, TRAINER, {"x": 2}),
    ]
    digests = {
        load_checkpoint(CheckpointStore(tmp_path / str(number)).save(*change)).digest
        for number, change in enumerate(changes)
    }
    assert len(digests) == len(changes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_metadata_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        CheckpointStore(tmp_path).save(1, MODEL, TRAINER, {"x": value})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.safetensors", "metadata.json"])
@pytest.mark.parametrize("damage", ["truncated", "emptied", "longer", "missing", "a folder"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, name: str, damage: str) -> None:
    path = CheckpointStore(tmp_path).save(1, MODEL, TRAINER, {"x": 1})
    data = (path / name).read_bytes()
    (path / name).unlink()
    if damage == "truncated":
        (path / name).write_bytes(data[: len(data) // 2])
    elif damage == "emptied":
        (path / name).write_bytes(b"")
    elif damage == "longer":
        (path / name).write_bytes(data + b"x")
    elif damage == "a folder":
        (path / name).mkdir()
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    problems = {"missing": "is missing", "a folder": "is a folder, not a file"}
    default = "is not valid JSON" if name == "metadata.json" else f"bytes instead of {len(data)}"
    if damage == "longer" and name != "metadata.json":
        default = f"has {len(data) + 1:,} bytes, and at most {len(data):,} are expected"
    assert f"checkpoint {path} is damaged: {name}" in str(caught.value)
    assert problems.get(damage, default) in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.safetensors", "metadata.json"])
def test_any_flipped_bit_is_noticed(tmp_path: Path, name: str) -> None:
    path = CheckpointStore(tmp_path).save(1, MODEL, TRAINER, {"return": 123.456})
    data = (path / name).read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        (path / name).write_bytes(flipped)
        try:
            loaded = load_checkpoint(path)
        except CheckpointError:
            continue
        # White space between JSON values carries nothing, and another signature is a stranger's
        assert not loaded.is_own or json.loads(flipped) == json.loads(data), position


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = CheckpointStore(tmp_path).save(1, MODEL, TRAINER, {})
    (path / "metadata.json").write_text(json.dumps({"format_version": FORMAT_VERSION + 1, "new": "things"}))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert str(caught.value) == (
        f"checkpoint {path} was written by a newer scramjet (format {FORMAT_VERSION + 1}; this one reads up to "
        f"{FORMAT_VERSION}); upgrade scramjet"
    )


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"format_version": "1"}', "[" * 100_000, "\0"])
def test_metadata_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    path = CheckpointStore(tmp_path).save(1, MODEL, TRAINER, {})
    (path / "metadata.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"damaged: metadata\.json"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "change",
    [{"step": "1"}, {"files": {}}, {"files": {"model.safetensors": 5}}, {"metadata": []}, {"is_best": 1}],
)
def test_metadata_with_a_field_of_the_wrong_kind_is_refused(tmp_path: Path, change: dict) -> None:
    path = CheckpointStore(tmp_path).save(1, MODEL, TRAINER, {})
    rewrite_metadata(path, **change)
    with pytest.raises(CheckpointError, match="lacks a field or has one of the wrong kind"):
        load_checkpoint(path)


class Payload:
    """Writes a file when unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple:
        return (Path.write_text, (self.target, "code was run"))


@pytest.mark.parametrize("honest_hash", [True, False])
def test_a_pickle_named_safetensors_is_refused_and_not_run(tmp_path: Path, honest_hash: bool) -> None:
    path = CheckpointStore(tmp_path / "c").save(1, MODEL, TRAINER, {})
    data = pickle.dumps(Payload(tmp_path / "proof"))
    (path / "model.safetensors").write_bytes(data)
    if honest_hash:
        files = json.loads((path / "metadata.json").read_text())["files"]
        files["model.safetensors"] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        rewrite_metadata(path, files=files)
    expected = "is not a safetensors file" if honest_hash else "bytes instead of"
    with pytest.raises(CheckpointError, match=expected):
        load_checkpoint(path)
    assert not (tmp_path / "proof").exists()
    pickle.loads(data)
    assert (tmp_path / "proof").exists(), "the payload must work, or this test shows nothing"


def test_links_lead_to_the_latest_and_the_best(tmp_path: Path) -> None:
    fill(tmp_path, [100, 200, 300], best=200)
    assert os.readlink(tmp_path / "latest") == "step_00000300"
    assert os.readlink(tmp_path / "best") == "step_00000200"
    assert load_checkpoint(tmp_path / "latest").step == 300
    best = load_checkpoint(tmp_path / "best")
    assert (best.step, best.path, best.is_best) == (200, tmp_path / "step_00000200", True)


def test_links_work_as_text_where_there_are_no_symlinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(target: str, link: Path) -> None:
        raise NotImplementedError

    monkeypatch.setattr(os, "symlink", refuse)
    fill(tmp_path, [1, 2, 3, 4], keep_last_n=1, best=2)
    assert load_checkpoint(tmp_path / "latest").step == 4
    assert load_checkpoint(tmp_path / "best").step == 2


def test_a_run_folder_stands_for_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    fill(tmp_path / "run" / "checkpoints", [1, 2])
    assert load_checkpoint(tmp_path / "run").step == 2
    (tmp_path / "run" / "checkpoints" / step_name(2) / "model.safetensors").unlink()
    assert load_checkpoint(tmp_path / "run").step == 1
    (tmp_path / "run" / "checkpoints" / step_name(1) / "metadata.json").unlink()
    with pytest.raises(CheckpointError, match=r"no whole checkpoint: .*step_00000002.*; .*step_00000001"):
        load_checkpoint(tmp_path / "run")


def test_a_checkpoint_copied_elsewhere_under_another_name_is_loaded(tmp_path: Path) -> None:
    path = fill(tmp_path, [7]).directory / step_name(7)
    path.rename(tmp_path / "my-favourite")
    assert load_checkpoint(tmp_path / "my-favourite").step == 7


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("step_00000020", "there is no checkpoint at .* Did you mean 'step_00000002'"),
        ("gone", "points at step_99999999, which is gone"),
        ("a\0b", "there is no checkpoint at"),
        ("x" * 5000, "there is no checkpoint at"),
        ("step_00000002/model.safetensors", "is a file, not a checkpoint"),
        ("step_00000002/model.safetensors/deeper", "there is no checkpoint at"),
        ("empty", "no whole checkpoint: none was saved yet"),
    ],
)
def test_a_path_without_a_checkpoint_is_told(tmp_path: Path, name: str, words: str) -> None:
    fill(tmp_path, [2])
    (tmp_path / "gone").symlink_to("step_99999999")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path / name)


def test_resuming_falls_back_past_damaged_checkpoints_and_names_each(tmp_path: Path) -> None:
    store = fill(tmp_path, [1, 2, 3, 4])
    (tmp_path / step_name(4) / "trainer.safetensors").write_bytes(b"")
    (tmp_path / step_name(3) / "metadata.json").write_bytes(b"{")
    checkpoint, problems = store.load_latest_whole()
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert [step_name(4) in problems[0], step_name(3) in problems[1], len(problems)] == [True, True, 2]
    assert "trainer.safetensors" in problems[0]


def test_the_newest_whole_checkpoint_does_not_depend_on_the_link(tmp_path: Path) -> None:
    store = fill(tmp_path, [1, 2])
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").symlink_to(step_name(1))
    assert store.load_latest_whole()[0].step == 2  # type: ignore[union-attr]
    CheckpointStore(tmp_path)  # and the next writer mends the link
    assert os.readlink(tmp_path / "latest") == step_name(2)


def test_a_folder_whose_name_belies_its_step_is_not_resumed_from(tmp_path: Path) -> None:
    store = fill(tmp_path, [1, 2])
    (tmp_path / step_name(2)).rename(tmp_path / step_name(9))
    checkpoint, problems = store.load_latest_whole()
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert "is of step 2" in problems[0]


def test_an_empty_store_has_nothing_to_resume_from(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "new").load_latest_whole() == (None, [])


def test_only_the_last_n_the_best_and_the_latest_are_kept(tmp_path: Path) -> None:
    store = fill(tmp_path, [1, 2, 3, 4, 5, 6], keep_last_n=2, best=3)
    assert store.steps() == [3, 5, 6]
    store.save(7, MODEL, TRAINER, {}, is_best=True)  # the best before has no privilege any more
    assert store.steps() == [6, 7]


def test_without_a_limit_all_are_kept(tmp_path: Path) -> None:
    assert fill(tmp_path, list(range(8))).steps() == list(range(8))


@pytest.mark.parametrize("keep_last_n", [0, -1])
def test_keeping_none_is_refused(tmp_path: Path, keep_last_n: int) -> None:
    with pytest.raises(ConfigError, match=f"keep_last_n={keep_last_n} .* use 1 or more"):
        CheckpointStore(tmp_path, keep_last_n)


def test_pruning_never_touches_what_it_did_not_make(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    directory = tmp_path / "checkpoints"
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


def test_saving_below_a_damaged_later_checkpoint_keeps_the_new_one(tmp_path: Path) -> None:
    store = fill(tmp_path, [1, 2, 300], keep_last_n=1)
    (tmp_path / step_name(300) / "model.safetensors").unlink()
    for step in (3, 4):
        store.save(step, MODEL, TRAINER, {})
        assert store.steps() == [step, 300]
        assert os.readlink(tmp_path / "latest") == step_name(step)
    store.save(300, MODEL, TRAINER, {})  # training comes by again and replaces the damaged one
    assert store.load_latest_whole()[0].step == 300  # type: ignore[union-attr]
    assert store.steps() == [300]


def test_a_damaged_later_checkpoint_does_not_count_among_those_kept(tmp_path: Path) -> None:
    store = fill(tmp_path, [1, 300], keep_last_n=2)
    (tmp_path / step_name(300) / "model.safetensors").unlink()
    for step in (3, 4, 5):
        store.save(step, MODEL, TRAINER, {})
    assert store.steps() == [4, 5, 300]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_saving_a_step_again_replaces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool) -> None:
    if not can_exchange:
        monkeypatch.setattr("scramjet.runtime.checkpoints.exchange_paths", lambda first, second: False)
    store = fill(tmp_path, [5])
    store.save(5, MODEL, TRAINER, {"new": "metadata"}, is_best=True)
    assert load_checkpoint(tmp_path / "best").metadata == {"new": "metadata"}
    store.save(5, TRAINER, MODEL, {})
    checkpoint = load_checkpoint(tmp_path / "latest")
    assert (list(checkpoint.model), list(checkpoint.trainer)) == (["moment"], ["bias", "weight"])
    assert sorted(os.listdir(tmp_path)) == ["best", "latest", step_name(5)]


def test_a_full_disk_leaves_every_checkpoint_and_link_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").touch()
    directory = tmp_path / "checkpoints"
    store = fill(directory, [1, 2], keep_last_n=2)
    names = sorted(os.listdir(directory))
    write = os.write
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


@pytest.mark.faults
def test_a_write_the_system_really_cuts_short_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAVE_WITH_SMALL_FILES_ONLY, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "limit on file size was reached" in done.stdout, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["latest", step_name(1)]
    assert load_checkpoint(tmp_path / "latest").step == 1


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


@pytest.mark.parametrize("name", ["checkpoints/latest", "."])
def test_a_reader_beside_a_writer_that_prunes_always_gets_a_checkpoint(tmp_path: Path, name: str) -> None:
    store = fill(tmp_path / "checkpoints", [0], keep_last_n=1)
    is_over = threading.Event()

    def write() -> None:
        for step in range(1, 10**6):
            if is_over.is_set():
                return
            store.save(step, MODEL, TRAINER, {})

    writer = threading.Thread(target=write)
    writer.start()
    seen = [0]
    deadline = time.monotonic() + 20
    try:
        while seen[-1] < 60 and time.monotonic() < deadline:
            seen.append(load_checkpoint(tmp_path / name).step)
    finally:
        is_over.set()
        writer.join()
    assert seen == sorted(seen)
    assert seen[-1] >= 60, "the writer hardly wrote: nothing was tested"
