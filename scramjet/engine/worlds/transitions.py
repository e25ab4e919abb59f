"""What one step of one env is, for each way a world is played: alone, by agents at once, from seats in turn.

It is made of a world's functions, of what stands in where a world has none, and by a back-end's compilers. Each way
has four functions, called by the loops of `kernels.py`; s is the record of env i, `out` the KernelArrays: `begin(s)`
follows the rules' reset; `show(s, i, out)` writes what the players see; `play(s, i, actions, out)` applies the rules
and the clock and returns whether someone's episode ended and whether the whole game did; `close(s, i, tick, out,
of_terminated, log)` writes the last observations of episodes that ended, those of terminated ones only if
`of_terminated`, and logs these episodes.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.engine.layout import ActionKind, PlayedBy

# --- What a step is made of


NO_LIMIT = (1 << 31) - 1

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


EpisodeLog = namedtuple("EpisodeLog", ("rows", "size"))
"""The log of finished episodes that one thread writes: records (see `episode_dtype`), and how many it has."""


@dataclass(frozen=True, slots=True)
class Compilers:
    """How a back-end makes its functions out of plain ones."""

    inner: Compile  # called by others; it keeps and returns none of the arrays it is given
    view: Compile  # called by others; returns a part of an array
    entry: Compile  # called from Python
    threaded_entry: Compile  # called from Python, its prange over threads
    shown_row: Callable[..., Any] | None = None  # what `observe` writes for the policy, where that is not `rules.row`
    call: Callable[..., Any] | None = None  # (address, numbers): call compiled code at an address; None: it cannot be
    claim: Callable[..., Any] | None = None  # (log_size, blank) -> the next slot of the log; None: one thread writes it


@dataclass(frozen=True, slots=True)
class Rules:
    """A world's functions, each taking the parameters first, and what the engine must know of them."""

    parameters: Any
    reset: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any]
    mask: Callable[..., Any]
    stats: Callable[..., Any]
    alive: Callable[..., Any]
    seat: Callable[..., Any]
    score: Callable[..., Any]
    row: Callable[..., Any]  # (obs, i) -> what `observe` writes to
    clear: Callable[..., Any]  # (s): set all fields to zero but the engine's header
    max_episode_steps: int
    played_by: PlayedBy
    num_players: int
    action_kind: ActionKind
    action_sizes: np.ndarray  # int64, the number of choices of each component of a discrete action


def no_mask(parameters: Any, s: Any, mask: Any) -> None:
    """Stands in where a world has no mask."""


def no_mask_of_player(parameters: Any, s: Any, mask: Any, player: Any) -> None:
    """Stands in where a world of several players has no mask."""


def no_stats(parameters: Any, s: Any, stats: Any) -> None:
    """Stands in where a world has no stats."""


def no_stats_of_player(parameters: Any, s: Any, stats: Any, player: Any) -> None:
    """Stands in where a world of several players has no stats."""


def always_alive(parameters: Any, s: Any, player: Any) -> bool:
    """Stands in where agents do not die."""
    return True


def no_score(parameters: Any, s: Any, player: Any) -> float:
    """Stands in where a world does not judge positions."""
    return 0.0


def first_seat(parameters: Any, s: Any) -> int:
    """Stands in where nobody takes turns."""
    return 0


# --- One step of one env


@dataclass(frozen=True, slots=True)
class Transitions:
    """The four functions; see the top of this file."""

    begin: Callable[..., Any]
    show: Callable[..., Any]
    play: Callable[..., Any]
    close: Callable[..., Any]


def transitions_for(rules: Rules, compilers: Compilers) -> Transitions:
    """The functions for the way this world is played."""
    make = {PlayedBy.ONE: _played_by_one, PlayedBy.AGENTS: _played_by_agents, PlayedBy.SEATS: _played_by_seats}
    return make[rules.played_by](rules, compilers)


def _fit_action(rules: Rules, view: Compile) -> Callable[..., Any]:
    """(actions, i) -> one action. A discrete one that is out of range is brought into it; a Box is the rules' own."""
    sizes, last_action = rules.action_sizes, int(rules.action_sizes[0]) - 1 if len(rules.action_sizes) else 0

    def fit_choice(actions: Any, i: Any) -> Any:
        return min(max(actions[i], 0), last_action)

    def fit_choices(actions: Any, i: Any) -> Any:
        action = actions[i]
        for k in range(len(sizes)):
            action[k] = min(max(action[k], 0), sizes[k] - 1)
        return action

    def fit_box(actions: Any, i: Any) -> Any:
        return actions[i]

    fit = {ActionKind.CHOICE: fit_choice, ActionKind.CHOICES: fit_choices, ActionKind.BOX: fit_box}
    return view(fit[rules.action_kind])


def _clamp_action(rules: Rules, inner: Compile) -> Callable[..., Any]:
    """(actions, i): bring a discrete action into range where it stands."""
    sizes, last_action = rules.action_sizes, int(rules.action_sizes[0]) - 1 if len(rules.action_sizes) else 0

    def clamp_choice(actions: Any, i: Any) -> None:
        actions[i] = min(max(actions[i], 0), last_action)

    def clamp_choices(actions: Any, i: Any) -> None:
        for k in range(len(sizes)):
            actions[i, k] = min(max(actions[i, k], 0), sizes[k] - 1)

    def clamp_box(actions: Any, i: Any) -> None:
        pass

    clamp = {ActionKind.CHOICE: clamp_choice, ActionKind.CHOICES: clamp_choices, ActionKind.BOX: clamp_box}
    return inner(clamp[rules.action_kind])


def next_slot(log_size: Any, blank: Any) -> Any:
    """The next slot of a log that one thread writes; when nobody reads it, the newest stay."""
    slot = log_size[1]
    log_size[0] += 1
    log_size[1] = slot + 1 if slot + 1 < blank else 0
    return slot


def _log_row(compilers: Compilers) -> Callable[..., Any]:
    claim = compilers.inner(compilers.claim or next_slot)

    @compilers.view
    def log_row(rows: Any, size: Any) -> Any:
        """The next row of the log, blank."""
        blank = rows.shape[0] - 1  # the last row is never written: a stat the rules leave out is 0
        slot = claim(size, blank)
        rows[slot] = rows[blank]
        return rows[slot]

    return log_row


def _played_by_one(rules: Rules, compilers: Compilers) -> Transitions:
    parameters, rules_step, rules_observe = rules.parameters, rules.step, rules.observe
    rules_mask, rules_stats, max_episode_steps = rules.mask, rules.stats, rules.max_episode_steps
    inner, view = compilers.inner, compilers.view
    row, fit, log_row = view(rules.row), _fit_action(rules, view), _log_row(compilers)
    shown = view(compilers.shown_row or rules.row)

    @inner
    def begin(s: Any) -> None:
        pass

    @inner
    def show(s: Any, i: Any, out: Any) -> None:
        rules_observe(parameters, s, shown(out.obs, i))
        legal = out.mask[i]
        for action in range(legal.shape[0]):
            legal[action] = True
        rules_mask(parameters, s, legal)

    @inner
    def play(s: Any, i: Any, actions: Any, out: Any) -> tuple[bool, bool]:
        gain, done = rules_step(parameters, s, fit(actions, i))
        s._steps += 1
        s._return += gain
        ended = bool(done)
        cut = s._steps >= max_episode_steps and not ended
        out.reward[i] = gain
        out.terminated[i] = ended
        out.truncated[i] = cut
        return ended or cut, ended or cut

    @inner
    def close(s: Any, i: Any, tick: int, out: Any, of_terminated: bool, log: Any) -> None:
        if of_terminated or out.truncated[i]:
            rules_observe(parameters, s, row(out.final_obs, i))
        episode = log_row(log.rows, log.size)
        episode._tick = tick
        episode._env = i
        episode._return = s._return
        episode._length = s._steps
        rules_stats(parameters, s, episode)

    return Transitions(begin, show, play, close)


def _played_by_agents(rules: Rules, compilers: Compilers) -> Transitions:
    """Agent k of env i has row i * num_agents + k. A dead one is there until the game ends, and counts for nothing."""
    parameters, rules_observe, num_agents = rules.parameters, rules.observe, rules.num_players
    rules_mask, rules_stats, rules_alive = rules.mask, rules.stats, rules.alive
    inner, view = compilers.inner, compilers.view
    row, log_row = view(rules.row), _log_row(compilers)
    shown = view(compilers.shown_row or rules.row)

    @inner
    def begin(s: Any) -> None:
        for k in range(num_agents):
            s._alive[k] = 1 if rules_alive(parameters, s, k) else 0

    @inner
    def show(s: Any, i: Any, out: Any) -> None:
        first = np.int64(i) * num_agents
        for k in range(num_agents):
            place = np.uintp(first + k)
            rules_observe(parameters, s, shown(out.obs, place), k)
            legal = out.mask[place]
            for action in range(legal.shape[0]):
                legal[action] = True
            if s._alive[k] != 0:
                rules_mask(parameters, s, legal, k)
            out.turn[place] = s._alive[k] != 0

    @inner
    def close(s: Any, i: Any, tick: int, out: Any, of_terminated: bool, log: Any) -> None:
        first = np.int64(i) * num_agents
        for k in range(num_agents):
            place = np.uintp(first + k)
            if out.terminated[place] or out.truncated[place]:
                if of_terminated or out.truncated[place]:
                    rules_observe(parameters, s, row(out.final_obs, place), k)
                episode = log_row(log.rows, log.size)
                episode._tick = tick
                episode._env = i
                episode._player = k
                episode._return = s._returns[k]
                episode._length = s._steps
                rules_stats(parameters, s, episode, k)

    return Transitions(begin, show, _play_of_agents(rules, compilers), close)


def _play_of_agents(rules: Rules, compilers: Compilers) -> Callable[..., Any]:
    """The rules get all agents' actions as they lie in the caller's array: what is out of range is mended there."""
    parameters, rules_step, rules_alive = rules.parameters, rules.step, rules.alive
    max_episode_steps, num_agents = rules.max_episode_steps, rules.num_players
    inner, clamp = compilers.inner, _clamp_action(rules, compilers.inner)

    @inner
    def play(s: Any, i: Any, actions: Any, out: Any) -> tuple[bool, bool]:
        first = np.int64(i) * num_agents
        for k in range(num_agents):
            clamp(actions, np.uintp(first + k))
            out.reward[first + k] = 0.0
        done = bool(
            rules_step(parameters, s, actions[first : first + num_agents], out.reward[first : first + num_agents])
        )
        s._steps += 1
        is_late = s._steps >= max_episode_steps
        someone_ended, someone_lives = False, False
        for k in range(num_agents):
            was_alive = s._alive[k] != 0
            is_alive = was_alive and bool(rules_alive(parameters, s, k))
            ended = was_alive and (done or not is_alive)
            if was_alive:
                s._returns[k] += float(out.reward[first + k])
            else:
                out.reward[first + k] = 0.0
            s._alive[k] = 1 if is_alive else 0
            out.terminated[first + k] = ended
            out.truncated[first + k] = was_alive and is_late and not ended
            someone_ended = someone_ended or (was_alive and (ended or is_late))
            someone_lives = someone_lives or is_alive
        return someone_ended, done or is_late or not someone_lives

    return play


def _played_by_seats(rules: Rules, compilers: Compilers) -> Transitions:
    """One row an env: what the seat to move sees. `reward` and the last observations have one entry for each seat."""
    parameters, rules_step, rules_observe = rules.parameters, rules.step, rules.observe
    rules_mask, rules_stats, rules_seat = rules.mask, rules.stats, rules.seat
    max_episode_steps, num_seats = rules.max_episode_steps, rules.num_players
    inner, view = compilers.inner, compilers.view
    row, fit, log_row = view(rules.row), _fit_action(rules, view), _log_row(compilers)
    shown = view(compilers.shown_row or rules.row)

    @inner
    def begin(s: Any) -> None:
        pass

    @inner
    def show(s: Any, i: Any, out: Any) -> None:
        seat = min(max(rules_seat(parameters, s), 0), num_seats - 1)
        out.turn[i] = seat
        rules_observe(parameters, s, shown(out.obs, i), seat)
        legal = out.mask[i]
        for action in range(legal.shape[0]):
            legal[action] = True
        rules_mask(parameters, s, legal, seat)

    @inner
    def play(s: Any, i: Any, actions: Any, out: Any) -> tuple[bool, bool]:
        gains = out.reward[i]
        for seat in range(num_seats):
            gains[seat] = 0.0
        ended = bool(rules_step(parameters, s, fit(actions, i), gains))
        s._steps += 1
        for seat in range(num_seats):
            s._returns[seat] += float(gains[seat])
        cut = s._steps >= max_episode_steps and not ended
        out.terminated[i] = ended
        out.truncated[i] = cut
        return ended or cut, ended or cut

    @inner
    def close(s: Any, i: Any, tick: int, out: Any, of_terminated: bool, log: Any) -> None:
        first = np.int64(i) * num_seats
        for seat in range(num_seats):
            if of_terminated or out.truncated[i]:
                rules_observe(parameters, s, row(out.final_obs, np.uintp(first + seat)), seat)
            episode = log_row(log.rows, log.size)
            episode._tick = tick
            episode._env = i
            episode._player = seat
            episode._return = s._returns[seat]
            episode._length = s._steps
            rules_stats(parameters, s, episode, seat)

    return Transitions(begin, show, play, close)
