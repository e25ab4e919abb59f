"""Snake: eat, grow, and run into nothing; alone, or up to four snakes on one board.

The arcade game "Blockade" (Gremlin 1976) and its many successors, on a walled square board.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas, Color
from scramjet.envs.rng import randint

ROW_STEP = (-1, 0, 1, 0)  # up, right, down, left
COLUMN_STEP = (0, 1, 0, -1)
MOST_SNAKES = 4
SMALLEST_SIZE, LARGEST_SIZE = 5, 32

FREE = 0  # what a cell of the grid holds: FREE, FOOD, or 1 + the number of a snake
FOOD = -1
NOWHERE = -1  # a move into the wall, or food that has found no free cell

BODY, HEAD, OTHERS, FOODS, BORDER = 0, 1, 2, 3, 4  # planes of an observation
BRIGHT = 255
NECK_SHADE, TAIL_SHADE = 192, 64

FRAME = 12  # pixels around the board in the picture
WALL: Color = (36, 44, 60)
FIELD: tuple[Color, Color] = ((250, 248, 244), (242, 239, 232))
APPLE: Color = (214, 84, 78)
LEAF: Color = (116, 160, 92)
SKINS: tuple[Color, ...] = ((92, 122, 206), (226, 142, 72), (88, 160, 124), (164, 108, 178))


def is_inside(row: int, column: int, size: int) -> bool:
    """Whether a cell lies on the board."""
    return 0 <= row < size and 0 <= column < size


def body_cell(s: Any, snake: int, place: int) -> int:
    """The cell `place` cells behind a snake's head; the body is a ring of cells in which the head moves forwards."""
    index = s.head[snake] - place
    if index < 0:
        index += s.body.shape[1]
    return s.body[snake, index]


def push_head(s: Any, snake: int, cell: int) -> None:
    """Put a snake's head on `cell`; what was its head is now its neck."""
    index = s.head[snake] + 1
    if index == s.body.shape[1]:
        index = 0
    s.head[snake] = index
    s.body[snake, index] = cell
    s.grid[cell] = 1 + snake


def place_snake(s: Any, snake: int, size: int, length: int) -> None:
    """Lay a snake out straight on free cells, no wall right before it; every way to do so is as likely."""
    fits = False
    tail = direction = step = 0
    while not fits:
        drawn = randint(s, 4 * size * size)
        tail, direction = drawn // 4, drawn % 4
        step = ROW_STEP[direction] * size + COLUMN_STEP[direction]
        row_ahead = tail // size + length * ROW_STEP[direction]
        fits = is_inside(row_ahead, tail % size + length * COLUMN_STEP[direction], size)
        if fits:
            for place in range(length):
                fits = fits and s.grid[tail + place * step] == FREE
    for place in range(length):
        push_head(s, snake, tail + place * step)
    s.heading[snake] = direction
    s.length[snake] = length
    s.alive[snake] = 1


def place_food(s: Any, piece: int) -> None:
    """Put food on a free cell, each as likely; where there is none it stays NOWHERE."""
    num_free = 0
    for cell in range(s.grid.shape[0]):
        num_free += s.grid[cell] == FREE
    if num_free == 0:
        return
    skip = randint(s, num_free)
    for cell in range(s.grid.shape[0]):
        if s.grid[cell] == FREE:
            if skip == 0:
                s.grid[cell] = FOOD
                s.food[piece] = cell
                return
            skip -= 1


def aim(s: Any, snake: int, action: int, size: int) -> None:
    """Turn, look where the head will go, and draw in the tail unless food is there. Turning back is no turn."""
    if action != (s.heading[snake] + 2) % 4:
        s.heading[snake] = action
    head = body_cell(s, snake, 0)
    row = head // size + ROW_STEP[s.heading[snake]]
    column = head % size + COLUMN_STEP[s.heading[snake]]
    target = row * size + column if is_inside(row, column, size) else NOWHERE
    s.target[snake] = target
    if target == NOWHERE or s.grid[target] != FOOD:
        s.grid[body_cell(s, snake, s.length[snake] - 1)] = FREE


def will_crash(s: Any, snake: int) -> bool:
    """Whether a snake's head goes into the wall, a body or another head."""
    target = s.target[snake]
    if target == NOWHERE or s.grid[target] > FREE:
        return True
    for other in range(s.alive.shape[0]):
        if other != snake and s.alive[other] != 0 and s.target[other] == target:
            return True
    return False


def remove(s: Any, snake: int) -> None:
    """Take a dead snake off the board."""
    s.alive[snake] = 0
    for place in range(s.length[snake]):
        s.grid[body_cell(s, snake, place)] = FREE


def advance(s: Any, snake: int) -> bool:
    """Move a snake's head; True where it eats."""
    target = s.target[snake]
    eats = s.grid[target] == FOOD
    if eats:
        s.length[snake] += 1
        for piece in range(s.food.shape[0]):
            if s.food[piece] == target:
                s.food[piece] = NOWHERE
    push_head(s, snake, target)
    s.age[snake] += 1
    return eats


def show_snake(s: Any, snake: int, obs: Any, plane: int, size: int) -> None:
    """Draw a snake into a plane: its head bright, its body fading towards the tail."""
    length = s.length[snake]
    fade = (NECK_SHADE - TAIL_SHADE) / max(1, length - 2)
    for place in range(1, length):
        cell = body_cell(s, snake, place)
        obs[plane, cell // size, cell % size] = TAIL_SHADE + int(fade * (length - 1 - place) + 0.5)
    head = body_cell(s, snake, 0)
    obs[plane, head // size, head % size] = BRIGHT


class Snake(Env):
    """Eat, grow, and run into nothing: alone, or several snakes on one board."""

    size: int = 10
    snakes: int = 1
    foods_per_snake: int = 1
    start_length: int = 3
    food_reward: float = 1.0
    death_reward: float = -1.0
    step_reward: float = 0.0
    outlive_reward: float = 0.0
    ends_with_one: bool = False
    max_episode_steps = 1000

    action_space = Discrete(4)
    action_names = ("up", "right", "down", "left")
    stat_names = ("food", "length", "steps")

    @property
    def num_agents(self) -> int:
        return self.snakes

    @property
    def observation_space(self) -> Box:
        return Box(0, BRIGHT, (5, self.size, self.size), np.uint8)

    @property
    def state(self) -> dict[str, Any]:
        num_cells = self.size * self.size
        return {
            "grid": (np.int8, num_cells),
            "body": (np.int16, (self.snakes, num_cells)),  # a ring of cells for each snake
            "head": (np.int16, self.snakes),  # where in its ring the head is
            "length": (np.int16, self.snakes),
            "heading": (np.int8, self.snakes),
            "alive": (np.uint8, self.snakes),
            "age": (np.int32, self.snakes),
            "target": (np.int16, self.snakes),  # the cell that each head goes to in this step
            "dies": (np.uint8, self.snakes),
            "food": (np.int16, self.snakes * self.foods_per_snake),
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        num_cells = self.size * self.size
        cells = {"body": (0, num_cells - 1), "target": (NOWHERE, num_cells - 1), "food": (NOWHERE, num_cells - 1)}
        return {**cells, "head": (0, num_cells - 1), "length": (0, num_cells), "heading": (0, 3), "alive": (0, 1)}

    def reset(self, s: Any) -> None:
        for snake in range(self.snakes):
            place_snake(s, snake, self.size, self.start_length)
        for piece in range(self.snakes * self.foods_per_snake):
            place_food(s, piece)

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        for snake in range(self.snakes):
            if s.alive[snake] != 0:
                aim(s, snake, action[snake], self.size)
        for snake in range(self.snakes):
            s.dies[snake] = s.alive[snake] != 0 and will_crash(s, snake)
        num_died = 0
        for snake in range(self.snakes):
            if s.dies[snake] != 0:
                remove(s, snake)
                reward[snake] = self.death_reward
                num_died += 1
        cells_taken = num_left = 0
        for snake in range(self.snakes):
            if s.alive[snake] != 0:
                eats = advance(s, snake)
                reward[snake] = self.step_reward + (self.food_reward if eats else 0.0) + num_died * self.outlive_reward
                cells_taken += s.length[snake]
                num_left += 1
        for piece in range(self.snakes * self.foods_per_snake):
            if s.food[piece] == NOWHERE:
                place_food(s, piece)
        is_decided = self.ends_with_one and self.snakes > 1 and num_left == 1
        return cells_taken == 0 or cells_taken == self.size * self.size or is_decided

    def alive(self, s: Any, player: int) -> bool:
        return s.alive[player] != 0

    def observe(self, s: Any, obs: Any, player: int) -> None:
        obs[:] = 0
        last = self.size - 1
        for i in range(self.size):
            obs[BORDER, 0, i] = BRIGHT
            obs[BORDER, last, i] = BRIGHT
            obs[BORDER, i, 0] = BRIGHT
            obs[BORDER, i, last] = BRIGHT
        for snake in range(self.snakes):
            if s.alive[snake] != 0:
                show_snake(s, snake, obs, BODY if snake == player else OTHERS, self.size)
        if s.alive[player] != 0:
            head = body_cell(s, player, 0)
            obs[HEAD, head // self.size, head % self.size] = BRIGHT
        for piece in range(self.snakes * self.foods_per_snake):
            if s.food[piece] != NOWHERE:
                obs[FOODS, s.food[piece] // self.size, s.food[piece] % self.size] = BRIGHT

    def stats(self, s: Any, stats: Any, player: int) -> None:
        stats.food = s.length[player] - self.start_length
        stats.length = s.length[player]
        stats.steps = s.age[player]

    def validate(self) -> None:
        if not SMALLEST_SIZE <= self.size <= LARGEST_SIZE:
            raise ValueError(f"size={self.size} must be from {SMALLEST_SIZE} to {LARGEST_SIZE}")
        if not 1 <= self.snakes <= MOST_SNAKES:
            raise ValueError(f"snakes={self.snakes} must be from 1 to {MOST_SNAKES}")
        longest = (self.size - 1) // max(1, self.snakes - 1)  # then a row is left free for the last snake
        if not 2 <= self.start_length <= longest:
            raise ValueError(
                f"start_length={self.start_length} must be from 2 to {longest} with snakes={self.snakes} "
                f"on size={self.size}; a larger size leaves room for longer snakes"
            )
        room = self.size * self.size // self.snakes - self.start_length
        if not 1 <= self.foods_per_snake <= room:
            raise ValueError(
                f"foods_per_snake={self.foods_per_snake} must be from 1 to {room}, the free cells for each snake"
            )

    def render(self, s: Any) -> np.ndarray:
        cell = 400 // self.size  # pixels
        span = cell * self.size + 2 * FRAME
        pixels = Canvas(span, span, WALL).pixels
        places = {c: (snake, k) for snake in range(self.snakes) for k, c in enumerate(body_cells(s, snake))}
        for index in range(self.size * self.size):
            row, column = index // self.size, index % self.size
            tile = Canvas(cell, cell, FIELD[(row + column) % 2])
            if index in places:
                draw_body(tile, s, *places[index], self.size)
            elif s.grid[index] == FOOD:
                draw_apple(tile)
            top, left = FRAME + row * cell, FRAME + column * cell
            pixels[top : top + cell, left : left + cell] = tile.pixels
        return pixels

    def ascii(self, s: Any) -> str:
        cells = ["*" if content == FOOD else "." for content in s.grid]
        for snake in range(self.snakes):
            for place, cell in enumerate(body_cells(s, snake)):
                cells[cell] = "abcd"[snake] if place else "ABCD"[snake]
        edge = f"+{'-' * (2 * self.size + 1)}+"
        rows = [f"| {' '.join(cells[k : k + self.size])} |" for k in range(0, len(cells), self.size)]
        news = [
            f"{'ABCD'[snake]} {'length' if s.alive[snake] else 'died at length'} {s.length[snake]}"
            for snake in range(self.snakes)
        ]
        return "\n".join([edge, *rows, edge, "   ".join(news)])


def body_cells(s: Any, snake: int) -> list[int]:
    """The cells of a snake from head to tail; none once it is dead."""
    return [body_cell(s, snake, place) for place in range(s.length[snake])] if s.alive[snake] else []


def draw_body(tile: Canvas, s: Any, snake: int, place: int, size: int) -> None:
    """Draw one cell of a snake: a tube to its neighbours in the body, and eyes on the head."""
    cells = body_cells(s, snake)
    width = len(tile.pixels)
    middle = (width / 2, width / 2)
    paleness = 0.55 * place / len(cells)
    red, green, blue = (round(c + paleness * (248 - c)) for c in SKINS[snake])
    color = (red, green, blue)
    for neighbour in cells[max(place - 1, 0) : place] + cells[place + 1 : place + 2]:
        right, down = neighbour % size - cells[place] % size, neighbour // size - cells[place] // size
        tile.line(middle, (middle[0] + right * width, middle[1] + down * width), 0.66 * width, color)
    if place == 0:
        tile.disc(middle, 0.42 * width, color)
        forward = COLUMN_STEP[s.heading[snake]], ROW_STEP[s.heading[snake]]
        for side in (-1, 1):
            x = middle[0] + width * (0.12 * forward[0] - 0.19 * side * forward[1])
            y = middle[1] + width * (0.12 * forward[1] + 0.19 * side * forward[0])
            tile.disc((x, y), 0.11 * width, FIELD[0])
            tile.disc((x + 0.03 * width * forward[0], y + 0.03 * width * forward[1]), 0.055 * width, WALL)


def draw_apple(tile: Canvas) -> None:
    """Draw a piece of food."""
    width = len(tile.pixels)
    tile.line((0.5 * width, 0.34 * width), (0.62 * width, 0.16 * width), 0.09 * width, LEAF)
    tile.disc((0.5 * width, 0.56 * width), 0.27 * width, APPLE)
    tile.disc((0.41 * width, 0.48 * width), 0.06 * width, FIELD[0])
