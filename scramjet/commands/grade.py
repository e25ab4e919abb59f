"""`scramjet grade`: compare a player's moves in Connect Four with perfect play."""

from __future__ import annotations

import json
from typing import Any

from scramjet.arena.grading import Grades, check_world, grade_player, grade_policy
from scramjet.arena.network_players import SearchPlayer, load_player
from scramjet.commands.arguments.grade import Arguments
from scramjet.commands.arguments.search import path_and_search
from scramjet.errors import ConfigError, printable
from scramjet.players.scripted import PERFECT, scripted_player
from scramjet.runtime.files import check_output, write_output
from scramjet.search.specs import parse_search
from scramjet.training.config.run_config import RunConfig
from scramjet.training.playing import load_trained, search_settings


def grade_command(arguments: Arguments) -> int:
    """Run `scramjet grade ...`; returns the exit code."""
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
