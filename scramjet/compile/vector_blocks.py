"""For compiled code: blocks of products whose sums stay in vector registers, for layouts that no BLAS takes.

Numbers of BOARDS samples lie side by side, [..., BOARDS], so that each lane of a vector is a sample. Addresses and
strides are in bytes.
"""

from __future__ import annotations

from typing import Any

from scramjet.compile import numba_internals

LANES: int = numba_internals.LANES
"""Numbers in a vector."""
BOARDS: int = LANES * numba_internals.VECTORS
"""Samples that lie side by side."""
OUTPUTS: int = numba_internals.OUTPUTS
"""Sums that `weighted_sums` makes for each sample."""
PAIRED: int = numba_internals.PAIRED
"""Rows of x that `products_over_lanes` takes."""
PARTNERS: int = numba_internals.PARTNERS
"""Rows of y that `products_over_lanes` takes."""

weighted_sums: Any = numba_internals.weighted_sums
"""(n0, n1, n2, x, x0, x1, x2, w, w0, w1, w2, bias, y, y_row): for i in OUTPUTS,
y[i] [BOARDS] = bias[i] + sum over k in n0 x n1 x n2 of w[k, i] x[k] [BOARDS].
Counts are above 0; x0 to x2 and w0 to w2 are the steps of x and w for each of them, y_row that from
one y[i] to the next."""

products_over_lanes: Any = numba_internals.products_over_lanes
"""(n0, n1, x, x_row, x0, x1, y, y_row, y0, y1, sums): adds to sums [PAIRED, PARTNERS] those of the products of rows of
x and of y over n0 x n1 vectors and all their lanes."""

transpose: Any = numba_internals.transpose
"""(x, x_row, y, y_row): y [LANES, LANES] = x' of x [LANES, LANES], whose rows are so many bytes apart."""
