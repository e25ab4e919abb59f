"""Sizes of blocks of GPU kernels against their definitions, and when layers are left to Triton's kernels at all."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from scramjet.kernels.gpu import language as triton
from scramjet.kernels.gpu.language import blocks_of, even_programs, power_of_two, product_size
from scramjet.kernels.operations import allow_kernels, takes_kernels
from tests.helpers.sessions import SMALL, begun


def test_a_block_has_the_smallest_power_of_two_that_holds_the_number():
    for number in range(1, 70):
        assert power_of_two(number) == min(2**k for k in range(8) if 2**k >= number), number
        assert product_size(number) == min(2**k for k in range(4, 8) if 2**k >= number), number


def test_programs_are_the_fewest_of_which_none_takes_more_blocks_than_it_must():
    for number, most in [(number, most) for number in range(1, 30) for most in (1, 3, 8)]:
        rounds = min(rounds for rounds in range(1, 31) if rounds * most >= number)
        fewest = min(programs for programs in range(1, most + 1) if programs * rounds >= number)
        assert (blocks_of(number, most), even_programs(number, most)) == (rounds, fewest), (number, most)
    assert even_programs(0, 8) == 0


def test_kernels_take_tensors_on_the_gpu_alone_and_none_in_a_run_without_fused_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr(triton, "HAS_TRITON", True)
    on_the_gpu = SimpleNamespace(is_cuda=True)
    assert not takes_kernels(torch.zeros(1))
    try:
        for fused in (False, True):
            with begun(replace(SMALL, fused=fused), tmp_path):
                assert takes_kernels(on_the_gpu) == fused
    finally:
        allow_kernels(True)
