"""Sizes of the blocks that programs of a GPU kernel take, and how many of them there are. Does not load Triton."""

from __future__ import annotations

SMALLEST_PRODUCT = 16
"""Least size of a block in a product of matrices, along each of its axes."""


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`, which is 1 or more: blocks have such sizes."""
    return 1 << (number - 1).bit_length()


def product_size(size: int) -> int:
    """The smallest power of two that is at least `size` and that products of matrices take."""
    return max(SMALLEST_PRODUCT, power_of_two(size))


def blocks_of(number: int, size: int) -> int:
    """The number of blocks of `size` that are needed for `number` elements."""
    return -(-number // size)


def even_programs(num_blocks: int, most: int) -> int:
    """How many programs share `num_blocks` blocks: at most `most`, and no more than finish in the same time."""
    return blocks_of(num_blocks, max(1, blocks_of(num_blocks, most)))
