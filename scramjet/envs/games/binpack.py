"""BinPack: load boxes into a container, one at a time, and fill as much of it as possible.

Jumanji's BinPack-v2 (Bonnet et al. 2024, "Jumanji: a diverse suite of scalable reinforcement learning environments in
JAX"). Where a box may go is described by empty maximal spaces (Lai and Chan 1997): the boxes of air, parallel to the
walls, that cannot grow in any direction. They overlap one another. A box always goes to the low corner of a space.
All lengths are whole millimetres, so no rounding ever opens a gap.
"""

from __future__ import annotations

import colorsys
import string
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Dict, Discrete, Env, MultiBinary
from scramjet.envs.drawing import Canvas, Color, Point
from scramjet.envs.rng import randint, uniform

LONGEST = 100_000
"""In millimetres; volumes are exact in a float64 then."""


# --- the instance: the container, cut into items --------------------------------------------------------------


def pick_item(s: Any, axis: int) -> int:
    """An item, as likely as it is long on `axis`."""
    total = 0
    for item in range(s.num_items):
        total += s.lengths[item, axis]
    point = randint(s, total)
    item = 0
    while point >= s.lengths[item, axis]:
        point -= s.lengths[item, axis]
        item += 1
    return item


def cut_item(s: Any, item: int, axis: int, near: int) -> int:
    """Cut an item so that `near` millimetres of it stay; returns the far piece, a new item."""
    if near <= 0 or near >= s.lengths[item, axis]:
        return item  # one of the pieces would be empty
    far = s.num_items
    s.num_items += 1
    for i in range(3):
        s.lengths[far, i] = s.lengths[item, i]
        s.solution[far, i] = s.solution[item, i]
    s.lengths[item, axis] = near
    s.lengths[far, axis] -= near
    s.solution[far, axis] += near
    return far


def cut_in_two(s: Any, item: int, axis: int, margin: float) -> None:
    """Cut an item at a random place, at least the share `margin` of its length away from its ends."""
    length = s.lengths[item, axis]
    low = int(margin * length)
    cut_item(s, item, axis, low + randint(s, max(length - 2 * low, 1)))


def cut_evenly(s: Any, item: int, axis: int, parts: int) -> None:
    """Cut an item into `parts` of the same length, to a millimetre."""
    length = s.lengths[item, axis]
    for part in range(1, parts):
        item = cut_item(s, item, axis, part * length // parts - (part - 1) * length // parts)


# --- empty maximal spaces: a column x1, x2, y1, y2, z1, z2 each -------------------------------------------------


def size(s: Any, space: int) -> tuple[int, int, int]:
    """The lengths of a space."""
    return (
        s.spaces[1, space] - s.spaces[0, space],
        s.spaces[3, space] - s.spaces[2, space],
        s.spaces[5, space] - s.spaces[4, space],
    )


def fits(lengths: Any, item: int, x: int, y: int, z: int) -> bool:
    """Whether an item fits into a space of these lengths."""
    return (lengths[item, 0] <= x) & (lengths[item, 1] <= y) & (lengths[item, 2] <= z)


def any_fits(s: Any) -> bool:
    """Whether some item still to be placed fits into some space."""
    lengths, placed = s.lengths, s.placed
    for rank in range(s.num_spaces):
        x, y, z = size(s, s.order[rank])
        for item in range(s.num_items):
            if placed[item] == 0 and fits(lengths, item, x, y, z):
                return True
    return False


def overlaps(boxes: Any, i: int, box: Any) -> bool:
    """Whether box `i` of some boxes shares some volume with `box`."""
    return (
        (boxes[0, i] < box[1])
        & (boxes[1, i] > box[0])
        & (boxes[2, i] < box[3])
        & (boxes[3, i] > box[2])
        & (boxes[4, i] < box[5])
        & (boxes[5, i] > box[4])
    )


def count_around(boxes: Any, num_boxes: int, box: Any) -> int:
    """How many of some boxes hold all of `box`."""
    x1, x2, y1, y2, z1, z2 = box[0], box[1], box[2], box[3], box[4], box[5]
    count = 0
    for i in range(num_boxes):
        count += (
            (boxes[0, i] <= x1)
            & (boxes[1, i] >= x2)
            & (boxes[2, i] <= y1)
            & (boxes[3, i] >= y2)
            & (boxes[4, i] <= z1)
            & (boxes[5, i] >= z2)
        )
    return count


def take_out_spaces(s: Any, item: int) -> int:
    """Move the spaces that `item` overlaps from their slots to `s.cut`; returns how many."""
    spaces, volumes, order, box = s.spaces, s.volumes, s.order, s.box
    for axis in range(3):
        box[2 * axis] = s.location[item, axis]
        box[2 * axis + 1] = s.location[item, axis] + s.lengths[item, axis]
    num_cut = 0
    for space in range(s.num_slots):
        if overlaps(spaces, space, box):
            for i in range(6):
                s.cut[i, num_cut] = spaces[i, space]
                spaces[i, space] = 0
            volumes[space] = 0
            num_cut += 1
    kept = 0
    for rank in range(s.num_spaces):
        if volumes[order[rank]] > 0:
            order[kept] = order[rank]
            kept += 1
    s.num_spaces = kept
    return num_cut


def add_part(s: Any, cut: int, num_cut: int, side: int, wall: int) -> None:
    """Add the part of a cut space that lies beyond a wall of the item, if no other space held all of it."""
    box = s.box
    for i in range(6):
        box[i] = s.cut[i, cut]
    box[side] = wall
    if count_around(s.cut, num_cut, box) > 1 or count_around(s.spaces, s.num_slots, box) > 0:
        return  # among those cut, its own space holds it
    slot = 0  # as in Jumanji: the first free one, and where none is free, the first gives way
    if s.num_spaces < s.order.shape[0]:
        while s.volumes[slot] > 0:
            slot += 1
        s.order[s.num_spaces] = slot
        s.num_spaces += 1
        s.num_slots = max(s.num_slots, slot + 1)
    for i in range(6):
        s.spaces[i, slot] = box[i]
    s.volumes[slot] = (box[1] - box[0]) * (box[3] - box[2]) * (box[5] - box[4])


def sort_spaces(s: Any) -> None:
    """Sort `s.order`: the largest space first; of two alike the one in the earlier slot."""
    order, volumes = s.order, s.volumes
    for rank in range(1, s.num_spaces):
        space = order[rank]
        volume = volumes[space]
        place = rank
        while place > 0:
            before = order[place - 1]
            if volumes[before] > volume or (volumes[before] == volume and before < space):
                break
            order[place] = before
            place -= 1
        order[place] = space


def update_spaces(s: Any, item: int) -> None:
    """Cut the newly placed item out of all spaces."""
    num_cut = take_out_spaces(s, item)
    for axis in range(3):
        low = s.location[item, axis]
        high = low + s.lengths[item, axis]
        for cut in range(num_cut):
            if s.cut[2 * axis, cut] < low:
                add_part(s, cut, num_cut, 2 * axis + 1, low)
        for cut in range(num_cut):
            if s.cut[2 * axis + 1, cut] > high:
                add_part(s, cut, num_cut, 2 * axis, high)
    sort_spaces(s)


class BinPack(Env):
    """Load boxes into a container and fill as much of it as possible."""

    max_items: int = 20
    max_spaces: int = 40
    split_eps: float = 0.3
    prob_split_one_item: float = 0.7
    split_num_same_items: int = 5
    length: int = 5870
    width: int = 2330
    height: int = 2200

    stat_names = ("volume_used", "items_placed")

    @property
    def container(self) -> tuple[int, int, int]:
        """Its inner lengths, in millimetres."""
        return self.length, self.width, self.height

    @property
    def volume(self) -> int:
        """Of the container, in cubic millimetres."""
        return self.length * self.width * self.height

    @property
    def observation_space(self) -> Dict:
        return Dict(
            {
                "ems": Box(0, 1, (self.max_spaces, 6), np.float32),  # x1, x2, y1, y2, z1, z2
                "ems_mask": MultiBinary(self.max_spaces),
                "items": Box(0, 1, (self.max_items, 3), np.float32),
                "items_mask": MultiBinary(self.max_items),
                "items_placed": MultiBinary(self.max_items),
            }
        )

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.max_spaces * self.max_items)  # space * max_items + item

    @property
    def state(self) -> dict[str, Any]:
        return {
            "num_items": np.int32,
            "num_placed": np.int32,
            "num_spaces": np.int32,
            "num_slots": np.int32,
            "volume_placed": np.int64,
            "lengths": (np.int32, (self.max_items, 3)),
            "location": (np.int32, (self.max_items, 3)),  # where an item was placed
            "solution": (np.int32, (self.max_items, 3)),  # where it was when the container was cut
            "placed": (np.uint8, (self.max_items,)),
            "spaces": (np.int32, (6, self.max_spaces)),  # each keeps its slot while it lives; 0 in free ones
            "volumes": (np.float32, (self.max_spaces,)),  # to sort by; Jumanji's precision, as it decides ties
            "order": (np.int32, (self.max_spaces,)),  # the slots in use, largest space first
            "cut": (np.int32, (6, self.max_spaces)),  # work: the spaces that an item has cut
            "box": (np.int32, (6,)),  # work: the item, then what is left of a space on one side of it
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        items, spaces = (0, self.max_items), (0, self.max_spaces)
        counts = {"num_items": items, "num_placed": items, "num_spaces": spaces, "num_slots": spaces}
        longest = (0, max(self.container))
        lengths = {"lengths": longest, "location": longest, "spaces": longest}
        return {**counts, **lengths, "placed": (0, 1), "order": (0, self.max_spaces - 1)}

    def reset(self, s: Any) -> None:
        s.num_items = 1
        s.num_spaces = 1
        s.num_slots = 1
        s.volumes[0] = self.volume
        for axis in range(3):
            s.lengths[0, axis] = self.container[axis]
            s.spaces[2 * axis + 1, 0] = self.container[axis]
        while s.num_items <= self.max_items - self.split_num_same_items:
            axis = randint(s, 3)
            item = pick_item(s, axis)
            if uniform(s) < self.prob_split_one_item:
                cut_in_two(s, item, axis, self.split_eps)
            else:
                cut_evenly(s, item, axis, 1 + randint(s, self.split_num_same_items))

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        rank = action // self.max_items
        item = action % self.max_items
        if rank >= s.num_spaces or item >= s.num_items or s.placed[item] != 0:
            return 0.0, True
        space = s.order[rank]
        x, y, z = size(s, space)
        if not fits(s.lengths, item, x, y, z):
            return 0.0, True
        volume = 1
        for axis in range(3):
            s.location[item, axis] = s.spaces[2 * axis, space]
            volume *= s.lengths[item, axis]
        s.placed[item] = 1
        s.num_placed += 1
        s.volume_placed += volume
        update_spaces(s, item)
        return volume / self.volume, not any_fits(s)

    def mask(self, s: Any, mask: Any) -> None:
        mask[:] = False
        lengths, placed = s.lengths, s.placed
        for rank in range(s.num_spaces):
            x, y, z = size(s, s.order[rank])
            for item in range(s.num_items):
                mask[rank * self.max_items + item] = fits(lengths, item, x, y, z) & (placed[item] == 0)

    def observe(self, s: Any, obs: Any) -> None:
        obs.ems[:] = 0
        obs.ems_mask[:] = 0
        obs.items[:] = 0
        obs.items_mask[:] = 0
        obs.items_placed[:] = 0
        for rank in range(s.num_spaces):
            space = s.order[rank]
            obs.ems_mask[rank] = 1
            for i in range(6):
                obs.ems[rank, i] = s.spaces[i, space] / self.container[i // 2]
        for item in range(s.num_items):
            obs.items_mask[item] = 1
            obs.items_placed[item] = s.placed[item]
            for axis in range(3):
                obs.items[item, axis] = s.lengths[item, axis] / self.container[axis]

    def stats(self, s: Any, stats: Any) -> None:
        stats.volume_used = s.volume_placed / self.volume
        stats.items_placed = s.num_placed

    def validate(self) -> None:
        for name, low, high in (
            ("max_items", 2, 1000),
            ("max_spaces", 1, 10_000),
            ("split_num_same_items", 2, self.max_items),
            ("split_eps", 0.0, 0.5),
            ("prob_split_one_item", 0.0, 1.0),
            ("length", 1, LONGEST),
            ("width", 1, LONGEST),
            ("height", 1, LONGEST),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name}={getattr(self, name)} must be in {low} .. {high}")
        if self.volume < self.max_items:
            raise ValueError(
                f"a container of {self.length} x {self.width} x {self.height} mm cannot be cut into "
                f"max_items={self.max_items}; make it larger or max_items smaller"
            )

    def render(self, s: Any) -> np.ndarray:
        return picture(s, self.container)

    def ascii(self, s: Any) -> str:
        return text(s, self.container)


# --- Pictures of a loaded container: boxes in space, and a plan with a table


TO_SCREEN = np.array([[0.86, 0.20], [0.50, -0.27], [0.0, -0.92]])
"""Where x, y and z point to: right and near, right and far, up. So a box shows its high x, low y and high z faces."""
LETTERS = string.ascii_uppercase + string.ascii_lowercase
WIDTH, HEIGHT, MARGIN, BAR = 600, 340, 24, 36
WALLS = ((2, 0, (226, 222, 214)), (1, 1, (238, 235, 229)), (0, 0, (232, 229, 222)))
FACES = ((2, 1, 0.92), (1, 0, 0.78), (0, 1, 0.64))
"""Axis, side and brightness of the faces of a box that are seen."""

Corner = tuple[int, int, int]


def placed_boxes(s: Any) -> dict[int, np.ndarray]:
    """The low and the high corner, [2, 3], of each placed item."""
    return {
        item: np.array([s.location[item], s.location[item] + s.lengths[item]])
        for item in range(s.num_items)
        if s.placed[item]
    }


def letter(item: int) -> str:
    """An item's sign in the plan."""
    return LETTERS[item % len(LETTERS)]


def picture(s: Any, container: Corner) -> np.ndarray:
    """The container seen from above its near end, and a bar with the share of its volume that is used."""
    canvas = Canvas(WIDTH, HEIGHT)
    room = np.array([(0, 0, 0), container])
    corners = np.array([corner for side in (0, 1) for corner in face(room, 0, side)]) @ TO_SCREEN
    extent = np.ptp(corners, axis=0)
    scale = min((WIDTH - 2 * MARGIN) / extent[0], (HEIGHT - 2 * MARGIN - BAR) / extent[1])
    origin = (np.array([WIDTH, HEIGHT - BAR]) - scale * extent) / 2 - scale * corners.min(axis=0)

    def on_screen(corners: list[Corner]) -> list[Point]:
        return [(x, y) for x, y in (origin + scale * (np.array(corners) @ TO_SCREEN)).tolist()]

    for axis, side, color in WALLS:
        canvas.polygon(on_screen(face(room, axis, side)), (150, 152, 158))
        canvas.polygon(on_screen(face(room, axis, side)), color, inset=1)
    boxes = placed_boxes(s)
    for item in back_to_front(boxes):
        for axis, side, brightness in FACES:
            canvas.polygon(on_screen(face(boxes[item], axis, side)), item_color(item, 0.36))
            canvas.polygon(on_screen(face(boxes[item], axis, side)), item_color(item, brightness), inset=0.8)
    length, width, height = container
    for far in ((0, 0, height), (length, width, height), (length, 0, 0)):
        start, end = on_screen([(length, 0, height), far])
        canvas.line(start, end, 1.5, (90, 98, 112))
    used = (WIDTH - 2 * MARGIN) * s.volume_placed / (length * width * height)
    canvas.rectangle(MARGIN, HEIGHT - 34, WIDTH - MARGIN, HEIGHT - 24, (226, 222, 214))
    canvas.rectangle(MARGIN, HEIGHT - 34, MARGIN + used, HEIGHT - 24, (120, 140, 220))
    return canvas.pixels


def face(box: np.ndarray, axis: int, side: int) -> list[Corner]:
    """The corners of a box that lie on one side of an axis, in a ring."""
    corners = []
    for first, second in ((0, 0), (0, 1), (1, 1), (1, 0)):
        sides = [first, second]
        sides.insert(axis, side)
        corners.append((int(box[sides[0], 0]), int(box[sides[1], 1]), int(box[sides[2], 2])))
    return corners


def back_to_front(boxes: dict[int, np.ndarray]) -> list[int]:
    """An order to paint boxes in: the next is one that hides none of the rest."""
    left = sorted(boxes, key=lambda i: float(boxes[i][0] @ (1, -1, 1)))
    order = []
    while left:
        free = (i for i in left if all(i == j or cannot_hide(boxes[i], boxes[j]) for j in left))
        order.append(next(free, left[0]))  # three boxes may hide one another in a ring
        left.remove(order[-1])
    return order


def cannot_hide(box: np.ndarray, other: np.ndarray) -> bool:
    """Whether a plane parts the boxes with `box` on its far side."""
    return bool(box[1, 0] <= other[0, 0] or box[0, 1] >= other[1, 1] or box[1, 2] <= other[0, 2])


def item_color(item: int, brightness: float) -> Color:
    """A calm colour of the item's own; golden steps of hue keep neighbours apart."""
    red, green, blue = colorsys.hsv_to_rgb((0.58 + item * 0.618034) % 1, 0.38, brightness)
    return int(255 * red), int(255 * green), int(255 * blue)


def text(s: Any, container: Corner) -> str:
    """The container from above, how high it is filled, and a table of the items."""
    share = s.volume_placed / (container[0] * container[1] * container[2])
    lines = [*plan(s, container), "", "item     length  width height     at x      y      z"]
    for item in range(s.num_items):
        sizes = "".join(f"{length:7d}" for length in s.lengths[item])
        place = "".join(f"{edge:7d}" if s.placed[item] else "      -" for edge in s.location[item])
        lines.append(f"{item:3d} {letter(item)}  {sizes}  {place}")
    lines += ["", f"{s.num_placed} of {s.num_items} items placed   {share:.1%} of the volume used"]
    return "\n".join(lines)


def plan(s: Any, container: Corner, columns: int = 44, rows: int = 12) -> list[str]:
    """Side by side, the item on top at each place and the tenth of the height that it reaches."""
    x = (np.arange(columns) + 0.5) * container[0] / columns
    y = (np.arange(rows) + 0.5) * container[1] / rows
    letters = np.full((rows, columns), ".")
    heights = np.zeros((rows, columns))
    for item, (low, high) in placed_boxes(s).items():
        area = np.ix_((low[1] <= y) & (y < high[1]), (low[0] <= x) & (x < high[0]))
        letters[area] = np.where(heights[area] < high[2], letter(item), letters[area])
        heights[area] = np.maximum(heights[area], high[2])
    tenths = np.ceil(10 * heights / container[2]).astype(int) - 1
    lines = [f"{'from above':{columns}}   height in tenths"]
    for row in reversed(range(rows)):
        lines.append(f"{''.join(letters[row])}   {''.join('.' if n < 0 else str(n) for n in tenths[row])}")
    return lines
