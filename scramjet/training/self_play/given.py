"""Opponents that the user gives: runs, checkpoints and scripted players."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from scramjet.engine.pool import Pool
from scramjet.envs.api import Discrete
from scramjet.errors import ConfigError, ScramjetError, shortened
from scramjet.players.player import Player
from scramjet.players.registry import SCRIPTED, scripted_player
from scramjet.players.scripted import RandomPlayer
from scramjet.policies.policy import Policy
from scramjet.training.config.run_config import RunConfig
from scramjet.training.persistence.checkpoint_facts import check_fits, find_checkpoint
from scramjet.training.persistence.weights import check_weights
from scramjet.training.self_play.members import Member, plain_weights


def given_members(
    config: RunConfig, pool: Pool, policy: Policy, network: nn.Module | None, runs_dir: Path, *, loads: bool
) -> list[Member]:
    """The members of the pool that the config names, in its order.

    `loads`: read the checkpoints among them; a resumed run does not, since its own folder holds them.
    """
    members: list[Member] = []
    for number, spec in enumerate(config.self_play.opponents):
        player = scripted_player(spec)
        if player is not None:
            members.append(_scripted_member(number, spec, player, pool, config))
        elif spec == "perfect":
            raise ConfigError(
                "self_play.opponents has perfect, which is too slow to train against; give minimax:3, a run or a "
                "checkpoint, and measure with scramjet eval RUN --against perfect"
            )
        elif loads:
            members.append(_checkpoint_member(number, spec, config, policy, network, runs_dir))
    return members


def _scripted_member(number: int, spec: str, player: Player, pool: Pool, config: RunConfig) -> Member:
    """A scripted player as a member; random moves are drawn where the policies' actions are, on the GPU too."""
    is_random = isinstance(player, RandomPlayer)
    if not is_random and config.device != "cpu":
        raise ConfigError(
            f"the opponent {spec} looks at games on the CPU, and this run is on the GPU; use --device cpu, or give "
            f"random, a run or a checkpoint in its place"
        )
    if not is_random and not isinstance(pool.action_space, Discrete):
        raise ConfigError(f"the opponent {spec} needs a Discrete action space, and {pool.name} has {pool.action_space}")
    rating = 1000.0 if is_random else None
    return Member(number, spec, "player", 0, rating=rating, player=None if is_random else player)


def _checkpoint_member(
    number: int, spec: str, config: RunConfig, policy: Policy, network: nn.Module | None, runs_dir: Path
) -> Member:
    """The policy of a run or checkpoint as a member; refuses one of another world or network."""
    try:
        checkpoint = find_checkpoint(spec, runs_dir)
        check_fits(checkpoint, config, network)
        check_weights(policy.state_dict(), checkpoint)
    except ScramjetError as error:
        raise ConfigError(
            f"self_play.opponents has {shortened(spec)}, which cannot play here: {error} (players are "
            f"{', '.join(SCRIPTED)}, module:Name, runs and checkpoints)"
        ) from error
    return Member(number, spec, "given", 0, weights=plain_weights(checkpoint.model))
