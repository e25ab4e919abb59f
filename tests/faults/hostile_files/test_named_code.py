"""Files of strangers run nothing: every way in which a checkpoint, config or run could name code, a path or a process.

Each hostile name would leave a canary behind, a file, if anything it names were run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import scramjet
from scramjet import cli
from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import TrustError, WorldError
from scramjet.policies.config import PolicyConfig
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import RunConfig
from scramjet.training.playing import load_trained
from tests.helpers.hostile_files import (
    HOSTILE,
    TINY,
    WAYS,
    canary_of,
    forge,
)

# Every way with a third of the kinds, every kind with a third of the ways.
PAIRS = [(way, kind) for i, way in enumerate(WAYS) for j, kind in enumerate(HOSTILE) if (i + j) % 3 == 0]


@pytest.mark.parametrize(("way", "kind"), PAIRS)
def test_what_a_file_names_is_not_run(way: str, kind: str, run: Path, folder: Path) -> None:
    env = HOSTILE[kind](folder)
    forge(run, env)
    with pytest.raises(TrustError) as refused:
        WAYS[way](run)
    assert not canary_of(folder).exists()
    assert repr(env["name"]) in str(refused.value)
    assert "--trust" in str(refused.value)
    assert not (run.parent / "runs").exists()


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_policy_loads_without_its_world(kind: str, run: Path, folder: Path) -> None:
    forge(run, HOSTILE[kind](folder))
    policy = scramjet.load_policy(run)
    assert policy.act(torch.zeros(3, 4)).shape == (3,)
    assert not canary_of(folder).exists()


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_older_checkpoint_that_needs_its_world_for_that_is_refused(kind: str, run: Path, folder: Path) -> None:
    forge(run, HOSTILE[kind](folder), policy_spaces=None)
    with pytest.raises(TrustError):
        scramjet.load_policy(run)
    assert not canary_of(folder).exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"env": "cartpole", "frame_stack": 3, "ppo": PPOConfig(normalize_observations=True)},
        {"env": "maze", "policy": PolicyConfig(memory="gru", memory_size=8)},
        {"env": "pendulum", "policy": PolicyConfig(shared_trunk=True)},
        {"env": "gym:FrozenLake-v1", "num_workers": 0},
        {"env": "squared"},
    ],
    ids=lambda settings: settings["env"],
)
def test_a_policy_loaded_without_its_world_is_the_one_loaded_with_it(settings: dict[str, Any], tmp_path: Path) -> None:
    run = scramjet.train(RunConfig(**{**TINY, **settings}), runs_dir=tmp_path, display="quiet").run_path
    alone = scramjet.load_policy(run)
    beside_its_world, config, _ = load_trained(run)
    assert str(alone) == str(beside_its_world)
    assert alone.state_dict().keys() == beside_its_world.state_dict().keys()
    pool = make_pool(config, num_envs=3)
    out, states = pool.reset(0), [policy.initial_state(pool.num_rows) for policy in (alone, beside_its_world)]
    actions = [
        policy.act(out.obs, state if policy.state_size else None, mask=out.mask)
        for policy, state in zip((alone, beside_its_world), states, strict=True)
    ]
    pool.close()
    assert torch.equal(*actions)


QUIETLY_HOSTILE: dict[str, dict[str, Any]] = {
    "a model file": {"name": "mujoco:Ant-v5", "xml_file": "/etc/passwd"},
    "a program of EnvPool's": {"name": "envpool:VizdoomCustom-v1", "vzd_path": "/bin/sh"},
    "EnvPool's folder": {"name": "envpool:Pong-v5", "base_path": "."},
    "a folder of ROMs": {"name": "pettingzoo:pong_v3", "auto_rom_install_path": "."},
    "text in a list": {"name": "gym:CartPole-v1", "things": [1, [2, "evil.py"]]},
    "text in a table": {"name": "gym:CartPole-v1", "things": {"a": {"b": "evil.py"}}},
    "a window": {"name": "gym:CartPole-v1", "render_mode": "human"},
    "wrappers": {"name": "vec:CartPole-v1", "wrappers": ["os.system"]},
    "a way to make many": {"name": "vec:CartPole-v1", "vector_kwargs": {"worker": "os:system"}},
    "a word in another's place": {"name": "gym:CartPole-v1", "entry_point": "rgb_array"},
}


@pytest.mark.parametrize("env", QUIETLY_HOSTILE.values(), ids=QUIETLY_HOSTILE)
def test_text_that_a_library_might_load_things_by_is_refused(env: dict[str, Any], run: Path) -> None:
    forge(run, env)
    (key,) = env.keys() - {"name"}
    for way in ("eval a run", "train --resume", "train --config TOML"):
        with pytest.raises(TrustError, match=key):
            WAYS[way](run)


@pytest.mark.parametrize(
    "name", ["os", "pettingzoo", "..evil_module", "evil_module_v1", "classic.connect_four_v3", "../evil_v1", "a:b_v1"]
)
def test_a_name_for_pettingzoo_is_no_module_of_anybody_elses(name: str, run: Path, folder: Path) -> None:
    pytest.importorskip("pettingzoo")
    (folder / "evil_module_v1.py").write_text((folder / "evil_module.py").read_text())
    forge(run, {"name": f"pettingzoo:{name}"})
    with pytest.raises((TrustError, WorldError)):
        cli.run(["eval", str(run)])
    assert not canary_of(folder).exists()


@pytest.mark.parametrize("name", ["ale:evil.py", "ale:../../evil", "ale:os:system", "envpool:evil_module", "mujoco:x"])
def test_a_game_that_a_library_does_not_have_is_refused_by_its_name(name: str, run: Path, folder: Path) -> None:
    forge(run, {"name": name})
    with pytest.raises((TrustError, WorldError), match=r"ale|Atari|[Ee]nv[Pp]ool|Gymnasium"):
        cli.run(["eval", str(run)])
    assert not canary_of(folder).exists()


@pytest.mark.parametrize(
    "env",
    [
        {"name": "gym:CartPole-v1"},
        {"name": "vec:CartPole-v1", "vectorization_mode": "sync"},
        {"name": "gym:scramjet/CartPole-v1", "gravity": 9.8},
        {"name": "gym:CartPole-v1", "render_mode": "rgb_array", "sutton_barto_reward": False, "max_episode_steps": 9},
    ],
    ids=lambda env: " ".join(map(str, env.values())),
)
def test_worlds_of_installed_libraries_are_anybodys_to_name(env: dict[str, Any], run: Path) -> None:
    spaces = {}
    made = scramjet.make(env["name"], 1)
    for name in ("observation_space", "action_space"):
        spaces[name] = repr(getattr(made, name))
    made.close()
    forge(run, env, **spaces)
    assert scramjet.evaluate(run, episodes=1).episodes == 1


def test_the_command_line_says_it_in_one_message_and_exits_with_2(run: Path, folder: Path) -> None:
    forge(run, HOSTILE["a shell command"](folder))
    environment = {**os.environ, "PYTHONPATH": str(Path(scramjet.__file__).parents[1])}
    command = [sys.executable, "-P", "-m", "scramjet", "eval", str(run)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 2
    assert ended.stderr.startswith("scramjet: checkpoint ")
    assert "would import the module 'os' and call its function 'system' (command='touch " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not canary_of(folder).exists()
