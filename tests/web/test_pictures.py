"""Pictures for the browser."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Discrete, Env
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.errors import WorldError
from scramjet.web.pictures import MOST_CHARACTERS, checked_picture, drawn, plain_text, png


@pytest.mark.parametrize("shape", [(1, 1, 3), (5, 7, 3), (300, 2, 3)])
def test_another_decoder_reads_the_same_pixels(shape: tuple[int, ...]) -> None:
    images = pytest.importorskip("PIL.Image")
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    decoded = images.open(io.BytesIO(png(picture)))
    decoded.load()  # checks the sums of all chunks
    assert decoded.format == "PNG"
    assert (np.asarray(decoded) == picture).all()


def test_a_picture_whose_memory_is_turned_around_is_encoded_as_it_looks() -> None:
    images = pytest.importorskip("PIL.Image")
    picture = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)[::-1, ::2]
    assert (np.asarray(images.open(io.BytesIO(png(picture)))) == picture).all()


class Plain(Env):
    """A world without `render`."""

    action_space = Discrete(2)

    def ascii(self, s: Any) -> str:
        return s


class Broken(Plain):
    """A world whose `render` is wrong."""

    def render(self, s: Any) -> np.ndarray:
        return s.picture


def test_a_world_that_draws_no_pictures_is_shown_as_text() -> None:
    assert drawn(Plain(), "x o\n o ") == "x o\n o "


def test_text_that_would_move_the_cursor_or_never_ends_is_made_harmless() -> None:
    shown = plain_text("\x1b[2J" + "y" * 2 * MOST_CHARACTERS)
    assert "\x1b" not in shown
    assert len(shown) < 1.1 * MOST_CHARACTERS


def test_a_world_that_draws_pictures_shows_them() -> None:
    pool = NativePool(CartPole(), 1)
    pool.reset(0)
    assert (drawn(pool.env, pool.record(0)) == CartPole().render(pool.record(0))).all()


def test_an_error_in_render_names_the_world_and_what_it_raised() -> None:
    with pytest.raises(WorldError, match=r"Broken.render raised AttributeError"):
        drawn(Broken(), object())


@pytest.mark.parametrize(
    ("picture", "given"),
    [
        (np.zeros((4, 4), np.uint8), r"uint8 \[4, 4\]"),
        (np.zeros((4, 4, 3), np.float32), r"float32 \[4, 4, 3\]"),
        (np.zeros((0, 4, 3), np.uint8), r"uint8 \[0, 4, 3\]"),
        (np.lib.stride_tricks.as_strided(np.zeros(3, np.uint8), (9999, 9999, 3), (0, 0, 1)), "9999 x 9999 pixels"),
        ("no picture", "<U10"),
    ],
)
def test_what_is_no_picture_is_refused_with_what_it_is(picture: Any, given: str) -> None:
    with pytest.raises(WorldError, match=given):
        checked_picture(picture, "World")
