"""A rollout that is given up leaves a run exactly where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scramjet.training.persistence.state import trainer_tensors
from tests.helpers.search_training import searching_config
from tests.helpers.sessions import begun, train

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("env", "algorithm"), [("cartpole", "spo"), ("tic_tac_toe", "alphazero")])
def test_a_rollout_that_is_given_up_has_never_been_played(env: str, algorithm: str, tmp_path: Path) -> None:
    with begun(searching_config(env, algorithm), tmp_path) as session:
        train(session, 1)
        before = {name: tensor.clone() for name, tensor in trainer_tensors(session).items()}
        asked = iter([False, False, False, True])
        assert session.collector.collect(lambda: next(asked)) is None
        after = trainer_tensors(session)
        assert all(torch.equal(before[name], after[name]) for name in before)
        expected = session.collector.collect()
        assert expected is not None
        played = expected.action.clone()
    with begun(searching_config(env, algorithm), tmp_path) as session:
        train(session, 1)
        rollout = session.collector.collect(lambda: False)
        assert rollout is not None
        assert torch.equal(rollout.action, played)
