"""Videos of a match: `scramjet eval RUN --against OTHER --video FILE`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scramjet.arena.game import Game
from scramjet.arena.head_to_head import Match
from scramjet.arena.play.results import Result
from scramjet.arena.play.watching import begin_game
from scramjet.runtime.files import output_file
from scramjet.runtime.video.video_file import check_video
from scramjet.training.components import make_pool
from scramjet.training.pictures.recording import Progress, Recording, record_moments
from scramjet.training.pictures.stages import Drawing, Moment, has_pictures, native_rate


@dataclass(frozen=True, slots=True)
class _Played:
    """A game that was played to its end."""

    game: Game
    num_positions: int
    place: int  # the agent's
    result: Result

    def drawing(self, number: int) -> Drawing:
        """One of its positions, counted from 0."""
        back = self.num_positions - 1 - number
        return self.game.picture(back) if has_pictures(self.game.env) else self.game.text(back)


def record_match(
    match: Match, games: int, path: Path, *, seed: int, fps: float | None = None, progress: Progress | None = None
) -> Recording:
    """Play some games of a match and show them side by side. The agent begins the first, then seats change.

    Returns are the agent's, then its opponent's. The games are played one after the other, since players remember one
    at a time, and drawn together.
    """
    check_video(path, fps)
    with contextlib.ExitStack() as pools:
        played = []
        for number in range(games):
            game = Game(pools.enter_context(contextlib.closing(make_pool(match.config, num_envs=1))))
            played.append(_play(game, match, number, seed))
        rate = fps or native_rate(played[0].game.env)
        return record_moments(_moments(played), output_file(path), match.config.env, rate, progress)


def _play(game: Game, match: Match, number: int, seed: int) -> _Played:
    place, num_positions = begin_game(game, match, number, seed), 1
    while not game.is_over:
        game.reply()
        num_positions += 1
    assert game.result is not None
    return _Played(game, num_positions, place, game.result)


def _moments(played: list[_Played]) -> Iterator[Moment]:
    """All games position by position; those that have ended stay at their last."""
    lengths = np.array([each.num_positions for each in played])
    returns = np.array([_agent_first(each) for each in played])
    drawings: list[Drawing] = [None] * len(played)
    for number in range(int(lengths.max())):
        for i, each in enumerate(played):
            if number < each.num_positions:
                drawings[i] = each.drawing(number)
        steps = np.minimum(number, lengths - 1)
        yield Moment(list(drawings), returns, steps, steps == lengths - 1)


def _agent_first(played: _Played) -> list[float]:
    others = [gain for place, gain in enumerate(played.result.returns) if place != played.place]
    return [played.result.returns[played.place], *others]
