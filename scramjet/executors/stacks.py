"""Several policies of one shape that act at once, each for its own rows: the opponents of self-play.

`TorchStack` stacks the weights and runs torch's operators once for all of them; `NumbaStack` does the same with
compiled functions. Rows are divided evenly: with K policies and R rows, policy k acts for rows k R/K to (k + 1) R/K.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.compile.jit import AdaptiveThreading
from scramjet.engine.trees import map_leaves
from scramjet.executors.executor import ActStep
from scramjet.executors.numba_executor import numba_network
from scramjet.executors.numba_network import ROWS_PER_PART, NumbaStep
from scramjet.kernels.cpu.acting import act_for_members, act_in_part
from scramjet.policies.networks import PolicyOutput
from scramjet.policies.observations import lowest_observations
from scramjet.policies.policy import Policy
from scramjet.policies.symmetries import CanonicalNetwork


class PolicyStack(ABC):
    """K policies of one shape; weights are copied in by `load` and never learn."""

    def __init__(self, count: int) -> None:
        self.count = count

    @abstractmethod
    def load(self, index: int, weights: Mapping[str, Tensor] | None) -> None:
        """Copy a policy's state dict into the place of number `index`; None: from now on it acts at random."""

    @abstractmethod
    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        """Return one function for each step, which draws that step's actions into its buffers, whose rows are those of
        all policies one behind the other. The buffers must not move."""


class _Acting(nn.Module):
    """A policy whose forward pass is what acting needs: logits, and the state after it where it is recurrent."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: Any, state: Tensor | None) -> tuple[Tensor, ...]:
        """Logits [B, num_inputs], then with memory the state [B, state_size]."""
        if self.policy.splits:
            return (self.policy.logits(obs),)
        output: PolicyOutput = self.policy(obs, state)
        return (output.logits,) if output.state is None else (output.logits, output.state)


class TorchStack(PolicyStack):
    """Stacked weights, and torch's operators mapped over them; a network that cannot be mapped runs K times."""

    def __init__(self, policy: Policy, count: int, observation_space: Any) -> None:
        super().__init__(count)
        self._policy = policy
        self._acting = _Acting(copy.deepcopy(policy).requires_grad_(False)).eval()
        state = {name: tensor.detach() for name, tensor in self._acting.state_dict().items()}
        self._stacked = {  # [K, ...]
            name: torch.stack([tensor] * count) for name, tensor in state.items() if tensor.is_floating_point()
        }
        self._scale = torch.ones(count, 1, 1, device=policy.device)  # of the logits; 0: random actions
        self._shared = {name: tensor for name, tensor in state.items() if name not in self._stacked}
        self.is_mapped = self._can_be_mapped(observation_space)
        """Whether all policies run in one pass."""

    @torch.no_grad()
    def _can_be_mapped(self, observation_space: Any) -> bool:
        """Try two observations of each policy."""
        device, count = self._policy.device, self.count
        obs = map_leaves(
            lambda leaf: leaf.to(device).expand(count, *leaf.shape), lowest_observations(observation_space, 2)
        )
        size = self._policy.state_size
        state = torch.zeros(count, 2, size, device=device) if size else None
        try:
            self._mapped(obs, state)
        except (NotImplementedError, RuntimeError, TypeError, ValueError):  # what torch.vmap raises for such networks
            return False
        return True

    @torch.no_grad()
    def load(self, index: int, weights: Mapping[str, Tensor] | None) -> None:
        self._scale[index] = float(weights is not None)
        if weights is None:
            return
        for name, stacked in self._stacked.items():
            stacked[index].copy_(weights[name.removeprefix("policy.")])

    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        return [partial(self._act, step) for step in steps]

    def _act(self, step: ActStep) -> None:
        count = self.count
        obs = map_leaves(lambda leaf: leaf.unflatten(0, (count, -1)), step.obs)
        state = None if step.state is None else step.state.unflatten(0, (count, -1))
        logits, *after = self._mapped(obs, state) if self.is_mapped else self._one_by_one(obs, state)
        if step.state is not None:
            step.state.copy_(after[0].flatten(0, 1))
        self._policy.distribution.sample(
            (logits * self._scale).flatten(0, 1), step.mask, step.noise, step.action, step.log_prob
        )

    def _run(self, stacked: dict[str, Tensor], obs: Any, state: Tensor | None) -> tuple[Tensor, ...]:
        # Not strict: buffers that no checkpoint holds, such as the values of bins, are constants of the network itself.
        result: tuple[Tensor, ...] = torch.func.functional_call(
            self._acting, {**stacked, **self._shared}, (obs, state), strict=False
        )
        return result

    def _mapped(self, obs: Any, state: Tensor | None) -> tuple[Tensor, ...]:
        """Run all policies at once; observations [K, R / K, ...], results [K, R / K, ...]."""
        if state is None:
            return torch.vmap(lambda stacked, own: self._run(stacked, own, None), randomness="different")(
                self._stacked, obs
            )
        return torch.vmap(self._run, randomness="different")(self._stacked, obs, state)

    def _one_by_one(self, obs: Any, state: Tensor | None) -> list[Tensor]:
        """Run one policy after the other; shapes are as in `_mapped`."""
        parts = [
            self._run(
                {name: tensor[k] for name, tensor in self._stacked.items()},
                map_leaves(lambda leaf, k=k: leaf[k], obs),
                None if state is None else state[k],
            )
            for k in range(self.count)
        ]
        return [torch.stack(outputs) for outputs in zip(*parts, strict=True)]


# --- several small networks on the CPU that act at once in compiled functions, each for its own rows


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
