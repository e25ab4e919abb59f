"""The GPU as the runtime sees it."""

import pytest

from scramjet.errors import TrainingError
from scramjet.runtime.machine.devices import memory_errors_explained


@pytest.mark.parametrize("text", ["CUDA out of memory. Tried to allocate 20.00 GiB.", "[2] CUDA_ERROR_OUT_OF_MEMORY"])
def test_a_full_gpu_says_what_to_lower(text):
    with (
        pytest.raises(TrainingError, match=r"memory is full.*--num-envs.*--num-minibatches"),
        memory_errors_explained(),
    ):
        raise RuntimeError(text)


def test_other_errors_pass_as_they_are():
    with pytest.raises(ZeroDivisionError), memory_errors_explained():
        raise ZeroDivisionError
