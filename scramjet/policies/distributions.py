"""Distributions over actions, one for each kind of action space.

A network gives `num_inputs` numbers per row ("logits", whatever they mean to the distribution). A rollout draws all its
random numbers at once (`noise`), then each step turns logits and noise into actions and their log-probabilities. The
loss asks for the log-probability and entropy of the stored actions. Actions are stored in the form in which their
probability is known; the env receives `env_action(action)`, scaled to the bounds of its space.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor

from scramjet.errors import ConfigError
from scramjet.kernels import MASKED_LOGIT, MAX_LOG_STD, MIN_LOG_STD
from scramjet.kernels.cpu.acting import sample_components, sample_normal
from scramjet.policies import categorical
from scramjet.policies.config import PolicyConfig
from scramjet.policies.layers import keep_within


class Distribution(ABC):
    """A family of distributions over the actions of one space."""

    num_inputs: int
    """Numbers that a network gives per row."""
    action_shape: tuple[int, ...]
    """Shape of one stored action."""
    action_dtype: torch.dtype
    """Number type of stored actions."""
    mask_size: int
    """Length of a row's mask of legal choices; 0 where masks make no sense."""

    def apply(self, function: Callable[[Tensor], Tensor]) -> None:
        """Replace each tensor of this distribution by `function(tensor)`, as `nn.Module._apply` does for weights."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, function(value))

    @abstractmethod
    def noise(self, num_steps: int, num_rows: int, generator: torch.Generator, out: Tensor | None = None) -> Tensor:
        """All random numbers of a rollout, [T, R, ...], on the generator's device; step t gets `noise[t]`."""

    @abstractmethod
    def sample(self, logits: Tensor, mask: Tensor | None, noise: Tensor, action: Tensor, log_prob: Tensor) -> None:
        """Draw from logits [B, num_inputs] into `action` [B, *action_shape] and `log_prob` [B], in place."""

    @abstractmethod
    def mode(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """The most likely legal action, [B, *action_shape]: how a trained policy plays."""

    @abstractmethod
    def log_prob_and_entropy(self, logits: Tensor, action: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """log pi(a|s) [B] of stored actions, and the entropy [B]; differentiable in the logits."""

    @abstractmethod
    def entropy_of(self, share: float) -> tuple[float, float]:
        """The entropy of actions that are as random as `share` says, and what it changes by per unit of it, in nats.

        Of choices, a share of the largest entropy, masks aside; of numbers, that of noise with this deviation.
        """

    @abstractmethod
    def kl(self, logits: Tensor, other_logits: Tensor, mask: Tensor | None) -> Tensor:
        """KL(pi(logits) || pi(other_logits)) [B], in closed form; differentiable in both."""

    def mixed_with_dirichlet(self, logits: Tensor, mask: Tensor | None, log_gammas: Tensor, fraction: float) -> Tensor:
        """Logits [B, num_inputs] of the policy mixed with a `fraction` of Dirichlet noise: how a search explores.

        `log_gammas` [B, num_inputs] by `categorical.draw_log_gammas`. Where actions are not choices, there is no noise.
        """
        return logits

    @abstractmethod
    def log_probs(self, logits: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        """log pi(a|s) [B, P] of P stored actions of each row, [B, P, *action_shape]; differentiable in the logits."""

    @abstractmethod
    def env_action(self, action: Tensor) -> Tensor:
        """Stored actions [B, *action_shape] as the env receives them, [B, *space.shape]."""


class Categorical(Distribution):
    """One choice out of n (`Discrete`); logits are unnormalized log-probabilities, [B, n]."""

    action_shape = ()
    action_dtype = torch.int64

    def __init__(self, num_choices: int, start: int = 0) -> None:
        self.num_inputs = self.mask_size = num_choices
        self.start = start

    def noise(self, num_steps: int, num_rows: int, generator: torch.Generator, out: Tensor | None = None) -> Tensor:
        """Uniform numbers, [T, R]."""
        return torch.rand(num_steps, num_rows, generator=generator, out=out, device=generator.device)

    def sample(self, logits: Tensor, mask: Tensor | None, noise: Tensor, action: Tensor, log_prob: Tensor) -> None:
        """Invert the distribution at `noise` [B]."""
        categorical.sample(logits, mask, noise, action, log_prob)

    def mode(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """The legal choice of highest logit, [B]."""
        return categorical.most_likely(logits, mask)

    def log_prob_and_entropy(self, logits: Tensor, action: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """log pi(a|s) [B] and entropy [B], over the legal choices only."""
        return categorical.log_prob_and_entropy(logits, action, mask)

    def entropy_of(self, share: float) -> tuple[float, float]:
        """A share of the entropy of all choices equally likely."""
        return _share_of(math.log(self.num_inputs), share)

    def log_probs(self, logits: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        """log pi(a|s) [B, P], over the legal choices only."""
        return torch.log_softmax(categorical.mask_logits(logits, mask), dim=-1).gather(1, actions)

    def kl(self, logits: Tensor, other_logits: Tensor, mask: Tensor | None) -> Tensor:
        """The divergence over the legal choices."""
        return categorical.kl(logits, other_logits, mask)

    def mixed_with_dirichlet(self, logits: Tensor, mask: Tensor | None, log_gammas: Tensor, fraction: float) -> Tensor:
        """Noise over the legal choices."""
        return categorical.mixed_with_dirichlet(logits, mask, log_gammas, fraction)

    def env_action(self, action: Tensor) -> Tensor:
        """The choice itself, counted from the space's start."""
        return action + self.start if self.start else action


class MultiCategorical(Distribution):
    """Several independent choices at once (`MultiDiscrete`).

    Logits and masks of all components stand side by side, [B, sum(nvec)]. Log-probability and entropy are the sums of
    those of the components.
    """

    action_dtype = torch.int64

    def __init__(self, space: MultiDiscrete) -> None:
        sizes = np.asarray(space.nvec, np.int64).ravel()
        self.num_inputs = self.mask_size = int(sizes.sum())
        self.action_shape = (len(sizes),)
        self.space_shape = tuple(space.shape)
        self.start = torch.from_numpy(np.asarray(space.start, np.int64).ravel())
        self.has_start = bool(self.start.any())
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.offsets = torch.from_numpy(offsets)  # component d has logits offsets[d]:offsets[d + 1]
        # Components of unequal size are padded to the largest: entry [d, a] is the index of its logit.
        column = np.arange(sizes.max())
        is_padding = column >= sizes[:, None]
        place = np.where(is_padding, 0, offsets[:-1, None] + column)
        self.place = torch.from_numpy(place.ravel())
        self.padding = torch.from_numpy(is_padding) if is_padding.any() else None
        self.unpadded = torch.from_numpy(np.flatnonzero(~is_padding))  # where each logit stands in the padded rows

    def noise(self, num_steps: int, num_rows: int, generator: torch.Generator, out: Tensor | None = None) -> Tensor:
        """Uniform numbers, [T, R, components]."""
        size = (num_steps, num_rows, *self.action_shape)
        return torch.rand(size, generator=generator, out=out, device=generator.device)

    def sample(self, logits: Tensor, mask: Tensor | None, noise: Tensor, action: Tensor, log_prob: Tensor) -> None:
        """Invert each component's distribution at its own number of `noise` [B, components]."""
        legal = categorical.mask_logits(logits, mask)
        sample_components.on(len(logits), legal, self.offsets, noise, action, log_prob)

    def mode(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Each component's legal choice of highest logit, [B, components]."""
        return self._padded(logits, mask).argmax(-1)

    def log_prob_and_entropy(self, logits: Tensor, action: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """log pi(a|s) [B] and entropy [B], over the legal choices only, summed over components."""
        log_prob, entropy = categorical.log_prob_and_entropy(self._padded(logits, mask), action, None)
        return log_prob.sum(-1), entropy.sum(-1)

    def entropy_of(self, share: float) -> tuple[float, float]:
        """A share of the entropy of all choices of each component equally likely."""
        return _share_of(float(self.offsets.diff().log().sum()), share)

    def log_probs(self, logits: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        """log pi(a|s) [B, P], over the legal choices only, summed over components."""
        return torch.log_softmax(self._padded(logits, mask), dim=-1).gather(2, actions.transpose(1, 2)).sum(1)

    def kl(self, logits: Tensor, other_logits: Tensor, mask: Tensor | None) -> Tensor:
        """The components' divergences over the legal choices, summed."""
        return categorical.kl(self._padded(logits, mask), self._padded(other_logits, mask), None).sum(-1)

    def mixed_with_dirichlet(self, logits: Tensor, mask: Tensor | None, log_gammas: Tensor, fraction: float) -> Tensor:
        """Noise over each component's legal choices, independent of the other components'."""
        sides = self._padded(logits, mask), None, self._padded(log_gammas, mask)
        mixed = categorical.mixed_with_dirichlet(*sides, fraction)  # [B, components, largest]
        return mixed.flatten(-2).index_select(-1, self.unpadded)

    def env_action(self, action: Tensor) -> Tensor:
        """The choices in the space's shape, counted from its starts."""
        action = action + self.start if self.has_start else action
        return action.reshape(-1, *self.space_shape)

    def _padded(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Logits [B, components, largest], with MASKED_LOGIT for illegal choices and padding."""
        legal = categorical.mask_logits(logits, mask)
        if self.padding is None:
            return legal.unflatten(-1, (self.action_shape[0], -1))
        padded = legal.index_select(-1, self.place).unflatten(-1, tuple(self.padding.shape))
        return padded.masked_fill(self.padding, MASKED_LOGIT)


def _share_of(largest: float, share: float) -> tuple[float, float]:
    """A share of the largest entropy of choices, and that entropy; with one choice alone, 1 in its place."""
    if share >= 1:
        raise ConfigError(f"target_entropy={share} is a share of the largest entropy of choices; use one below 1")
    return share * largest, largest or 1.0


_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_QUADRATURE_POINTS = 32


class DiagonalGaussian(Distribution):
    """Independent normal numbers (`Box`); logits are all means, then all logarithms of deviations, [B, 2 D].

    Stored actions are the normal numbers themselves, [B, D]. With bounded="scale" the env receives them with [-1, 1]
    stretched to the bounds of the space (see `unit_scale`), and clipped there. With bounded="clip" it receives them
    clipped. With bounded="tanh" it receives tanh of them, scaled to the space, and the log-probability and entropy are
    those of what the env receives (Haarnoja et al. 2018, appendix C).
    """

    action_dtype = torch.float32
    mask_size = 0

    def __init__(self, space: Box, bounded: str, noise_color: float = 0.0) -> None:
        self.noise_color = noise_color
        self.size = math.prod(space.shape)
        self.num_inputs = 2 * self.size
        self.action_shape = (self.size,)
        self.space_shape = tuple(space.shape)
        self.squashes = bounded == "tanh"
        is_finite = np.isfinite(space.low).all() and np.isfinite(space.high).all()
        if self.squashes and not (is_finite and (space.low < space.high).all()):
            raise ConfigError(
                f"policy.bounded_actions='tanh' needs finite bounds, low below high, to squash actions into, and the "
                f"action space is {space}; use --policy.bounded-actions scale"
            )
        self.low = torch.from_numpy(np.asarray(space.low, np.float64).ravel().astype(np.float32))
        self.high = torch.from_numpy(np.asarray(space.high, np.float64).ravel().astype(np.float32))
        self.centre, self.half_width = map(torch.from_numpy, unit_scale(space))
        # Bounds from -1 to 1 need no scaling, which could change the sign of a zero.
        self.scales = bounded == "scale" and not bool(((self.centre == 0) & (self.half_width == 1)).all())
        self.env_dtype = torch.from_numpy(np.zeros(0, space.dtype)).dtype
        # log-determinant of the scaling from (-1, 1) to the space
        self.log_stretch = float((0.5 * (self.high - self.low)).double().log().sum()) if self.squashes else 0.0
        nodes, weights = np.polynomial.hermite.hermgauss(_QUADRATURE_POINTS)
        self.nodes = torch.from_numpy(nodes * math.sqrt(2))  # of a standard normal number
        self.weights = torch.from_numpy(weights / math.sqrt(math.pi))

    def noise(self, num_steps: int, num_rows: int, generator: torch.Generator, out: Tensor | None = None) -> Tensor:
        """Standard normal numbers, [T, R, D]; with a color, correlated along T."""
        size = (num_steps, num_rows, self.size)
        if not self.noise_color or num_steps == 1:
            return torch.randn(size, generator=generator, out=out, device=generator.device)
        white = torch.randn(2 * num_steps, *size[1:], generator=generator, device=generator.device)
        noise = colored(white, self.noise_color)
        return noise if out is None else out.copy_(noise)

    def sample(self, logits: Tensor, mask: Tensor | None, noise: Tensor, action: Tensor, log_prob: Tensor) -> None:
        """Mean plus deviation times `noise` [B, D]."""
        sample_normal.on(
            len(logits), logits, noise, self.squashes, self.log_stretch, MIN_LOG_STD, MAX_LOG_STD, action, log_prob
        )

    def mode(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """The means, [B, D]."""
        return logits[..., : self.size]

    def log_prob_and_entropy(self, logits: Tensor, action: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """log pi(a|s) [B] and entropy [B], summed over components; of the squashed action where it is squashed."""
        mean, log_std = self.mean_and_log_std(logits)
        std = log_std.exp()
        log_prob = (-0.5 * ((action - mean) / std) ** 2 - log_std - _HALF_LOG_TWO_PI).sum(-1)
        entropy = (0.5 + _HALF_LOG_TWO_PI + log_std).sum(-1)
        if not self.squashes:
            return log_prob, entropy
        log_prob = log_prob - _log_slope_of_tanh(action).sum(-1) - self.log_stretch
        return log_prob, entropy + self._expected_log_slope(mean, std).sum(-1) + self.log_stretch

    def entropy_of(self, share: float) -> tuple[float, float]:
        """The entropy of normal numbers of deviation `share`, and the number of components."""
        if self.squashes:
            raise ConfigError(
                "target_entropy names the deviation of actions, and policy.bounded_actions='tanh' bends it; use "
                "--policy.bounded-actions scale"
            )
        return self.size * (0.5 + _HALF_LOG_TWO_PI + math.log(share)), float(self.size)

    def log_probs(self, logits: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        """log pi(a|s) [B, P], summed over components; of the squashed actions where they are squashed."""
        return self.log_prob_and_entropy(logits.unsqueeze(1), actions, None)[0]

    def kl(self, logits: Tensor, other_logits: Tensor, mask: Tensor | None) -> Tensor:
        """The divergence of the normal numbers; that of their tanh is the same, which loses nothing."""
        mean, log_std = self.mean_and_log_std(logits)
        other_mean, other_log_std = self.mean_and_log_std(other_logits)
        ratio = log_std - other_log_std
        squares = (2 * ratio).exp() + ((mean - other_mean) / other_log_std.exp()).square()
        return (0.5 * (squares - 1) - ratio).sum(-1)

    def env_action(self, action: Tensor) -> Tensor:
        """Actions within the space's bounds, in its shape and number type."""
        low, high = self.low, self.high
        if self.squashes:
            action = 0.5 * (low + high) + 0.5 * (high - low) * action.tanh()
        elif self.scales:
            action = self.centre + self.half_width * action
        bounded = torch.minimum(torch.maximum(action, low), high)
        return bounded.reshape(-1, *self.space_shape).to(self.env_dtype)

    def mean_and_log_std(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Means [B, D] and logarithms of deviations [B, D], the latter within their range."""
        mean, log_std = logits.split(self.size, dim=-1)
        return mean, keep_within(log_std, MIN_LOG_STD, MAX_LOG_STD)

    def _expected_log_slope(self, mean: Tensor, std: Tensor) -> Tensor:
        """E[log d tanh(u)/du], [B, D], by Gauss-Hermite quadrature: differentiable, and no random numbers."""
        nodes, weights = self.nodes.to(mean), self.weights.to(mean)
        return _log_slope_of_tanh(mean.unsqueeze(-1) + std.unsqueeze(-1) * nodes) @ weights


def _log_slope_of_tanh(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2) in a form that neither overflows nor cancels: 2 (log 2 - u - softplus(-2 u))."""
    return 2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))


def make_distribution(action_space: Any, config: PolicyConfig) -> Distribution:
    """The distribution for an action space."""
    if config.noise_color and not isinstance(action_space, Box):
        raise ConfigError(
            f"policy.noise_color={config.noise_color} is for continuous actions, and the action space is "
            f"{action_space}; leave it out"
        )
    if isinstance(action_space, Discrete):
        return Categorical(int(action_space.n), int(action_space.start))
    if isinstance(action_space, MultiDiscrete):
        return MultiCategorical(action_space)
    if isinstance(action_space, Box) and np.dtype(action_space.dtype).kind == "f":
        return DiagonalGaussian(action_space, config.bounded_actions, config.noise_color)
    advice = "; whole numbers are a MultiDiscrete" if isinstance(action_space, Box) else ""
    raise ConfigError(
        f"no policy acts in the space {action_space}; supported: Discrete, MultiDiscrete and Box of floats{advice}"
    )


# --- actions of about -1 to 1, scaled to the bounds of a Box action space


NO_BOUND = 1e9
"""Bounds as large as this count as none: many envs give the largest float where there is no bound."""
WIDE = 1e3
"""Where actions are clipped, a new policy (deviation about 1) does not reach bounds wider than this."""
FIRST_ACTIONS = 3.0
"""A new policy's actions are seldom farther from 0."""


def unit_scale(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """Centre and half width of the bounds of a space, float32 [D] each: [-1, 1] is stretched to them.

    A component that lacks a bound has centre 0 and half width 1, so that it is left as it is.
    """
    low, high = _bounds(space)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    centre, half_width = 0.5 * (high + low), 0.5 * (high - low)
    return centre.astype(np.float32), half_width.astype(np.float32)


def bounds_note(space: Any, config: PolicyConfig) -> str:
    """A note for the user on bounds that a new policy will hardly reach; empty where there are none."""
    if not isinstance(space, Box) or space.dtype.kind != "f":
        return ""
    low, high = _bounds(space)
    for i in range(len(low)):
        is_bounded = bool(np.isfinite(low[i])), bool(np.isfinite(high[i]))
        said = f"action {i} has bounds of {_shown(low[i])} to {_shown(high[i])}"
        if is_bounded in ((True, False), (False, True)):
            return f"{said}: with a bound on one side only it is not scaled, and a new policy begins at about -1 to 1"
        if is_bounded != (True, True) or config.bounded_actions != "clip":
            continue
        if high[i] - low[i] > WIDE or low[i] > FIRST_ACTIONS or high[i] < -FIRST_ACTIONS:
            return f"{said} and is clipped, and a new policy begins at about -1 to 1; --policy.bounded-actions scale"
    return ""


def _bounds(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """Low and high, float64 [D] each, infinite where there is no bound."""
    low, high = (np.asarray(bound, np.float64).ravel() for bound in (space.low, space.high))
    return np.where(low <= -NO_BOUND, -np.inf, low), np.where(high >= NO_BOUND, np.inf, high)


def _shown(bound: float) -> str:
    return f"{bound:g}"


# --- noise that is correlated in time (Hollenstein et al. 2024)


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
