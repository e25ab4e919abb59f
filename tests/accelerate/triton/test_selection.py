"""One kernel selects what `Samples.select` selects field by field."""

from __future__ import annotations

import itertools
from dataclasses import fields

import pytest
import torch

from scramjet.accelerate.samples import Samples
from scramjet.accelerate.triton.selection import fused_select, select_rows
from scramjet.engine.trees import leaves
from tests.helpers.triton_cases import of_device

pytestmark = pytest.mark.rest

KINDS = ["choice, marked", "choices, masked", "numbers"]


def test_the_samples_of_a_minibatch_are_the_same(triton_device) -> None:
    for kind, steps in of_device(list(itertools.product(KINDS, (7, 1))), triton_device):
        units, is_choice = 150, kind == "choice, marked"
        size, shape = steps * units, () if is_choice else (2,)
        numbers = torch.randn(4, size, device=triton_device)
        action = torch.randn(size, 2, device=triton_device)
        samples = Samples(
            obs={"a": torch.randn(size, 3, device=triton_device), "b": torch.randn(size, 2, 150, device=triton_device)},
            mask=torch.rand(size, 4, device=triton_device) < 0.5 if kind == "choices, masked" else None,
            action=action if kind == "numbers" else torch.randint(4, (size, *shape), device=triton_device),
            log_prob=numbers[0], value=numbers[1], advantage=numbers[2], returns=numbers[3],
            place=torch.arange(size, device=triton_device),
            counts=torch.rand(size, device=triton_device) < 0.5 if is_choice else None,
            state=torch.randn(units, 5, device=triton_device) if steps > 1 else None,
            begins=torch.rand(steps, units, device=triton_device) < 0.1 if steps > 1 else None,
            num_rows=30,
        )  # fmt: skip
        chosen = torch.randperm(units, device=triton_device)[:77]
        ours, expected = fused_select(samples, chosen), samples.select(chosen)
        for name in (field.name for field in fields(Samples) if field.name != "place"):  # no gradient step needs that
            mine, theirs = leaves(getattr(ours, name)), leaves(getattr(expected, name))
            for one, other in zip(mine, theirs, strict=True):
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other, (kind, steps, name)


SHAPES = [(7, 7, 3), (), (1,), (4,), (0,)]
DTYPES = [torch.uint8, torch.float32, torch.bool, torch.int64, torch.float16]


def test_rows_of_any_numbers_are_the_same(triton_device) -> None:
    for shape, dtype in of_device(list(itertools.product(SHAPES, DTYPES)), triton_device):
        source = torch.randint(0, 200, (50, *shape), device=triton_device).to(dtype)
        places = torch.randint(1, 50, (33,), device=triton_device)
        assert torch.equal(select_rows(source, places[1:]), source.index_select(0, places[1:])), (shape, dtype)
        assert torch.equal(select_rows(source[1:], places - 1), source.index_select(0, places)), (shape, dtype)


def test_rows_need_not_begin_where_four_bytes_do(triton_device) -> None:
    source = torch.randint(0, 200, (201,), dtype=torch.uint8, device=triton_device)[1:].view(50, 4)
    places = torch.randint(50, (33,), device=triton_device)
    assert torch.equal(select_rows(source, places), source.index_select(0, places))
