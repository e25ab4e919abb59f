"""Chooses how many threads torch's operators get for num_threads "auto": by network size and idle cores.

This is not for compiled functions, which lose little on a busy core because each thread takes the next part that is
left; `resolve` decides their threads. An operator of torch always waits for its slowest thread.
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from scramjet.accelerate.choice import WIDEST
from scramjet.adapters.registry import library_of
from scramjet.policies.networks import count_parameters
from scramjet.runtime.machine.cores import available_cores, free_cores
from scramjet.training.config.run_config import RunConfig

MIN_THREADED_WEIGHTS = 4096 * 8192
"""Samples in a minibatch times weights of a user's own network below which threads cost more than they save."""
IMAGE_AXES = 4
"""Axes of a convolution's weights; its work does not follow from the number of weights."""


def limit_threads(config: RunConfig, network: nn.Module | None) -> tuple[RunConfig, str]:
    """The config with fewer threads where torch's operators learn and would not gain from more.

    `config` has just been resolved; `network` is the user's own, or None. Also returns a note for the user if the
    reason is other work on the machine, else "".
    """
    assert isinstance(config.num_threads, int)
    if config.mode != "sync" or config.device != "cpu" or not learns_by_operators(config, network):
        return config, ""
    wanted = config.num_threads
    if network is not None:
        wanted = available_cores() if _threads_pay(config, network) else 1
    if wanted == 1:
        return replace(config, num_threads=1), ""
    free = min(wanted, free_cores())
    note = (
        f"{free} thread{'s' * (free > 1)}, since other work keeps {wanted - free} of {wanted} cores busy "
        f"(--num-threads {wanted} takes all)"
    )
    return replace(config, num_threads=free), note if free < wanted else ""


def learns_by_operators(config: RunConfig, network: nn.Module | None) -> bool:
    """Whether torch's operators will learn, as far as is known before an env is made and shows its observations."""
    shape, library = config.policy, library_of(config.env)
    has_pictures = library is not None and library.shows_images and shape.encoder != "mlp"
    is_wide = max(shape.hidden, default=0) > WIDEST
    return network is not None or not config.fused or shape.encoder not in ("auto", "mlp") or has_pictures or is_wide


def _threads_pay(config: RunConfig, network: nn.Module) -> bool:
    if any(weights.ndim >= IMAGE_AXES for weights in network.parameters()):
        return True
    minibatch = config.batch_size // config.ppo.num_minibatches_for(config.batch_size, config.sequence_length)
    return minibatch * count_parameters(network) >= MIN_THREADED_WEIGHTS
