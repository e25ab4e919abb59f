"""Builds the opponents and the league of a run from its config."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from scramjet.adapters.registry import is_foreign
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.wrappers import ConcatenatedPool
from scramjet.envs.api import Discrete
from scramjet.errors import ConfigError, ScramjetError, shortened
from scramjet.players.player import Player
from scramjet.players.scripted import SCRIPTED, RandomPlayer, scripted_player
from scramjet.policies.policy import Policy
from scramjet.runs.metadata import find_checkpoint
from scramjet.runs.weights import check_weights
from scramjet.runtime.machine import require_memory
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.selfplay.members import Member, MemberFiles, plain_weights, step_folders
from scramjet.training.checkpoint_config import check_fits
from scramjet.training.config.run_config import RunConfig
from scramjet.training.self_play.exploiter import Exploiter
from scramjet.training.self_play.league import League
from scramjet.training.self_play.opponents import GroupSize, Opponents


def make_league(
    config: RunConfig,
    run: Path,
    pool: Pool,
    policy: Policy,
    network: nn.Module | None,
    opponents: Sequence[Opponents],
    metadata: Callable[[], Mapping[str, Any]],
    *,
    seed: int,
) -> League:
    """The league of a run; `run` is the run's folder, `metadata` describes the policy for a file of its own."""
    is_new = not step_folders(run / "checkpoints")
    given = given_members(config, pool, policy, network, run.parent, loads=is_new)
    return League(
        config.self_play,
        policy,
        opponents,
        given,
        MemberFiles(run),
        metadata,
        seed=(seed ^ 0x5E1F) % 2**62,
        exploiter=Exploiter(config, policy, seed) if config.self_play.exploiters else None,
    )


# --- opponents that the user gives: runs, checkpoints and scripted players


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


# --- opponents in the envs of each pool


def seat_opponents(config: RunConfig, pool: Pool, policy: Policy, seed: int) -> list[Opponents]:
    """The opponents of each pool that steps, without members yet: none where the config asks for none."""
    settings = config.self_play
    if not settings.is_used:
        return []
    _check_world(config, pool)
    assert isinstance(config.num_steps, int)
    pools: Sequence[Pool] = [pool]
    if isinstance(pool, ConcatenatedPool):  # actors choose actions on the CPU
        pools, policy = pool.pools, copy.deepcopy(policy).cpu()
    num_sets = settings.pool_size + len(settings.opponents) + 2 * settings.opponents_at_once * len(pools)
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in policy.state_dict().values())
    require_memory(
        num_bytes * num_sets,
        f"self_play.pool_size={settings.pool_size} with networks of {num_bytes:,} bytes",
        "lower --self-play.pool-size or --self-play.opponents-at-once",
    )
    return [
        Opponents(
            each,
            policy,
            group_sizes(settings, each.num_envs),
            config.num_steps,
            fused=config.fused,
            seed=(seed + 7919 * (i + 1)) % 2**62,
        )
        for i, each in enumerate(pools)
    ]


def group_sizes(settings: SelfPlayConfig, num_envs: int) -> list[GroupSize]:
    """Which envs of a pool play against whom: first those against the pool, then those against given opponents."""
    sizes = _sizes(settings, num_envs)
    if not _fit(sizes, num_envs):
        enough = next((n for n in (num_envs << i for i in range(1, 12)) if _fit(_sizes(settings, n), n)), None)
        fix = "lower --self-play.pool-fraction or --self-play.fixed-fraction"
        raise ConfigError(
            f"num_envs={num_envs} cannot be divided among {' and '.join(str(each.num_slots) for each in sizes)} "
            f"opponents at once as self_play.pool_fraction={settings.pool_fraction:g} and fixed_fraction="
            f"{settings.fixed_fraction:g} ask; {fix if enough is None else f'use --num-envs {enough}, or {fix}'}"
        )
    return sizes


def _sizes(settings: SelfPlayConfig, num_envs: int) -> list[GroupSize]:
    """The groups of envs, whether or not there are enough envs: whole envs for each opponent, at least one."""
    sizes, first = [], 0
    for share, slots, generations in (
        (settings.pool_fraction, settings.opponents_at_once, 2),
        (settings.fixed_fraction, len(settings.opponents), 1),
    ):
        if share:
            envs = max(1, round(share * num_envs / slots)) * slots
            sizes.append(GroupSize(first, envs, slots, generations))
            first += envs
    return sizes


def _fit(sizes: list[GroupSize], num_envs: int) -> bool:
    return sizes[-1].first_env + sizes[-1].num_envs <= num_envs


def _check_world(config: RunConfig, pool: Pool) -> None:
    """Refuse self-play where nobody else plays, or where it cannot be done."""
    if pool.played_by is PlayedBy.ONE or pool.num_players < 2:
        hint = ""
        if config.env_parameters.get("random_opponent"):
            hint = "; with --env.no-random-opponent both seats are played"
        raise ConfigError(
            f"self-play needs a world with several seats or agents, and {config.env} is played by one{hint}; leave "
            f"--self-play.pool-fraction and --self-play.fixed-fraction out"
        )
    if config.mode == "async" and config.self_play.exploiters:
        raise ConfigError("self_play.exploiters learn between updates, and mode='async' has none; use --mode sync")
    if config.actors == "ray":
        raise ConfigError("self-play against others has its opponents in this process; use --actors local")
    if config.mode == "async" and is_foreign(config.env):
        raise ConfigError(
            f"mode='async' has no opponents in envs of other libraries such as {config.env}; use --mode sync"
        )
