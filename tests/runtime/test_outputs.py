"""Files that the user names to be written: replaced whole, written into where they are streams, or refused."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from scramjet.cli import run
from scramjet.errors import ScramjetError
from scramjet.runtime.files import check_output, is_stream, write_output
from scramjet.runtime.video.video_file import check_video

pytestmark = [pytest.mark.faults, pytest.mark.skipif(os.name == "nt", reason="pipes and devices are other ones there")]


def kinds_below(folder: Path) -> dict[str, int]:
    return {path.name: path.lstat().st_mode for path in folder.rglob("*")}


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def loop_at(path: Path) -> None:
    path.symlink_to(path.name)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (Path.mkdir, "is a folder"),
    "socket": (socket_at, "is a socket"),
    "loop": (loop_at, "symbolic links"),
    "missing/file": (lambda path: None, "there is no folder"),
    "n" * 300: (lambda path: None, "too long"),
    "link": (lambda path: path.symlink_to("nowhere/file"), "there is no folder"),
}


def test_what_cannot_be_written_is_refused_before_any_work_and_stays(tmp_path: Path) -> None:
    for name, (make, words) in REFUSED.items():
        path = tmp_path / name
        make(path)
        before = kinds_below(tmp_path)
        for attempt in (check_output, lambda path: write_output(path, b"new")):
            with pytest.raises(ScramjetError, match=words):
                attempt(path)
        assert kinds_below(tmp_path) == before, name
    with pytest.raises(ScramjetError, match=r"null (byte|character)"):
        check_output(Path("a\0b"))


def test_pipes_and_devices_are_written_into_and_stay_what_they_are(tmp_path: Path) -> None:
    pipe, link, read = tmp_path / "pipe.svg", tmp_path / "link.svg", []
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    before = kinds_below(tmp_path)
    for path in (pipe, link):
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
        reader.start()
        check_output(path)
        write_output(path, b"x" * 200_000)  # more than a pipe holds
        reader.join(30)
    assert [len(data) for data in read] == [200_000, 200_000]
    write_output(Path("/dev/null"), b"x")
    if os.path.exists("/dev/full"):
        with pytest.raises(ScramjetError, match="the disk is full while writing /dev/full"):
            write_output(Path("/dev/full"), b"x")
    with pytest.raises(ScramjetError, match="is a pipe"):  # encoders go back in their files
        check_video(pipe.with_suffix(".svg").rename(tmp_path / "pipe.mp4"))
    assert sorted(kinds_below(tmp_path).values()) == sorted(before.values())
    assert is_stream(Path("/dev/null"))
    assert not is_stream(tmp_path / "file")


def test_block_devices_are_refused_though_root_could_write_to_them() -> None:
    disks = [path for path in Path("/dev").glob("*") if path.is_block_device()]
    for disk in disks[:3]:
        with pytest.raises(ScramjetError, match="is a device"):
            check_output(disk)


def test_a_link_stays_and_its_target_is_replaced_or_made(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link, target = tmp_path / "link", tmp_path / "kept" / "page.html"
    link.symlink_to("kept/page.html")
    for data in (b"first", b"second"):
        write_output(link, data)
        assert os.readlink(link) == "kept/page.html"
        assert (target.read_bytes(), os.listdir(target.parent)) == (data, ["page.html"])


WRITING = "import sys; from pathlib import Path; from scramjet.runtime.files import write_output\n"
WRITING += "print('before'); write_output(Path(sys.argv[1]), b'data\\n'); print('after')"


def test_stdout_is_written_from_where_it_is_whatever_it_leads_to(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITING]
    for name in ("/dev/stdout", "/dev/fd/1"):
        done = subprocess.run([*words, name], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "before\ndata\nafter\n"
        with open(tmp_path / "file", "w+") as file:
            subprocess.run([*words, name], stdout=file, timeout=60, check=True)
            file.seek(0)
            assert file.read() == "before\ndata\nafter\n"


OUTPUTS = {
    "export-page four": "--out",
    "plot tiny": "--out",
    "tournament four --random": "--plot",
    "tune --report study": "--out",
    "grade random": "--markdown",
    "eval tiny": "--video",
}


def test_every_command_that_writes_a_named_file_looks_at_it_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.toml").touch()
    commands = Path(sys.modules["scramjet.cli"].__file__ or "").parent / "commands"
    named = [re.findall(r"^    (\w+): Path \| None = None", path.read_text(), re.M) for path in commands.rglob("*.py")]
    options = {f"--{name}" for names in named for name in names} - {"--config", "--space"}
    assert options == set(OUTPUTS.values())
    for command, option in OUTPUTS.items():
        for suffix in (".svg", ".mp4") if option == "--video" else (".svg",):
            with pytest.raises(ScramjetError) as caught:
                run([*command.split(), option, f"missing/file{suffix}"])
        assert "there is no folder" in str(caught.value) or "pip install" in str(caught.value), command
    assert os.listdir(tmp_path) == ["study"]
