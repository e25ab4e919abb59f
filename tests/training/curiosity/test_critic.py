"""The critic of bonuses: on the GPU its kernels learn what torch would, and everything else is left to torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scramjet.policies.config import PolicyConfig
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.bonus import Transitions
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.curiosity.critic import BonusCritic
from tests.helpers.run_files import last_checkpoint, train
from tests.helpers.sessions import SMALL, begun

CURIOUS = replace(
    SMALL, curiosity="rnd", bonus=BonusConfig(features=8), num_envs=64, total_timesteps=64 * 8 * 6,
    policy=PolicyConfig(hidden=(32, 32)), precision="float32",
)  # fmt: skip
ON_GPU = replace(CURIOUS, device="cuda")
LEFT_TO_TORCH = {
    "torch's operators": replace(ON_GPU, fused=False),
    "one hidden layer": replace(ON_GPU, policy=PolicyConfig(hidden=(32,))),
    "a Dict": replace(ON_GPU, env="maze"),
    "a picture of whole numbers": replace(ON_GPU, env="door_key"),
}


@pytest.mark.gpu
@pytest.mark.parametrize("is_marked", [False, True])
def test_kernels_learn_what_torch_would(is_marked: bool, tmp_path: Path) -> None:
    with begun(ON_GPU, tmp_path) as session:
        learner: Any = session.learner
        rollout, critic = session.collector.collect(), learner.curiosity.critic
        assert critic._mlp is not None
        space = session.policy.observation_space
        other = BonusCritic(session.policy, space, ON_GPU.policy, 0.01, may_use_kernels=False)
        other.network.load_state_dict(critic.network.state_dict())
        critic.optimizer.param_groups[0]["lr"].fill_(0.01)
        steps = Transitions.of(rollout)
        if is_marked:
            steps = replace(steps, counts=torch.rand(rollout.reward.shape, device="cuda") < 0.6)
        returns = torch.randn(rollout.reward.shape, device="cuda")
        for places in torch.randperm(returns.numel(), device="cuda").chunk(4):
            losses = []
            for each in (critic, other):
                each.begin_update()
                each.optimizer.zero_grad()
                losses.append(float(each.learn(steps, returns, places, 1)))
                each.step()
            assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        torch.testing.assert_close(critic.values(rollout.obs), other.values(rollout.obs), rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", LEFT_TO_TORCH)
def test_what_the_kernels_do_not_take_is_left_to_torch(kind: str, tmp_path: Path) -> None:
    with begun(LEFT_TO_TORCH[kind], tmp_path) as session:
        learner: Any = session.learner
        assert learner.curiosity.critic._mlp is None


@pytest.mark.gpu
@pytest.mark.parametrize("method", [{}, {"curiosity": "counts", "bonus": BonusConfig()}], ids=["rnd", "counts"])
def test_a_run_with_its_critic_in_kernels_resumes_bit_for_bit(method: dict[str, Any], tmp_path: Path) -> None:
    config: RunConfig = replace(ON_GPU, **method)
    whole = train(config, tmp_path, run_name="whole")
    train(replace(config, total_timesteps=64 * 8 * 3), tmp_path, run_name="parts")
    resumed = train(None, tmp_path, resume="parts", total_timesteps=config.total_timesteps)
    assert last_checkpoint(resumed.run_path) == last_checkpoint(whole.run_path)
