"""Gradients of all ranks added up at once, or piece by piece while the backward pass goes on."""

import pytest
import torch
from torch import nn

from scramjet.executors import torch_executor as flat_gradients
from scramjet.executors.torch_executor import FlatGradients
from scramjet.runtime.ranks import Ranks
from tests.helpers.process_ranks import in_processes
from tests.helpers.thread_ranks import on_ranks


def network() -> nn.Sequential:
    """The same weights in every thread, which share torch's generator."""
    made = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Linear(1, 3))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.arange(parameter.numel()).sin().view_as(parameter) / 8)
    return made


def summed(ranks: Ranks, made: nn.Sequential) -> tuple[list[torch.Tensor], list[float]]:
    """The gradients over all ranks of twice the same pass; the last layer is not reached, rank 1 has no samples."""
    parameters = list(made.parameters())
    gradients = FlatGradients(parameters, 2, ranks)
    for _ in range(2):
        gradients.clear()
        if ranks.rank != 1:
            made[:5](torch.full((16, 8), 0.1 * (1 + ranks.rank))).square().sum().backward()
        terms = gradients.add_up(None if ranks.rank == 1 else torch.tensor([1.0, ranks.rank]))
    return [parameter.grad.clone() for parameter in parameters if parameter.grad is not None], terms.tolist()


def expected(num_ranks: int) -> list[torch.Tensor]:
    made = network()
    for rank in set(range(num_ranks)) - {1}:
        made[:5](torch.full((16, 8), 0.1 * (1 + rank))).square().sum().backward()
    return [torch.zeros_like(each) if each.grad is None else each.grad for each in made.parameters()]


def check(ranks: Ranks) -> None:
    found, terms = summed(ranks, network())
    assert terms == [ranks.size - 1, sum(set(range(ranks.size)) - {1})]
    for mine, all_of_them in zip(found, expected(ranks.size), strict=True):
        torch.testing.assert_close(mine, all_of_them)


def check_in_pieces(ranks: Ranks) -> None:
    flat_gradients.MIN_OVERLAPPED, flat_gradients.PIECE = 0, 4096
    check(ranks)


def test_gradients_of_all_ranks_are_added_up_at_once_and_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    on_ranks(3, check)
    monkeypatch.setattr(flat_gradients, "MIN_OVERLAPPED", 0)
    for piece in (1, 4096, 1 << 30):
        monkeypatch.setattr(flat_gradients, "PIECE", piece)
        on_ranks(3, check)


def test_a_piece_is_sent_before_the_backward_pass_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_gradients, "MIN_OVERLAPPED", 0)
    monkeypatch.setattr(flat_gradients, "PIECE", 1)
    events: list[str] = []

    class Listening(Ranks):
        def add(self, numbers: torch.Tensor) -> None:
            events.append("sent")

        def gather(self, data: bytes) -> list[bytes]:
            raise AssertionError

        to_first = from_first = gather

    made = network()[:5]
    gradients = FlatGradients(list(made.parameters()), 2, Listening())
    gradients.clear()
    made[0].weight.register_post_accumulate_grad_hook(lambda parameter: events.append("first layer"))
    made(torch.ones(4, 8)).sum().backward()
    assert events.index("sent") < events.index("first layer")
    assert events.count("sent") == 6


@pytest.mark.rest
def test_processes_add_up_pieces_by_gloo() -> None:
    in_processes(2, check_in_pieces)
