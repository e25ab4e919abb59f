"""How a run begins: new, resumed from its newest checkpoint, or forked from a checkpoint; and how long it goes on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scramjet.errors import ConfigError
from scramjet.training.persistence.state import checkpoint_of
from scramjet.training.session import Session
from tests.helpers.sessions import SMALL, begun, train

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("total", "first_step", "first_update", "given", "expected"),
    [
        (1024, 0, 0, None, 8),
        (1025, 0, 0, None, 9),
        (1, 0, 0, None, 1),
        (1024, 1000, 0, None, 1),  # a fork's own updates, after its parent's 1000 steps
        (1024, 0, 0, 3, 3),  # a replay ends with its schedule
        (1024, 0, 2, 3, 5),
        (1024, 0, 0, 30, 8),
    ],
)
def test_updates_are_the_fewest_that_reach_the_total_or_as_many_as_the_collector_has(
    total: int, first_step: int, first_update: int, given: int | None, expected: int
) -> None:
    config, collector = SimpleNamespace(total_timesteps=total, batch_size=128), SimpleNamespace(num_rollouts=given)
    session = SimpleNamespace(config=config, collector=collector, first_step=first_step, first_update=first_update)
    assert Session.num_updates.fget(session) == expected


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A run of five updates with checkpoints after the second and the third."""
    with begun(SMALL, tmp_path, run_name="first") as session:
        for update in (2, 3):
            train(session, update if update == 2 else 1)
            checkpoint_of(session, update=update, step=32 * update, elapsed_seconds=7.0)()
    return tmp_path / "first"


def weights_of(session: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in session.policy.parameters()])


def test_a_new_run_begins_at_step_0_with_all_of_its_updates_ahead(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        assert (session.first_update, session.first_step, session.num_updates) == (0, 0, 5)


def test_a_resumed_run_goes_on_from_its_newest_checkpoint_and_its_time(saved: Path) -> None:
    with begun(None, saved.parent, resume=saved) as session:
        assert (session.first_update, session.first_step, session.elapsed_seconds) == (3, 0, 7.0)
        assert session.num_updates == 5
        assert "resumed at step 96" in session.note


def test_a_resumed_run_may_be_given_another_total_and_remembers_it(saved: Path) -> None:
    for total in (320, None):
        with begun(None, saved.parent, resume=saved, total_timesteps=total) as session:
            assert session.num_updates == 10


def test_a_fork_counts_on_from_its_parents_step_with_its_weights_and_updates_of_its_own(saved: Path) -> None:
    with begun(None, saved.parent, resume=saved) as session:
        expected = weights_of(session)
    with begun(replace(SMALL, total_timesteps=200), saved.parent, fork=saved, run_name="second") as fork:
        assert (fork.first_update, fork.first_step, fork.num_updates) == (0, 96, 4)
        assert torch.equal(weights_of(fork), expected)
        assert fork.lineage is not None
        assert fork.store.steps() == [96]  # so that a resume has something to begin from


def test_an_older_checkpoint_can_be_forked_by_its_path(saved: Path) -> None:
    with begun(SMALL, saved.parent, fork=saved / "checkpoints" / "step_00000064", run_name="second") as fork:
        assert fork.first_step == 64


@pytest.mark.parametrize(
    ("config", "given", "message"),
    [
        (SMALL, {"resume": "first"}, "keeps its own config"),
        (None, {"resume": "first", "fork": "first"}, "keeps its own config"),
        ("cartpole", {"env": "bandit"}, "give config='cartpole' or env='bandit', not both"),
        (replace(SMALL, total_timesteps=96), {"fork": "first"}, "is reached already"),
    ],
)
def test_beginnings_that_contradict_themselves_are_refused(config, given, message: str, saved: Path) -> None:
    with pytest.raises(ConfigError, match=message), begun(config, saved.parent, **given):
        pass
    assert [path.name for path in saved.parent.iterdir() if not path.name.startswith(".")] == ["first"]


def test_a_new_run_that_cannot_begin_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), begun(replace(SMALL, num_envs=10**9), tmp_path, run_name="first"):
        pass
    assert not (tmp_path / "first").exists()


def test_training_on_the_cpu_loads_neither_triton_nor_the_compiler_of_torch(tmp_path: Path) -> None:
    code = (
        "import sys, scramjet; "
        f"scramjet.train('cartpole', total_timesteps=256, num_envs=4, num_steps=32, runs_dir={str(tmp_path)!r}, "
        "device='cpu', eval={'final_episodes': 0}); "
        "sys.exit(','.join({'triton', 'torch._dynamo', 'sympy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
