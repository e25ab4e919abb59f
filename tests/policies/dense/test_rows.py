"""Rows scaled by Triton's kernels against torch, interpreted on the CPU or on a CUDA device."""

import pytest
import torch
from torch.nn.functional import normalize

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")

from scramjet.policies.dense.choice import unit_rows
from scramjet.policies.dense.normalizing import normalized
from scramjet.policies.dense.unit_rows import unit_rows as unit_rows_by_kernels
from scramjet.policies.normalization import ObservationNormalizer


@pytest.mark.parametrize(("number", "width"), [(150, 24), (7, 1), (3, 2500), (0, 5)])
def test_rows_of_length_1_and_their_gradients_are_those_of_torch(triton_device, number, width):
    rows = torch.randn(number, width, device=triton_device)
    rows[:2] = torch.tensor([[0.0], [1e-14]], device=triton_device)[:number]  # too short for a direction
    weights = torch.randn_like(rows)
    found = []
    for function in (unit_rows_by_kernels, lambda rows: normalize(rows, dim=-1)):
        source = rows.clone().requires_grad_()
        units = function(source)
        (units * weights).sum().backward()
        found.append((units.detach(), source.grad))
    (ours, our_gradient), (theirs, their_gradient) = found
    torch.testing.assert_close(ours, theirs)
    scale = their_gradient.abs().amax(-1, keepdim=True).clamp(min=1.0)  # that of the short rows is huge
    torch.testing.assert_close(our_gradient / scale, their_gradient / scale, rtol=1e-5, atol=1e-5)


def test_a_row_with_what_is_no_number_stays_without_length_and_spoils_no_other(triton_device):
    rows = torch.randn(50, 6, device=triton_device)
    rows[7, 2] = torch.nan
    found = unit_rows_by_kernels(rows).isnan()
    assert found[7].all()
    assert found.sum() == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 700)], ids=str)
def test_observations_are_normalized_as_by_torch(triton_device, dtype, shape, monkeypatch):
    monkeypatch.setattr("scramjet.policies.normalization.takes_kernels", lambda _: True)  # interpreted, too
    normalizer = ObservationNormalizer(shape, clip=2.0).to(triton_device)
    obs = (torch.randn(40, *shape, device=triton_device) * 30 + 100).to(dtype)
    normalizer.update(obs)
    moments = normalizer.moments
    scale = (moments.variance + 1e-8).rsqrt().float()
    expected = ((obs.float() - moments.mean.float()) * scale).clamp(-2.0, 2.0)
    found = normalized(obs, moments.mean, moments.variance, 2.0)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(normalizer(obs), expected, rtol=1e-6, atol=1e-6)
    assert normalized(obs[:0], moments.mean, moments.variance, 2.0).shape == (0, *shape)


def test_observations_without_their_batch_or_of_another_width_are_left_to_torch(triton_device, monkeypatch):
    monkeypatch.setattr("scramjet.policies.normalization.takes_kernels", lambda _: True)
    normalizer, obs = ObservationNormalizer((4,)).to(triton_device), torch.randn(3, 4, device=triton_device)
    expected = normalizer(obs)
    torch.testing.assert_close(normalizer(obs[1]), expected[1])
    torch.testing.assert_close(normalizer(obs.expand(2, 3, 4)), expected.expand(2, 3, 4))
    with pytest.raises(RuntimeError, match="must match the size"):
        normalizer(obs[:, :3])
    numbers = ObservationNormalizer((1,)).to(triton_device)  # of a Box with the shape ()
    torch.testing.assert_close(numbers(obs[0]), numbers(obs[0].unsqueeze(1)).squeeze(1))


@pytest.mark.gpu
def test_on_the_gpu_kernels_scale_rows_and_leave_what_is_mapped_or_differentiated_to_torch(monkeypatch):
    calls = []
    monkeypatch.setattr("scramjet.policies.dense.normalizing.normalized", lambda obs, *_: calls.append("obs") or obs)
    monkeypatch.setattr("scramjet.policies.dense.unit_rows.unit_rows", lambda rows: calls.append("rows") or rows)
    normalizer, rows = ObservationNormalizer((3,)).to("cuda"), torch.randn(5, 3, device="cuda")
    normalizer(rows)
    unit_rows(rows)
    assert calls == ["obs", "rows"]
    normalizer(rows.clone().requires_grad_()).sum().backward()
    torch.vmap(normalizer)(rows.expand(2, 5, 3))
    torch.vmap(unit_rows)(rows.expand(2, 5, 3))
    unit_rows(torch.randn(2, 5000, device="cuda"))
    normalizer(rows.cpu().to("cuda", torch.float16))
    assert calls == ["obs", "rows", "obs"]
