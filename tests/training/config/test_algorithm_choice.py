"""Which algorithm learns: its preset or its defaults, over what the world's own preset says of world and network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.algorithms.alphazero import AlphaZeroConfig
from scramjet.algorithms.ppo import PPOConfig
from scramjet.algorithms.spo import SPOConfig
from scramjet.commands.train import Place, base_config
from scramjet.errors import ConfigError
from scramjet.training.config.algorithm_choice import SHARED_SETTINGS, with_algorithm
from scramjet.training.config.files import load_config, starting_config
from scramjet.training.config.keywords import with_keywords
from scramjet.training.config.presets import preset_path
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig


@pytest.mark.parametrize("algorithm", ["spo", "alphazero"])
def test_without_a_preset_of_its_own_an_algorithm_keeps_world_and_network_and_leaves_the_rest_to_its_defaults(
    algorithm: str,
) -> None:
    assert preset_path("snake", algorithm) is None
    usual, chosen = starting_config("snake"), starting_config("snake", algorithm=algorithm)
    for name in ("env", "env_parameters", "policy", "total_timesteps"):
        assert getattr(chosen, name) == getattr(usual, name), name
    for name in ("gamma", "gae_lambda", "reward_clip", "normalize_observations", "normalize_rewards"):
        assert getattr(chosen.ppo, name) == getattr(usual.ppo, name), name
    for name in ("learning_rate", "num_epochs", "minibatch_size", "max_grad_norm", "entropy_coef"):
        assert getattr(chosen.ppo, name) == getattr(PPOConfig(), name), name
    assert (chosen.num_envs, chosen.num_steps) == ("auto", "auto")


@pytest.mark.parametrize(
    ("algorithm", "num_envs", "num_steps", "epochs"), [("spo", 768, 21, 16), ("alphazero", 256, 32, 4)]
)
def test_what_is_left_open_becomes_the_algorithms_own_sizes(
    algorithm: str, num_envs: int, num_steps: int, epochs: int
) -> None:
    resolved = resolve(with_algorithm(RunConfig(device="cpu"), algorithm))
    assert (resolved.num_envs, resolved.num_steps, resolved.ppo.num_epochs) == (num_envs, num_steps, epochs)


def test_the_preset_of_world_and_algorithm_is_taken_where_there_is_one() -> None:
    path = preset_path("connect_four", "alphazero")
    assert path is not None
    assert path.name == "connect_four_alphazero.toml"
    chosen = starting_config("connect_four", algorithm="alphazero")
    assert chosen.algorithm == "alphazero"
    assert chosen == load_config(path)
    assert starting_config("connect_four").algorithm == "ppo"


def test_a_file_that_names_the_algorithm_chooses_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('algorithm = "spo"\nenv = "cartpole"\n[spo]\nparticles = 8\n')
    for config in (load_config(file), base_config(None, Place(config=file))):
        assert (config.algorithm, config.spo.particles, config.env) == ("spo", 8, "cartpole")
        assert config.ppo.gamma == starting_config("cartpole").ppo.gamma
    # The command line wins, and what the file says for the other algorithm goes.
    assert base_config(None, Place(config=file), "alphazero").spo == SPOConfig()


def test_keywords_choose_it_beside_dicts_and_config_objects() -> None:
    usual = starting_config("cartpole")
    by_dict = with_keywords(usual, {"algorithm": "spo", "spo": {"particles": 8}})
    by_key = with_keywords(usual, {"algorithm": "spo", "spo.particles": 8})
    by_object = with_keywords(usual, {"algorithm": "spo", "spo": SPOConfig(particles=8)})
    assert by_dict == by_key == by_object
    assert by_object.algorithm == "spo"
    with_loss = with_keywords(usual, {"algorithm": "alphazero", "ppo": PPOConfig(learning_rate=0.5)})
    assert with_loss.ppo.learning_rate == 0.5


def test_there_and_back_nothing_of_the_search_is_left() -> None:
    usual = starting_config("cartpole")
    searched = replace(with_algorithm(usual, "spo"), spo=SPOConfig(particles=3))
    assert with_algorithm(usual, "ppo") is usual
    assert with_algorithm(searched, "alphazero").spo == SPOConfig()
    assert with_algorithm(searched, "ppo").spo == SPOConfig()


CHANGED: dict[str, Any] = {
    "gamma": 0.5, "gae_lambda": 0.5, "reward_clip": 2.0, "normalize_observations": False, "normalize_rewards": False,
    "learning_rate": 0.1, "num_epochs": 3, "num_minibatches": 2, "minibatch_size": 32, "value_coef": 0.1,
    "max_grad_norm": 0.1, "adam_eps": 1e-3, "loss": "impala", "advantage": "vtrace", "vtrace_rho_clip": 0.5,
    "vtrace_c_clip": 0.5, "bptt_horizon": 4, "clip_epsilon": 0.1, "value_clip": 0.1, "entropy_coef": 0.5,
    "normalize_advantages": "off", "target_kl": 0.1, "value_scale": "popart",
    "target_entropy": 0.5, "target_entropy_rate": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("name", PPOConfig.__dataclass_fields__)
def test_every_setting_of_ppo_is_either_used_by_a_search_or_refused_by_name(name: str) -> None:
    if name in SHARED_SETTINGS:
        ppo = PPOConfig(**{name: CHANGED[name]})
        assert RunConfig(algorithm="spo", ppo=ppo).ppo == ppo
        return
    refusal = "is PPO's, and algorithm='spo' does not use it"
    if name == "target_entropy_rate":  # PPO does not use it alone either
        refusal = "does nothing without a target; add --target-entropy"
    with pytest.raises(ConfigError, match=f"{name}=.* {refusal}"):
        RunConfig(algorithm="spo", ppo=PPOConfig(**{name: CHANGED[name]}))


@pytest.mark.parametrize("algorithm", ["ppo", "spo", "alphazero"])
def test_settings_of_another_algorithm_are_refused_by_name(algorithm: Any) -> None:
    others: dict[str, Any] = {"spo": SPOConfig(depth=2), "alphazero": AlphaZeroConfig(simulations=5)}
    for name, settings in others.items():
        if name == algorithm:
            continue
        with pytest.raises(ConfigError, match=rf"{name}\.(depth=2|simulations=5) is for another algorithm"):
            RunConfig(algorithm=algorithm, **{name: settings})


def test_python_is_told_the_algorithms_there_are() -> None:
    with pytest.raises(ConfigError, match=r"algorithm='mcts' must be 'ppo' or 'spo' or 'alphazero'$"):
        scramjet.train("cartpole", algorithm="mcts")
