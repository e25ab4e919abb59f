"""Shows two players play: in the terminal, animated or step by step, or side by side in a video.

`scramjet eval RUN --against OTHER` with `--render` or `--video FILE`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from scramjet.arena.game import Game
from scramjet.arena.head_to_head import Match
from scramjet.arena.network_players import NetworkPlayer
from scramjet.arena.play.moves import Result
from scramjet.arena.play.screen import Screen, outcome, title_of
from scramjet.arena.play.thoughts import Adviser, reward_scale
from scramjet.engine.layout import PlayedBy
from scramjet.errors import printable
from scramjet.runtime.files import output_file
from scramjet.runtime.video.video_file import check_video
from scramjet.training.components import make_pool
from scramjet.training.pictures.recording import Progress, Recording, record_moments
from scramjet.training.pictures.stages import Drawing, Moment, has_pictures, native_rate
from scramjet.training.playing import checked_episodes

# --- in the terminal

SECONDS_PER_MOVE = 0.7
SECONDS_PER_STEP = 0.1
"""How long a position stays: in a game of turns, and in one in which all act at once."""


def watch_match(match: Match, games: int | None, *, seed: int | None, by_steps: bool) -> int:
    """Show some games of a match; returns the exit code. The agent begins the first, then seats change.

    `by_steps`: wait for Enter after each move. Else positions follow each other in a terminal; where the output goes
    elsewhere, the last one of each game is printed.
    """
    games, seed = checked_episodes(1 if games is None else games, seed)
    seed = match.config.seed if seed is None else seed
    for note in match.notes:
        print(printable(note), file=sys.stderr, flush=True)
    agent, adviser = match.agent, None
    if isinstance(agent, NetworkPlayer):
        adviser = Adviser(agent.policy, agent.name, reward_scale(match.checkpoint))
    with contextlib.closing(make_pool(match.config, num_envs=1)) as pool:
        game = Game(pool, adviser)
        watcher = Watcher(game, Screen(Console(highlight=False)), input if by_steps else None)
        with contextlib.suppress(EOFError, KeyboardInterrupt):  # whoever watches has seen enough
            for number in range(games):
                begin_game(game, match, number, seed)
                watcher.watch()
    return 0


def begin_game(game: Game, match: Match, number: int, seed: int) -> int:
    """Begin a game of a match, counted from 0; returns the agent's place, which changes from game to game."""
    places = range(game.pool.num_players)
    own = (game.opening_player(seed + number) + number) % len(places)
    game.begin([match.agent if place == own else match.opponent for place in places], seed + number)
    return own


class Watcher:
    """Shows a game that players play among themselves.

    `ask(prompt)` waits for a person before each move; None: moves follow by themselves.
    """

    def __init__(self, game: Game, screen: Screen, ask: Callable[[str], str] | None) -> None:
        self.game, self._screen, self._ask = game, screen, ask
        self._is_animated = ask is None and screen.console.is_terminal
        by_turns = game.pool.played_by is PlayedBy.SEATS
        self._pause = SECONDS_PER_MOVE if by_turns else SECONDS_PER_STEP

    def watch(self) -> None:
        """Play a game to its end and show it; raises EOFError where the person has seen enough."""
        game, names = self.game, self._names()
        self._show(f"{title_of(game)}: {' against '.join(dict.fromkeys(names))}")
        while not game.is_over:
            made = game.reply()
            news = ", ".join(f"{names[played.player]} played {played.move.name}" for played in made)
            self._show(f"{len(game.played)}. {news}" if game.pool.num_rows == 1 else news)
        assert game.result is not None
        self._screen.say(outcome(game.result, names))
        if self._is_animated:
            time.sleep(2 * self._pause)

    def _names(self) -> list[str]:
        """What the players are called; one that plays against itself is told apart by its seats."""
        names = [self.game.name_of(player) for player in range(len(self.game.players))]
        if len(set(names)) < len(set(map(id, self.game.players))):
            return [f"{name} in seat {seat}" for seat, name in enumerate(names, start=1)]
        return names

    def _show(self, news: str) -> None:
        """Show the position with what happened last and, where a network can be asked, the chances."""
        if not (self._is_animated or self._ask or self.game.is_over):
            return
        if self._is_animated:
            self._screen.console.clear()
        self._screen.say(news)
        self._screen.show(self.game)
        self._screen.say(self._chances())
        if self._is_animated:
            time.sleep(self._pause)
        elif (
            self._ask
            and not self.game.is_over
            and self._ask("Enter for the next move, q to leave: ").strip() in ("q", "quit")
        ):
            raise EOFError

    def _chances(self) -> str:
        """The network's estimate for the player to move; empty where there is none."""
        game = self.game
        if game.adviser is None or game.is_over or len(game.to_move) != 1:
            return ""
        thoughts = game.thoughts()
        mover = self._names()[thoughts.player]
        if thoughts.chances is None:
            return f"Expected return of {mover}, to move: {thoughts.value:+.2f} (by {game.adviser.name})"
        return f"Chances of {mover}, to move: {100 * thoughts.chances:.0f} % (by {game.adviser.name})"


# --- as a video


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
