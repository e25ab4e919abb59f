"""`scramjet plot` and `scramjet compare`: files that viewers open, tables within 80 columns, and mistakes told."""

import html
import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import scramjet
from scramjet.cli import run
from scramjet.errors import ConfigError
from tests.helpers.written_runs import record_at, write_run


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of two learning rates, one of them with negative returns and evaluations."""
    folder = tmp_path_factory.mktemp("written") / "runs"
    for seed in (1, 2, 3):
        for rate, sign in ((0.1, 1), (0.01, -1)):
            returns = [None, *(sign * (10 * math.sqrt(update) + seed) for update in range(2, 31))]
            records = [record_at(update, return_100=value) for update, value in enumerate(returns, 1)]
            if sign < 0:
                records[-1].update({"eval/mean_return": 5.0, "eval/std_return": 1.0, "eval/episodes": 10})
            write_run(folder, f"run-{rate}-{seed}", records, seed=seed, learning_rate=rate)
    return folder


@pytest.fixture
def runs(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return Path(shutil.copytree(written, tmp_path / "runs"))


@pytest.mark.rest
def test_an_svg_holds_both_axes_and_a_legend_and_is_the_same_again_and_a_png_is_a_picture(runs):
    pytest.importorskip("matplotlib")
    pillow = pytest.importorskip("PIL.Image")
    for theme in ("light", "dark"):
        assert run(["plot", "runs", "--out", "curves.svg", "--theme", theme, "--title", "100 % <b> $x$"]) == 0
        root = ElementTree.fromstring(Path("curves.svg").read_text())
        texts = {"".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")}
        assert {"environment steps", "wall time (seconds)", "return_100", "100 % <b> $x$"} <= texts, theme
        assert {"learning_rate 0.1 (3 runs)", "learning_rate 0.01 (3 runs)", "30K", "\u221240"} <= texts, theme
        assert Path("curves.svg").stat().st_size < 100_000
    for name in ("a.svg", "b.svg"):
        assert run(["plot", "run-0.1-*", "--out", name]) == 0
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()
    assert run(["plot", "run-0.1-1", "--x", "steps", "--out", "curve.png"]) == 0
    with pillow.open("curve.png") as picture:
        assert picture.size[0] > 600
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 10


def test_without_a_file_name_a_page_is_written_that_asks_nothing_of_the_internet(runs, capsys):
    assert run(["plot", "runs", "--metric", "return_100", "eval/mean_return", "--title", "</script><i>"]) == 0
    shown = capsys.readouterr()
    assert "6 runs in 2 curves: curves.html" in shown.out
    assert "left out for want of eval/mean_return: run-0.1-1, run-0.1-2, run-0.1-3" in shown.err
    page = Path("curves.html").read_text()
    assert "<h1>&lt;/script&gt;&lt;i&gt;</h1>" in page
    assert re.search(r"<(script|link)[^>]+(src|href)=", page) is None
    figures = json.loads(re.search(r"<script>const figures = (\{.*\}), dark = ", page)[1])["light"]  # type: ignore[index]
    lines = [trace for trace in figures[0]["data"] if trace.get("name") == "learning_rate 0.1"]
    # the mean of the seeds is 10 sqrt(update) + 2
    assert lines[0]["y"][-1] == pytest.approx(10 * math.sqrt(30) + 2, rel=1e-4)
    assert len(figures) == 4


@pytest.mark.rest
def test_a_notebook_shows_what_was_drawn_the_page_in_a_frame_of_its_own(runs):
    pytest.importorskip("matplotlib")
    for name, kind in (("curves.html", "text/html"), ("curves.svg", "image/svg+xml"), ("curves.png", "image/png")):
        drawn = scramjet.plot("runs", out=name)
        bundle, written = drawn._repr_mimebundle_(), Path(name).read_bytes()
        assert set(bundle) == {"text/plain", kind}
        if kind == "text/html":
            page = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', bundle[kind])
            assert page is not None
            assert html.unescape(page[1]).encode() == written
        else:
            assert bundle[kind] == (written if kind == "image/png" else written.decode())


def test_mistakes_are_told_and_nothing_is_written(runs):
    write_run(Path("runs"), "timeless", [{"update": n, "step": 1000 * n, "return_100": 1.0} for n in (1, 2)])
    for words, message in (
        ("plot runs --out curves.pdf", r"out=curves\.pdf: give a name that ends in \.html, \.svg or \.png"),
        ("plot runs --out nowhere/curves.svg", r"nowhere/curves\.svg.*there is no folder .?nowhere.?; make it first"),
        ("plot runs --smooth 7", r"smooth=7\.0 must be from 0 to 1"),
        ("plot runs --metric retrun_100", r"no run has the metric 'retrun_100'\. Did you mean 'return_100'"),
        ("plot runs --group-by nothing", "--group-by nothing: no run has this setting"),
        ("plot timeless --x time --out curves.html", "over wall time; give --x steps"),
        ("compare run-0.1-1", "compare needs two runs or more"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(words.split())
        assert [path.name for path in Path().iterdir()] == ["runs"], words


def test_a_comparison_fits_80_columns_and_tells_what_differs(runs, capsys):
    assert run(["compare", "runs"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    words = [line.split() for line in text.splitlines()]
    assert ["runs", "3", "3"] in words
    assert ["learning_rate", "0.01", "0.1"] in words
    assert ["return_100", "-56.77", "56.77"] in words  # the mean over seeds of 10 sqrt(30) + seed
    assert run(["compare", "runs", "--each"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("return_100") == 2, "many runs stand in several tables"
    assert all(path.name in text for path in runs.iterdir())


def test_runs_that_differ_in_their_seed_alone_are_compared_one_by_one(runs, capsys):
    assert run(["compare", "run-0.1-*", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert [each["label"] for each in compared["contenders"]] == ["run-0.1-1", "run-0.1-2", "run-0.1-3"]
    assert compared["contenders"][2]["numbers"]["return_100"]["value"] == pytest.approx(10 * math.sqrt(30) + 3)
    assert compared["differences"] == {}
