"""Sizes of blocks of GPU kernels against their definitions."""

import pytest

from scramjet.compile.block_sizes import blocks_of, even_programs, power_of_two, product_size


@pytest.mark.parametrize("number", range(1, 70))
def test_a_block_has_the_smallest_power_of_two_that_holds_the_number(number):
    assert power_of_two(number) == min(2**k for k in range(8) if 2**k >= number)
    assert product_size(number) == min(2**k for k in range(4, 8) if 2**k >= number)


@pytest.mark.parametrize("most", [1, 3, 8])
@pytest.mark.parametrize("number", range(1, 30))
def test_programs_are_the_fewest_of_which_none_takes_more_blocks_than_it_must(number, most):
    rounds = min(rounds for rounds in range(1, 31) if rounds * most >= number)
    assert blocks_of(number, most) == rounds
    assert even_programs(number, most) == min(
        programs for programs in range(1, most + 1) if programs * rounds >= number
    )


def test_nothing_needs_no_programs():
    assert even_programs(0, 8) == 0
