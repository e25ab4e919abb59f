"""`scramjet grade`: compare a player's moves in Connect Four with perfect play."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from scramjet.arena.grading import Grades, check_world, grade_player, grade_policy
from scramjet.arena.players import PERFECT, SearchPlayer, load_player
from scramjet.commands.arguments.search import path_and_search
from scramjet.commands.command_line import parse
from scramjet.errors import ConfigError, printable
from scramjet.players.registry import scripted_player
from scramjet.runtime.outputs import check_output, write_output
from scramjet.search.specs import parse_search
from scramjet.settings import Positional
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluation.searching import search_settings
from scramjet.training.playing import load_trained

DESCRIPTION = """Grade the moves of a player of Connect Four (6 x 7) by perfect play, with or without search.

In 6,000 positions of six classes: the share of moves that keep the value of the game, and the share that also win as
soon or lose as late as can be, beside what random legal moves would reach.

  scramjet grade runs/connect_four-1
  scramjet grade runs/connect_four-1/checkpoints/best --json
  scramjet grade runs/connect_four-1 --markdown grades.md
  scramjet grade runs/connect_four-1 --search alphazero:64
  scramjet grade minimax:3                       or random, greedy, perfect, FILE.py:Name
"""


@dataclass(frozen=True)
class Arguments:
    """Whom to grade, and how to show it."""

    player: Annotated[str, Positional("RUN")]
    """A run (its newest checkpoint is graded), a checkpoint, random, greedy, minimax:N, perfect, or FILE.py:Name."""
    search: str | None = None
    """Choose moves by search with the network: alphazero:SIMULATIONS or spo:PARTICLESxDEPTH; none: the network
    alone."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for a run given by its name."""
    json: bool = False
    """Print one JSON object instead of a table."""
    markdown: Path | None = None
    """Write the table to this file, too."""
    seed: int = 0
    """Decides what is random in the moves of searches and of players that are no network."""
    env: str | None = None
    """A world in place of the one that the checkpoint names, such as the file it is in now."""
    trust: bool = False
    """Let the checkpoint name a world in a file or module that you have not named yourself: it is run."""


def grade_command(words: list[str]) -> int:
    """Run `scramjet grade ...`; returns the exit code."""
    arguments = parse(Arguments, words, prog="scramjet grade", description=DESCRIPTION)
    if arguments.seed < 0:
        raise ConfigError(f"seed={arguments.seed} must be 0 or more")
    if arguments.markdown is not None:
        check_output(arguments.markdown)
    facts, grades = _graded(arguments)
    table = grades.markdown()
    if arguments.markdown is not None:
        write_output(arguments.markdown, f"{table}\n".encode())
    if arguments.json:
        print(json.dumps({**facts, "grades": grades.as_dict()}))
    else:
        step = f" at step {facts['step']:,}" if "step" in facts else ""
        step += f" with {facts['search']}" if "search" in facts else ""
        print(printable(f"{facts.get('checkpoint', facts['player'])}{step}, moves judged by perfect play:"))
        print(f"\n{table}")
    return 0


def _graded(arguments: Arguments) -> tuple[dict[str, Any], Grades]:
    """What was graded, by name, and its grades."""
    text, search_text = path_and_search(arguments.player, arguments.search, arguments.runs_dir)
    player = load_player(text, RunConfig(env="connect_four")) if text == PERFECT else scripted_player(text)
    if player is not None:
        if parse_search(search_text) is not None:
            raise ConfigError(f"--search {search_text} looks ahead with a network, and {text} is none; give a RUN")
        return {"player": text}, grade_player(player, arguments.seed)
    policy, config, checkpoint = load_trained(
        text, runs_dir=arguments.runs_dir, env=arguments.env, trust=arguments.trust
    )
    check_world(config.make_env())
    facts = {"player": text, "checkpoint": str(checkpoint.path), "step": checkpoint.step}
    search = search_settings(search_text, policy, config, checkpoint)
    if search is None:
        return facts, grade_policy(policy)
    return {**facts, "search": search.spec.text}, grade_player(SearchPlayer(policy, text, search), arguments.seed)
