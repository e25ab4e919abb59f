"""The order of an epoch as the GPU computes it: the same kernel runs on the CPU."""

from __future__ import annotations

import pytest
import torch

from scramjet.training.batches.shuffling import NEIGHBOURS, draw_keys, encipher, run_length, shuffle_on_gpu


def order_of(num_units: int, neighbours: int, seed: int = 0) -> torch.Tensor:
    order = torch.full((num_units,), -1)
    shuffle_on_gpu(order, torch.Generator().manual_seed(seed), neighbours)
    return order


@pytest.mark.parametrize("num_units", [1, 2, 3, 7, 64, 1000, 4097])
def test_every_sample_has_one_place(num_units):
    assert torch.equal(order_of(num_units, 1).sort().values, torch.arange(num_units))


def test_neighbours_stay_together_and_runs_are_permuted():
    order = order_of(96 * 32, 32)
    runs = order.view(-1, 32)
    assert torch.equal(runs - runs[:, :1], torch.arange(32).expand(96, 32))
    assert torch.equal((runs[:, 0] // 32).sort().values, torch.arange(96))
    assert torch.equal(runs[:, 0] // 32, order_of(96, 1))


def test_another_key_is_another_order():
    assert torch.equal(order_of(1000, 1, seed=1), order_of(1000, 1, seed=1))
    assert (order_of(1000, 1, seed=1) != order_of(1000, 1, seed=2)).float().mean() > 0.9


def test_keys_drawn_together_are_those_drawn_one_by_one_and_give_their_orders():
    one_by_one, together = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    keys = draw_keys(together, 3)
    for row in keys:
        shuffled, enciphered = torch.empty(2, 200, dtype=torch.int64)
        shuffle_on_gpu(shuffled, one_by_one, 1)
        encipher(enciphered, row, 1)
        assert torch.equal(shuffled, enciphered)
    assert torch.equal(one_by_one.get_state(), together.get_state())


def test_an_order_is_still_that_of_earlier_versions():
    assert order_of(7, 1, seed=11).tolist() == [0, 4, 2, 1, 3, 5, 6]


def test_orders_look_random():
    """Each place is as likely for each number, and neighbours are torn apart."""
    num_units, num_orders = 16, 4000
    generator = torch.Generator().manual_seed(3)
    counts = torch.zeros(num_units, num_units)
    steps = []
    for _ in range(num_orders):
        order = torch.empty(num_units, dtype=torch.int64)
        shuffle_on_gpu(order, generator, 1)
        counts[torch.arange(num_units), order] += 1
        steps.append(float((order[1:] - order[:-1] == 1).float().mean()))
    expected = num_orders / num_units
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    freedom = (num_units - 1) ** 2
    assert chi_squared < freedom + 5 * (2 * freedom) ** 0.5
    assert sum(steps) / num_orders == pytest.approx(1 / num_units, abs=0.01)  # one step in n goes on by 1 by chance


def test_runs_are_only_made_where_they_fit():
    assert run_length(1024 * 128, 1024, 4) == NEIGHBOURS
    assert run_length(100 * 128, 100, 4) == 1  # rows do not end where runs do
    assert run_length(64 * 32, 64, 4) == 1  # a minibatch of 16 runs would be a poor sample
    assert run_length(64 * 64, 64, 4) == NEIGHBOURS
