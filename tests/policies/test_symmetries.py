"""Networks that use the symmetries of a board: turning the board turns the answer, exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scramjet.envs.api import Box, Discrete, Symmetry
from scramjet.errors import ConfigError, WorldError
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.symmetries import SymmetryTables, tables_of_world, with_symmetries

BOARD, CHOICES = Box(0, 1, (2, 3, 4), np.int8), Discrete(4)
MIRROR = Symmetry("mirror", lambda board: board[..., ::-1], (3, 2, 1, 0))


def symmetric_network(how: str) -> torch.nn.Module:
    torch.manual_seed(0)
    network = default_network(BOARD, CHOICES, PolicyConfig(encoder="grid_cnn", grid_channels=(4,), grid_blocks=1))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return with_symmetries(network, how, SymmetryTables.of((MIRROR,), BOARD, CHOICES))


@pytest.mark.parametrize("how", ["canonical", "average"])
def test_the_mirrored_board_gets_the_mirrored_answer(how: str) -> None:
    network, boards = symmetric_network(how), torch.randint(0, 2, (64, 2, 3, 4), dtype=torch.int8)
    output, mirrored = network(boards), network(boards.flip(-1))
    torch.testing.assert_close(mirrored.logits, output.logits.flip(-1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mirrored.value, output.value, atol=1e-5, rtol=1e-5)
    assert output.logits.std() > 0.1
    assert not torch.allclose(output.logits, output.logits.flip(-1), atol=1e-3)


def test_of_two_mirrored_boards_the_canonical_network_sees_the_same_one() -> None:
    network, boards = symmetric_network("canonical"), torch.randint(0, 2, (64, 2, 3, 4), dtype=torch.int8)
    seen: list[torch.Tensor] = []
    network.network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))  # type: ignore[union-attr]
    network(boards), network(boards.flip(-1))
    assert torch.equal(*seen)
    matches = (seen[0] == boards).flatten(1).all(1)
    assert torch.equal(seen[0][~matches], boards.flip(-1)[~matches])
    assert 0 < int(matches.sum()) < 64


def test_a_symmetry_that_does_more_than_move_things_is_refused() -> None:
    cut = Symmetry("cut", lambda board: board[..., :2], (3, 2, 1, 0))
    with pytest.raises(WorldError, match=r"'cut'.*exactly once"):
        SymmetryTables.of((cut,), BOARD, CHOICES)
    twice = Symmetry("twice", lambda board: board, (0, 0, 1, 2))
    with pytest.raises(WorldError, match=r"'twice'.*actions"):
        SymmetryTables.of((twice,), BOARD, CHOICES)


def test_a_world_without_symmetries_says_so() -> None:
    with pytest.raises(ConfigError, match=r"declares no symmetries.*--policy.symmetry none"):
        tables_of_world(object(), BOARD, CHOICES)


def test_what_two_symmetries_make_together_is_added() -> None:
    square = Box(0, 1, (3, 3), np.int8)
    cells = np.arange(9).reshape(3, 3)
    turn = Symmetry("quarter turn", np.rot90, np.rot90(cells, -1).ravel().tolist())
    mirror = Symmetry("mirror", np.fliplr, np.fliplr(cells).ravel().tolist())
    tables = SymmetryTables.of((turn, mirror), square, Discrete(9))
    assert tables.count == 8
    assert len({tuple(row) for row in tables.obs_sources.tolist()}) == 8
    for sources, actions in zip(tables.obs_sources, tables.action_sources, strict=True):
        assert torch.equal(sources[actions], torch.arange(9)), "a move in a cell goes where the cell goes"
