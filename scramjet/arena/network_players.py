"""Players that are trained networks, alone or with a search, and players by name: a run, a scripted player, perfect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.adapters.spaces import action_shape_and_dtype
from scramjet.arena.solver.solver import is_usual_board
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import map_leaves
from scramjet.engine.wrappers import stacked_space
from scramjet.envs.api import Box
from scramjet.errors import ConfigError, RunError, shortened
from scramjet.players.player import Player, UserPlayer
from scramjet.players.scripted import PERFECT, SCRIPTED, names_a_path, scripted_player, split_search
from scramjet.policies.policy import Policy
from scramjet.runs.metadata import find_checkpoint, run_of
from scramjet.runs.world_files import has_rules, is_same_world, name_in
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.search.rows import RowSearch, SearchSettings
from scramjet.training.config.files import world_in
from scramjet.training.config.run_config import RunConfig
from scramjet.training.playing import load_policy, search_settings
from scramjet.training.rollout.recurrent_states import RecurrentStates


@dataclass(frozen=True, slots=True)
class Temperature:
    """How a network's moves are drawn: logits are divided by the temperature; at 0 the most likely move is taken."""

    start: float = 0.0
    """Temperature of the first moves of a game."""
    final: float | None = None
    """Temperature of the moves after these; None: the same."""
    cutoff: int | None = None
    """How many moves of a game, by all players together, are the first; needed where there is a `final`."""

    def __post_init__(self) -> None:
        for name, value in (("temperature", self.start), ("temperature_final", self.final)):
            if value is not None and not (0.0 <= value < math.inf):
                raise ConfigError(f"{name}={value} must be 0 (the most likely move) or more; 1 draws as in training")
        if (self.final is None) != (self.cutoff is None):
            raise ConfigError(
                f"temperature_final={self.final} and temperature_cutoff={self.cutoff} need each other: the first "
                f"temperature holds for so many moves of a game, then the final one"
            )
        if self.cutoff is not None and self.cutoff < 0:
            raise ConfigError(f"temperature_cutoff={self.cutoff} must be a number of moves, 0 or more")

    def at(self, moves: np.ndarray) -> np.ndarray:
        """The temperature [M] of rows whose games have had so many `moves` [M]."""
        if self.final is None or self.cutoff is None:
            return np.full(len(moves), self.start)
        return np.where(moves < self.cutoff, self.start, self.final)


class NetworkPlayer(Player):
    """Plays a policy. One with memory has a state for each seat of each game, which only its own moves advance."""

    def __init__(self, policy: Policy, name: str, temperature: Temperature | None = None) -> None:
        self.policy, self.name = policy, name
        self.temperature = temperature or Temperature()
        self._generator = torch.Generator(device=policy.device)

    def begin(self, pool: Pool) -> None:
        self._check_spaces(pool)
        self._num_seats = pool.num_players if pool.played_by is PlayedBy.SEATS else 0
        self._has_choices = not isinstance(pool.action_space, Box)
        self._by_agents = pool.played_by is PlayedBy.AGENTS
        self._recurrent = RecurrentStates.of(self.policy, pool)
        self._moves = np.zeros(pool.num_rows, np.int64)  # of the game in each row, so far
        self._turn: np.ndarray = np.ones(pool.num_rows, np.bool_)  # as it was before the step

    def _check_spaces(self, pool: Pool) -> None:
        terms = self.policy.env_spaces
        seen = terms.seen if terms.num_frames == 1 else stacked_space(terms.seen, terms.num_frames)
        for kind, own, there in (
            ("observations", seen, pool.observation_space),
            ("actions", terms.chosen, pool.action_space),
        ):
            if repr(own) != repr(there):
                raise ConfigError(
                    f"player {self.name} was trained with other {kind} than {pool.name} has here: {own}, not {there}; "
                    f"all players of a game need the same world with the same sizes and --frame-stack"
                )
        is_graded = {self.temperature.start, self.temperature.final} - {0.0, 1.0, None}
        if isinstance(pool.action_space, Box) and is_graded:
            raise ConfigError(f"temperature={is_graded.pop()}, but {pool.name} has no choices: give 0 or 1")

    @torch.inference_mode()
    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        policy, device = self.policy, self.policy.device
        obs = map_leaves(lambda leaf: torch.from_numpy(leaf[rows]).to(device), seen.obs)
        mask = torch.from_numpy(seen.mask[rows]).to(device) if seen.mask.shape[1] else None
        logits = policy.logits(obs) if policy.splits else self._remembering(obs, seen, rows)
        temperature = self.temperature.at(self._moves[rows])
        action = policy.distribution.mode(logits, mask)
        if temperature.any():
            self._generator.manual_seed(int(generator.integers(2**63)))
            drawn = self._drawn(logits, mask, temperature)
            is_drawn = torch.from_numpy(temperature > 0).to(device)
            action = torch.where(is_drawn.reshape(-1, *[1] * (action.ndim - 1)), drawn, action)
        return policy.distribution.env_action(action).cpu().numpy()

    def _remembering(self, obs: Any, seen: Transition, rows: np.ndarray) -> Tensor:
        """Logits of a network whose values come with them; the memory of the movers in these rows moves on."""
        if not self.policy.state_size:
            return self.policy.forward(obs).logits
        slots = torch.from_numpy(rows * self._num_seats + seen.turn[rows] if self._num_seats else rows)
        states = self._recurrent.states
        output = self.policy.forward(obs, states[slots.to(states.device)])
        assert output.state is not None
        states[slots.to(states.device)] = output.state
        return output.logits

    def _drawn(self, logits: Tensor, mask: Tensor | None, temperature: np.ndarray) -> Tensor:
        """Actions drawn at these temperatures [M]; those of rows at 0 mean nothing."""
        distribution = self.policy.distribution
        if self._has_choices:
            divisor = np.where(temperature > 0, temperature, 1.0).astype(np.float32)
            logits = logits / torch.from_numpy(divisor).to(logits.device).unsqueeze(1)
        action = torch.empty(
            (len(logits), *distribution.action_shape), dtype=distribution.action_dtype, device=logits.device
        )
        noise = distribution.noise(1, len(logits), self._generator)[0]
        distribution.sample(logits, mask, noise, action, logits.new_empty(len(logits)))
        return action

    def see(self, out: Transition) -> None:
        ended = out.terminated | out.truncated
        self._recurrent.reset_ended(torch.from_numpy(self._turn), out.terminated, out.truncated)
        self._moves += 1
        self._moves[ended] = 0
        if self._by_agents:
            self._moves[~self._turn] = 0
            self._turn = out.turn.copy()

    def memory(self) -> Any:
        return self._recurrent.states.clone(), self._moves.copy(), self._turn.copy()

    def recall(self, memory: Any) -> None:
        states, moves, turn = memory
        self._recurrent.states.copy_(states)
        self._moves, self._turn = moves.copy(), turn.copy()


class SearchPlayer(NetworkPlayer):
    """Looks ahead with a policy's network; at temperature 1 with noise as in training, at 0 without."""

    def __init__(
        self, policy: Policy, name: str, search: SearchSettings, temperature: Temperature | None = None
    ) -> None:
        super().__init__(policy, f"{name}@{search.spec.text}", temperature)
        self.search = search
        self._rows: RowSearch | None = None
        if graded := {self.temperature.start, self.temperature.final} - {0.0, 1.0, None}:
            raise ConfigError(
                f"temperature={graded.pop()}, but {self.name} chooses by search: 1 explores as in training, 0 does not"
            )

    def begin(self, pool: Pool) -> None:
        super().begin(pool)
        if self._rows is None or self._rows.pool is not pool:
            self._rows = RowSearch(pool, self.policy, self.search)

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        assert self._rows is not None, "begin with a pool first"
        self._generator.manual_seed(int(generator.integers(2**63)))
        shape, dtype = action_shape_and_dtype(self._rows.pool.action_space)
        actions = np.zeros((len(rows), *shape), dtype)
        is_drawn = self.temperature.at(self._moves[rows]) > 0
        for explores in (False, True):
            places = np.flatnonzero(is_drawn == explores)
            if len(places):
                actions[places] = self._rows.actions(seen, rows[places], self._generator, explores=explores)
        return actions


def network_player(
    policy: Policy, name: str, search: SearchSettings | None, temperature: Temperature | None = None
) -> NetworkPlayer:
    """The player of a policy: by search, or without one."""
    if search is None:
        return NetworkPlayer(policy, name, temperature)
    return SearchPlayer(policy, name, search, temperature)


def load_player(
    player: Any, config: RunConfig, *, temperature: Temperature | None = None, runs_dir: str | Path = "runs"
) -> Player:
    """The player that a text means, for games of the config's world: a scripted one, `perfect`, a run or a checkpoint.

    A run or checkpoint plays by search with "@" and the search behind it: "runs/four@alphazero:64".

    From Python also a Player, a Policy, or a function or class of the user's own. Texts may run the user's code (see
    `runs_code`), so they must be the user's own. A run or checkpoint runs none: its world is not loaded, and must be
    that of the config. `temperature` is for networks.
    """
    if isinstance(player, Player):
        return player
    if isinstance(player, Policy):
        return NetworkPlayer(player, "policy", temperature)
    if not isinstance(player, str | Path):
        return UserPlayer(player)
    place, spec = split_search(str(player), runs_dir)
    if place == PERFECT:
        return _perfect_player(config)
    found = scripted_player(place) if isinstance(player, str) else None
    if found is not None:
        return found
    checkpoint = named_checkpoint(place, Path(runs_dir))
    _check_world(checkpoint, config, place)
    policy = load_policy(checkpoint.path)
    return network_player(policy, place, search_settings(spec, policy, config, checkpoint), temperature)


def _perfect_player(config: RunConfig) -> Player:
    """The player that knows the value of every position of Connect Four."""
    world = config.make_env()
    if not is_usual_board(world):
        raise ConfigError(
            f"{PERFECT} play is known for connect_four with 6 rows, 7 columns and four in a line, not for {world!r}; "
            f"play against {', '.join(SCRIPTED)}"
        )
    from scramjet.arena.solver.perfect_player import PerfectPlayer  # compiles the solver: only for who asks for it

    return PerfectPlayer()


def named_checkpoint(text: str, runs_dir: Path) -> Checkpoint:
    """The checkpoint of a player that is no scripted one; raises a ConfigError that lists the players there are."""
    if not names_a_path(text, runs_dir):
        raise ConfigError(
            f"there is no player {shortened(text)}: give a run or checkpoint ({runs_dir}/NAME, with "
            f"a search {runs_dir}/NAME@alphazero:64), {', '.join((*SCRIPTED, PERFECT))}, or your own as FILE.py:Name "
            f"or module:Name"
        )
    try:
        return find_checkpoint(text, runs_dir)
    except RunError as error:
        raise type(error)(f"player {text}: {error}") from error


def _check_world(checkpoint: Checkpoint, config: RunConfig, player: str) -> None:
    """Refuse a checkpoint that was trained on another world than the config's."""
    written = world_in(checkpoint.metadata.get("config") or {}) or ""
    names = (written, name_in(written, run_of(checkpoint)))
    if any(is_same_world(name, config.env) for name in names):
        return
    if has_rules(config.make_env(), checkpoint.metadata.get("rules", "")):
        return
    raise ConfigError(
        f"player {player} was trained on {shortened(written)}, and this game is {config.env}; players of a game need "
        f"the same world"
    )
