"""What a callback changes in a policy or its optimizer holds at once, for acting and for learning, on the fast path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import scramjet
from scramjet.training.session import Session

SETTINGS: dict[str, Any] = {
    "env": "cartpole", "seed": 1, "num_steps": 32, "num_epochs": 2, "num_minibatches": 2,
    "policy": {"hidden": (16, 16)}, "eval": {"episodes": 2}, "display": "quiet", "num_threads": 1,
}  # fmt: skip


def weights_after(folder: Path, change: Callable[[Session], None] | None, **settings: Any) -> torch.Tensor:
    """All weights in a row after three updates, with a change made after the first."""

    class Changing(scramjet.Callback):
        seen = 0

        def on_update(self, record: dict[str, Any], session: Session) -> None:
            self.seen += 1
            if change is not None and self.seen == 1:
                change(session)

    result = scramjet.train(**SETTINGS, runs_dir=str(folder), callbacks=[Changing()], **settings)
    return torch.cat([weight.detach().flatten() for weight in result.policy.network.parameters()])


def hook(session: Session) -> None:
    session.policy.network.actor.register_forward_hook(lambda module, given, out: 2 * out)


def swap_activation(session: Session) -> None:
    session.policy.network.actor[1] = nn.ReLU()


def replace_logits(session: Session) -> None:
    network = session.policy.network
    usual = network.logits
    network.logits = lambda obs: 0.5 * usual(obs)


def decay(session: Session) -> None:
    session.learner.optimizer.param_groups[0]["weight_decay"] = 1.0


@pytest.mark.parametrize("num_envs", [8, 24], ids=["steps in one compiled function", "step by step"])
def test_a_changed_policy_acts_and_learns_as_by_plain_torch(tmp_path: Path, num_envs: int) -> None:
    settings = {"num_envs": num_envs, "total_timesteps": 3 * num_envs * 32}
    untouched = weights_after(tmp_path / "untouched", None, **settings)
    for change in (hook, swap_activation, replace_logits, decay):
        fast = weights_after(tmp_path / f"fast {change.__name__}", change, **settings)
        plain = weights_after(tmp_path / f"plain {change.__name__}", change, fused=False, **settings)
        learned = float((plain - untouched).norm())
        assert learned > 1e-3, change
        assert float((fast - plain).norm()) < 1e-2 * learned, change
