"""What an environment's author writes: a class of plain Python functions over one fixed-size record.

An `Env` holds the rules of a world and its parameters, never the state of a game. The state of each game is
a record `s` with the fields named in `state`; the engine owns thousands of them and hands one at a time to
`reset`, `step`, `observe`, `mask` and `stats`. Interpreted, these are ordinary methods; compiled, `self` is
a read-only tuple of the parameters.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space

from scramjet.errors import WorldError, did_you_mean, shortened
from scramjet.settings import MAX_COUNT, NO_FIT, fit

__all__ = ["Box", "Dict", "Discrete", "Env", "MultiBinary", "MultiDiscrete", "Space", "Symmetry"]

StateField = type | np.dtype | tuple[Any, int | tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Symmetry:
    """A turn or mirror of the board under which a game stays the same."""

    name: str
    observe: Callable[[Any], Any]
    """Takes an observation as an array, and returns it as the turned board shows it; it may only move elements."""
    actions: Sequence[int]
    """For each action, what it becomes on the turned board."""


class Env:
    """The rules of one world. Subclass it, declare spaces and state, write the functions."""

    observation_space: Any
    """A Gymnasium space: a class attribute, or a property where it depends on parameters."""
    action_space: Any
    """A Gymnasium space: a class attribute, or a property where it depends on parameters."""
    critic_space: Any = None
    """The space of what `observe_critic` writes for the value network; None: it sees what the policy sees."""
    state: Any
    """The fields of one env's record: `{"position": np.int32, "board": (np.int8, (6, 7))}`."""
    state_bounds: Any = {}
    """The least and greatest value of fields that are indices or counts, `{"head": (0, 99)}`; records read from a file
    are checked against them."""
    max_episode_steps: int | None = None
    """The engine truncates an episode after this many steps; None: never."""
    hidden: Any = False
    """Whether the record holds what players must not see, such as others' cards: a search, which looks at all of it,
    then refuses the world."""
    num_agents: Any = 1
    """Agents that act at once, each with a row of its own."""
    num_seats: Any = 1
    """Players that take turns."""
    stat_names: ClassVar[tuple[str, ...]] = ()
    """Names of the per-episode numbers that `stats` fills in."""
    action_names: Any = ()
    """What people call the actions, in order, such as ("up", "right", "down", "left"); empty: their numbers."""
    symmetries: Any = ()
    """Turns and mirrors of the board that leave the game the same, each a `Symmetry`; the identity is not listed."""

    _parameter_defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        defaults = dict(cls._parameter_defaults)
        for name in inspect.get_annotations(cls):
            if name in _RESERVED or name.startswith("_") or name not in cls.__dict__:
                continue
            default = cls.__dict__[name]
            if not isinstance(default, bool | int | float):
                raise WorldError(
                    f"{cls.__name__}.{name} = {default!r} is annotated and so a parameter, but parameters are "
                    f"int, float or bool; drop the annotation to make it a plain class attribute"
                )
            defaults[name] = default
        cls._parameter_defaults = defaults

    def __init__(self, **parameters: Any) -> None:
        known = self.parameter_defaults()
        for name, value in parameters.items():
            if name not in known:
                raise WorldError(
                    f"{type(self).__name__} has no parameter {shortened(name)}.{did_you_mean(name, known)} "
                    f"Parameters: {', '.join(known)}"
                )
            object.__setattr__(self, name, _convert(type(self).__name__, name, value, known[name]))
        self.validate()
        if "max_episode_steps" not in parameters:
            _convert(type(self).__name__, "max_episode_steps", self.max_episode_steps, 1)

    def __setattr__(self, name: str, value: Any) -> None:
        raise WorldError(
            f"{type(self).__name__}.{name} cannot be assigned: an Env holds rules and parameters only. "
            f"What changes during an episode belongs in `state`, and is written as s.{name} = ..."
        )

    @classmethod
    def parameter_defaults(cls) -> dict[str, Any]:
        """Every constructor argument with its default, in the order written."""
        if isinstance(inspect.getattr_static(cls, "max_episode_steps"), property):  # it follows from the others
            return dict(cls._parameter_defaults)
        return {**cls._parameter_defaults, "max_episode_steps": cls.max_episode_steps}

    @property
    def parameters(self) -> dict[str, Any]:
        """Every constructor argument with this instance's value."""
        return {name: getattr(self, name) for name in self.parameter_defaults()}

    def __repr__(self) -> str:
        changed = {k: v for k, v in self.parameters.items() if v != self.parameter_defaults()[k]}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    # --- the rules, compiled -----------------------------------------------------------------------------

    def reset(self, s: Any) -> None:
        """Begin an episode. All fields of `s` are zero when this is called."""
        raise NotImplementedError

    def step(self, *arguments: Any, **_: Any) -> Any:
        """`step(self, s, action)`: apply `action`; return (reward, terminated)."""
        raise NotImplementedError

    def observe(self, *arguments: Any, **_: Any) -> None:
        """`observe(self, s, obs)`: write the observation of `s` into `obs`; change nothing else."""
        raise NotImplementedError

    # `mask(self, s, mask)` and `stats(self, s, stats)` are optional: define them to have them. So is
    # `observe_critic(self, s, obs)`, which writes into `critic_space` what the value network sees beside the policy's
    # observation, such as what is hidden from the policy.
    #
    # With several players, agents or seats, `step(self, s, action, reward)` writes each one's reward and returns
    # terminated; `observe`, `observe_critic`, `mask` and `stats` take the player as their last argument. Agents may
    # die: `alive(self, s, player)`. Seats take turns: `seat(self, s)` says whose it is. `score(self, s, player)` is
    # optional too: how good the position looks for a player, for others that look ahead; training does not use it.

    # --- for people, never compiled ----------------------------------------------------------------------

    def validate(self) -> None:
        """Raise ValueError where the parameters make no world; called by the constructor."""

    def render(self, s: Any) -> np.ndarray:
        """Draw `s` as an RGB image [height, width, 3] uint8."""
        raise WorldError(f"{type(self).__name__} has no render(); write `def render(self, s)` to draw it")

    def render_for(self, s: Any, player: int) -> np.ndarray:
        """Draw what a player may see of `s`; by default all of it, as `render` does, where nothing is `hidden`."""
        if self.hidden and max(self.num_agents, self.num_seats) > 1:
            raise WorldError(
                f"{type(self).__name__} hides things from its players and has no render_for(); write "
                f"`def render_for(self, s, player)` to draw what one of them may see"
            )
        return self.render(s)

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        """The action that a click on the picture of `s` means; None (or -1) where it means none, as by default.

        `x` and `y` are shares of the picture's width and height in [0, 1), from its upper left corner. Whether the
        action is legal is not asked here.
        """
        return None

    def ascii(self, s: Any) -> str:
        """Draw `s` as text; by default its fields, one a line."""
        return "\n".join(_field_text(name, getattr(s, name)) for name in self.state)

    def ascii_for(self, s: Any, player: int) -> str:
        """Draw as text what a player may see of `s`; by default all of it, as `ascii` does."""
        return self.ascii(s)


def _field_text(name: str, value: Any) -> str:
    """A field with its numbers in about four digits; rows of an array below each other."""
    if np.ndim(value) == 0:
        return f"{name}: {value:.4g}" if isinstance(value, float | np.floating) else f"{name}: {value}"
    text = np.array2string(np.asarray(value), precision=4, suppress_small=True, max_line_width=78)
    return f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"


_RESERVED = frozenset(Env.__annotations__)


def is_plain_name(name: Any) -> bool:
    """Whether rules can write `s.name`; names that begin with `_` are scramjet's own."""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name)


def state_fields(env: Env) -> Mapping[str, StateField]:
    """The declared record fields of `env`, checked for shape of declaration."""
    fields = getattr(env, "state", None)
    name = type(env).__name__
    if not isinstance(fields, Mapping):
        raise WorldError(f'{name}.state must be a dict of fields such as {{"position": np.int32}}; got {fields!r}')
    for field in fields:
        if not is_plain_name(field):
            raise WorldError(
                f"{name}.state has a field {field!r}; use a plain name, not a word of Python, without a leading '_'"
            )
    return fields


def _convert(world: str, name: str, value: Any, default: Any) -> Any:
    """Bring `value` to the type of the parameter's default, or say why it cannot be."""
    is_limit = name == "max_episode_steps"
    wanted = int if is_limit else type(default)
    fitting = fit(value, int | None if is_limit else wanted)
    if fitting is NO_FIT:
        kind = "a finite float" if wanted is float else wanted.__name__
        raise WorldError(f"{world}: {name}={shortened(value)} must be {kind}")
    if is_limit and fitting is not None and not 1 <= fitting <= MAX_COUNT:
        bound = "at least 1" if fitting < 1 else f"at most {MAX_COUNT}"
        raise WorldError(f"{world}: max_episode_steps={fitting} must be {bound} (or None for no limit)")
    return fitting
