"""The part of `scramjet eval` that plays a match: `scramjet eval RUN --against OTHER`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from scramjet.algorithms.intervals import wilson_interval
from scramjet.arena.head_to_head import Match, MatchResult, play_prepared
from scramjet.arena.matches import Score
from scramjet.arena.network_players import NetworkPlayer, SearchPlayer
from scramjet.errors import printable
from scramjet.telemetry.readable import short_path
from scramjet.training.worlds.world_files import shown_name

USUAL_GAMES = 1000
FEW_GAMES = 0.1
"""Where fewer than this share of the games differ, the user is told how to get more of them."""


def print_match(
    match: Match,
    games: int | None,
    *,
    seed: int | None,
    max_steps: int | None,
    as_json: bool,
    show_progress: Callable[[str], None],
) -> int:
    """Play a match and print how it went; returns the exit code. `show_progress` writes over the line before it."""
    for note in match.notes:
        print(printable(note), file=sys.stderr, flush=True)
    begun_at = time.monotonic()

    def report(played: int, wanted: int) -> None:
        left = (time.monotonic() - begun_at) * (wanted - played) / max(1, played)
        show_progress(f"playing: {played:,} of {wanted:,} games, {left:.0f} s left" if played < wanted else "")

    games = USUAL_GAMES if games is None else games
    result = play_prepared(match, games, seed=seed, max_steps=max_steps, report=report)
    if as_json:
        place = {"checkpoint": str(match.checkpoint.path), "step": match.checkpoint.step}
        print(json.dumps({**place, **result.as_dict()}))
    else:
        _print_result(result, match)
    return 0


def _print_result(result: MatchResult, match: Match) -> None:
    """Print a match as a table by seats, with what to know about its games below."""
    games, results = result.total.games, result.games
    search = f" with {match.agent.search.spec.text}" if isinstance(match.agent, SearchPlayer) else ""
    title = f"{short_path(match.checkpoint.path)} at step {match.checkpoint.step:,}{search} against {result.opponent}"
    print(printable(f"{title}, {games:,} games of {shown_name(match.config.env)}:"))
    print(f"  {'':<10} {'games':>7}   {'won':<25} {'drawn':<25} lost")
    for seat, score in enumerate(result.by_seat, start=1):
        print(f"  {f'seat {seat}':<10} {_score_text(score)}")
    print(f"  {'all':<10} {_score_text(result.total)}")
    print(f"  mean length  {result.mean_length:.1f}")
    print(f"  distinct games  {results.num_distinct:,}")
    if results.num_distinct < FEW_GAMES * games and any(_repeats_itself(p) for p in (match.agent, match.opponent)):
        print("  the most likely moves repeat themselves: --temperature 1 draws them as in training")
    if cut := int(results.is_cut.sum()):
        print(f"  {cut:,} games did not end in time and count with their returns so far; --max-steps moves the bound")
    for note in results.notes:
        print(f"  {printable(note)}")


def _repeats_itself(player: object) -> bool:
    return isinstance(player, NetworkPlayer) and player.temperature.start == 0


def _score_text(score: Score) -> str:
    """Games, and the shares won, drawn and lost with their intervals, as cells of a table."""
    cells = []
    for count in (score.wins, score.draws, score.losses):
        low, high = wilson_interval(count, score.games)
        share = 100 * count / max(1, score.games)
        cells.append(f"{f'{share:5.1f} % ({100 * low:.1f} to {100 * high:.1f})':<25}")
    return f"{score.games:>7,}   {' '.join(cells)}".rstrip()
