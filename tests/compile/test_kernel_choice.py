from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from scramjet.compile.kernel_choice import allow_kernels, takes_kernels
from tests.helpers.sessions import SMALL, begun

pytest.importorskip("triton")
ON_THE_GPU = SimpleNamespace(is_cuda=True)


@pytest.fixture(autouse=True)
def allowed_again():
    yield
    allow_kernels(True)


def test_kernels_take_tensors_on_the_gpu_alone():
    assert takes_kernels(ON_THE_GPU)
    assert not takes_kernels(torch.zeros(1))


@pytest.mark.parametrize("fused", [True, False])
def test_a_run_without_fused_kernels_leaves_everything_to_torch(tmp_path, fused):
    with begun(replace(SMALL, fused=fused), tmp_path):
        assert takes_kernels(ON_THE_GPU) == fused
