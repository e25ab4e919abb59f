"""Advantages and returns of a rollout: generalized advantage estimation and V-trace.

Each stands here twice: `plain_gae` and `plain_vtrace` are the papers' recursions in torch, to be read; `gae` and
`vtrace` give the same numbers up to rounding in one compiled pass over the rollout, and are what training uses. On the
GPU the pass of `gae` is the scan in advantage_scan.py.
`seat_gae` and `seat_vtrace` are the same for turn-based games.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.jit import RowKernel
from scramjet.kernels.operations import takes_kernels

MAX_LOG_RATIO = 20.0
"""Where the logarithm of a ratio of two policies is cut: e^20 is above every sensible clip, and far from infinity."""


def plain_gae(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation (Schulman et al. 2016, eq. 16): advantages and returns, both [T, N].

    reward, terminated, truncated [T, N]; value [T + 1, N], its last row the value of what comes after the rollout;
    final_value [T, N], read only where truncated: the value of that episode's own last observation. A terminated
    episode has no future; a truncated one has a future that was not played; neither reaches into the next episode.
    """
    error = _one_step_errors(reward, value, terminated, truncated, final_value, gamma)
    goes_on = ~(terminated | truncated)
    advantage, following = torch.empty_like(reward), torch.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        following = error[t] + gamma * gae_lambda * torch.where(goes_on[t], following, 0.0)
        advantage[t] = following
    return advantage, advantage + value[:-1]


def _one_step_errors(
    reward: Tensor, value: Tensor, terminated: Tensor, truncated: Tensor, final_value: Tensor, gamma: float
) -> Tensor:
    """r_t + gamma V_t+1 - V_t, [T, N], with the value after an episode's last step as in `plain_gae`."""
    next_value = torch.where(truncated, final_value, torch.where(terminated, 0.0, value[1:]))
    return reward + gamma * next_value - value[:-1]


def gae(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """`plain_gae` in one compiled pass: advantages and returns, both [T, N], equal to it up to rounding."""
    if takes_kernels(reward):
        from scramjet.algorithms.advantage_scan import gae_by_scan  # loads Triton

        return gae_by_scan(reward, value, terminated, truncated, final_value, gamma=gamma, gae_lambda=gae_lambda)
    advantage, returns = torch.empty_like(reward), torch.empty_like(reward)
    _gae.on(
        reward.shape[1], reward, value, terminated, truncated, final_value, advantage, returns,
        np.float32(gamma), np.float32(gae_lambda),
    )  # fmt: skip
    return advantage, returns


@RowKernel
def _gae(
    start: int, stop: int,
    reward: np.ndarray, value: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, final_value: np.ndarray,
    advantage: np.ndarray, returns: np.ndarray, gamma: np.float32, gae_lambda: np.float32,
) -> None:  # fmt: skip
    """Advantages and returns of rows start to stop, from the last step to the first.

    Every operand is loaded even where it is not needed, and indices are unsigned, so that the compiler can vectorize.
    """
    num_steps, zero, decay = reward.shape[0], np.float32(0.0), gamma * gae_lambda
    for t in range(num_steps - 1, -1, -1):
        is_last = t + 1 == num_steps
        following_row = t if is_last else t + 1
        for row in range(start, stop):
            n = np.uintp(row)
            is_cut, worth = truncated[t, n], value[t, n]
            is_over = terminated[t, n] | is_cut
            next_value, final, following = value[t + 1, n], final_value[t, n], advantage[following_row, n]
            next_value = zero if is_over else next_value
            next_value = final if is_cut else next_value
            following = zero if is_over | is_last else following
            gained = reward[t, n] + gamma * next_value - worth + decay * following
            advantage[t, n] = gained
            returns[t, n] = gained + worth


class SeatEstimate(NamedTuple):
    """Advantages and returns of a turn-based game, [T, N] each."""

    advantage: Tensor  # 0 where not counted
    returns: Tensor  # the value, where not counted
    counts: Tensor  # bool: the seat's next turn, or the game's end, is known


def seat_gae(
    reward: Tensor,
    value: Tensor,
    seat: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> SeatEstimate:
    """GAE of a turn-based game, computed separately for each seat.

    A step of a seat lasts from one of its turns to its next: the reward of its action is the sum of all that it is paid
    in between, on others' turns too, and gamma counts its own turns. reward [T, N, S]; value and seat [T + 1, N], of
    the seat to move; terminated, truncated [T, N]; final_value [T, N], read only in games of one seat where truncated.

    The critic values a position for the seat to move only, because it has been trained on nothing else. So where a
    rollout or a truncated game ends between two turns of a seat, the outcome of the first of these turns is not known
    and it does not count; the seat's turns before it are bootstrapped from its value.
    """
    on_policy = torch.ones_like(reward[..., 0])
    return _seat_chains(
        reward, value, seat, terminated, truncated, final_value, on_policy, on_policy, gamma, gae_lambda
    )


def _clipped_ratios(log_ratio: Tensor, rho_clip: float, c_clip: float) -> tuple[Tensor, Tensor]:
    """min(rho_clip, ratio) and min(c_clip, ratio) of policies whose log-probabilities differ by `log_ratio`."""
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()  # so that exp is never infinite, and 0 * infinity never NaN
    return ratio.clamp(max=rho_clip), ratio.clamp(max=c_clip)


def plain_vtrace(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    log_ratio: Tensor,
    *,
    gamma: float,
    gae_lambda: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace (Espeholt et al. 2018, eq. 1 and remark 2): advantages and returns, both [T, N], of a policy pi from
    steps that another policy mu played.

    log_ratio [T, N] is log pi(a|x) - log mu(a|x) of the actions taken; the other tensors, and ends of episodes, are as
    in `plain_gae`. With rho = min(rho_clip, pi / mu) and c = lambda min(c_clip, pi / mu), the returns are

        v_t = V_t + rho_t (r_t + gamma V_t+1 - V_t) + gamma c_t (v_t+1 - V_t+1)

    and the advantages r_t + gamma (V_t+1 + lambda (v_t+1 - V_t+1)) - V_t: with lambda 1 the paper's r_t + gamma v_t+1 -
    V_t. The paper multiplies the policy gradient by rho_t; these advantages do not contain that factor, because PPO's
    surrogate multiplies by the ratio itself, so another loss must multiply by it. Where log_ratio is 0 and no clip is
    below 1, the result is that of `plain_gae` for every lambda. The paper wants rho_clip >= c_clip. Ratios over e^20
    count as e^20.
    """
    rho, trace = _clipped_ratios(log_ratio, rho_clip, c_clip)
    error = _one_step_errors(reward, value, terminated, truncated, final_value, gamma)
    goes_on = ~(terminated | truncated)
    advantage, returns = torch.empty_like(reward), torch.empty_like(reward)
    gain = torch.zeros_like(reward[0])  # v_t+1 - V_t+1
    for t in reversed(range(len(reward))):
        following = gamma * gae_lambda * torch.where(goes_on[t], gain, 0.0)
        advantage[t] = error[t] + following
        gain = rho[t] * error[t] + trace[t] * following
        returns[t] = value[t] + gain
    return advantage, returns


def vtrace(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    log_ratio: Tensor,
    *,
    gamma: float,
    gae_lambda: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """`plain_vtrace` in one compiled pass: advantages and returns, both [T, N], equal to it up to rounding."""
    one_seat = torch.zeros(value.shape, dtype=torch.int8, device=reward.device)
    rho, trace = _clipped_ratios(log_ratio, rho_clip, c_clip)
    estimate = _seat_chains(
        reward.unsqueeze(-1), value, one_seat, terminated, truncated, final_value, rho, trace, gamma, gae_lambda
    )
    return estimate.advantage, estimate.returns


def seat_vtrace(
    reward: Tensor,
    value: Tensor,
    seat: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    log_ratio: Tensor,
    *,
    gamma: float,
    gae_lambda: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> SeatEstimate:
    """V-trace of a turn-based game, computed separately for each seat.

    Steps, shapes and what counts are as in `seat_gae`; log_ratio [T, N] is that of the seat to move. A step is weighted
    by its own seat's ratio alone: to a seat, the others are part of the world.
    """
    rho, trace = _clipped_ratios(log_ratio, rho_clip, c_clip)
    return _seat_chains(reward, value, seat, terminated, truncated, final_value, rho, trace, gamma, gae_lambda)


def _seat_chains(
    reward: Tensor, value: Tensor, seat: Tensor, terminated: Tensor, truncated: Tensor, final_value: Tensor,
    rho: Tensor, trace: Tensor, gamma: float, gae_lambda: float,
) -> SeatEstimate:  # fmt: skip
    """Call `_seat_vtrace` with clipped ratios rho and trace [T, N], and new tensors for its results."""
    advantage, returns = torch.empty_like(value[:-1]), torch.empty_like(value[:-1])
    counts = torch.empty(advantage.shape, dtype=torch.bool, device=value.device)
    scratch = torch.zeros(4, reward.shape[1], reward.shape[2], device=value.device)
    _seat_vtrace.on(
        reward.shape[1], reward, value, seat, terminated, truncated, final_value, rho, trace, advantage, returns,
        counts, scratch, np.float32(gamma), np.float32(gae_lambda),
    )  # fmt: skip
    return SeatEstimate(advantage, returns, counts)


@RowKernel
def _seat_vtrace(
    start: int, stop: int,
    reward: np.ndarray, value: np.ndarray, seat: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
    final_value: np.ndarray, rho: np.ndarray, trace: np.ndarray, advantage: np.ndarray, returns: np.ndarray,
    counts: np.ndarray, scratch: np.ndarray, gamma: np.float32, gae_lambda: np.float32,
) -> None:  # fmt: skip
    """V-trace of rows start to stop, from the last step to the first; GAE where the clipped ratios rho and trace are 1.

    `scratch` [4, N, S] holds for each seat, about its next turn: the value, the gain (v - V), the rewards until then,
    and 1 where that turn is not known.
    """
    num_steps, _, num_seats = reward.shape
    zero, one = np.float32(0.0), np.float32(1.0)
    next_value, next_gain, earned, is_open = scratch[0], scratch[1], scratch[2], scratch[3]
    for n in range(start, stop):
        for p in range(num_seats):
            is_mover = p == seat[num_steps, n]
            next_value[n, p] = value[num_steps, n] if is_mover else zero
            is_open[n, p] = zero if is_mover else one
    for t in range(num_steps - 1, -1, -1):
        for n in range(start, stop):
            for p in range(num_seats):
                if terminated[t, n] or truncated[t, n]:
                    is_cut = bool(truncated[t, n])
                    next_value[n, p] = final_value[t, n] if is_cut and num_seats == 1 else zero
                    is_open[n, p] = one if is_cut and num_seats > 1 else zero
                    next_gain[n, p] = zero
                    earned[n, p] = zero
                earned[n, p] += reward[t, n, p]
            mover = seat[t, n]
            is_known = is_open[n, mover] == zero
            error = earned[n, mover] + gamma * next_value[n, mover] - value[t, n]
            following = gamma * gae_lambda * next_gain[n, mover]
            gain = rho[t, n] * error + trace[t, n] * following if is_known else zero
            advantage[t, n] = error + following if is_known else zero
            returns[t, n] = value[t, n] + gain
            counts[t, n] = is_known
            next_value[n, mover] = value[t, n]
            next_gain[n, mover] = gain
            earned[n, mover] = zero
            is_open[n, mover] = zero
