"""What compiled functions bind once they read in every step: noise drawn anew moves the actions, of any color."""

import copy

import numpy as np
import torch
from gymnasium.spaces import Box

from scramjet.executors.executor import ActStep, Executor
from scramjet.executors.numba_executor import NumbaExecutor
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network

STEPS, ROWS = 8, 5


@torch.no_grad()
def actions_of(executor: Executor) -> list[torch.Tensor]:
    """The actions [T, R, D] of three rollouts, whose noise is drawn into one buffer, allocated as rollouts do."""
    distribution, generator = executor.policy.distribution, torch.Generator().manual_seed(1)
    noise = distribution.noise(STEPS, ROWS, torch.Generator())
    action, log_prob, obs = torch.zeros(STEPS, ROWS, 2), torch.zeros(STEPS, ROWS), torch.linspace(-1, 1, 15).view(5, 3)
    steps = [ActStep(obs, None, noise[t], action[t], log_prob[t], torch.zeros(ROWS), None) for t in range(STEPS)]
    acts, taken = executor.actions(steps), []
    executor.refresh()
    for _ in range(3):
        distribution.noise(STEPS, ROWS, generator, out=noise)
        for act in acts:
            act()
        taken.append(action.clone())
    return taken


def test_noise_of_any_color_is_drawn_anew_for_every_rollout_as_by_plain_torch() -> None:
    for color in (0.0, 0.5, 1.0, 2.0):
        config, spaces = PolicyConfig(noise_color=color, hidden=(8,)), (Box(-1, 1, (3,)), Box(-1, 1, (2,), np.float32))
        policy = Policy(default_network(*spaces, config), *spaces, config)
        compiled = actions_of(NumbaExecutor(policy))
        assert not torch.allclose(compiled[1], compiled[2]), color
        plain = actions_of(TorchExecutor(copy.deepcopy(policy)))
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-5, msg=lambda text, c=color: f"{c}: {text}")
