"""Worlds as functions of JAX, all envs at once, for the programs of this folder that are one XLA program.

A world has `reset(key, num_envs)`, which gives observations and states, and `step(key, state, action)`, which gives
observations, states, rewards and where episodes ended; those begin anew in the same step. The limit of steps counts as
an end like any other. Rules are those of scramjet's worlds of the same names. In a game of two seats `seat(state)` says
who moves, and rewards are [N, 2].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def begun_anew(done, fresh, state):
    """The states of new episodes where the old ones are done."""

    def chosen(new, old):
        return jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(chosen, fresh, state)


class CartPole:
    """CartPole with Gymnasium's rules; a state is the observation and the age."""

    def reset(self, key, num_envs):
        obs = jax.random.uniform(key, (num_envs, 4), minval=-0.05, maxval=0.05)
        return obs, (obs, jnp.zeros(num_envs, jnp.int32))

    def step(self, key, state, action):
        obs, age = state
        x, speed, angle, spin = obs.T
        force = jnp.where(action == 1, 10.0, -10.0)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        push = (force + 0.05 * spin**2 * sine) / 1.1
        angular = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        linear = push - 0.05 * angular * cosine / 1.1
        after = [x + 0.02 * speed, speed + 0.02 * linear, angle + 0.02 * spin, spin + 0.02 * angular]
        after = jnp.stack(after, axis=1)
        age = age + 1
        fell = (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 12 * 2 * jnp.pi / 360)
        done = fell | (age >= 500)
        state = begun_anew(done, self.reset(key, len(obs))[1], (after, age))
        return state[0], state, jnp.ones(len(obs)), done


class GymnaxCartPole:
    """gymnax's CartPole-v1, mapped over envs."""

    def __init__(self):
        import gymnax

        self.env, self.parameters = gymnax.make("CartPole-v1")

    def reset(self, key, num_envs):
        return jax.vmap(self.env.reset, (0, None))(jax.random.split(key, num_envs), self.parameters)

    def step(self, key, state, action):
        keys = jax.random.split(key, len(action))
        obs, state, reward, *ends, _ = jax.vmap(self.env.step, (0, 0, 0, None))(keys, state, action, self.parameters)
        done = jnp.stack(ends).any(0)  # one flag in older releases, terminated and truncated in newer
        return obs, state, reward, done


class Pendulum:
    """Pendulum with Gymnasium's rules and a limit of 200 steps; a state is angle, velocity and age, actions [N, 1]."""

    def reset(self, key, num_envs):
        angle, velocity = jax.random.uniform(key, (2, num_envs), minval=-1.0)
        state = (angle * jnp.pi, velocity, jnp.zeros(num_envs, jnp.int32))
        return self._observe(state), state

    def step(self, key, state, action):
        angle, velocity, age = state
        torque = jnp.clip(action[:, 0], -2.0, 2.0)
        lean = angle - 2 * jnp.pi * jnp.floor(angle / (2 * jnp.pi) + 0.5)
        cost = lean**2 + 0.1 * velocity**2 + 0.001 * torque**2
        velocity = jnp.clip(velocity + (15.0 * jnp.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        age = age + 1
        done = age >= 200
        state = (angle + velocity * 0.05, velocity, age)
        state = begun_anew(done, self.reset(key, len(age))[1], state)
        return self._observe(state), state, -cost, done

    def _observe(self, state):
        angle, velocity, _ = state
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), velocity], axis=1)


class Squared:
    """Walk from the centre of 7 x 7 cells to twelve targets on its rim; a state is targets [N, 24], place and moves."""

    distance, size, num_targets = 3, 7, 12
    moves = np.array([(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)], np.int32)
    rim = np.array([(r, c) for r in range(7) for c in range(7) if max(abs(r - 3), abs(c - 3)) == 3], np.int32)

    def reset(self, key, num_envs):
        ranks = jax.random.uniform(key, (num_envs, len(self.rim))).argsort(axis=1).argsort(axis=1)
        place = jnp.full((num_envs, 2), self.distance, jnp.int32)
        state = (ranks < self.num_targets, place, jnp.zeros(num_envs, jnp.int32))
        return self._observe(state), state

    def step(self, key, state, action):
        targets, place, age = state
        place = place + jnp.asarray(self.moves)[action]
        away = jnp.abs(place[:, None] - self.rim).max(-1)
        nearest = jnp.where(targets, away, self.size).min(1)
        targets = targets & (away > 0)
        is_on_rim = jnp.abs(place - self.distance).max(-1) >= self.distance
        place = jnp.where(is_on_rim[:, None], self.distance, place)
        age = age + 1
        done = age >= self.num_targets * self.distance
        state = begun_anew(done, self.reset(key, len(age))[1], (targets, place, age))
        return self._observe(state), state, 1.0 - nearest / self.distance, done

    def _observe(self, state):
        targets, place, _ = state
        cells = jnp.zeros((len(place), self.size**2)).at[:, self.rim[:, 0] * self.size + self.rim[:, 1]].set(targets)
        here = (place[:, :1] * self.size + place[:, 1:]) == jnp.arange(self.size**2)
        return jnp.where(here, -1.0, cells)


class ConnectFour:
    """Connect Four played from both seats; an observation is the board as the mover sees it and the legal columns.

    A state is the pieces [N, 6, 7, 2] by side, row 0 the top, and the side to move.
    """

    rows, columns = 6, 7

    def reset(self, key, num_envs):
        pieces = jnp.zeros((num_envs, self.rows, self.columns, 2), bool)
        state = (pieces, jnp.zeros(num_envs, jnp.int32))
        return self._observe(state), state

    def step(self, key, state, action):
        pieces, turn = state
        taken = pieces.any(-1)
        row = self.rows - 1 - jnp.take_along_axis(taken.sum(1), action[:, None], axis=1)[:, 0]
        is_here = (jnp.arange(self.rows)[:, None] == row[:, None, None]) & (
            jnp.arange(self.columns) == action[:, None, None]
        )
        is_mover = jnp.arange(2) == turn[:, None]
        pieces = pieces | (is_here[..., None] & is_mover[:, None, None])
        wins = has_line(jnp.where(turn[:, None, None] == 0, pieces[..., 0], pieces[..., 1]))
        done = wins | pieces.any(-1).all((1, 2))
        reward = jnp.where(wins[:, None], jnp.where(is_mover, 1.0, -1.0), 0.0)
        state = begun_anew(done, self.reset(key, len(turn))[1], (pieces, 1 - turn))
        return self._observe(state), state, reward, done

    def seat(self, state):
        return state[1]

    def _observe(self, state):
        pieces, turn = state
        board = jnp.where(turn[:, None, None, None] == 0, pieces, pieces[..., ::-1])
        return {"board": board.astype(jnp.int8), "mask": ~pieces[:, 0].any(-1)}


def has_line(board):
    """Where four in a row stand, [N, 6, 7] to [N]: across, down and along both diagonals."""
    _, rows, columns = board.shape
    found = jnp.zeros(len(board), bool)
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        height, width = rows - 3 * down, columns - 3 * abs(right)
        first = 3 if right < 0 else 0
        places = [(i * down, first + i * right) for i in range(4)]
        four = [board[:, top : top + height, left : left + width] for top, left in places]
        found = found | (four[0] & four[1] & four[2] & four[3]).any((1, 2))
    return found


class PgxConnectFour:
    """pgx's Connect Four, mapped over envs; the seats are the colours, so that the first to move is seat 0."""

    def __init__(self):
        import pgx
        from pgx.experimental import auto_reset

        self.env = pgx.make("connect_four")
        self._step = jax.vmap(auto_reset(self.env.step, self.env.init))

    def reset(self, key, num_envs):
        state = jax.vmap(self.env.init)(jax.random.split(key, num_envs))
        return self._observe(state), state

    def step(self, key, state, action):
        mover, seat = state.current_player, self.seat(state)
        after = self._step(state, action, jax.random.split(key, len(action)))
        own = jnp.take_along_axis(after.rewards, mover[:, None], axis=1)  # zero-sum
        reward = jnp.where(jnp.arange(2) == seat[:, None], own, -own)
        done = after.terminated
        after = after.replace(terminated=jnp.zeros_like(done))  # what is marked as ended does not move
        return self._observe(after), after, reward, done

    def seat(self, state):
        return state._step_count % 2

    def _observe(self, state):
        return {"board": state.observation.astype(jnp.int8), "mask": state.legal_action_mask}
