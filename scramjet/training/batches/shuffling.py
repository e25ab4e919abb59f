"""The order in which an epoch takes its samples.

On the CPU it is torch's random permutation. On the GPU that would sort millions of random numbers, so the order is
computed there: a cipher maps each number from 0 to n - 1 to another one (Luby and Rackoff 1988; results beyond n - 1
are enciphered again until they fall inside). What is permuted are runs of neighbours: samples of the same step in
different envs, which one memory access reads together.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.jit import RowKernel
from scramjet.executors.samples import Minibatches, Samples

NEIGHBOURS = 32
"""Samples in a run on the GPU, if the number of rows allows it."""
KEYS = 4
"""Keys of one order: one for each round of the cipher."""
WRITTEN = 4
"""Numbers of a run that one thread of the GPU writes: 32 bytes, and those of neighbouring threads lie side by side."""


class Shuffler:
    """Draws the minibatches of each epoch; its generator is on the CPU for every device."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.enciphers = device.type == "cuda"
        """Whether orders are computed from keys, as on the GPU."""
        self._order = torch.empty(0, dtype=torch.int64, device=device)  # the same memory for every epoch on the GPU

    def minibatches(self, samples: Samples, number: int, keys: Tensor | None = None) -> Minibatches:
        """The samples, or with memory the sequences, in a new random order, split into `number` minibatches.

        `keys` [KEYS] were drawn before, and are on the device of the samples; None: draw now.
        """
        return Minibatches.even(self._order_of(samples, number, keys), number)

    def draw_keys(self, num_epochs: int) -> Tensor:
        """The keys of the next orders, [num_epochs, KEYS] on the CPU: those that `minibatches` would draw."""
        return draw_keys(self.generator, num_epochs)

    def shared_minibatches(self, units: Tensor, number: int) -> Minibatches:
        """What this rank holds of each minibatch that a single process would draw from the units of all ranks.

        `units` [total] are the numbers of all of them on this rank, -1 where another rank has the unit.
        """
        drawn = units[torch.randperm(len(units), generator=self.generator)]
        is_own = drawn >= 0
        num_own = torch.cat([torch.zeros(1, dtype=torch.int64), is_own.cumsum(0)])
        bounds = num_own[Minibatches.even(drawn, number).bounds].tolist()
        return Minibatches(drawn[is_own], bounds)

    def _order_of(self, samples: Samples, num_minibatches: int, keys: Tensor | None) -> Tensor:
        num_units, order = samples.num_units, self._order
        if not self.enciphers:
            return torch.randperm(num_units, generator=self.generator)
        if len(order) != num_units:
            order = self._order = torch.empty(num_units, dtype=torch.int64, device=order.device)
        num_rows = 1 if samples.state is not None else samples.num_rows
        neighbours = run_length(num_units, num_rows, num_minibatches)
        if keys is None:
            shuffle_on_gpu(order, self.generator, neighbours)
        else:
            encipher(order, keys, neighbours)
        return order


def draw_keys(generator: torch.Generator, num_orders: int) -> Tensor:
    """The keys of so many random orders, [num_orders, KEYS]; the same whether drawn together or one by one."""
    return torch.randint(1 << 31, (num_orders, KEYS), generator=generator)


def shuffle_on_gpu(order: Tensor, generator: torch.Generator, neighbours: int) -> None:
    """Fill `order` [n] with 0 .. n - 1, with runs of `neighbours` numbers in random order."""
    encipher(order, draw_keys(generator, 1)[0].to(order.device, non_blocking=True), neighbours)


def encipher(order: Tensor, keys: Tensor, neighbours: int) -> None:
    """As `shuffle_on_gpu`, in the order that belongs to `keys` [KEYS], on the device of `order`."""
    num_runs = len(order) // neighbours
    half = max(1, (max(num_runs - 1, 1).bit_length() + 1) // 2)  # bits of each half of a number
    written = math.gcd(neighbours, WRITTEN)
    _encipher.on(len(order) // written, order, keys, num_runs, neighbours, written, half)


def run_length(num_units: int, num_rows: int, num_minibatches: int) -> int:
    """The number of neighbours in a run: a run lies within one step, and minibatches hold whole runs."""
    fits = num_rows % NEIGHBOURS == 0 and num_units % (NEIGHBOURS * num_minibatches) == 0
    # A minibatch of few runs would be a poor sample of the rollout.
    return NEIGHBOURS if fits and num_units // (NEIGHBOURS * num_minibatches) >= NEIGHBOURS else 1


@RowKernel
def _encipher(
    start: int, stop: int,
    order: np.ndarray, keys: np.ndarray, num_runs: int, neighbours: int, written: int, half: int,
) -> None:  # fmt: skip
    """Write the numbers from `start * written` to `stop * written` of the order; `written` divides `neighbours`.

    All arithmetic stays below 2**63.
    """
    low_bits = (1 << half) - 1
    for row in range(start, stop):
        place = row * written
        number = place // neighbours
        among = place - number * neighbours
        while True:
            left, right = number >> half, number & low_bits
            for turn in range(4):
                mixed = ((right + keys[turn]) & 0xFFFFFFFF) * 0x2C1B3C6D & 0xFFFFFFFF
                mixed = (mixed ^ (mixed >> 15)) * 0x297A2D39 & 0xFFFFFFFF
                left, right = right, left ^ ((mixed ^ (mixed >> 14)) & low_bits)
            number = (left << half) | right
            if number < num_runs:
                break
        for k in range(written):
            order[place + k] = number * neighbours + among + k
