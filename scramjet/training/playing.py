"""Use a trained policy: load it from a run or a checkpoint, evaluate it, search with it."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from scramjet.adapters.world_code import code_of
from scramjet.engine.privileged import shown_space
from scramjet.envs.api import Env
from scramjet.envs.registry import stop_if_being_read
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies.networks import default_network
from scramjet.policies.normalization import make_normalizer
from scramjet.policies.policy import Policy
from scramjet.policies.symmetries import SymmetryTables, with_symmetries
from scramjet.runs.metadata import check_network_is_given, env_terms, facts_of, find_checkpoint, policy_spaces, run_of
from scramjet.runs.results import Evaluation
from scramjet.runs.weights import check_weights, give_returns, load_weights
from scramjet.runs.world_files import note_on_world
from scramjet.runs.world_trust import Caller, world_of
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.runtime.trust import said
from scramjet.search.requirements import check_searchable, note_on_chance
from scramjet.search.rows import SearchSettings
from scramjet.search.search import Rewards
from scramjet.search.specs import parse_search
from scramjet.settings import MAX_COUNT, coerce
from scramjet.training.checkpoint_config import check_fits, checkpoint_config, checkpoint_settings, reward_divisor_of
from scramjet.training.components import make_evaluator, make_policy, policy_for
from scramjet.training.config.changes import changes
from scramjet.training.config.run_config import MAX_SEED, RunConfig
from scramjet.training.seeds import unseen_episodes

if TYPE_CHECKING:
    from scramjet.adapters.objects import World


ETA = "spo/eta"
"""The trainer's tensor that holds the temperature of a run of SPO."""


# --- loading


def load_policy(
    path: str | PathLike[str],
    network: nn.Module | None = None,
    env: World | None = None,
    *,
    trust: bool = False,
) -> Policy:
    """The policy of a run (its newest checkpoint) or of a checkpoint.

    The world is not loaded, but for old checkpoints that do not record the policy's spaces; `trust` lets such a
    checkpoint of somebody else name a world in a file or module, which runs it. `env` is a world in place of the one
    that the checkpoint names: with it, the policy is checked to fit that world.
    """
    run_path: Path = coerce("path", path, Path)
    network = coerce("network", network, nn.Module | None)
    checkpoint = find_checkpoint(run_path, Path("runs"))
    settings = checkpoint_settings(checkpoint)
    spaces = policy_spaces(checkpoint)
    if spaces is None or env is not None:
        return load_trained(path, network, env=env, trust=trust)[0]
    check_network_is_given(checkpoint, network)
    if network is None:
        _check_default_network(checkpoint, spaces, settings)
    policy = policy_for(*spaces, settings, network, symmetries=_kept_symmetries(checkpoint, settings))
    policy.env_spaces = env_terms(checkpoint, spaces, settings.frame_stack)
    load_weights(policy, checkpoint)
    give_returns(policy, checkpoint, settings.ppo.value_scale)
    policy.facts = facts_of(checkpoint.metadata, checkpoint.step, run_of(checkpoint))
    return policy.eval()


def _check_default_network(checkpoint: Checkpoint, spaces: tuple[Any, Any], settings: RunConfig) -> None:
    """Refuse settings whose network does not fit the checkpoint's tensors, before memory is taken for it."""
    symmetries = _kept_symmetries(checkpoint, settings)
    with torch.device("meta"):  # shapes without numbers
        network = default_network(*spaces, settings.policy)
        normalizer = make_normalizer(spaces[0]) if settings.ppo.normalize_observations else None
        if symmetries is not None:
            network = with_symmetries(network, settings.policy.symmetry, symmetries)
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    if normalizer is not None:
        tensors |= {f"normalizer.{name}": tensor for name, tensor in normalizer.state_dict().items()}
    check_weights(tensors, checkpoint)


def _kept_symmetries(checkpoint: Checkpoint, settings: RunConfig) -> SymmetryTables | None:
    """The symmetries that a checkpoint's network was trained with; None if it uses none."""
    if settings.policy.symmetry == "none":
        return None
    names = [f"network.tables.{name}" for name in ("obs_sources", "action_sources")]
    for name in names:
        table = checkpoint.model.get(name)
        numbers = None if table is None or table.ndim != 2 else torch.arange(table.shape[1])
        if table is None or numbers is None or not torch.equal(table.sort(1).values, numbers.expand(table.shape)):
            raise CheckpointError(
                f"'{checkpoint.path}' holds no symmetries of a board: {name} does not only move things"
            )
    return SymmetryTables(*(checkpoint.model[name] for name in names))


def load_trained(
    path: str | PathLike[str],
    network: nn.Module | None = None,
    runs_dir: str | Path = "runs",
    env: World | None = None,
    *,
    choose_parameters: Callable[[str], Mapping[str, Any]] | None = None,
    trust: bool = False,
) -> tuple[Policy, RunConfig, Checkpoint]:
    """A checkpoint's policy, ready to play its world, the config it was trained with, and the checkpoint.

    `env` is a world in place of the one that the checkpoint names, with the same parameters. `choose_parameters` is
    called with the world's name and returns the parameters to change.
    """
    network, trust = coerce("network", network, nn.Module | None), coerce("trust", trust, bool)
    checkpoint = find_checkpoint(coerce("path", path, Path), coerce("runs_dir", runs_dir, Path))
    world = None if env is None else world_of(env)
    caller = Caller(said(trust), None if world is None else world.name, keeps_parameters=True, only_plays=True)
    config = checkpoint_config(checkpoint, caller)
    chosen = {} if world is None or world.parameters is None else dict(world.parameters)
    if choose_parameters is not None:
        chosen |= choose_parameters(config.env)
    if chosen:
        config = _with_parameters(config, chosen, checkpoint)
    check_fits(checkpoint, config, network)
    policy = make_policy(config, network)
    load_weights(policy, checkpoint)
    give_returns(policy, checkpoint, config.ppo.value_scale)
    policy.facts = facts_of(checkpoint.metadata, checkpoint.step, run_of(checkpoint))
    return policy.eval(), config, checkpoint


def _with_parameters(config: RunConfig, chosen: Mapping[str, Any], checkpoint: Checkpoint) -> RunConfig:
    """The config with other parameters of its world; refuses those that change its spaces."""
    changed = replace(config, env_parameters={**config.env_parameters, **chosen})
    world = changed.make_env()
    for kind, space in (("observation_space", shown_space(world)), ("action_space", world.action_space)):
        here, there = repr(space), checkpoint.metadata[kind]
        if here != there:
            given = " ".join(f"--env.{name.replace('_', '-')} {value}" for name, value in chosen.items())
            raise ConfigError(
                f"{given} changes the {kind.replace('_', ' ')} of {config.env}: the policy was trained on {there}, and "
                f"this world has {here}; only parameters that keep it can change"
            )
    return changed


# --- evaluating


def evaluate(
    path: str | PathLike[str],
    episodes: int = 100,
    seed: int | None = None,
    network: nn.Module | None = None,
    env: World | None = None,
    *,
    env_parameters: Mapping[str, Any] | None = None,
    samples: bool | None = None,
    max_steps: int | None = None,
    search: str | None = None,
    trust: bool = False,
) -> Evaluation:
    """Play a run's or checkpoint's most likely actions for some episodes; `scramjet eval` from Python.

    `network` is what `train` was given, where that was a module; `env` a world in place of the one that the checkpoint
    names, such as the function that `train` was given. `env_parameters` change parameters of the world, such as the
    opponent of a game. `samples` draws actions as in training, `max_steps` cuts episodes that have not ended after so
    many steps; both are otherwise as in the run's config. `search` chooses actions by search with the policy:
    "alphazero:64" or "spo:16x4". `trust` lets a checkpoint of somebody else name a world in a
    file or module, which runs it.
    """
    stop_if_being_read()
    episodes, seed = checked_episodes(episodes, seed)
    chosen = None if env_parameters is None else coerce("env_parameters", env_parameters, dict[str, Any])
    policy, config, checkpoint = load_trained(
        path, network, env=env, choose_parameters=None if chosen is None else lambda name: chosen, trust=trust
    )
    if chosen is None and (note := note_on_played(config, checkpoint)):
        warnings.warn(note, stacklevel=2)
    chosen_seed = config.seed if seed is None else seed
    settings = search_settings(search, policy, config, checkpoint)
    config = with_evaluation(config, samples, max_steps, searches=settings is not None)
    evaluator = make_evaluator(config, episodes=episodes, search=settings)
    with contextlib.closing(evaluator.pool):
        return evaluator(policy, unseen_episodes(chosen_seed))


def with_evaluation(
    config: RunConfig, samples: bool | None, max_steps: int | None, *, searches: bool = False
) -> RunConfig:
    """The config with other settings of evaluation; None keeps a setting. Who `searches` does not draw actions."""
    if samples and searches:
        raise ConfigError("samples draws actions from the policy, and search chooses them; give one of them")
    given: dict[str, Any] = {"samples": samples, "max_steps": max_steps}
    return replace(
        config, eval=replace(config.eval, **{key: value for key, value in given.items() if value is not None})
    )


def note_on_played(config: RunConfig, checkpoint: Checkpoint) -> str:
    """One line if the world is a user's code that has changed or moved since the checkpoint was made, else "".

    Rules with other parameters than the checkpoint's are not compared.
    """
    recorded = {key: value for key, value in checkpoint.metadata["config"]["env"].items() if key != "name"}
    if changes(recorded, config.env_parameters):
        return ""
    return note_on_world(config.env, config.make_env(), checkpoint.metadata["rules"]) if code_of(config.env) else ""


def checked_episodes(episodes: int, seed: int | None) -> tuple[int, int | None]:
    """The number of episodes and the seed as Python numbers; raises a ConfigError for anything else."""
    episodes, seed = coerce("episodes", episodes, int), coerce("seed", seed, int | None)
    if not 1 <= episodes <= MAX_COUNT:
        raise ConfigError(f"episodes={episodes} must be from 1 to {MAX_COUNT}")
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed={seed} must be from 0 to 2**62 - 1")
    return episodes, seed


# --- searching, by what a checkpoint says of the rewards that its values are made of


def search_settings(search: Any, policy: Policy, config: RunConfig, checkpoint: Checkpoint) -> SearchSettings | None:
    """The search that a text such as "alphazero:64" means for a checkpoint's policy; None where it means none.

    `config` has the world that is played. Raises a ConfigError if it cannot be searched with this policy.
    """
    spec = parse_search(search)
    if spec is None:
        return None
    world = config.make_env()
    check_searchable(world, policy, spec.kind)
    assert isinstance(world, Env)
    trained = checkpoint_settings(checkpoint)
    factor = torch.tensor([_reward_factor(trained, checkpoint)])
    rewards = Rewards.of(trained.ppo, factor)
    base = trained.alphazero if spec.kind == "alphazero" else trained.spo
    return SearchSettings(spec, rewards, base, _temperature(checkpoint), note_on_chance(world, spec.kind))


def _reward_factor(config: RunConfig, checkpoint: Checkpoint) -> float:
    """What a reward is multiplied with to be one of those that the policy's values are made of."""
    if not config.ppo.normalize_rewards:
        return 1.0
    divisor = reward_divisor_of(checkpoint)
    if divisor is None:
        raise ConfigError(
            f"{checkpoint.path} does not say how its rewards were scaled (normalize_rewards), so a search cannot add "
            f"them to its values; give a checkpoint of the run itself, RUN/checkpoints/step_..."
        )
    return 1.0 / divisor


def _temperature(checkpoint: Checkpoint) -> float | None:
    """SPO's temperature as it was learned; None where the checkpoint has none."""
    eta = checkpoint.trainer.get(ETA)
    if eta is None or eta.numel() != 1:
        return None
    temperature = float(eta)
    return temperature if math.isfinite(temperature) and temperature > 0 else None
