"""Networks that use the symmetries of a world's board: what they have learned of one position they know of its mirror.

A world declares its symmetries (`Env.symmetries`). Here they are index tables: where each number of an observation and
each action comes from on a turned board. Both networks below are exact: acting, learning and evaluation see the same
policy, and turning the board turns its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.envs.api import Box, Discrete, MultiBinary, Symmetry
from scramjet.errors import ConfigError, WorldError
from scramjet.kernels.operations import canonical_boards, turned_boards
from scramjet.policies.layers import PolicyOutput

MOST_SYMMETRIES = 64
"""Most turned boards of one, the board itself included."""


class SymmetryTables(nn.Module):
    """The symmetries of a board as index tables; number 0 is the identity."""

    obs_sources: Tensor  # [G, obs_size]: number i of the turned observation is number obs_sources[g, i] of the original
    action_sources: Tensor  # [G, A]: logit a for the original board is logit action_sources[g, a] for the turned one

    def __init__(self, obs_sources: Tensor, action_sources: Tensor) -> None:
        super().__init__()
        self.register_buffer("obs_sources", obs_sources)  # in the checkpoint, so that a policy loads without its world
        self.register_buffer("action_sources", action_sources)

    @classmethod
    def of(cls, symmetries: Sequence[Symmetry], observation_space: Any, action_space: Any) -> SymmetryTables:
        """The tables of a world's symmetries; an error says the fix where spaces or symmetries do not fit."""
        if not isinstance(observation_space, Box | MultiBinary) or not isinstance(action_space, Discrete):
            raise ConfigError(
                f"policy.symmetry needs one array as the observation and a Discrete action space, and there are "
                f"{observation_space} and {action_space}; use --policy.symmetry none"
            )
        shape, choices = tuple(observation_space.shape), np.arange(int(action_space.n))
        numbers = np.arange(int(np.prod(shape))).reshape(shape)
        obs_rows, action_rows = [numbers.ravel()], [choices]
        for symmetry in symmetries:
            obs_rows.append(_permutation(symmetry, np.asarray(symmetry.observe(numbers)), numbers, "observe"))
            action_rows.append(_permutation(symmetry, np.asarray(list(symmetry.actions)), choices, "actions"))
        _complete(obs_rows, action_rows)
        return cls(torch.from_numpy(np.stack(obs_rows)), torch.from_numpy(np.stack(action_rows)))

    @property
    def count(self) -> int:
        """G, the identity included."""
        return len(self.obs_sources)

    def turned(self, obs: Tensor) -> Tensor:
        """All turned boards of observations [B, *shape], [G, B, *shape]."""
        return turned_boards(obs, self.obs_sources)


def _permutation(symmetry: Symmetry, given: np.ndarray, numbers: np.ndarray, what: str) -> np.ndarray:
    """The given numbers laid flat; refuses any that are not all of `numbers`, each once, in the same shape."""
    if given.shape != numbers.shape or not np.array_equal(np.sort(given, axis=None), numbers.ravel()):
        raise WorldError(
            f"the symmetry {symmetry.name!r} has {what} that do not only move things: it must give each of the "
            f"{numbers.size} numbers of a {'board' if what == 'observe' else 'list of actions'} of shape "
            f"{list(numbers.shape)} exactly once, and gave shape {list(given.shape)}"
        )
    return np.ascontiguousarray(given.ravel())


def _complete(obs_rows: list[np.ndarray], action_rows: list[np.ndarray]) -> None:
    """Add what symmetries make when one follows the other, such as the half turn of two mirrors, until nothing is new.

    Without it the turned boards of two mirror images would not be the same set.
    """
    known = {row.tobytes() for row in obs_rows}
    for first, first_actions in zip(obs_rows, action_rows, strict=True):  # grows while it is read
        for second, second_actions in zip(list(obs_rows), list(action_rows), strict=True):
            both = first[second]
            if both.tobytes() in known:
                continue
            if len(obs_rows) == MOST_SYMMETRIES:
                raise WorldError(f"the symmetries of this world make more than {MOST_SYMMETRIES} boards out of one")
            known.add(both.tobytes())
            obs_rows.append(both)
            action_rows.append(second_actions[first_actions])


class CanonicalNetwork(nn.Module):
    """Shows a network one of all turned boards, always the same one, and turns its answer back.

    It costs no further forward pass, and every position stands for all its mirrors.
    """

    order: Tensor

    def __init__(self, network: nn.Module, tables: SymmetryTables) -> None:
        super().__init__()
        self.network, self.tables = network, tables
        self.state_size: int = getattr(network, "state_size", 0)
        weights = np.random.default_rng(0).normal(size=tables.obs_sources.shape[1])
        self.register_buffer("order", torch.from_numpy(weights))  # [obs_size], by which turned boards are compared

    def forward(self, obs: Tensor, *memory: Any) -> PolicyOutput:
        """Logits and values of a batch; see `Policy` for the memory of recurrent networks."""
        board, chosen = self.canonical(obs)
        output = PolicyOutput(*self.network(board, *memory))
        logits = output.logits.gather(1, self.tables.action_sources[chosen])
        return PolicyOutput(logits, output.value, output.state)

    def canonical(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The turned boards that the network sees, [B, *shape], and the numbers of their symmetries, [B]."""
        return canonical_boards(obs, self.tables.obs_sources, self.order)


class AveragedNetwork(nn.Module):
    """Shows a network all turned boards and averages its answers, turned back; each forward pass is G times as long."""

    def __init__(self, network: nn.Module, tables: SymmetryTables) -> None:
        super().__init__()
        self.network, self.tables = network, tables

    def forward(self, obs: Tensor) -> PolicyOutput:
        """Logits and values of a batch."""
        count, num_rows = self.tables.count, len(obs)
        output = PolicyOutput(*self.network(self.tables.turned(obs).flatten(0, 1)))
        logits = output.logits.view(count, num_rows, -1)
        back = [logits[g].index_select(1, sources) for g, sources in enumerate(self.tables.action_sources)]
        return PolicyOutput(torch.stack(back).mean(0), output.value.view(count, num_rows).mean(0))


def with_symmetries(network: nn.Module, how: str, tables: SymmetryTables) -> nn.Module:
    """The network made symmetric as `policy.symmetry` says: "canonical" or "average"."""
    if how == "average" and int(getattr(network, "state_size", 0)):
        raise ConfigError(
            "policy.symmetry='average' would need a memory for each turned board; use --policy.symmetry canonical, or "
            "--policy.memory none"
        )
    return CanonicalNetwork(network, tables) if how == "canonical" else AveragedNetwork(network, tables)


def tables_of_world(env: Any, observation_space: Any, action_space: Any) -> SymmetryTables:
    """The symmetry tables of a world; refuses one that declares no symmetries."""
    symmetries = getattr(env, "symmetries", ())
    if not symmetries:
        raise ConfigError(
            "policy.symmetry is set, but this world declares no symmetries; use --policy.symmetry none, or declare "
            "them in the rules (`symmetries`)"
        )
    return SymmetryTables.of(symmetries, observation_space, action_space)
