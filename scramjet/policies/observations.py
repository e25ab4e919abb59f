"""Batches of observations: a tensor, or for a Dict space a dict of them, nested like the space.

A batch has one row per observation, in the space's own number type: Box [B, *shape], Discrete int64 [B, 1],
MultiDiscrete [B, *shape], MultiBinary int8 [B, *shape]. Images stay uint8 until they are inside an encoder. Behind
them stands what `Policy.predict` needs to speak with an env.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

from scramjet.adapters.env_spaces import EnvSpaces
from scramjet.engine.trees import leaves, map_leaves
from scramjet.errors import ConfigError, PredictError

Observations: TypeAlias = "Tensor | dict[str, Observations]"

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary and Dict of these"


def floats_as_float32(obs: Observations) -> Observations:
    """Observations with every floating-point entry as float32 and all others as they are, as networks take them."""
    if isinstance(obs, Tensor):
        return obs if obs.dtype == torch.float32 or not obs.is_floating_point() else obs.float()
    return {name: floats_as_float32(entry) for name, entry in obs.items()}


def lowest_observations(space: Any, num_rows: int) -> Observations:
    """`num_rows` rows of zeros, or of a discrete space's lowest number, as a network gets them."""
    if isinstance(space, Dict):
        return {name: lowest_observations(entry, num_rows) for name, entry in space.spaces.items()}
    if isinstance(space, Discrete):
        return torch.full((num_rows, 1), int(space.start))
    if isinstance(space, MultiDiscrete):
        start = torch.from_numpy(np.asarray(space.start, space.dtype))
        return start.expand(num_rows, *space.shape).clone()
    if isinstance(space, Box | MultiBinary):
        return floats_as_float32(torch.from_numpy(np.zeros((num_rows, *space.shape), space.dtype)))
    raise unsupported_space(space)


def without_entries(space: Any, names: Sequence[str]) -> Any:
    """A Dict space without the entries of these names (`inner.name` for nested ones); refuses names it lacks."""
    for name in names:
        space = _without_entry(space, name.split("."), name)
    return space


def _without_entry(space: Any, path: list[str], name: str) -> Any:
    known = list(space.spaces) if isinstance(space, Dict) else []
    if path[0] not in known or (len(path) > 1 and not isinstance(space.spaces[path[0]], Dict)):
        entries = f"its entries: {', '.join(known)}" if known else "it has no entries to leave out"
        raise ConfigError(f"policy.ignore names '{name}', and the observation is {space}; {entries}")
    kept = dict(space.spaces)
    if len(path) > 1:
        kept[path[0]] = _without_entry(kept[path[0]], path[1:], name)
    else:
        del kept[path[0]]
    if not kept:
        raise ConfigError(f"policy.ignore leaves nothing to see: '{name}' is the last entry of {space}")
    return Dict(kept)


def describe_observations(obs: Observations) -> str:
    """Shapes and number types of a batch, in words: `[2, 4] float32`, `{position: [2, 2] int64, board: ...}`."""
    if isinstance(obs, Tensor):
        return f"{list(obs.shape)} {str(obs.dtype).removeprefix('torch.')}"
    return "{" + ", ".join(f"{name}: {describe_observations(entry)}" for name, entry in obs.items()) + "}"


def unsupported_space(space: Any) -> ConfigError:
    """The error for an observation space without an encoder."""
    return ConfigError(f"no network takes observations of the space {space}; supported: {SUPPORTED}")


# --- `Policy.predict`: from observations as an env gives them to actions as it takes them


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
