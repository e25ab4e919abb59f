"""The operations of networks that have kernels, each beside its plain form in torch, and the one place that chooses.

Triton's kernels take tensors on a GPU if Triton is installed and `--no-fused` does not forbid them: a setting of the
process, as torch's precision is. They read the weights of modules and do not call them, so what a user has changed,
replaced or hooked into is left to torch. Importing this does not load Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_modules

from scramjet.compile.addresses import AVAILABLE
from scramjet.kernels.cpu import planning, recurrent

_are_allowed = True
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)


def allow_kernels(are_allowed: bool) -> None:
    """Let the process use Triton's kernels from now on, or leave everything to torch's operators (`--no-fused`)."""
    global _are_allowed
    _are_allowed = are_allowed


def takes_kernels(tensor: Tensor) -> bool:
    """Whether kernels take this tensor: it is on the GPU, Triton is installed, and they are allowed."""
    if not (tensor.is_cuda and _are_allowed):
        return False
    from scramjet.kernels.gpu.language import HAS_TRITON

    return HAS_TRITON


def is_traced() -> bool:
    """Whether torch compiles what is called now, or maps over tensors, which have no memory that kernels could read."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def has_hooks(modules: Iterable[nn.Module]) -> bool:
    """Whether somebody listens to what goes through one of the modules, forward or back, or has put a function of his
    own in place of a `forward`."""
    if any(getattr(torch_modules, name, None) for name in _GLOBAL_HOOKS):
        return True
    return any("forward" in vars(module) or any(getattr(module, name) for name in HOOKS) for module in modules)


def is_plain_convolution(module: nn.Module) -> bool:
    """Whether this is a square convolution with a bias, of all channels with all, padded with zeros."""
    return (
        type(module) is nn.Conv2d
        and module.bias is not None
        and "weight" in module._parameters  # else it is made from others before each call
        and isinstance(module.padding, tuple)
        and all(len(set(sizes)) == 1 for sizes in (module.kernel_size, module.stride, module.padding))
        and module.dilation == (1, 1)
        and module.groups == 1
        and module.padding_mode == "zeros"
    )


# --- linear layers


_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}


def run_trunk(trunk: nn.Sequential, source: Tensor) -> Tensor:
    """Features [N, F] of a trunk made by `layers.mlp`, from inputs [N, D]."""
    if not (takes_kernels(source) and _is_known(trunk) and _takes_layers(source, list(trunk)[::2], [trunk, *trunk])):
        features: Tensor = trunk(source)
        return features
    from scramjet.kernels.gpu import dense as layers
    from scramjet.kernels.gpu.language import product_precision

    precision, modules = product_precision(), list(trunk)
    for layer, activation in zip(modules[::2], modules[1::2], strict=True):
        source = layers.hidden(source, layer.weight, layer.bias, _ACTIVATIONS[type(activation)], precision)  # type: ignore[arg-type]
    return source


def run_heads(features: Tensor, actor_head: nn.Module, critic_head: nn.Module) -> tuple[Tensor, Tensor]:
    """Logits [N, num_inputs] and values [N] of a policy head and a value head on the same features [N, F]."""
    if takes_kernels(features) and _takes_layers(features, [actor_head, critic_head], [actor_head, critic_head]):
        from scramjet.kernels.gpu import dense as layers
        from scramjet.kernels.gpu.language import product_precision

        assert isinstance(actor_head, nn.Linear)
        assert isinstance(critic_head, nn.Linear)
        if actor_head.out_features <= layers.MAX_HEADS and critic_head.out_features == 1:
            weights = actor_head.weight, actor_head.bias, critic_head.weight, critic_head.bias
            return layers.heads(features, *weights, product_precision())
    return actor_head(features), critic_head(features).squeeze(-1)


def unit_rows(rows: Tensor) -> Tensor:
    """Rows [N, F] scaled to length 1; rows of zeros stay as they are."""
    if takes_kernels(rows) and not is_traced():
        from scramjet.kernels.gpu import normalizing as kernels

        if rows.shape[1] <= kernels.WIDEST_ROW:
            return kernels.unit_rows(rows)
    return functional.normalize(rows, dim=-1)


def _is_known(trunk: nn.Sequential) -> bool:
    """Whether this is linear layers with tanh or ReLU after each."""
    if type(trunk) is not nn.Sequential:
        return False
    activations = list(trunk)[1::2]
    return len(trunk) == 2 * len(activations) > 0 and all(type(module) in _ACTIVATIONS for module in activations)


def _takes_layers(source: Tensor, linears: list[nn.Module], modules: list[nn.Module]) -> bool:
    """Whether the kernels take these layers on the GPU: plain ones whose modules nobody hooked into.

    Tensors that torch traces or maps over have no memory that a kernel could read.
    """
    from scramjet.kernels.gpu.language import product_precision

    is_rounded = torch.is_autocast_enabled("cuda")
    types = (torch.float32, torch.bfloat16) if is_rounded else (torch.float32,)
    return (
        source.dim() == 2
        and source.numel() > 0
        and source.dtype in types
        and not (is_rounded and product_precision() != "bfloat16")
        and all(_is_plain(layer) for layer in linears)
        and not has_hooks(modules)
        and not is_traced()
    )


def _is_plain(layer: nn.Module) -> bool:
    """Whether this is a linear layer with a bias, all of it contiguous float32 on the GPU."""
    return (
        type(layer) is nn.Linear
        and layer.bias is not None
        and all(each.is_cuda and each.dtype is torch.float32 and each.is_contiguous() for each in layer.parameters())
    )


# --- convolutions


def is_mapped(tensor: Tensor) -> bool:
    """Whether this is one of several that `torch.vmap` treats as one."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))


def are_convolutions(layers: nn.Module) -> bool:
    """Whether this is a plain sequence of convolutions with a ReLU after each, which nobody hooked into."""
    if type(layers) is not nn.Sequential or len(layers) % 2:
        return False
    convolutions, activations = list(layers)[::2], list(layers)[1::2]
    return (
        all(is_plain_convolution(layer) for layer in convolutions)
        and all(type(layer) is nn.ReLU for layer in activations)
        and not has_hooks([layers, *layers])
    )


# --- observations


def normalized(obs: Tensor, mean: Tensor, variance: Tensor, clip: float) -> Tensor:
    """Observations [B, *shape] shifted and scaled by mean and variance, float64 [*shape], and clipped."""
    fits = obs.shape[1:] == mean.shape or (obs.dim() == 1 and mean.shape == (1,))
    if fits and takes_kernels(obs) and not (obs.requires_grad or is_traced()):
        from scramjet.kernels.gpu import normalizing

        return normalizing.normalized(obs, mean, variance, clip)
    scale = (variance + 1e-8).rsqrt().float()
    return ((obs.float() - mean.float()) * scale).clamp(-clip, clip)


def turned_boards(obs: Tensor, sources: Tensor) -> Tensor:
    """All turned boards of observations [B, *shape], [G, B, *shape]: number i of board g is number `sources` [G, N]
    [g, i] of the original."""
    flat = obs.flatten(1)
    every = [flat.index_select(1, each) for each in sources]
    return torch.stack(every).view(len(sources), *obs.shape)


def canonical_boards(obs: Tensor, sources: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Of all turned boards of each observation the one whose numbers times `order` [N] have the highest sum,
    [B, *shape], and which one it is, [B]."""
    if takes_kernels(obs) and not is_mapped(obs):
        from scramjet.kernels.gpu import boards

        return boards.canonical_boards(obs, sources, order)
    turned = turned_boards(obs, sources)
    rank = (turned.flatten(2) * order).sum(-1)  # [G, B] in float64: other boards have other numbers
    chosen = rank.argmax(0)  # [B]
    rows = torch.arange(len(obs), device=obs.device)
    return turned[chosen, rows], chosen


# --- planning on grids


def propagate(reward: Tensor, passes: Tensor, max_sweeps: int) -> Tensor:
    """The values [B, H, W] of rewards and shares [B, H, W] once they no longer change; shares are in [0, 1].

    If that takes more than `max_sweeps` sweeps, values are those of that moment, and so are the gradients.
    """
    values: Tensor = _Propagate.apply(reward, passes, max_sweeps)
    return values


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reward: Tensor, passes: Tensor, max_sweeps: int) -> Tensor:
        reward, passes = reward.detach().contiguous(), passes.detach().contiguous()
        value = torch.empty_like(reward)
        if reward.is_cuda:
            from scramjet.kernels.gpu import planning as on_gpu  # machines without a GPU cannot import it

            on_gpu.sweep(reward, passes, max_sweeps, value)
        else:
            planning.sweep(reward.numpy(), passes.numpy(), max_sweeps, value.numpy())
        ctx.save_for_backward(reward, passes, value)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        reward, passes, value = ctx.saved_tensors
        to_reward, to_passes = torch.empty_like(reward), torch.empty_like(passes)
        tensors = (reward, passes, value, grads[0].contiguous(), to_reward, to_passes)
        if reward.is_cuda:
            from scramjet.kernels.gpu import planning as on_gpu

            on_gpu.route_back(*tensors)
        else:
            planning.route_back(*(tensor.numpy() for tensor in tensors))
        return to_reward, to_passes, None


# --- recurrences


class Passes(Protocol):
    """The forward and backward pass of a recurrence on one kind of device."""

    def forward(
        self, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor], keeps: bool
    ) -> tuple[Tensor, Tensor, Any]:
        """Outputs [T, B, H], the state after the last step and, with `keeps`, what `backward` needs."""

    def backward(
        self, to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor, begins: Tensor | None,
        weights: Sequence[Tensor], needs_features: bool, kept: Any,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        """Gradients of features, state and weights; may overwrite what was kept."""


class Recurrence(NamedTuple):
    """One kind of recurrence: as torch's operators compute it, and as the compiled kernels do on CPU and GPU."""

    plain: Callable[..., tuple[Tensor, Tensor]]
    """(features, state, begins, *weights) to (outputs, state after); weights: of the features, bias, of the state."""
    name: str
    """lstm, gru or mingru."""

    def run(self, features: Tensor, state: Tensor, begins: Tensor | None, weights: tuple[Tensor, ...]) -> Any:
        """Outputs [T, B, H] and the state after the last step: compiled where these tensors allow it, else by torch."""
        passes = self.passes(features, state, weights)
        if passes is None:
            return self.plain(features, state, begins, *weights)
        if torch.is_grad_enabled():
            return _CompiledRecurrence.apply(self, passes, features, state, begins, *weights)
        return passes.forward(features, state, begins, weights, keeps=False)[:2]

    def passes(self, features: Tensor, state: Tensor, weights: tuple[Tensor, ...]) -> Passes | None:
        """The compiled passes that take these tensors; None if there are none."""
        if can_run_compiled(features, state, weights):
            return recurrent.CompiledPasses(recurrent.KINDS[self.name])
        if not takes_kernels(features) or is_traced():
            return None
        from scramjet.kernels.gpu import recurrent as passes

        return passes.choose(self.name, features, state, weights)


def can_run_compiled(features: Tensor, state: Tensor, weights: tuple[Tensor, ...]) -> bool:
    """Whether the kernels for the CPU take these tensors: float32 there, outside autocast and torch.compile."""
    tensors = (features, state, weights[0])
    return (
        AVAILABLE
        and all(tensor.dtype is torch.float32 and tensor.is_cpu for tensor in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _CompiledRecurrence(torch.autograd.Function):
    """A recurrence whose forward and backward passes are compiled kernels."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: Recurrence,
        passes: Passes,
        features: Tensor,
        state: Tensor,
        begins: Tensor | None,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        outputs, after, ctx.kept = passes.forward(features, state, begins, weights, keeps=True)
        ctx.kind, ctx.passes = kind, passes
        ctx.save_for_backward(features, state, begins, *weights)
        return outputs, after

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        features, state, begins, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _plain_backward(ctx, grads, features, state, begins, weights)
        kept, ctx.kept = ctx.kept, None
        if kept is None:  # a second backward pass: the first one overwrote it
            kept = ctx.passes.forward(features, state, begins, weights, keeps=True)[2]
        to_features, to_state, *to_weights = ctx.passes.backward(
            *grads, features, state, begins, weights, ctx.needs_input_grad[2], kept
        )
        return None, None, to_features, to_state, None, *to_weights[: len(weights)]


def _plain_backward(
    ctx: Any, grads: tuple[Tensor, ...], features: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor]
) -> tuple[Any, ...]:
    """The gradients by torch's operators, which can be differentiated again."""
    is_needed = [ctx.needs_input_grad[i] for i in (2, 3, *range(5, 5 + len(weights)))]
    inputs = [tensor for tensor, needed in zip((features, state, *weights), is_needed, strict=True) if needed]
    outputs = ctx.kind.plain(features, state, begins, *weights)
    found = iter(torch.autograd.grad(outputs, inputs, grads, create_graph=True))
    to_features, to_state, *to_weights = [next(found) if needed else None for needed in is_needed]
    return None, None, to_features, to_state, None, *to_weights
