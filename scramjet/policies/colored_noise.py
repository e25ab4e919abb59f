"""Noise that is correlated in time (Hollenstein et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor


def colored(white: Tensor, color: float) -> Tensor:
    """Numbers [T, ...] whose spectral density falls as 1 / frequency ** color, from standard normal ones [2 T, ...].

    Each is still standard normal by itself, and independent along all axes but the first. The filter is circular over
    2 T steps, of which half are kept, so that the last do not lead into the first (after Timmer and Koenig 1995).
    """
    length = len(white)
    frequency = torch.fft.rfftfreq(length, device=white.device)
    frequency[0] = frequency[1]  # else a rollout would have an offset without bound
    gain = frequency.pow(-color / 2)
    both_sides = torch.cat([gain, gain[1 : (length + 1) // 2]])  # of all frequencies, negative ones too
    gain = gain / both_sides.square().mean().sqrt()
    spectrum = torch.fft.rfft(white, dim=0) * gain.view(-1, *[1] * (white.dim() - 1))
    noise = torch.fft.irfft(spectrum, n=length, dim=0)[: length // 2]
    return noise.contiguous()  # the transform leaves time innermost; buffers are made from this
