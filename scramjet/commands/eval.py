"""`scramjet eval`: play a trained agent and print its mean return, show it as text, or have it play another."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from scramjet.algorithms.intervals import wilson_interval
from scramjet.arena.head_to_head import Match, MatchResult, play_prepared, prepare_match
from scramjet.arena.matches import Score
from scramjet.arena.network_players import NetworkPlayer, SearchPlayer, Temperature
from scramjet.arena.play.watching import record_match, watch_match
from scramjet.commands.arguments.env_parameters import typed_parameters
from scramjet.commands.arguments.eval import Arguments
from scramjet.commands.arguments.search import path_and_search
from scramjet.errors import ConfigError, printable
from scramjet.runs.results import Evaluation
from scramjet.runs.world_files import shown_name
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.runtime.terminal import is_screen, show_over, shown_in
from scramjet.runtime.video.video_file import check_rate, check_video
from scramjet.telemetry.readable import short_path
from scramjet.training.components import make_evaluator
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluator import Evaluator, ProgressLine, cuts_text
from scramjet.training.pictures.recording import Recording, checked_cells, record_policy
from scramjet.training.pictures.stages import Drawing, play, rate_of
from scramjet.training.playing import checked_episodes, load_trained, note_on_played, search_settings, with_evaluation
from scramjet.training.seeds import unseen_episodes


def eval_command(arguments: Arguments, env_values: dict[str, str]) -> int:
    """Run `scramjet eval ...`; returns the exit code."""
    path, search_text = path_and_search(arguments.path, arguments.search, arguments.runs_dir)
    arguments = replace(arguments, path=path, search=search_text)
    _check_output(arguments)
    if arguments.against is not None:
        return _eval_against(arguments, arguments.against, env_values)
    if arguments.step:
        raise ConfigError("--step waits after each move of a game against another; add --against PLAYER")
    _refuse_without(arguments, "--against PLAYER", "games", "temperature", "temperature_final", "temperature_cutoff")
    usual = 100 if arguments.video is None and not arguments.render else 1
    checked = checked_episodes if arguments.video is None else checked_cells
    episodes, seed = checked(usual if arguments.episodes is None else arguments.episodes, arguments.seed)
    policy, config, checkpoint = load_trained(
        arguments.path,
        runs_dir=arguments.runs_dir,
        env=arguments.env,
        choose_parameters=(lambda name: typed_parameters(name, env_values)) if env_values else None,
        trust=arguments.trust,
    )
    if not env_values and (note := note_on_played(config, checkpoint)):
        print(printable(note), file=sys.stderr, flush=True)
    search = search_settings(arguments.search, policy, config, checkpoint)
    if search is not None and search.note:
        print(printable(search.note), file=sys.stderr, flush=True)
    config = with_evaluation(config, arguments.samples or None, arguments.max_steps, searches=search is not None)
    seed = config.seed if seed is None else seed
    if arguments.render:
        rate = arguments.fps or rate_of(config.make_env())
        for drawing, total, step, ended in play(policy, config, seed, episodes, search):
            _show(drawing, total, step, ended, rate)
        return 0
    if arguments.video is not None:
        recording = record_policy(
            policy, config, arguments.video, episodes=episodes, seed=seed, fps=arguments.fps, search=search,
            progress=frame_counter(show_over),
        )  # fmt: skip
        print_recording(recording, checkpoint, as_json=arguments.json, show_progress=show_over)
        return 0
    evaluator = make_evaluator(config, episodes=episodes, search=search)
    progress = ProgressLine(show_over)
    with contextlib.closing(evaluator.pool), contextlib.closing(progress):
        evaluation = evaluator(policy, unseen_episodes(seed), progress)
    if arguments.json:
        facts = {"checkpoint": str(checkpoint.path), "step": checkpoint.step}
        facts |= {} if search is None else {"search": search.spec.text}
        print(json.dumps({**facts, **evaluation.as_dict()}))
    else:
        _print_evaluation(evaluation, checkpoint, config, evaluator)
    return 0


def _eval_against(arguments: Arguments, against: str, env_values: dict[str, str]) -> int:
    """Play a match against another player and print how it went."""
    if arguments.episodes is not None:
        raise ConfigError(f"--episodes {arguments.episodes} is for an agent by itself; against another: --games")
    if arguments.step and not arguments.render:
        raise ConfigError("--step waits after each move that is shown; add --render")
    usual = 1.0 if arguments.samples else 0.0
    first = usual if arguments.temperature is None else arguments.temperature
    match = prepare_match(
        arguments.path,
        against,
        temperature=Temperature(first, arguments.temperature_final, arguments.temperature_cutoff),
        runs_dir=arguments.runs_dir,
        env=arguments.env,
        choose_parameters=(lambda name: typed_parameters(name, env_values)) if env_values else None,
        search=arguments.search,
        trust=arguments.trust,
    )
    if arguments.render:
        return watch_match(match, arguments.games, seed=arguments.seed, by_steps=arguments.step)
    if arguments.video is not None:
        return write_match_video(
            match, arguments.games, arguments.video, seed=arguments.seed, fps=arguments.fps, as_json=arguments.json,
            show_progress=show_over,
        )  # fmt: skip
    return print_match(
        match,
        arguments.games,
        seed=arguments.seed,
        max_steps=arguments.max_steps,
        as_json=arguments.json,
        show_progress=show_over,
    )


def _check_output(arguments: Arguments) -> None:
    """Refuse kinds of output that exclude each other, and a video that cannot be written, before anything is played."""
    if arguments.render and arguments.json:
        raise ConfigError("--render shows a game and --json prints numbers; give one of them")
    if arguments.video is None:
        if not arguments.render or arguments.against is not None:
            _refuse_without(arguments, "--video FILE, or --render without --against", "fps")
        check_rate(arguments.fps)
        return
    if arguments.render:
        raise ConfigError("--render shows a game in the terminal and --video writes a file; give one of them")
    check_video(arguments.video, arguments.fps)


def _refuse_without(arguments: Arguments, needed: str, *names: str) -> None:
    """Refuse arguments that mean nothing without another one."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(arguments, name)} needs {needed}")


def _print_evaluation(evaluation: Evaluation, checkpoint: Checkpoint, config: RunConfig, evaluator: Evaluator) -> None:
    """Print an evaluation as text: its mean return and length, the world's statistics, and a note on cut episodes."""
    search = "" if evaluator.search is None else f" with {evaluator.search.spec.text}"
    played = f"{evaluation.episodes} episodes of {shown_name(config.env)}"
    print(printable(f"{short_path(checkpoint.path)} at step {checkpoint.step:,}{search}, {played}:"))
    print(f"  mean return  {evaluation.text}")
    print(f"  mean length  {evaluation.mean_length:.1f}")
    width = max((12, *map(len, evaluation.stats)))
    for name, value in evaluation.stats.items():
        print(f"  {printable(name):<{width}} {value:.3f}")
    if evaluation.cut_episodes:
        print(f"  {cuts_text(evaluation, evaluator.max_steps, prefix='--')}")


def _show(drawing: Drawing, total: float, step: int, ended: bool, rate: float) -> None:
    """Draw a frame over the last one in a terminal, `rate` of them a second; elsewhere print only the last frame of
    each episode."""
    caption = f"step {step}   return {total:.2f}{'   (end)' if ended else ''}"
    if is_screen(sys.stdout):
        lines = f"{shown_in(sys.stdout, drawing)}\n{caption}".split("\n")
        print("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines), end="\x1b[J", flush=True)  # does not flicker
        time.sleep(1 / rate)
    elif ended:
        print(f"{shown_in(sys.stdout, drawing)}\n{caption}\n")


# --- videos: `scramjet eval RUN --video FILE`


SECONDS_BETWEEN_LINES = 0.2
RETURNS_SHOWN = 8
"""Episodes whose returns are printed one by one."""


def write_match_video(
    match: Match,
    games: int | None,
    path: Path,
    *,
    seed: int | None,
    fps: float | None,
    as_json: bool,
    show_progress: Callable[[str], None],
) -> int:
    """Write a video of some games of a match and print what is in it; returns the exit code."""
    games, seed = checked_cells(1 if games is None else games, seed)
    for note in match.notes:
        print(printable(note), file=sys.stderr, flush=True)
    seed = match.config.seed if seed is None else seed
    recording = record_match(match, games, path, seed=seed, fps=fps, progress=frame_counter(show_progress))
    print_recording(recording, match.checkpoint, as_json=as_json, show_progress=show_progress)
    return 0


def frame_counter(show_progress: Callable[[str], None]) -> Callable[[int], None]:
    """A function that is called with the number of frames so far and shows it now and then."""
    shown_at = time.monotonic()

    def count(num_frames: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at > SECONDS_BETWEEN_LINES:
            shown_at = time.monotonic()
            show_progress(f"drawing: {num_frames:,} frames")

    return count


def print_recording(
    recording: Recording, checkpoint: Checkpoint, *, as_json: bool, show_progress: Callable[[str], None]
) -> None:
    """Print where a video is, how long it plays, and the returns of its episodes."""
    show_progress("")
    if as_json:
        print(
            json.dumps(
                {
                    "checkpoint": str(checkpoint.path),
                    "step": checkpoint.step,
                    "video": str(recording.path),
                    "frames": recording.num_frames,
                    "frames_per_second": recording.frames_per_second,
                    "returns": recording.returns.tolist(),
                    "lengths": recording.lengths.tolist(),
                }
            )
        )
        return
    rate = f"{recording.frames_per_second:g} a second, {recording.seconds:.1f} s"
    print(printable(f"{recording.path}: {recording.num_frames:,} frames, {rate}"))
    returns = [_text(one) for one in recording.returns[:RETURNS_SHOWN].tolist()]
    more = ", ..." if len(recording.returns) > RETURNS_SHOWN else ""
    mean = (
        f" (mean {recording.returns.mean():.2f})"
        if recording.returns.shape[0] > 1 == recording.returns.shape[1]
        else ""
    )
    print(f"  returns  {', '.join(returns)}{more}{mean}")


def _text(returns: list[float]) -> str:
    """The returns of one episode, those of several players with a stroke between them."""
    return " / ".join(f"{gain:.2f}" for gain in returns)


# --- a match: `scramjet eval RUN --against OTHER`


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
