"""`scramjet eval`: play a trained agent and print its mean return, show it as text, or have it play another."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import replace

from scramjet.arena.head_to_head import prepare_match
from scramjet.arena.network_players import Temperature
from scramjet.arena.play.watching import watch_match
from scramjet.commands.arguments.env_parameters import typed_parameters
from scramjet.commands.arguments.eval import Arguments
from scramjet.commands.arguments.search import path_and_search
from scramjet.commands.output.eval_against import print_match
from scramjet.commands.output.eval_video import frame_counter, print_recording, write_match_video
from scramjet.errors import ConfigError, printable
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.runtime.terminal import is_screen, show_over, shown_in
from scramjet.runtime.video.video_file import check_rate, check_video
from scramjet.telemetry.readable import short_path
from scramjet.training.components import make_evaluator
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluation.evaluator import Evaluator, ProgressLine, cuts_text
from scramjet.training.evaluation.results import Evaluation
from scramjet.training.pictures.recording import checked_cells, record_policy
from scramjet.training.pictures.stages import Drawing, play, rate_of
from scramjet.training.playing import checked_episodes, load_trained, note_on_played, search_settings, with_evaluation
from scramjet.training.seeds import unseen_episodes
from scramjet.training.worlds.world_files import shown_name


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
