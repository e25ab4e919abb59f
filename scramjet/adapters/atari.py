"""Atari games, `ale:Pong`, on ALE's own threads, with the standard preprocessing.

Of every 4 frames the last two are joined (max), made gray and 84 x 84, and the last 4 such
are shown, [4, 84, 84] uint8; before a game's first there are zeros. A game begins with up to 30 frames of waiting, and
with FIRE where a game waits for it.

For training an episode ends with each life and rewards are clipped to -1, 0 and 1; the episodes that are reported are
whole games with their own scores. The game goes on where a life was lost: nothing is skipped, and nobody presses FIRE
for the policy, so that it plays on by itself in evaluation, where losing a life ends nothing.

ALE's threads cannot save their state. Games made one by one can, such as `gym:ALE/Pong-v5` (see env_state.py).
"""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.gymnasium.registered_envs import require_extra
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Batch, Rows, RowsUnderWay, check_count, halves, is_whole, neighbours
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError, WorldError, did_you_mean
from scramjet.settings import MAX_COUNT

MOST = 1000
"""Maximum number of pixels of a side, and of frames that are held, stacked or waited for."""


@dataclass(frozen=True, slots=True)
class AtariConfig:
    """The parameters of a game, by the names ALE gives them; the defaults are those of Mnih et al. 2015."""

    frameskip: int = 4
    """Frames that an action is held."""
    stack_num: int = 4
    """Pictures that are shown at once, the newest last."""
    img_height: int = 84
    img_width: int = 84
    maxpool: bool = True
    """Join the last two frames: games that flicker show their parts in turns."""
    noop_max: int = 30
    """A game begins with up to so many frames of waiting."""
    use_fire_reset: bool = True
    """Press FIRE to begin, where a game waits for it."""
    episodic_life: bool = True
    """In training, an episode ends with each life."""
    reward_clipping: bool = True
    """In training, rewards are -1, 0 or 1."""
    repeat_action_probability: float = 0.0
    """Sticky actions: the chance that a frame repeats the last action instead (Machado et al. 2018 use 0.25)."""
    full_action_space: bool = False
    """All 18 actions instead of those that the game knows."""
    max_num_frames_per_episode: int = 108_000
    """The time limit: 30 minutes of play."""

    def __post_init__(self) -> None:
        least = {"frameskip": 1, "stack_num": 1, "img_height": 1, "img_width": 1, "noop_max": 0}
        for name, at_least in {**least, "max_num_frames_per_episode": self.frameskip}.items():
            value = getattr(self, name)
            if not is_whole(value) or value < at_least:
                raise ConfigError(f"{name}={value!r} must be a whole number of at least {at_least}")
            if value > (most := MAX_COUNT if name == "max_num_frames_per_episode" else MOST):
                raise ConfigError(f"{name}={value!r} must be at most {most}")
        for name in ("maxpool", "use_fire_reset", "episodic_life", "reward_clipping", "full_action_space"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be true or false")
        chance = self.repeat_action_probability
        if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 <= chance < 1:
            raise ConfigError(f"repeat_action_probability={chance!r} must be at least 0 and below 1; try 0.25")

    @classmethod
    def of(cls, game: str, parameters: dict[str, Any]) -> AtariConfig:
        """The config with these parameters; refuses a name that is not a parameter."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in parameters:
            if name not in known:
                raise ConfigError(
                    f"ale:{game} has no parameter '{name}'.{did_you_mean(name, known)} It has {', '.join(known)}"
                )
        return cls(**parameters)


_NO_ROWS = np.zeros(0, np.intp)


@dataclass(slots=True)
class Half:
    """Neighbouring games of a pool, with threads of their own."""

    rows: slice
    vector_env: Any
    is_stepping: bool = False
    latest: Any = None
    """Kept until the next is there: freed before, so much memory goes back to the system and comes by page faults."""


class AtariPool(ForeignPool):
    """Copies of one game on ALE's own threads; in halves, so that one steps while a policy decides for the other."""

    has_time_limit = True

    def __init__(
        self, game: str, num_envs: int, *, training: bool = True, in_halves: bool = True, num_threads: int = 0,
        **parameters: Any,
    ) -> None:  # fmt: skip
        """`num_threads` of each half, 0: one a core. Without `training`, lives and rewards are the game's own."""
        check_count("num_envs", num_envs)
        rom = rom_name(game)
        self.config = AtariConfig.of(game, parameters)
        self._ends_lives = training and self.config.episodic_life
        self._clips = training and self.config.reward_clipping
        options = {**asdict(self.config), "episodic_life": False, "reward_clipping": False, "num_threads": num_threads}
        make = require_extra("ale_py.vector_env", "atari", "ale-py").AtariVectorEnv
        self._halves = [
            Half(rows, make(rom, rows.stop - rows.start, autoreset_mode="SameStep", **options))
            for rows in (halves(num_envs) if in_halves else [slice(0, num_envs)])
        ]
        self.can_step_rows = self.overlaps = in_halves
        one = self._halves[0].vector_env
        super().__init__(f"ale:{game}", one.single_observation_space, one.single_action_space, num_envs)
        self._lives = np.zeros(num_envs, np.int32)
        self._under_way = RowsUnderWay(num_envs)

    def _recv(self, half: Half) -> Any:
        return half.vector_env.recv()

    def _reset(self, seeds: EpisodeSeed, out: Transition) -> None:
        each = np.array(seeds.of_envs(self.num_envs))
        self._under_way.clear()
        for half in self._halves:
            if half.is_stepping:
                self._recv(half)
                half.is_stepping = False
            out.obs[half.rows], _ = half.vector_env.reset(seed=each[half.rows])
        self._lives[:] = 0  # in the first step no life counts as lost

    def _step(self, actions: np.ndarray, out: Transition) -> None:
        self._under_way.refuse("step()")
        for half in self._halves:
            self._send(half, actions)
        for half in self._halves:
            self._receive(half, out.part(half.rows) if len(self._halves) > 1 else out)

    def send(self, actions: np.ndarray, rows: Rows | None = None) -> None:
        self._check_actions(actions, self._action_shape)
        rows = neighbours(rows, self.num_rows)
        stepping = self._halves_of(rows)
        self._under_way.add(rows)
        for half in stepping:
            self._send(half, actions)

    def recv(self, rows: Rows | None = None, out: Transition | None = None) -> Batch:
        out = self._fitting(out)
        rows = self._under_way.take(None if rows is None else neighbours(rows, self.num_rows))
        assert isinstance(rows, slice)
        self._tick += rows.start == 0
        for half in self._halves_of(rows):
            self._receive(half, out.part(half.rows) if len(self._halves) > 1 else out)
        return Batch(rows, out)

    def _halves_of(self, rows: slice) -> list[Half]:
        """The halves that make up these rows: one of them, or all."""
        if rows == slice(0, self.num_rows):
            return self._halves
        for half in self._halves:
            if half.rows == rows:
                return [half]
        known = " or ".join(f"{half.rows.start} to {half.rows.stop}" for half in self._halves)
        raise ConfigError(f"rows={rows} are no half of this pool; its games step in rows {known}")

    def _send(self, half: Half, actions: np.ndarray) -> None:
        half.vector_env.send(actions[half.rows])
        half.is_stepping = True

    def _receive(self, half: Half, out: Transition) -> None:
        """Wait until one half has stepped, and write its results into `out`, which has just its rows."""
        obs, reward, terminated, truncated, infos = half.latest = self._recv(half)
        half.is_stepping = False
        # Between one step and the next only this thread works: what most steps do not need is not computed.
        out.reward[:], out.terminated[:] = reward, terminated
        self._count(out.reward, half.rows)
        if self._clips:
            np.sign(out.reward, out=out.reward)
        has_ended = terminated | truncated
        ended = np.flatnonzero(has_ended) if True in has_ended.tobytes() else _NO_ROWS
        out.truncated.fill(False)
        if len(ended):
            np.greater(truncated, terminated, out=out.truncated)  # and not terminated
            out.final_obs[ended] = infos["final_obs"][ended]
            for row in ended:
                self._log_episode(half.rows.start + int(row), {})
        if self._ends_lives:
            self._end_lives(infos["lives"], self._lives[half.rows], obs, ended, out)
        out.obs[:] = obs

    @staticmethod
    def _end_lives(
        lives: np.ndarray, lives_before: np.ndarray, obs: np.ndarray, ended: np.ndarray, out: Transition
    ) -> None:
        """Where a life was lost and the game goes on, the episode ends; what is seen is both its last and the next."""
        lost = lives < lives_before
        lives_before[:] = lives
        if True not in lost.tobytes():
            return
        lost[ended] = False
        lost &= lives > 0  # some games show no life for a while before they are over
        out.terminated[lost] = True
        out.final_obs[lost] = obs[lost]

    def close(self) -> None:
        """End ALE's threads."""
        for half in self._halves:
            half.vector_env.close()


class PollableAtariPool(AtariPool):
    """Games that step all together, and whose pool can be polled: `waiting` has a descriptor that becomes readable when
    they have stepped."""

    def __init__(self, game: str, num_envs: int, **settings: Any) -> None:
        super().__init__(game, num_envs, in_halves=False, **settings)
        self._answers, self._answer = os.pipe()
        self._asked: SimpleQueue[Half | None] = SimpleQueue()
        self._results: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        """Run in a thread: wait for ALE, which cannot be polled, and then make `_answers` readable."""
        while (half := self._asked.get()) is not None:
            try:
                self._results.put(half.vector_env.recv())
            except Exception as error:  # whoever waits is told
                self._results.put(error)
            os.write(self._answer, b".")

    def _send(self, half: Half, actions: np.ndarray) -> None:
        super()._send(half, actions)
        self._asked.put(half)

    def _recv(self, half: Half) -> Any:
        os.read(self._answers, 1)
        result = self._results.get()
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def waiting(self) -> list[tuple[int, float]]:
        return [(self._answers, math.inf)] if self._halves[0].is_stepping else []

    def close(self) -> None:
        """End ALE's threads, and ours."""
        if self._thread.is_alive():
            self._asked.put(None)
            self._thread.join()
            super().close()
            os.close(self._answers)
            os.close(self._answer)


def rom_name(game: str) -> str:
    """ALE's name of a game, from `Pong`, `MsPacman`, `ms_pacman` or `Pong-v5`."""
    roms = require_extra("ale_py.roms", "atari", "ale-py").get_all_rom_ids()
    plain = game.removeprefix("ALE/").removesuffix("-v5").replace("_", "").lower()
    for rom in roms:
        if rom.replace("_", "") == plain:
            return str(rom)
    titles = ["".join(word.capitalize() for word in rom.split("_")) for rom in roms]
    raise WorldError(f"there is no Atari game '{game}'.{did_you_mean(game, titles)}")
