"""Episodes played one step at a time to be watched: the loop behind text in a terminal, videos and the page.

A stage is a pool whose positions are drawn, also the last of each episode; `watch` plays on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from scramjet.adapters.gymnasium.rendering import RenderedPool
from scramjet.adapters.libraries import GYM, PETTINGZOO, VEC
from scramjet.adapters.registry import ForeignWorld
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.wrappers import FrameStackPool
from scramjet.envs.api import Box, Env, state_fields
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.search.rows import SearchSettings
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluator import make_player, steps_at_most
from scramjet.training.seeds import unseen_episodes

CONTROL_RATE, BOARD_RATE, TURN_RATE = 30.0, 10.0, 2.0
"""Frames a second at which a world is watched: one that moves smoothly, one that moves by cells, one of turns."""

Drawing = Any
"""Text, or an RGB picture [height, width, 3]."""


class Stage(Protocol):
    """A pool that is reset and stepped here alone, and whose envs are drawn after each."""

    pool: Pool
    frames_per_second: float
    """How fast its world is watched."""

    def drawings(self, out: Transition) -> list[Drawing]:
        """Every env as it stands at the beginning of an episode, which `out` shows."""

    def step(self, actions: np.ndarray, watched: np.ndarray) -> tuple[Transition, dict[int, Drawing]]:
        """Step all envs; returns the results, and how the position looks that each of the `watched` envs came to."""


class NativeStage:
    """A native world, drawn by a function of its records."""

    def __init__(self, pool: Any, draw: Callable[[Any], Drawing]) -> None:
        self.pool, self._draw = pool, draw
        self.frames_per_second = native_rate(pool.env)

    def drawings(self, out: Transition) -> list[Drawing]:
        return [self._draw(self.pool.record(i)) for i in range(self.pool.num_envs)]

    def step(self, actions: np.ndarray, watched: np.ndarray) -> tuple[Transition, dict[int, Drawing]]:
        after, _ = self.pool.simulate(self.pool.states(), actions)  # the last position too, before the next episode
        drawn = {int(i): self._draw(self.pool.as_record(after[i])) for i in watched}
        return self.pool.step(actions), drawn


class SelfDrawnStage:
    """Envs of others that draw themselves: their pool has `drawings`, one list an env."""

    def __init__(self, drawn: Any, frame_stack: int, frames_per_second: float | None = None) -> None:
        self._drawings: list[list[Drawing]] = drawn.drawings
        self.pool: Pool = drawn if frame_stack == 1 else FrameStackPool(drawn, frame_stack)
        usual = TURN_RATE if drawn.played_by is PlayedBy.SEATS else CONTROL_RATE
        self.frames_per_second = frames_per_second or usual

    def drawings(self, out: Transition) -> list[Drawing]:
        return [drawings[-1] for drawings in self._drawings]

    def step(self, actions: np.ndarray, watched: np.ndarray) -> tuple[Transition, dict[int, Drawing]]:
        for drawings in self._drawings:
            drawings.clear()
        out = self.pool.step(actions)
        return out, {int(i): self._drawings[i][0] for i in watched}  # behind it, the first of the next episode


class SeenStage:
    """Envs of others that are not drawn: what the policy sees is shown, the newest of several images."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.frames_per_second = pool, CONTROL_RATE

    def drawings(self, out: Transition) -> list[Drawing]:
        return [newest_image(image) for image in out.obs]

    def step(self, actions: np.ndarray, watched: np.ndarray) -> tuple[Transition, dict[int, Drawing]]:
        out = self.pool.step(actions)
        ended = out.terminated | out.truncated
        return out, {int(i): newest_image((out.final_obs if ended[i] else out.obs)[i]) for i in watched}


def text_stage(config: RunConfig) -> Stage:
    """One env of the config's world, drawn for a terminal: as text, or as a picture where it has no text of its own."""
    world = config.make_env()
    if isinstance(world, ForeignWorld):
        return SelfDrawnStage(RenderedPool(world, as_text=True, num_workers=1), config.frame_stack)
    return NativeStage(make_pool(config, num_envs=1), world.ascii if has_text(world) else world.render)


def picture_stage(config: RunConfig, num_envs: int, num_workers: int | None = None) -> Stage:
    """Envs of the config's world, drawn as pictures: [height, width, 3] uint8, or text where a world has no other.

    `num_workers`: processes for envs of Gymnasium; None: one for each core.
    """
    world = config.make_env()
    if not isinstance(world, ForeignWorld):
        draw = world.render if has_pictures(world) else world.ascii
        return NativeStage(make_pool(config, num_envs=num_envs, num_threads=1), draw)
    if world.library is VEC:  # single envs of the same id can be drawn
        world = replace(world, name=f"{GYM.prefix}:{world.id}")
    if world.makes_single_envs:
        rendered = RenderedPool(world, num_envs, once=True, num_workers=num_workers)
        return SelfDrawnStage(rendered, config.frame_stack, rendered.frames_per_second)
    if world.library is PETTINGZOO:
        from scramjet.adapters.pettingzoo import rendered_pool

        return SelfDrawnStage(rendered_pool(world.name, world.id, num_envs, world.parameters), config.frame_stack)
    pool = make_pool(config, num_envs=num_envs)
    if is_image(pool.observation_space):
        return SeenStage(pool)
    pool.close()
    raise ConfigError(
        f"{world.name} cannot be drawn: it makes many envs at once, which show no pictures; name the same world as "
        f"single envs, such as --env gym:{world.id.rpartition(':')[2]}, or go without a video"
    )


def has_pictures(env: Env) -> bool:
    """Whether a native world draws pictures."""
    return type(env).render is not Env.render


def has_text(env: Env) -> bool:
    """Whether a native world is best shown as text in a terminal: it draws text of its own, or nothing at all."""
    draws_text = type(env).ascii is not Env.ascii or type(env).ascii_for is not Env.ascii_for
    return draws_text or not has_pictures(env)


def is_image(space: Any) -> bool:
    """Whether observations are images: bytes in rows and columns, perhaps several of them."""
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3) and min(space.shape) > 0


def newest_image(image: np.ndarray) -> np.ndarray:
    """One image [height, width, 3] of an observation [height, width], [images, height, width] or
    [height, width, channels], of several the last."""
    if image.ndim == 3 and image.shape[0] == 3:
        return image.transpose(1, 2, 0)
    if image.ndim == 3 and image.shape[2] == 3:
        return image
    if image.ndim == 3:
        image = image[..., -1] if image.shape[2] < image.shape[0] else image[-1]
    return np.repeat(image[..., None], 3, axis=2)


def rate_of(env: Env | ForeignWorld) -> float:
    """Steps of a world to show a second where it is drawn as text."""
    return native_rate(env) if isinstance(env, Env) else CONTROL_RATE


def native_rate(env: Env) -> float:
    """Frames a second for a native world: what is played in turns or moves by whole cells is shown slower."""
    if env.num_seats > 1:
        return TURN_RATE
    kinds = [field[0] if isinstance(field, tuple) else field for field in state_fields(env).values()]
    return CONTROL_RATE if any(np.dtype(kind).kind == "f" for kind in kinds) else BOARD_RATE


# --- the loop


@dataclass(frozen=True, slots=True)
class Moment:
    """How the episodes of N envs stand after a step; those that have ended stay as they were."""

    drawings: list[Drawing]  # [N]
    returns: np.ndarray  # [N, players] float64, so far
    steps: np.ndarray  # [N] int64
    has_ended: np.ndarray  # [N] bool: by itself, or cut


def watch(
    stage: Stage,
    policy: Policy,
    config: RunConfig,
    seeds: EpisodeSeed,
    *,
    rounds: int = 1,
    search: SearchSettings | None = None,
) -> Iterator[Moment]:
    """Play one episode of every env, `rounds` times, and tell of each step; the first moment is before any.

    Actions are searched or drawn, and episodes cut, as in an evaluation with this config; the first round plays the
    episodes that an evaluation with these seeds begins with.
    """
    pool = stage.pool
    longest = steps_at_most(pool, config.eval.max_steps)
    generator = torch.Generator().manual_seed(seeds.key)
    shape = (pool.num_envs, pool.num_players)
    is_through = False  # every env has begun its next episode by itself
    for number in range(rounds):
        if not is_through:
            out = pool.reset(seeds if number == 0 else seeds.after("cut", number))
            player = make_player(pool, policy, generator, samples=config.eval.samples, search=search)
        drawings, returns = stage.drawings(out), np.zeros(shape)
        steps, is_over = np.zeros(pool.num_envs, np.int64), np.zeros(pool.num_envs, np.bool_)
        ended = is_over.copy()
        yield Moment(list(drawings), returns.copy(), steps.copy(), ended.copy())
        while not ended.all():
            out, drawn = stage.step(player.act(out), np.flatnonzero(~ended))
            player.see(out)
            for i, drawing in drawn.items():
                drawings[i] = drawing
            returns += np.where(ended[:, None], 0.0, out.reward.reshape(shape))
            steps += ~ended
            lengths = pool.unfinished()[1].reshape(shape)
            is_over = is_over | (~ended & (lengths.max(1) == 0))
            ended = is_over | (steps == longest)
            yield Moment(list(drawings), returns.copy(), steps.copy(), ended.copy())
        is_through = bool(is_over.all()) and pool.num_envs == 1


def play(
    policy: Policy, config: RunConfig, seed: int, episodes: int, search: SearchSettings | None = None
) -> Iterator[tuple[Drawing, float, int, bool]]:
    """Play episodes one step at a time: a drawing, the return so far, the step, and whether it ended."""
    stage = text_stage(config)
    with contextlib.closing(stage.pool):
        for moment in watch(stage, policy, config, unseen_episodes(seed), rounds=episodes, search=search):
            total = float(moment.returns.sum())
            yield moment.drawings[0], total, int(moment.steps[0]), bool(moment.has_ended[0])
