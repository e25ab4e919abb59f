"""What each back-end runs, by closed tables, and why it does not run the rest; other code asks here.

What is not listed here, and every object whose methods somebody has replaced, is run by plain torch. Kernels read
weights and never call methods, so a guess would be silent.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.kernels.operations import HOOKS
from scramjet.policies.distributions import Categorical, DiagonalGaussian, Distribution, MultiCategorical
from scramjet.policies.encoders.grids import GridCNN
from scramjet.policies.encoders.images import NatureCNN
from scramjet.policies.encoders.value_propagation import ValuePropagation
from scramjet.policies.networks import SeparateActorCritic, SharedActorCritic
from scramjet.policies.normalization import ObservationNormalizer
from scramjet.policies.policy import Policy
from scramjet.policies.recurrent import GRU, LSTM, Layer, LayeredCore, MinGRU

Backend = Literal["numba", "triton"]
"""Numba's compiled functions for a policy on the CPU, and Triton's kernels that run an MLP as a whole."""


class Support(NamedTuple):
    """Why a back-end does not run something, in words; empty where it does."""

    numba: str = ""
    triton: str = ""


def no_numba_encoder(name: str) -> str:
    """The reason for an encoder of this class, or one whose layers were changed."""
    return f"compiled functions do not learn the encoder of these observations ({name})"


def _no_triton_encoder(name: str, own: str = "") -> str:
    return f"Triton's MLP kernels run no {name}: {own}the layers, the loss and Adam have kernels of their own"


_BOTH = Support()

ANY_MEMORY = Support(
    triton="Triton's MLP kernels know no memory: it, the layers, the loss and Adam have kernels of their own"
)

DISTRIBUTIONS: dict[type[Distribution], Support] = dict.fromkeys(
    (Categorical, MultiCategorical, DiagonalGaussian), _BOTH
)
NETWORKS: dict[type[nn.Module], Support] = {SeparateActorCritic: _BOTH, SharedActorCritic: _BOTH}
ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}
"""Activations that both back-ends run, by the names that kernels know them by."""
ENCODERS: dict[type[nn.Module], Support] = {
    GridCNN: Support(triton=_no_triton_encoder("GridCNN", "it, ")),
    ValuePropagation: Support(triton=_no_triton_encoder("ValuePropagation", "it, ")),
    NatureCNN: Support(no_numba_encoder("NatureCNN"), _no_triton_encoder("NatureCNN", "it, ")),
}
"""Encoders with weights. One without runs before the kernels, whatever it is."""
MEMORIES: dict[type[nn.Module], Support] = dict.fromkeys((LSTM, GRU, MinGRU), ANY_MEMORY)
LOSSES = ("ppo",)
"""Losses that kernels of both back-ends compute; torch's operators learn every other."""
OPTIMIZERS: tuple[type[torch.optim.Optimizer], ...] = (torch.optim.Adam,)
"""Optimizers whose steps both back-ends take, without their variants: see `why_not_adam`."""
NORMALIZERS: dict[type[nn.Module], Support] = {ObservationNormalizer: _BOTH}
"""Normalizers that kernels apply themselves. Any other runs before them."""
SETTINGS: dict[str, Support] = {
    "squashed actions": Support(
        "compiled functions do not squash actions",
        "Triton kernels do not squash actions (policy.bounded_actions='tanh')",
    ),
    "symlog of values": Support(*2 * ["kernels do not turn the symlog of values back into values"]),
    "distribution of values": Support(
        "compiled functions do not run values as a distribution (--policy.value-bins)",
        "Triton kernels learn values by their squared error, not as a distribution",
    ),
    "more for the critic": Support(
        triton="Triton kernels give policy and critic the same observations (observe_critic)"
    ),
}
"""What a policy may be set to, whatever its classes."""


def no_linear(module: nn.Module) -> str:
    """A layer that is no plain linear one, for the reason why kernels do not run it."""
    return f"a {type(module).__name__} in place of a linear layer"


def why_not(backend: Backend, thing: object, table: Mapping[Any, Support]) -> str:
    """Why a back-end does not run a thing, in words; empty where it does. What is not in the table no kernel runs."""
    kind = type(thing)
    if kind in table:
        return str(getattr(table[kind], backend))
    if table is ENCODERS:
        return (no_numba_encoder if backend == "numba" else _no_triton_encoder)(kind.__name__)
    what = "compiled functions" if backend == "numba" else "Triton kernels"
    return f"{what} do not run a {kind.__name__}"


_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))


def why_torch(policy: Policy) -> str:
    """Why no kernel may stand for a policy, in words; empty where its classes are those that kernels were written for.

    This is about the policy, its distribution, its trunks and its cores; each kernel knows itself which layers it runs.
    """
    distribution = policy.distribution
    if type(policy) is not Policy or type(distribution) not in DISTRIBUTIONS:
        other = policy if type(policy) is not Policy else distribution
        return f"kernels do not run a {type(other).__name__} of the user's own"
    for thing in (policy, distribution, *policy.modules()):
        if replaced := replaced_method(thing):
            return f"{type(thing).__name__}.{replaced} was replaced by another function"
        if isinstance(thing, nn.Sequential) and type(thing) is not nn.Sequential:
            return f"kernels do not run a {type(thing).__name__}"
        if isinstance(thing, LayeredCore) and any(type(layer) is not Layer for layer in thing.layers):
            return "a layer of the memory core is of the user's own kind"
    if any(map(_hooks_of, policy.parameters())):
        return "somebody listens to the gradient of a weight"
    return ""


def _hooks_of(parameter: nn.Parameter) -> list[object]:
    """The user's hooks on a weight's gradient; ours, which add gradients over ranks, change nothing."""
    found = [*(parameter._backward_hooks or {}).values(), *(parameter._post_accumulate_grad_hooks or {}).values()]
    return [hook for hook in found if not getattr(hook, "__module__", "").startswith("scramjet.")]


def replaced_method(thing: object) -> str:
    """The first method of an object's class that the object itself has another of; empty if there is none."""
    return next(iter(_replaced_methods(thing)), "")


def _replaced_methods(thing: object) -> list[str]:
    own = vars(thing).keys() - _MODULE_ATTRIBUTES
    return [name for name in sorted(own) if callable(getattr(type(thing), name, None))]


def parts_of(policy: Policy) -> list[object]:
    """What decides what a policy computes but for the numbers in its weights: its modules and their classes, weights,
    hooks and replaced methods. A policy with other parts than before, by identity, is another one to kernels."""
    found: list[object] = []
    for thing in (policy.distribution, *policy.modules()):
        found += [thing, type(thing), *(vars(thing)[name] for name in _replaced_methods(thing))]
        if isinstance(thing, nn.Module):
            found += [*thing._parameters.values(), *(hook for name in HOOKS for hook in getattr(thing, name).values())]
    return found + [hook for parameter in policy.parameters() for hook in _hooks_of(parameter)]


class Watched:
    """A policy whose parts a callback may exchange, hook into or replace."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._parts = policy, parts_of(policy)
        self.version = 0
        """How often another policy was found here."""

    def look_again(self) -> None:
        """Count it if the policy has other parts than at the last look."""
        parts = parts_of(self._policy)
        if not are_same(parts, self._parts):
            self._parts, self.version = parts, self.version + 1


def what_learns(network: nn.Module, optimizer: torch.optim.Optimizer | None) -> tuple[object, ...]:
    """Which weights learn, and how: a recorded gradient step holds only as long as all of this is equal.

    The learning rate is no part of it: schedules change it where recorded steps read it.
    """
    learns = tuple(parameter.requires_grad for parameter in network.parameters())
    if optimizer is None:
        return learns
    groups = [
        (tuple(map(id, group["params"])), *(repr(group[name]) for name in sorted(group.keys() - {"params", "lr"})))
        for group in optimizer.param_groups
    ]
    hooks = *optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()
    return learns, id(optimizer), vars(optimizer).get("step"), hooks, tuple(groups)


def are_same(parts: list[object], others: list[object]) -> bool:
    """Whether two lists of parts have the same objects."""
    return len(parts) == len(others) and all(map(operator.is_, parts, others))


def are_alike(one: nn.Module | None, other: nn.Module | None) -> bool:
    """Whether two modules without weights compute the same: they have the same class, settings and numbers."""
    if type(one) is not type(other):
        return False
    if one is None or other is None:
        return True
    own, others = (_settings(module) for module in (one, other))
    children = [dict(module.named_children()) for module in (one, other)]
    return (
        own.keys() == others.keys()
        and children[0].keys() == children[1].keys()
        and all(_is_equal(own[name], others[name]) for name in own)
        and all(are_alike(child, children[1][name]) for name, child in children[0].items())
    )


def _settings(module: nn.Module) -> dict[str, Any]:
    own = {name: value for name, value in vars(module).items() if name not in _MODULE_ATTRIBUTES}
    return own | dict(module.named_buffers(recurse=False))


def _is_equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    try:
        return bool(one == other)
    except Exception:  # an object that cannot say so is not known to be the same
        return False


def why_not_adam(optimizer: torch.optim.Optimizer) -> str:
    """Why kernels cannot take an optimizer's steps, in words; empty for Adam itself without any of its variants."""
    if type(optimizer) not in OPTIMIZERS:
        return f"kernels take no steps of {type(optimizer).__name__}"
    if len(optimizer.param_groups) != 1:
        return "kernels take steps of one group of parameters"
    variants = ("weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")
    if used := [name for name in variants if optimizer.param_groups[0].get(name)]:
        return f"kernels take no steps of Adam with {used[0]}"
    if "step" in vars(optimizer) or optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return "the optimizer's step was replaced or is listened to"
    return ""
