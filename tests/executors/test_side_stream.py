"""Two pieces of work at once: each sees what was launched before, and whatever follows sees both."""

import pytest
import torch

from scramjet.executors.cuda_graphs import Recorder, SideStream

LONG = 20_000_000
"""Cycles of the GPU, about ten milliseconds: whoever does not wait comes too early."""


def test_on_the_cpu_one_is_called_after_the_other() -> None:
    calls: list[str] = []
    found = SideStream(torch.device("cpu")).run(lambda: calls.append("aside") or 1, lambda: calls.append("here") or 2)
    assert found == (1, 2)
    assert calls == ["aside", "here"]


@pytest.mark.gpu
@pytest.mark.parametrize("is_recorded", [False, True])
def test_each_waits_for_what_it_needs_and_memory_is_reused_in_time(is_recorded: bool) -> None:
    side, source = SideStream(torch.device("cuda")), torch.zeros(1 << 20, device="cuda")
    recorder = Recorder("a sum")

    def work() -> torch.Tensor:
        torch.cuda._sleep(LONG)
        source.add_(1)  # both have to wait for this

        def aside() -> torch.Tensor:
            doubled = source * 2
            torch.cuda._sleep(LONG)
            return doubled + 1  # in memory of the side stream, which the next round uses again

        doubled, tripled = side.run(aside, lambda: source * 3)
        return doubled + tripled

    for number in range(1, 6):
        found = recorder.run(work, may_record=is_recorded, version=0)
        assert torch.equal(found, torch.full_like(found, 5 * number + 1))
    assert recorder.is_recorded == is_recorded


@pytest.mark.gpu
def test_after_an_error_the_side_stream_is_waited_for() -> None:
    side, numbers = SideStream(torch.device("cuda")), torch.zeros(1 << 20, device="cuda")

    def aside() -> None:
        torch.cuda._sleep(LONG)
        numbers.fill_(1.0)

    def here() -> None:
        raise ValueError("too bad")

    with pytest.raises(ValueError, match="too bad"):
        side.run(aside, here)
    assert bool((numbers == 1).all())
