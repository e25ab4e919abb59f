"""The scan of advantages against the recursion in torch, interpreted or on a CUDA device."""

import pytest
import torch

pytest.importorskip("triton", reason="the scan is written in Triton, which is not installed here")

from scramjet.algorithms import advantage_scan
from scramjet.algorithms.advantage_scan import gae_by_scan
from scramjet.algorithms.advantages import plain_gae


def random_rollout(num_steps, num_rows, ends):
    """Numbers as `gae` takes them; NaN in `final_value` wherever it must not be read."""
    random = torch.Generator().manual_seed(num_steps)
    terminated, truncated = (torch.rand(num_steps, num_rows, generator=random) < ends for _ in range(2))
    truncated &= ~terminated
    final_value = torch.where(truncated, torch.randn(num_steps, num_rows, generator=random), torch.nan)
    reward = torch.randn(num_steps, num_rows, generator=random)
    return reward, torch.randn(num_steps + 1, num_rows, generator=random), terminated, truncated, final_value


@pytest.mark.parametrize(("num_steps", "num_rows"), [(1, 1), (5, 17), (16, 16), (37, 20)])
@pytest.mark.parametrize(("ends", "gae_lambda"), [(0.0, 1.0), (0.05, 0.95), (0.4, 0.0)])
def test_the_scan_is_the_plain_recursion(triton_device, monkeypatch, num_steps, num_rows, ends, gae_lambda):
    monkeypatch.setattr(advantage_scan, "MOST_STEPS", 16)
    rollout = random_rollout(num_steps, num_rows, ends)
    if ends:
        rollout[1][num_steps // 2, 0] = torch.inf  # counts only in its own episode
    expected = plain_gae(*rollout, gamma=0.99, gae_lambda=gae_lambda)
    found = gae_by_scan(*(each.to(triton_device) for each in rollout), gamma=0.99, gae_lambda=gae_lambda)
    for mine, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), wanted, rtol=1e-5, atol=1e-4, equal_nan=True)


def test_tensors_that_are_not_contiguous_will_do(triton_device):
    rollout, numbers = [each[:, ::2] for each in random_rollout(9, 8, 0.2)], {"gamma": 0.9, "gae_lambda": 0.8}
    found = gae_by_scan(*(each.to(triton_device) for each in rollout), **numbers)
    for mine, wanted in zip(found, plain_gae(*rollout, **numbers), strict=True):
        torch.testing.assert_close(mine.cpu(), wanted, rtol=1e-5, atol=1e-5)
