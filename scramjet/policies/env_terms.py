"""`Policy.predict`: from observations as an env gives them to actions as it takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from scramjet.adapters.env_spaces import EnvSpaces
from scramjet.engine.trees import leaves, map_leaves
from scramjet.errors import PredictError


class ActingPolicy(Protocol):
    """The part of a `Policy` that `predict` uses."""

    state_size: int

    @property
    def device(self) -> torch.device:
        """Where its weights are."""

    def initial_state(self, num_rows: int) -> Tensor:
        """The recurrent state at the beginning of episodes, [num_rows, state_size]."""

    def act(
        self, obs: Any, state: Tensor | None = None, *, mask: Any = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """An action for each observation, as the env receives it; updates `state` in place."""


@dataclass(frozen=True)
class PolicyState:
    """What `predict` returns and takes again with the next observations, a row for each. Never changed in place."""

    memory: Tensor | None  # [rows, state_size], recurrent state of the network; None if it has none
    frames: Any  # the last observations, arrays [rows, ...]; None where the policy sees one at a time

    def __len__(self) -> int:
        return len(self.memory if self.memory is not None else leaves(self.frames)[0])

    def without(self, begins: np.ndarray) -> PolicyState:
        """This state with zeros in those rows whose episode begins; `begins` is bool [rows]."""
        if not begins.any():
            return self
        memory = self.memory
        if memory is not None:
            is_kept = torch.from_numpy(~begins).to(memory.device)
            memory = torch.where(is_kept.unsqueeze(1), memory, 0.0)

        def forgotten(frames: np.ndarray) -> np.ndarray:
            frames = frames.copy()
            frames[begins] = 0
            return frames

        return PolicyState(memory, None if self.frames is None else map_leaves(forgotten, self.frames))


def predict(
    policy: ActingPolicy, spaces: EnvSpaces, obs: Any, state: Any, mask: Any, deterministic: bool, episode_start: Any
) -> tuple[Any, PolicyState | None]:
    """The policy's action for one observation or a batch, as the env takes it, and the state after it; see
    `Policy.predict`."""
    newest, rows, is_batch = spaces.rows_of(obs)
    has_frames = spaces.num_frames > 1
    before = _checked_state(policy, state, rows, has_frames=has_frames)
    if before is not None:
        before = before.without(_checked_begins(episode_start, rows))
    seen = newest
    if has_frames:
        seen = spaces.stacked(None if before is None else before.frames, newest)
    memory = None
    if policy.state_size:
        memory = policy.initial_state(rows)
        if before is not None and before.memory is not None:
            memory.copy_(before.memory)
    legal = None if mask is None else spaces.mask_rows(mask, rows, is_batch)
    generator = None if deterministic else torch_generator(policy.device)
    action = policy.act(seen, memory, mask=legal, generator=generator).cpu().numpy()
    after = PolicyState(memory, seen if has_frames else None) if has_frames or memory is not None else None
    return spaces.env_actions(action, is_batch), after


def torch_generator(device: torch.device) -> torch.Generator:
    """Torch's default generator for a device, which `torch.manual_seed` seeds."""
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator


def _checked_state(policy: ActingPolicy, state: Any, rows: int, *, has_frames: bool) -> PolicyState | None:
    if state is None:
        return None
    if not policy.state_size and not has_frames:
        raise PredictError(f"this policy has no memory, and state is {type(state).__name__}; give state=None")
    if not isinstance(state, PolicyState):
        raise PredictError(
            f"state is {type(state).__name__}; expected what predict returned with the last action, or None where "
            f"episodes begin"
        )
    fits = (state.memory is not None) == bool(policy.state_size) and (state.frames is not None) == has_frames
    if fits and state.memory is not None:
        fits = state.memory.shape[1] == policy.state_size
    if not fits:
        raise PredictError("state is that of another policy; expected what predict returned with the last action")
    if len(state) != rows:
        raise PredictError(
            f"state has {len(state)} rows and the observation {rows}; expected the state of the same envs, or None "
            f"where episodes begin"
        )
    return state


def _checked_begins(episode_start: Any, rows: int) -> np.ndarray:
    """Which rows begin an episode, bool [rows]."""
    if episode_start is None:
        return np.zeros(rows, np.bool_)
    begins = np.asarray(episode_start)
    if begins.size != rows or begins.ndim > 1 or begins.dtype.kind not in "biu" or not np.isin(begins, (0, 1)).all():
        raise PredictError(
            f"episode_start is {begins.dtype} {list(begins.shape)}; expected {rows} truth "
            f"value{'s' if rows > 1 else ''}, one for each observation"
        )
    return begins.astype(np.bool_).reshape(rows)
