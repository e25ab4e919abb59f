"""The numbers of an update in one memory: each is found where recorded work reads it."""

from __future__ import annotations

import numpy as np
import torch

from scramjet.training.batches.shuffling import KEYS
from scramjet.training.batches.whole_updates import UpdateNumbers


def test_numbers_that_are_sent_are_read_as_float32_at_addresses_that_kernels_are_compiled_for() -> None:
    numbers = UpdateNumbers(torch.device("cpu"), num_epochs=3)
    views = (numbers.learning_rate, numbers.clip, numbers.entropy_coef)
    addresses = [view.data_ptr() for view in (*views, numbers.keys)]
    keys = torch.randint(1 << 31, (3, KEYS))
    for sent in ((1e-3, 0.2, 0.01), (2.5e-4, 0.1, 0.0)):
        numbers.send(*sent, keys)
        assert [view.item() for view in views] == [float(np.float32(value)) for value in sent]
        assert torch.equal(numbers.keys, keys)
    assert all((address - addresses[0]) % 16 == 0 for address in addresses)
    assert addresses == [view.data_ptr() for view in (*views, numbers.keys)]


def test_keys_that_are_drawn_later_leave_the_schedules_values_alone() -> None:
    numbers = UpdateNumbers(torch.device("cpu"), num_epochs=1)
    numbers.send(1.0, 2.0, 3.0)
    assert (numbers.learning_rate.item(), numbers.clip.item(), numbers.entropy_coef.item()) == (1.0, 2.0, 3.0)
    assert not numbers.keys.any()
