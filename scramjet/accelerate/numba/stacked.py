"""Several small networks on the CPU that act at once in compiled functions, each for its own rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.accelerate.executor import ActStep
from scramjet.accelerate.numba.acting_kernels import act_for_members, act_in_part
from scramjet.accelerate.numba.executor import numba_network
from scramjet.accelerate.numba.network import ROWS_PER_PART, NumbaStep
from scramjet.accelerate.stacked import PolicyStack
from scramjet.compile.jit import AdaptiveThreading
from scramjet.engine.trees import map_leaves
from scramjet.policies.policy import Policy
from scramjet.policies.symmetries import CanonicalNetwork


class NumbaStack(PolicyStack):
    """K small networks; one call of a compiled function draws the actions of all of them."""

    def __init__(self, policy: Policy, count: int) -> None:
        """Raises `UnsupportedPolicyError` if compiled functions cannot run the policy's network."""
        super().__init__(count)
        numba_network(policy)  # refuses before anything is copied
        self._policies = [copy.deepcopy(policy).eval() for _ in range(count)]
        self._networks = [numba_network(own) for own in self._policies]
        self._kept: list[np.ndarray] = []  # tables whose addresses the functions hold

    @torch.no_grad()
    def load(self, index: int, weights: Mapping[str, Tensor] | None) -> None:
        policy = self._policies[index]
        if weights is None:
            network: Any = policy.network
            head: Any = (network.network if isinstance(network, CanonicalNetwork) else network).actor_head
            for parameter in head.parameters():
                parameter.zero_()  # all logits are 0
            return
        for name, tensor in policy.state_dict().items():
            tensor.copy_(weights[name])
        self._networks[index].refresh()

    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        for network in self._networks:
            network.refresh()
        first = self._networks[0].encode(steps[0].obs)
        is_view = isinstance(steps[0].obs, Tensor) and first.data_ptr() == steps[0].obs.data_ptr()
        inputs = torch.zeros(first.shape)
        tasks = [self._tasks(k, steps, None if is_view else inputs) for k in range(self.count)]
        num_parts = max(1, min(torch.get_num_threads(), self.count, len(first) // ROWS_PER_PART))
        pays, functions = AdaptiveThreading(), []
        for t, step in enumerate(steps):
            addresses = [task[t].address for task in tasks]
            table = np.array([self.count, act_in_part.address, *addresses], np.int64)
            self._kept.append(table)
            act = act_for_members.prepared(num_parts, int(table.ctypes.data), pays)
            functions.append(act if is_view else partial(self._encode_and_act, step.obs, inputs, act))
        return functions

    def _tasks(self, k: int, steps: Sequence[ActStep], inputs: Tensor | None) -> list[Any]:
        """The tasks of network k, one a step; without `inputs` it reads the observations where they are."""
        network = self._networks[k]
        rows = slice(k * len(steps[0].action) // self.count, (k + 1) * len(steps[0].action) // self.count)
        own = [_rows_of(step, rows) for step in steps]
        bound = [
            NumbaStep(
                network.encode(step.obs) if inputs is None else inputs[rows],
                step.mask, step.noise, step.action, step.log_prob, step.value,
            )
            for step in own
        ]  # fmt: skip
        return network.act_tasks(bound, own[0].state, num_parts=1)

    def _encode_and_act(self, obs: Any, inputs: Tensor, act: Callable[[], None]) -> None:
        if self._policies[0].normalizer is None:  # what encodes has no weights: one pass serves all
            inputs.copy_(self._networks[0].encode(obs))
        else:
            size = len(inputs) // self.count
            for k, network in enumerate(self._networks):
                rows = slice(k * size, (k + 1) * size)
                inputs[rows] = network.encode(map_leaves(lambda leaf, rows=rows: leaf[rows], obs))
        act()


def _rows_of(step: ActStep, rows: slice) -> ActStep:
    """Some rows of a step's buffers, as views."""
    names = ("mask", "noise", "action", "log_prob", "value", "state")
    parts: dict[str, Any] = {name: None if (leaf := getattr(step, name)) is None else leaf[rows] for name in names}
    return replace(step, obs=map_leaves(lambda leaf: leaf[rows], step.obs), **parts)
