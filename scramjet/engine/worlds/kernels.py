"""The transition of one env, written once, and the loops that run it over many.

`build` ties a world's rules to the engine's bookkeeping: time limit, episode statistics, auto-reset. It is called
with plain functions for the interpreted back-end and with compiled ones for the others; nothing here knows which.
Loops that Python calls take their arrays one by one, which is faster, and name them in one tuple for the rest.

A world is played alone, by agents that act at once (each has a row of every array), or from seats that take turns
(one row an env, a reward for each seat). `transitions.py` has what differs between the three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from scramjet.engine.layout import PlayedBy
from scramjet.engine.transition import KernelArrays, ShownArrays
from scramjet.engine.worlds.transitions import Compilers, EpisodeLog, Rules, Transitions, transitions_for

IS_STEPPED = 2
"""Where a thread's part of `log_size` says that its chunk is stepped; before it, see `transitions.next_slot`."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The loops over envs; each takes a range of envs and the arrays it reads and writes."""

    step_env: Callable[..., None]  # no loop: the step of one env, for loops elsewhere
    reset: Callable[..., None]
    observe: Callable[..., None]
    step: Callable[..., None]
    step_threaded: Callable[..., bool]
    play: Callable[..., int] | None  # None: the back-end cannot call the function that draws actions
    simulate: Callable[..., None]
    branch: Callable[..., None]
    branch_threaded: Callable[..., bool]
    views: Callable[..., None]
    scores: Callable[..., None]


def build(rules: Rules, compilers: Compilers) -> Kernels:
    """Make the kernels of a world."""
    transition = transitions_for(rules, compilers)
    begin_episode = _begin_episode(rules, compilers, transition)
    step_env = _step_env(compilers, transition, begin_episode)
    step, step_threaded = _steps(compilers, step_env)
    reset, observe = _shows(compilers, transition, begin_episode)
    branch, branch_threaded = _branches(compilers, transition)
    return Kernels(
        step_env=step_env,
        reset=reset,
        observe=observe,
        step=step,
        step_threaded=step_threaded,
        play=None if compilers.call is None else _play(compilers, step, compilers.call),
        simulate=_simulate(compilers, transition),
        branch=branch,
        branch_threaded=branch_threaded,
        views=_views(rules, compilers),
        scores=_scores(rules, compilers),
    )


def _begin_episode(rules: Rules, compilers: Compilers, transition: Transitions) -> Callable[..., None]:
    parameters, rules_reset, begin = rules.parameters, rules.reset, transition.begin
    clear = compilers.inner(rules.clear)

    @compilers.inner
    def begin_episode(s: Any) -> None:
        """Start the next episode from an all-zero record, so that nothing of the last one can leak into it."""
        clear(s)
        s._draw = 0
        s._steps = 0
        s._return = 0.0
        rules_reset(parameters, s)
        begin(s)

    return begin_episode


def _step_env(compilers: Compilers, transition: Transitions, begin_episode: Callable[..., None]) -> Callable[..., None]:
    show, play, close = transition.show, transition.play, transition.close

    @compilers.inner
    def step_env(s: Any, i: Any, tick: int, actions: Any, out: Any, of_terminated: bool, log: Any) -> None:
        """One step of env i, whose record is `s`; where its episode ends, log it and begin the next."""
        someone_ended, is_over = play(s, i, actions, out)
        if someone_ended:
            close(s, i, tick, out, of_terminated, log)
        if is_over:
            s._episode += 1
            begin_episode(s)
        show(s, i, out)

    return step_env


def _steps(compilers: Compilers, step_env: Callable[..., None]) -> tuple[Callable[..., None], Callable[..., bool]]:
    """The step of a range of envs, on one thread and on several."""

    @compilers.entry
    def step(
        start: int, stop: int, tick: int, states: Any, actions: Any, obs: Any, mask: Any, turn: Any,
        reward: Any, terminated: Any, truncated: Any, final_obs: Any, of_terminated: bool, log: Any, log_size: Any,
    ) -> None:  # fmt: skip
        """Step each env; where an episode ends, the next begins in the same step."""
        # Before the loop: in it, references to all arrays would be counted for each env.
        out = KernelArrays(obs, mask, turn, reward, terminated, truncated, final_obs)
        episodes = EpisodeLog(log, log_size)
        for index in range(start, stop):
            i = np.uintp(index)  # unsigned: no look at whether it counts from the end
            step_env(states[i], i, tick, actions, out, of_terminated, episodes)

    @compilers.threaded_entry
    def step_threaded(
        chunks: int, start: int, stop: int, tick: int, states: Any, actions: Any, obs: Any, mask: Any, turn: Any,
        reward: Any, terminated: Any, truncated: Any, final_obs: Any, log: Any, log_size: Any,
    ) -> bool:  # fmt: skip
        """`step`, one chunk of neighbours a thread; each chunk has its own part of the log. False where a rule raised
        an exception: threads lose them."""
        count = stop - start
        for chunk in range(chunks):
            log_size[chunk, IS_STEPPED] = 0
        for chunk in prange(chunks):
            step(
                start + chunk * count // chunks, start + (chunk + 1) * count // chunks, tick, states, actions,
                obs, mask, turn, reward, terminated, truncated, final_obs, np.bool_(True), log[chunk], log_size[chunk],
            )  # fmt: skip
            log_size[chunk, IS_STEPPED] = 1
        num_stepped = 0
        for chunk in range(chunks):
            num_stepped += log_size[chunk, IS_STEPPED]
        return num_stepped == chunks

    return step, step_threaded


def _play(compilers: Compilers, step: Callable[..., None], call: Callable[..., Any]) -> Callable[..., int]:
    """Several steps of all envs, with actions that another compiled function draws before each."""

    @compilers.entry
    def play(
        first: int, stop: int, until_cut: bool, tick: int, draw: int, task: int, task_size: int, progress: Any,
        states: Any, actions: Any, obs: Any, mask: Any, turn: Any, reward: Any, terminated: Any, truncated: Any,
        final_obs: Any, log: Any, log_size: Any,
    ) -> int:  # fmt: skip
        """Play steps `first` to `stop`, the next one at `tick`; returns the number of the step after the last.

        With `until_cut` a step that truncates an episode is the last. Arrays have a row for each step; in those that
        show, row t is before step t. `progress[0]` is the step under way, for errors in a rule.
        """
        for t in range(first, stop):
            progress[0] = t
            call(draw, (0, 1, task + t * task_size))
            # Numbers of the types that Python calls it with: for a literal it would be compiled once more.
            step(
                np.int64(0), len(states), tick + t - first, states, actions[t], obs[t + 1], mask[t + 1], turn[t + 1],
                reward[t], terminated[t], truncated[t], final_obs, np.bool_(True), log, log_size,
            )  # fmt: skip
            if until_cut:
                for row in range(truncated.shape[1]):
                    if truncated[t, row]:
                        return t + 1
        return stop

    return play


def _shows(
    compilers: Compilers, transition: Transitions, begin_episode: Callable[..., None]
) -> tuple[Callable[..., None], Callable[..., None]]:
    """What writes observations without a step: of episodes that begin, and of states as they are."""
    show = transition.show

    @compilers.entry
    def reset(start: int, stop: int, key: int, first_env: int, states: Any, obs: Any, mask: Any, turn: Any) -> None:
        """Begin episode 0 of each env; random numbers of env i are keyed by `key` and first_env + i."""
        out = ShownArrays(obs, mask, turn)
        for index in range(start, stop):
            i = np.uintp(index)
            s = states[i]
            s._seed = key
            s._index = first_env + index
            s._episode = 0
            begin_episode(s)
            show(s, i, out)

    @compilers.entry
    def observe(start: int, stop: int, states: Any, obs: Any, mask: Any, turn: Any) -> None:
        """Write the observations of states as they are."""
        out = ShownArrays(obs, mask, turn)
        for index in range(start, stop):
            i = np.uintp(index)
            show(states[i], i, out)

    return reset, observe


def _simulate(compilers: Compilers, transition: Transitions) -> Callable[..., None]:
    play, show = transition.play, transition.show

    @compilers.entry
    def simulate(
        start: int, stop: int, states: Any, actions: Any, obs: Any, mask: Any, turn: Any,
        reward: Any, terminated: Any, truncated: Any, final_obs: Any,
    ) -> None:  # fmt: skip
        """Step loose states without auto-reset: what would happen if. `final_obs` is not written."""
        out = KernelArrays(obs, mask, turn, reward, terminated, truncated, final_obs)
        for index in range(start, stop):
            i = np.uintp(index)
            s = states[i]
            play(s, i, actions, out)
            show(s, i, out)

    return simulate


def _branches(compilers: Compilers, transition: Transitions) -> tuple[Callable[..., None], Callable[..., bool]]:
    """The step of branches for a search, on one thread and on several."""
    play, show = transition.play, transition.show

    @compilers.entry
    def branch(
        start: int, stop: int, key: Any, depth: int, live: Any, states: Any, actions: Any, obs: Any, mask: Any,
        turn: Any, reward: Any, terminated: Any, truncated: Any, final_obs: Any,
    ) -> None:  # fmt: skip
        """Step branches that are live with random numbers keyed by the search, the depth and the branch's number.

        A branch that has ended stays as it is, with a reward of 0.
        """
        out = KernelArrays(obs, mask, turn, reward, terminated, truncated, final_obs)
        for index in range(start, stop):
            i = np.uintp(index)
            if live[i]:
                s = states[i]
                s._seed = key[0]
                s._index = index
                s._episode = depth
                s._draw = 0
                play(s, i, actions, out)
                show(s, i, out)
                live[i] = not (terminated[i] or truncated[i])
            else:
                reward[i] = 0.0

    @compilers.threaded_entry
    def branch_threaded(
        chunks: int, is_stepped: Any, stop: int, key: Any, depth: int, live: Any, states: Any, actions: Any,
        obs: Any, mask: Any, turn: Any, reward: Any, terminated: Any, truncated: Any, final_obs: Any,
    ) -> bool:  # fmt: skip
        """`branch`, one chunk of neighbours a thread. False where a rule raised an exception: threads lose them."""
        for chunk in range(chunks):
            is_stepped[chunk] = False
        for chunk in prange(chunks):
            branch(
                chunk * stop // chunks, (chunk + 1) * stop // chunks, key, depth, live, states, actions,
                obs, mask, turn, reward, terminated, truncated, final_obs,
            )  # fmt: skip
            is_stepped[chunk] = True
        num_stepped = 0
        for chunk in range(chunks):
            num_stepped += is_stepped[chunk]
        return num_stepped == chunks

    return branch, branch_threaded


def _views(rules: Rules, compilers: Compilers) -> Callable[..., None]:
    parameters, rules_observe, row = rules.parameters, rules.observe, compilers.view(rules.row)
    num_seats = rules.num_players if rules.played_by is PlayedBy.SEATS else 1

    @compilers.entry
    def views(start: int, stop: int, states: Any, obs: Any) -> None:
        """Write how each seat sees each state, whoever is to move: row i * num_seats + seat."""
        for index in range(start, stop):
            for seat in range(num_seats):
                rules_observe(parameters, states[index], row(obs, np.uintp(index * num_seats + seat)), seat)

    return views


def _scores(rules: Rules, compilers: Compilers) -> Callable[..., None]:
    parameters, rules_score, num_players = rules.parameters, rules.score, rules.num_players

    @compilers.entry
    def scores(start: int, stop: int, states: Any, scores: Any) -> None:
        """Write how good each state looks for each player, [stop, num_players]."""
        for index in range(start, stop):
            for player in range(num_players):
                scores[index, player] = rules_score(parameters, states[index], player)

    return scores
