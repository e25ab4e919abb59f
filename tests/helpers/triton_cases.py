"""Which cases of a test of Triton's kernels are interpreted, and the optimizer that a learner makes."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor


def few_interpreted(name: str, cases: Sequence[Any], interpreted: int = 1) -> pytest.MarkDecorator:
    """Parametrizes `triton_device` and `name`: the first cases by Triton's interpreter, which is slow, all on a GPU."""
    slow = [pytest.param("interpreter", case, id=f"interpreted-{case}") for case in cases[:interpreted]]
    quick = [pytest.param("cuda", case, marks=pytest.mark.gpu, id=f"cuda-{case}") for case in cases]
    return pytest.mark.parametrize(("triton_device", name), slow + quick, indirect=["triton_device"])


def of_device(cases: Sequence[Any], device: torch.device) -> Sequence[Any]:
    """The cases of a loop within one test: the first where kernels are interpreted."""
    return cases if device.type == "cuda" else cases[:1]


def adam(parameters: Iterable[Tensor], device: torch.device, **settings: Any) -> torch.optim.Adam:
    on_gpu = device.type == "cuda"
    rate = torch.tensor(0.01, device=device) if on_gpu else 0.01
    return torch.optim.Adam(parameters, lr=rate, fused=True, capturable=on_gpu, **settings)
