"""PPO of a small separate actor and critic on a GPU, in Triton kernels that keep activations on chip.

Run layer by layer, a small network spends its time on moving activations through memory. Here a program takes a block
of samples through forward pass, loss gradient and backward pass without writing activations to memory; it only writes
the gradients of the weights. There are no atomics: the same inputs give the same bits. Nothing waits for the host and
scratch memory is kept, so a CUDA graph can capture every call; make the same calls once before capturing, because
kernels compile on first use. This module calls the kernels, which are in `kernels.py`.

Networks: two hidden layers of one width, tanh or ReLU, float32 weights as `nn.Linear` keeps them; discrete actions.
Letters of shapes: D inputs, H hidden units, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.accelerate.executor import Diagnostics, LossSettings
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.triton import kernels
from scramjet.accelerate.triton.kernels import OUTPUTS, TERMS
from scramjet.compile.triton import HAS_TRITON

HIDDEN_SIZES = (32, 64, 128)
MAX_INPUTS = 64
MAX_INPUTS_WIDE_TF32 = 31
"""Most inputs with 128 hidden units in tf32, which needs the weights in shared memory twice."""

BLOCK = {
    "float32": {32: (32, 8), 64: (32, 8), 128: (16, 8)},
    "tf32": {32: (64, 4), 64: (64, 4), 128: (32, 8)},
    "bfloat16": {32: (64, 4), 64: (64, 4), 128: (32, 8)},
}
"""By precision and hidden units: samples that a program takes at a time (more would not fit on chip), and its warps."""
FORWARD_BLOCK = {"float32": 16, "tf32": 64, "bfloat16": 64}
"""By precision: samples of a program that only runs the forward pass."""
PROGRAMS_PER_MULTIPROCESSOR = 2
"""Programs for each network and multiprocessor, by default."""
NUM_STAGES = {"float32": 1, "tf32": 2, "bfloat16": 2}
"""By precision: stages of the pipeline that loads blocks while others are computed; with 1 each load is waited for."""
REDUCE_ROWS, REDUCE_COLUMNS = 64, 32
"""Rows of partial gradients that a program of the reduction adds at a time, and parameters that it adds them for."""
STATISTICS_BLOCK, STATISTICS_CHUNKS = 1024, 64
"""Advantages that a program reads at a time, and the most chunks that a minibatch is split into."""


@dataclass(frozen=True, slots=True)
class MLPWeights:
    """The weights of one network, in the shapes of `nn.Linear`; float32, contiguous."""

    w1: Tensor  # [H, D]
    b1: Tensor  # [H]
    w2: Tensor  # [H, H]
    b2: Tensor  # [H]
    w3: Tensor  # [A, H]; for a critic [1, H]
    b3: Tensor  # [A]; for a critic [1]

    @classmethod
    def of(cls, *modules: nn.Module) -> MLPWeights:
        """The weights of the three linear layers of `modules`, such as a trunk and a head; not copies."""
        layers = [layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear)]
        return cls(*(tensor.detach() for layer in layers for tensor in (layer.weight, layer.bias)))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The six tensors in the order of the fields."""
        return (self.w1, self.b1, self.w2, self.b2, self.w3, self.b3)


def why_unsupported(actor: MLPWeights, critic: MLPWeights, *, activation: str, precision: str) -> str | None:
    """The reason why the kernels cannot run these networks, in words; None if they can."""
    hidden, num_inputs = actor.w1.shape
    num_actions = len(actor.w3)
    if precision not in BLOCK:
        return f"precision {precision}: only {', '.join(BLOCK)}"
    if activation not in ("tanh", "relu"):
        return f"activation {activation}: only tanh and relu"
    if hidden not in HIDDEN_SIZES or len(actor.w2) != hidden:
        return f"hidden layers of {hidden} and {len(actor.w2)}: only two of the same width, one of {HIDDEN_SIZES}"
    most = MAX_INPUTS_WIDE_TF32 if (precision, hidden) == ("tf32", 128) else MAX_INPUTS
    if num_inputs > most:
        return f"{num_inputs} inputs: at most {most} with {hidden} hidden units in {precision}"
    if not 2 <= num_actions <= OUTPUTS:
        return f"{num_actions} actions: from 2 to {OUTPUTS}"
    shapes = [(hidden, num_inputs), (hidden,), (hidden, hidden), (hidden,), (1, hidden), (1,)]
    if [tuple(tensor.shape) for tensor in critic.tensors] != shapes:
        return "the critic's layers are not those of the actor"
    if any(t.dtype != torch.float32 or not t.is_contiguous() for t in (*actor.tensors, *critic.tensors)):
        return "weights are not all float32 and contiguous"
    return None


class TritonMLP:
    """Draws actions and computes values and gradients of an actor and a critic, with a few kernel launches each.

    `grads` [num_parameters] holds all gradients, the actor's first, each network's in the order of `MLPWeights`.
    `views` are twelve views of it in the shapes of the weights, to be used as the `grad` of parameters. `exchanged` are
    `grads`, then room for the loss terms: what ranks add up.
    """

    def __init__(
        self,
        actor: MLPWeights,
        critic: MLPWeights,
        *,
        activation: str,
        precision: str,
        num_programs: int | None = None,
    ) -> None:
        """`precision` of the inputs of matrix products: float32, tf32 or bfloat16; sums are float32.

        `num_programs` programs for each network share the samples; the order in which gradients are added depends on
        their number.
        """
        assert HAS_TRITON, "TritonMLP needs Triton"
        problem = why_unsupported(actor, critic, activation=activation, precision=precision)
        assert problem is None, problem
        self.actor, self.critic = actor, critic
        self.device = actor.w1.device
        self.num_programs = num_programs or _default_num_programs(self.device)
        self.hidden, self.num_inputs = actor.w1.shape
        self.num_actions = len(actor.w3)
        self._block, num_warps = BLOCK[precision][self.hidden]
        self._forward_block, self._num_stages = FORWARD_BLOCK[precision], NUM_STAGES[precision]
        self._shape: dict[str, Any] = {
            "num_inputs": self.num_inputs,
            "inputs": max(16, _power_of_two(self.num_inputs + 1)),
            "hidden": self.hidden,
            "precision": precision,
            "activation": activation,
            "num_warps": num_warps,
        }
        weights = (*actor.tensors, *critic.tensors)
        sizes = [weight.numel() for weight in weights]
        self.num_parameters = sum(sizes)
        self.exchanged = torch.zeros(self.num_parameters + len(Diagnostics.NAMES) - 1, device=self.device)
        self.grads = self.exchanged[: self.num_parameters]
        self.views = [part.view_as(weight) for part, weight in zip(self.grads.split(sizes), weights, strict=True)]
        self._row = -(-self.num_parameters // REDUCE_COLUMNS) * REDUCE_COLUMNS  # padded: rows are aligned
        self._partials = torch.empty(self.num_programs, self._row, device=self.device)
        self._terms = torch.empty(self.num_programs, 2, TERMS, device=self.device)
        self._squares = torch.empty(self._row // REDUCE_COLUMNS, device=self.device)
        self._chunks: dict[int, Tensor] = {}  # by number of minibatches; kept, since a CUDA graph may use them

    def act(self, obs: Tensor, mask: Tensor | None, uniform: Tensor, action: Tensor, log_prob: Tensor) -> None:
        """Draw `action` [B] int64 for `obs` [B, D], as `categorical.sample` does, and write its `log_prob` [B].

        `mask` [B, A] bool marks legal actions, None if all are; `uniform` [B] are random numbers from [0, 1). All
        tensors are contiguous.
        """
        grid = (_blocks(len(obs), self._forward_block),)
        kernels.act_kernel[grid](
            obs, _bytes(mask), uniform, action, log_prob, len(obs), *self.actor.tensors,
            num_actions=self.num_actions, block=self._forward_block, **self._shape,
        )  # fmt: skip

    def values(self, obs: Tensor, value: Tensor) -> None:
        """Write the values of `obs` [B, D] to `value` [B]; both are contiguous."""
        grid = (_blocks(len(obs), self._forward_block),)
        kernels.value_kernel[grid](obs, value, len(obs), *self.critic.tensors, block=self._forward_block, **self._shape)

    def advantage_statistics(self, advantage: Tensor, order: Tensor, num_minibatches: int, out: Tensor) -> None:
        """Write the mean and 1 / (deviation + 1e-8) of each minibatch's advantages to `out` [num_minibatches, 2].

        They normalize advantages as `ppo.normalize` does. Minibatches are equal parts of `order`
        [num_minibatches * size], the numbers of samples of `advantage` [N].
        """
        size = len(order) // num_minibatches
        assert size * num_minibatches == len(order), (len(order), num_minibatches)
        num_chunks = min(STATISTICS_CHUNKS, _blocks(size, STATISTICS_BLOCK))
        if num_minibatches not in self._chunks:
            self._chunks[num_minibatches] = torch.empty(num_minibatches, STATISTICS_CHUNKS, 2, device=self.device)
        chunks = self._chunks[num_minibatches]
        chunk_size = _blocks(size, num_chunks)
        kernels.chunk_kernel[(num_chunks, num_minibatches)](
            advantage, order, chunks, size, chunk_size, max_chunks=STATISTICS_CHUNKS, block=STATISTICS_BLOCK
        )
        kernels.statistics_kernel[(num_minibatches,)](chunks, out, size, chunk_size, max_chunks=STATISTICS_CHUNKS)

    def gradients(
        self, samples: Samples, indices: Tensor, statistics: Tensor | None, loss: LossSettings, *, diagnostics: Tensor
    ) -> None:
        """Write the gradient of `ppo_loss` over the samples `indices` [MB] to `grads`, and the diagnostics [7].

        The samples' tensors are contiguous. `statistics` [2], one row from `advantage_statistics`, normalizes the
        advantages; with None they are not normalized. `loss.clip` and `loss.entropy_coef` are scalars on the device,
        which schedules change between replays of a CUDA graph.
        """
        num_programs = min(self.num_programs, _blocks(len(indices), self._block))
        kernels.gradients_kernel[(num_programs, 2)](
            samples.obs, _bytes(samples.mask), samples.action, samples.log_prob, samples.value, samples.advantage,
            samples.returns, indices, len(indices), statistics, loss.clip, loss.entropy_coef, loss.value_clip,
            loss.value_coef,
            *self.actor.tensors, *self.critic.tensors, self._partials, self._terms, self._row,
            num_actions=self.num_actions, block=self._block, num_stages=self._num_stages, **self._shape,
        )  # fmt: skip
        kernels.reduce_kernel[(len(self._squares),)](
            self._partials, self.grads, self._squares, num_programs, self.num_parameters, self._row,
            rows=REDUCE_ROWS, columns=REDUCE_COLUMNS,
        )  # fmt: skip
        kernels.finish_kernel[(1,)](
            self._squares, len(self._squares), self._terms, 2 * num_programs, diagnostics, len(indices), block=256
        )


def _default_num_programs(device: torch.device) -> int:
    if device.type != "cuda":  # Triton's interpreter
        return 2
    return PROGRAMS_PER_MULTIPROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def _blocks(number: int, size: int) -> int:
    """The number of blocks of `size` that are needed for `number` elements."""
    return -(-number // size)


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.view(torch.uint8)
