"""What MiniGrid's worlds have in common: an agent that turns, walks, carries and opens, and sees the cells before it.

The rules are those of the package `minigrid` (Chevalier-Boisvert et al. 2023, "Minigrid & Miniworld: modular and
customizable reinforcement learning environments for goal-oriented tasks"). A world of this family says how large its
grid is, how long an episode takes and where things are when it begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Discrete, Env, MultiDiscrete
from scramjet.envs.minigrid.cells import (
    BOX,
    CLOSED,
    DOOR,
    EMPTY_CELL,
    GOAL,
    KEY,
    LARGEST_CELL,
    LOCKED,
    NUM_COLORS,
    NUM_OBJECTS,
    NUM_STATES,
    OPEN,
    X_STEP,
    Y_STEP,
    cell,
    color_of,
    content_of,
    is_passable,
    is_portable,
    kind_of,
    state_of,
    write_view,
)
from scramjet.envs.minigrid.tiles import grid_picture, grid_text

TURN_LEFT, TURN_RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
SMALLEST_VIEW, LARGEST_VIEW = 3, 15
LARGEST_SIDE = 64


def toggled(code: int, carried: int) -> int:
    """What becomes of an object that is toggled: doors open and close, locked ones open to their key, boxes vanish."""
    if kind_of(code) == BOX:
        return content_of(code)
    if kind_of(code) != DOOR:
        return code
    color, state = color_of(code), state_of(code)
    if state == LOCKED:
        return cell(DOOR, color, OPEN) if carried == cell(KEY, color) else code
    return cell(DOOR, color, OPEN if state == CLOSED else CLOSED)


def act(s: Any, action: int) -> bool:
    """Let the agent act; returns whether it walked onto the goal or picked up the target."""
    if action in (TURN_LEFT, TURN_RIGHT):
        s.direction = (s.direction + (1 if action == TURN_RIGHT else 3)) % 4
        return False
    x, y = s.x + X_STEP[s.direction], s.y + Y_STEP[s.direction]
    ahead = s.grid[x, y]
    if action == FORWARD and is_passable(ahead):
        s.x, s.y = x, y
        return kind_of(ahead) == GOAL
    if action == PICK_UP and is_portable(ahead) and s.carried == EMPTY_CELL:
        s.carried = ahead
        s.grid[x, y] = EMPTY_CELL
        return ahead == s.target
    if action == DROP and ahead == EMPTY_CELL and s.carried != EMPTY_CELL:
        s.grid[x, y] = s.carried
        s.carried = EMPTY_CELL
    if action == TOGGLE:
        s.grid[x, y] = toggled(ahead, s.carried)
    return False


class GridWorld(Env):
    """A grid with walls, doors and objects, of which the agent sees a part. Subclasses make the layout in `reset`."""

    view_size: int = 7

    hidden = True
    sees_through_walls = False
    action_space = Discrete(7)
    action_names = ("left", "right", "forward", "pick up", "drop", "toggle", "done")
    stat_names = ("solved",)

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Columns and rows of the grid, the walls around it included."""
        raise NotImplementedError

    @property
    def observation_space(self) -> MultiDiscrete:
        sizes = np.full((self.view_size, self.view_size, 3), (NUM_OBJECTS, NUM_COLORS, NUM_STATES))
        return MultiDiscrete(sizes, dtype=np.uint8)  # type: ignore[arg-type]

    @property
    def state(self) -> dict[str, Any]:
        return {
            "x": np.int16,
            "y": np.int16,
            "direction": np.int16,  # an index of X_STEP and Y_STEP
            "carried": np.int16,  # an object, or an empty cell
            "target": np.int16,  # the object that must be picked up; 0: none, the goal must be reached
            "solved": np.int16,
            "steps": np.int32,
            "grid": (np.int16, self.grid_shape),  # [x, y]
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        columns, rows = self.grid_shape
        place = {"x": (1, columns - 2), "y": (1, rows - 2), "direction": (0, 3), "solved": (0, 1)}
        return {**place, "carried": (1, LARGEST_CELL), "grid": (1, LARGEST_CELL)}

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.steps += 1
        is_solved = act(s, action)
        s.solved = is_solved
        return (1.0 - 0.9 * (s.steps / self.max_episode_steps) if is_solved else 0.0), is_solved

    def observe(self, s: Any, obs: Any) -> None:
        write_view(s, obs, self.sees_through_walls)

    def stats(self, s: Any, stats: Any) -> None:
        stats.solved = float(s.solved)

    def validate(self) -> None:
        size = self.view_size
        if not (SMALLEST_VIEW <= size <= LARGEST_VIEW and size % 2 == 1):
            raise ValueError(f"view_size={size} must be odd and from {SMALLEST_VIEW} to {LARGEST_VIEW}")

    def require_between(self, name: str, least: int, most: int) -> None:
        """Raise ValueError where a parameter is too small or too large."""
        if not least <= getattr(self, name) <= most:
            raise ValueError(f"{name}={getattr(self, name)} must be from {least} to {most}")

    def render(self, s: Any) -> np.ndarray:
        return grid_picture(s, self.view_size, self.sees_through_walls)

    def ascii(self, s: Any) -> str:
        return grid_text(s)


def begin_empty(s: Any) -> None:
    """Begin an episode with an empty grid and empty hands."""
    for x in range(s.grid.shape[0]):
        for y in range(s.grid.shape[1]):
            s.grid[x, y] = EMPTY_CELL
    s.carried = EMPTY_CELL
