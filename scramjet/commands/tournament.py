"""`scramjet tournament`: have checkpoints and other players meet, and rate them by their games."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scramjet.arena.network_players import Temperature
from scramjet.arena.tournaments.preparation import (
    RANDOM,
    Entrant,
    TournamentSettings,
    gather_entrants,
    prepare_tournament,
    tournament_world,
)
from scramjet.arena.tournaments.ratings import RatingTable, check_plot_path, rating_plot, rating_table, table_text
from scramjet.arena.tournaments.tournament import Style, Tournament
from scramjet.commands.arguments.env_parameters import typed_parameters
from scramjet.commands.arguments.tournament import Arguments
from scramjet.errors import ConfigError, printable
from scramjet.runs.world_files import shown_name
from scramjet.runtime.files import output_file, write_output
from scramjet.runtime.terminal import show_over
from scramjet.search.specs import parse_search


def tournament_command(arguments: Arguments, env_values: dict[str, str]) -> int:
    """Run `scramjet tournament ...`; returns the exit code."""
    settings = _settings(arguments)
    if arguments.plot is not None:
        check_plot_path(arguments.plot)
    names = [*arguments.players, *([RANDOM] if arguments.random else [])]
    entrants = gather_entrants(
        arguments.runs,
        names,
        runs_dir=arguments.runs_dir,
        limit_per_run=arguments.limit_per_run,
        search=parse_search(arguments.search),
    )
    if arguments.plot is not None and not any(entrant.run for entrant in entrants):
        raise ConfigError("--plot shows ratings of checkpoints against their training steps; give a RUN")
    config, note = tournament_world(
        entrants,
        env=arguments.env,
        choose_parameters=(lambda name: typed_parameters(name, env_values)) if env_values else None,
        trust=arguments.trust,
    )
    if note:
        print(printable(note), file=sys.stderr, flush=True)
    out = arguments.runs_dir / "tournaments" if arguments.out is None else arguments.out
    if out.suffix == ".jsonl" and out.is_symlink():
        out = output_file(out)
    tournament = prepare_tournament(entrants, config, settings, out=out)
    with contextlib.closing(tournament.pool), contextlib.closing(tournament.log):
        is_complete = _play(tournament, settings.max_steps)
        _show(tournament, entrants, shown_name(config.env), arguments, is_complete)
    return 0 if is_complete else 130


def _settings(arguments: Arguments) -> TournamentSettings:
    """How to play, checked."""
    if arguments.round_robin and arguments.swiss:
        raise ConfigError("--round-robin has everybody meet everybody, --swiss only those of equal success; give one")
    style: Style | None = "round-robin" if arguments.round_robin else "swiss" if arguments.swiss else None
    temperature = Temperature(arguments.temperature, arguments.temperature_final, arguments.temperature_cutoff)
    return TournamentSettings(
        temperature, style, arguments.rounds, arguments.games, arguments.seed, arguments.max_steps
    )


def _play(tournament: Tournament, max_steps: int | None) -> bool:
    """Play what is left and show the progress; returns False after Ctrl-C."""
    num_before = sum(batch.num_games for batch in tournament.log.batches)
    begun_at = time.monotonic()

    def report(played: int, total: int) -> None:
        seconds = (time.monotonic() - begun_at) * (total - played) / max(1, played - num_before)
        show_over(f"playing: {played:,} of {total:,} games, {duration(seconds)} left")

    try:
        tournament.play(report, max_steps=max_steps)
    except KeyboardInterrupt:
        return False
    finally:
        show_over("")
    return True


def _show(
    tournament: Tournament, entrants: Sequence[Entrant], world: str, arguments: Arguments, is_complete: bool
) -> None:
    """Print the ratings by what was played, and draw them where that is asked for."""
    plan, log = tournament.plan, tournament.log
    if not is_complete:
        left = plan.num_games - sum(batch.num_games for batch in log.batches)
        print(f"stopped with {left:,} of {plan.num_games:,} games to play; the same command goes on from there",
              file=sys.stderr)  # fmt: skip
    if not log.batches:
        return
    table = rating_table(entrants, log.batches, seed=plan.seed)
    rounds = "1 round" if plan.num_rounds == 1 else f"{plan.num_rounds} rounds"
    title = f"{world}: {len(entrants)} players, {table.num_games:,} games, {plan.style} in {rounds}"
    if arguments.json:
        facts = {"world": world, "style": plan.style, "rounds": plan.num_rounds, "is_complete": is_complete}
        print(json.dumps({**facts, "file": str(log.path), **table.as_dict()}))
    else:
        print("\n".join(printable(line) for line in [title, "", *table_text(table), f"Games: {log.path}"]))
    if arguments.plot is not None:
        _draw(table, title, arguments.plot)


def _draw(table: RatingTable, title: str, path: Path) -> None:
    write_output(path, rating_plot(table, title).encode())
    print(printable(f"plot: {path}"), file=sys.stderr)


def duration(seconds: float) -> str:
    """A time in minutes and seconds, or in hours and minutes."""
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
