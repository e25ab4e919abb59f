"""IMPALA's policy gradient by hand."""

import sys

import cloudpickle
import numpy as np
import torch

from scramjet.algorithms.impala import policy_gradient

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


def test_the_gradient_of_impala_weighs_by_the_clipped_ratio_alone():
    log_prob = torch.tensor([-0.5, -1.0, -2.0], requires_grad=True)
    log_ratio, advantage = torch.tensor([0.5, -0.5, 0.0]), torch.tensor([2.0, 3.0, -1.0])
    policy_gradient(log_prob, log_ratio + 0 * log_prob, advantage, rho_clip=1.0).backward()
    expected = -torch.tensor([1.0, float(np.exp(-0.5)), 1.0]) * advantage / 3
    torch.testing.assert_close(log_prob.grad, expected, rtol=1e-6, atol=0)
