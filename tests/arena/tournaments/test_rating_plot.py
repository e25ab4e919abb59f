"""The plot of ratings: an SVG whose points lie where the numbers say."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from scramjet.arena.tournaments.entrants import Entrant
from scramjet.arena.tournaments.log import BatchResult, Outcome
from scramjet.arena.tournaments.rating_plot import HEIGHT, WIDTH, check_plot_path, rating_plot, short_number, ticks
from scramjet.arena.tournaments.rating_table import rating_table
from scramjet.errors import ConfigError

SVG = "{http://www.w3.org/2000/svg}"


def entrant(run, step):
    return Entrant(f"{run}@{step}", f"/{run}/{step}", f"{run}{step}", f"/runs/{run}", step)


def plotted(entrants, wins):
    """The table of a round robin in which i beats j in wins[i, j] of 20 games, and its plot as an XML tree."""
    outcomes = [
        Outcome((i, j), places, count)
        for (i, j), won in wins.items()
        for places, count in (((1, 2), won), ((2, 1), 20 - won))
        if count
    ]
    table = rating_table(entrants, [BatchResult(0, tuple(outcomes), 20, 0, ())])
    return table, ElementTree.fromstring(rating_plot(table, "a <title> & more"))


@pytest.fixture(scope="module")
def plot():
    """A plot of two runs and a random player."""
    entrants = [
        entrant("one", 0),
        entrant("one", 500),
        entrant("one", 1000),
        entrant("two", 500),
        Entrant("random", "random", "r"),
    ]
    wins = {(0, 4): 12, (1, 4): 16, (2, 4): 18, (3, 4): 20, (1, 0): 13, (2, 1): 12, (3, 2): 9}
    return plotted(entrants, wins)


def numbers(text):
    return [tuple(map(float, pair.split(","))) for pair in text.split()]


def test_points_of_a_run_are_in_step_with_training_and_rating(plot):
    table, tree = plot
    lines = [numbers(line.get("points")) for line in tree.iter(f"{SVG}polyline")]
    assert [len(line) for line in lines] == [3, 1]
    xs = [x for x, _ in lines[0]]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert lines[1][0][0] == pytest.approx(xs[1])
    ratings = {row.entrant.name: row.rating for row in table.rows}
    ys = [*(y for _, y in lines[0]), lines[1][0][1]]
    known = [ratings[name] for name in ("one@0", "one@500", "one@1000", "two@500")]
    slope = (ys[2] - ys[0]) / (known[2] - known[0])
    assert slope < 0
    assert ys == pytest.approx([ys[0] + slope * (rating - known[0]) for rating in known], abs=0.3)


def test_everything_lies_within_the_picture(plot):
    _, tree = plot
    places = [(float(each.get("x")), float(each.get("y"))) for each in tree.iter(f"{SVG}text") if each.get("x")]
    places += [point for shape in ("polyline", "polygon") for each in tree.iter(SVG + shape)
               for point in numbers(each.get("points"))]  # fmt: skip
    assert len(places) > 15
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)


def test_scripted_players_and_runs_are_named_without_overlap(plot):
    _, tree = plot
    labels = {each.text: float(each.get("y")) for each in tree.iter(f"{SVG}text") if each.get("style")}
    assert set(labels) == {"one", "two", "random"}
    heights = sorted(labels.values())
    assert all(after - before >= 15 for before, after in itertools.pairwise(heights))


def test_names_are_escaped(plot):
    _, tree = plot
    assert any(each.text == "a <title> & more" for each in tree.iter(f"{SVG}text"))


def test_one_checkpoint_alone_can_be_plotted():
    _, tree = plotted([entrant("one", 500), Entrant("random", "random", "r")], {(0, 1): 15})
    assert len(list(tree.iter(f"{SVG}circle"))) == 1


@pytest.mark.parametrize(("name", "fix"), [("ratings.png", "ratings.svg"), ("ratings", "ratings.svg")])
def test_other_kinds_of_pictures_are_refused_with_the_fix(name, fix):
    with pytest.raises(ConfigError, match=f"written as SVG.*{fix}"):
        check_plot_path(Path(name))


def test_a_plot_in_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        check_plot_path(tmp_path / "nowhere" / "ratings.svg")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (950, 2130), (-40, 60), (65_536, 409_600)])
def test_ticks_are_few_round_and_inside(low, high):
    found = ticks(low, high)
    assert 3 <= len(found) <= 8
    assert all(low <= value <= high for value in found)
    step = found[1] - found[0]
    assert f"{step:.0e}"[0] in "125"


def test_numbers_of_steps_are_short():
    assert [short_number(value) for value in (0, 250, 1500, 250_000, 1.5e6, 2e9)] == [
        "0",
        "250",
        "1.5k",
        "250k",
        "1.5M",
        "2B",
    ]
