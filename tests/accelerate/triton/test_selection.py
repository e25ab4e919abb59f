"""One kernel selects what `Samples.select` selects field by field."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")

from scramjet.accelerate.samples import Samples
from scramjet.accelerate.triton.selection import fused_select, select_rows
from scramjet.engine.trees import leaves


@pytest.mark.parametrize("steps", [1, 7], ids=["flat", "sequences"])
@pytest.mark.parametrize("kind", ["choice, marked", "choices, masked", "numbers"])
def test_the_samples_of_a_minibatch_are_the_same(triton_device, kind: str, steps: int) -> None:
    units, is_choice = 150, kind == "choice, marked"
    size, shape = steps * units, () if is_choice else (2,)
    numbers = torch.randn(4, size, device=triton_device)
    action = torch.randn(size, 2, device=triton_device)
    samples = Samples(
        obs={"a": torch.randn(size, 3, device=triton_device), "b": torch.randn(size, 2, 150, device=triton_device)},
        mask=torch.rand(size, 4, device=triton_device) < 0.5 if kind == "choices, masked" else None,
        action=action if kind == "numbers" else torch.randint(4, (size, *shape), device=triton_device),
        log_prob=numbers[0],
        value=numbers[1],
        advantage=numbers[2],
        returns=numbers[3],
        place=torch.arange(size, device=triton_device),
        counts=torch.rand(size, device=triton_device) < 0.5 if is_choice else None,
        state=torch.randn(units, 5, device=triton_device) if steps > 1 else None,
        begins=torch.rand(steps, units, device=triton_device) < 0.1 if steps > 1 else None,
        num_rows=30,
    )
    chosen = torch.randperm(units, device=triton_device)[:77]
    ours, expected = fused_select(samples, chosen), samples.select(chosen)
    for field in fields(Samples):
        if field.name == "place":  # no gradient step needs it
            continue
        mine, theirs = getattr(ours, field.name), getattr(expected, field.name)
        for one, other in zip(leaves(mine), leaves(theirs), strict=True):
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other, field.name


@pytest.mark.parametrize("shape", [(), (1,), (4,), (7, 7, 3), (0,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bool, torch.int64, torch.float16], ids=str)
def test_rows_of_any_numbers_are_the_same(triton_device, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    source = torch.randint(0, 200, (50, *shape), device=triton_device).to(dtype)
    places = torch.randint(1, 50, (33,), device=triton_device)
    assert torch.equal(select_rows(source, places[1:]), source.index_select(0, places[1:]))
    assert torch.equal(select_rows(source[1:], places - 1), source.index_select(0, places))


def test_rows_need_not_begin_where_four_bytes_do(triton_device) -> None:
    source = torch.randint(0, 200, (201,), dtype=torch.uint8, device=triton_device)[1:].view(50, 4)
    places = torch.randint(50, (33,), device=triton_device)
    assert torch.equal(select_rows(source, places), source.index_select(0, places))
