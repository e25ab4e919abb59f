"""PPO of a small actor and critic on a GPU, in Triton kernels that keep activations on chip.

Run layer by layer, a small network spends its time on moving activations through memory. Here a program takes a block
of samples through forward pass, loss gradient and backward pass without writing activations to memory; it only writes
the gradients of the weights. A gradient step is three launches: partial gradients (`kernels/gpu/mlp.py`), their sum,
and the clipped step of Adam (`kernels/gpu/steps.py`). There are no atomics: the same inputs give the same bits. Nothing
waits for the host and scratch memory is kept, so a CUDA graph can capture every call; make the same calls once before
capturing, because kernels compile on first use.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scramjet.executors import triton_plan as tuning
from scramjet.executors.executor import Diagnostics
from scramjet.executors.flat_adam import FlatWeights, take_step
from scramjet.executors.losses import LossSettings
from scramjet.executors.samples import Samples
from scramjet.executors.triton_plan import SMALLEST_BLOCK, Plan, Tuning, forward_block
from scramjet.kernels.gpu.language import HAS_TRITON, blocks_of, even_programs, product_size
from scramjet.kernels.gpu.losses import chunk_kernel, statistics_kernel
from scramjet.kernels.gpu.mlp import act_kernel, gradients_kernel, value_kernel
from scramjet.kernels.gpu.steps import TERMS, reduce_kernel


class TritonMLP:
    """Draws actions, computes values and takes gradient steps for an actor and a critic, with a few launches each.

    A plan of a critic alone has no actions: then samples need returns, and of a loss only its value's part counts.

    `sums` [row] hold the gradients of all weights in the order of `FlatWeights`, then the loss terms: what ranks add
    up. `gradients_of` are views of it in the shapes of the parameters.
    """

    def __init__(self, plan: Plan, *, precision: str, launch: Tuning | None = None) -> None:
        """`precision` of the inputs of matrix products: float32, tf32 or bfloat16; sums are float32.

        `launch` replaces the numbers of `tuning.py`; the order in which gradients are added depends on them.
        """
        assert HAS_TRITON, "TritonMLP needs Triton"
        self.plan, self.precision = plan, precision
        first, second = plan.towers[0].hidden
        self.device = first.weight.device
        self.num_inputs = first.in_features
        widths = [product_size(layer.out_features) for layer in (first, second)]
        inputs, num_outputs = product_size(self.num_inputs), plan.num_logits + plan.is_one_network
        self.launch = launch or tuning.gradients_tuning(precision, max(widths), inputs)
        self.is_proven = launch is not None or tuning.is_proven(precision, max(widths), inputs, num_outputs)
        places, begins, size = plan.places()
        self._critic_at = begins[-1]
        self.num_parameters = blocks_of(size, tuning.STEP_COLUMNS) * tuning.STEP_COLUMNS  # with padding of zeros
        self.flat = FlatWeights(plan.parameters, places, self.num_parameters)
        self._multiprocessors = _multiprocessors(self.device)
        self._forward_warps = tuning.FORWARD_WARPS[max(widths)]
        self._allocate()
        self.gradients_of = self.flat.views_of(self.sums)
        is_fast = tuning.FAST_TANH and precision != "float32" and self.device.type == "cuda"
        normalizer = plan.normalizer
        self._scale = (None, None) if normalizer is None else _moments(normalizer)
        self._shape: dict[str, Any] = {
            "num_inputs": self.num_inputs, "inputs": inputs,
            "units1": first.out_features, "width1": widths[0], "units2": second.out_features, "width2": widths[1],
            "bound": None if normalizer is None else normalizer.clip, "precision": precision,
            "activation": "fast_tanh" if is_fast and plan.towers[0].activation == "tanh" else plan.towers[0].activation,
        }  # fmt: skip
        self._policy: dict[str, Any] = {
            "is_normal": plan.is_normal, "components": plan.num_components,
            "num_logits": plan.num_logits, "num_weighted": plan.num_weighted,
            "outputs": product_size(plan.num_logits + plan.is_one_network),
        }  # fmt: skip

    def _allocate(self) -> None:
        """Scratch memory, kept: a CUDA graph may use it."""
        row, device = self.num_parameters + tuning.REDUCE_COLUMNS, self.device
        assert tuning.REDUCE_COLUMNS >= TERMS
        # What no program writes, padding between parameters, has to be 0.
        self._partials = torch.zeros(self._most_programs, row, device=device)
        self.sums = torch.zeros(row, device=device)
        self.terms = self.sums[self.num_parameters :][: len(Diagnostics.NAMES) - 1]
        self._squares = torch.zeros(row // tuning.REDUCE_COLUMNS, device=device)
        self._chunks: dict[int, Tensor] = {}  # by number of minibatches

    @property
    def _most_programs(self) -> int:
        """The most programs that compute the gradients of one network."""
        return max(1, self._multiprocessors * self.launch.programs // len(self.plan.towers))

    def act(
        self,
        inputs: Tensor,
        mask: Tensor | None,
        noise: Tensor,
        action: Tensor,
        log_prob: Tensor,
        value: Tensor | None,
        env_action: Tensor | None = None,
    ) -> None:
        """Draw `action` [B, ...] for `inputs` [B, D], as `Distribution.sample` does, and write its `log_prob` [B].

        `mask` [B, A] bool marks legal choices, None if all are; `noise` [B, ...] are the distribution's random numbers.
        With a shared trunk `value` [B] is written as well. Where the plan has bounds, `env_action` [B, ...] gets what
        the env receives. All tensors are contiguous.
        """
        assert self.plan.has_policy
        assert value is None or self.plan.is_one_network
        assert env_action is None or self.plan.bounds is not None
        block = forward_block(self.precision, len(inputs), self._multiprocessors)
        act_kernel[(blocks_of(len(inputs), block),)](
            inputs, *self._scale, _bytes(mask), noise, self.plan.offsets, self.flat.weights, action, log_prob, value,
            env_action, self.plan.bounds, len(inputs), scales=self.plan.scales, has_value=int(self.plan.is_one_network),
            block=block, num_warps=self._forward_warps, **self._shape, **self._policy,
        )  # fmt: skip

    def values(self, inputs: Tensor, value: Tensor) -> None:
        """Write the values of `inputs` [B, D] to `value` [B]; both are contiguous."""
        block = forward_block(self.precision, len(inputs), self._multiprocessors)
        names = ("num_logits", "num_weighted", "outputs")
        shape = {name: self._policy[name] for name in names}
        if not self.plan.is_one_network:
            shape = {"num_logits": 0, "num_weighted": 0, "outputs": tuning.OUTPUTS[0]}
        value_kernel[(blocks_of(len(inputs), block),)](
            inputs, *self._scale, self.flat.weights[self._critic_at :], value, len(inputs),
            block=block, num_warps=self._forward_warps, **self._shape, **shape,
        )  # fmt: skip

    def advantage_statistics(self, advantage: Tensor, order: Tensor, num_minibatches: int, out: Tensor) -> None:
        """Write the mean and 1 / (deviation + 1e-8) of each minibatch's advantages to `out` [num_minibatches, 2].

        They normalize advantages as `ppo.normalize` does. Minibatches are equal parts of `order`
        [num_minibatches * size], the numbers of samples of `advantage` [N].
        """
        size, most = len(order) // num_minibatches, tuning.STATISTICS_CHUNKS
        assert size * num_minibatches == len(order), (len(order), num_minibatches)
        num_chunks = min(most, blocks_of(size, tuning.STATISTICS_BLOCK))
        if num_minibatches not in self._chunks:
            self._chunks[num_minibatches] = torch.empty(num_minibatches, most, 2, device=self.device)
        chunks, chunk_size = self._chunks[num_minibatches], blocks_of(size, num_chunks)
        chunk_kernel[(num_chunks, num_minibatches)](
            advantage, order, chunks, size, chunk_size, max_chunks=most, block=tuning.STATISTICS_BLOCK
        )
        statistics_kernel[(num_minibatches,)](chunks, out, size, chunk_size, max_chunks=most)

    def gradients(
        self,
        inputs: Tensor,
        samples: Samples,
        indices: Tensor,
        statistics: Tensor | None,
        loss: LossSettings,
        share: Tensor | None = None,
    ) -> None:
        """Write the gradient of `ppo_loss` over the samples `indices` [MB], and the loss terms, to `sums`.

        `inputs` [B, D] are the samples' observations, encoded. The samples' tensors are contiguous. `statistics` [2],
        one row from `advantage_statistics`, normalizes the advantages; with None they are not normalized. `loss.clip`
        and `loss.entropy_coef` are scalars on the device, which schedules change between replays of a CUDA graph. Where
        not every sample counts, `share` [1] is 1 / the number of those of the minibatch that do.
        """
        launch, plan = self.launch, self.plan
        num_programs = even_programs(blocks_of(len(indices), launch.block), self._most_programs)
        gradients_kernel[(num_programs, len(plan.towers))](
            inputs, *self._scale, _bytes(samples.mask), samples.action, samples.log_prob, samples.value,
            samples.advantage, samples.returns, _bytes(samples.counts), indices, len(indices), share, statistics,
            loss.clip, loss.entropy_coef, loss.value_clip, loss.value_coef, plan.offsets, self.flat.weights,
            self._partials, self.num_parameters, self._partials.shape[1],
            is_one_network=plan.is_one_network, has_policy=plan.has_policy, critic_at=self._critic_at,
            value_outputs=tuning.OUTPUTS[0], block=launch.block, num_warps=launch.warps, num_stages=launch.stages,
            **self._shape, **self._policy,
        )  # fmt: skip
        self._reduce(self._partials, num_programs, increment=1)

    def sum_again(self) -> None:
        """Find the norm again after `sums` have been changed: ranks add theirs up."""
        self._reduce(self.sums, 1, increment=0)

    def _reduce(self, rows: Tensor, num_rows: int, *, increment: int) -> None:
        counts = self.flat.counts
        reduce_kernel[(len(self._squares),)](
            rows, self.sums, self._squares, counts, num_rows, self.num_parameters, len(self.sums), len(counts),
            increment, rows=tuning.REDUCE_ROWS, columns=tuning.REDUCE_COLUMNS, counts=product_size(len(counts)),
            num_warps=tuning.REDUCE_WARPS,
        )  # fmt: skip

    def step(self, optimizer: torch.optim.Adam, max_grad_norm: float | None, *, diagnostics: Tensor) -> None:
        """Clip the gradient, take the step that this Adam would take with it, and write the diagnostics [7].

        The optimizer's moments and step counts are those that `use_optimizer` of the weights took over; `gradients` has
        counted the step.
        """
        take_step(
            self.flat, optimizer, self.sums, self._squares, max_grad_norm, diagnostics, has_terms=True,
            columns=tuning.STEP_COLUMNS, block=tuning.STEP_SQUARES, num_warps=tuning.STEP_WARPS,
        )  # fmt: skip


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def _moments(normalizer: Any) -> tuple[Tensor, Tensor]:
    """Mean and variance, float64 [D] each; the normalizer changes them in place."""
    return normalizer.moments.mean.view(-1), normalizer.moments.variance.view(-1)


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.view(torch.uint8)


# --- whether a network's kernels fit on the GPU at hand


def fitted_mlp(plan: Plan, precision: str) -> TritonMLP | str:
    """The kernels of a network with the largest blocks that fit on the GPU; the reason in words if none do.

    Sizes that are known to fit are not tried, since that compiles the kernels.
    """
    from triton.runtime.errors import OutOfResources

    mlp = TritonMLP(plan, precision=precision)
    while not mlp.is_proven and mlp.device.type == "cuda":
        launch, (first, second) = mlp.launch, plan.towers[0].hidden
        try:
            _launch_all(mlp)
            break
        except OutOfResources as error:
            if launch.block <= SMALLEST_BLOCK:
                return (
                    f"{first.in_features} inputs and hidden layers of {first.out_features} and {second.out_features} "
                    f"units do not fit on this GPU in {precision}: {error}"
                )
        mlp = TritonMLP(plan, precision=precision, launch=launch._replace(block=launch.block // 2, stages=1))
        mlp.is_proven = False
    return mlp


def _launch_all(mlp: TritonMLP) -> None:
    """Launch each kernel that holds a network's weights on one sample; weights and optimizer stay as they are."""
    plan, kept = mlp.plan, mlp.flat.snapshot()
    number = torch.zeros(1, device=mlp.device)
    inputs = number.new_zeros(1, mlp.num_inputs)
    noise = number.new_zeros(1, plan.num_components)
    action = noise.clone() if plan.is_normal else noise.long()
    # What a run may have is all there: each takes room on the chip.
    is_choice = plan.has_policy and not plan.is_normal
    mask = None if not is_choice else torch.ones(1, plan.num_logits, dtype=torch.bool, device=mlp.device)
    samples = Samples(inputs, mask, action, number, number, number, number, place=number.long(), counts=number == 0)
    loss = LossSettings(
        clip=number, entropy_coef=number, value_coef=1.0, value_clip=1.0, max_grad_norm=None,
        normalizes_advantages=False,
    )  # fmt: skip
    if plan.has_policy:
        mlp.act(inputs, mask, noise, action, number.clone(), number.clone() if plan.is_one_network else None)
    mlp.gradients(inputs, samples, number.long(), number.expand(2).contiguous(), loss, share=number)
    mlp.flat.restore(kept)
