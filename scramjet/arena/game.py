"""One game between people and players: whoever shows it, a terminal or a web page, asks this class.

    game = Game(NativePool(ConnectFour(), 1), adviser)
    game.begin([None, GreedyPlayer()], seed=1)      # a person in seat 0
    while not game.is_over:
        if game.person_to_move is None:
            game.reply()
        else:
            game.move(game.legal_moves()[0].number)

It neither prints nor asks. Seats and agents are counted from 0; a person is a `None` among the players.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.arena.play.moves import Move, Moves, Place, PlayedMove, Result, find_places
from scramjet.arena.play.thoughts import Adviser, PerfectHints, Thoughts, ends_in_win_or_loss
from scramjet.engine.actions import action_at
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.wrappers import FrameStackPool
from scramjet.envs.api import Env
from scramjet.errors import ConfigError, PlayError, shortened
from scramjet.players.player import Player
from scramjet.training.seeds import unseen_episodes

# --- earlier positions, to go back to


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything needed to go back to a position."""

    pool: dict[str, np.ndarray]
    generator: Any  # state of the random numbers that players draw from
    memories: tuple[Any, ...]  # of each distinct player
    adviser: Any
    returns: np.ndarray  # [players]
    num_played: int
    is_persons: bool  # whether a person was to move


def memory_of(player: Player) -> Any:
    """A copy of what a player remembers, or the error that says why there is none: it matters only if moves are taken
    back."""
    try:
        return player.memory()
    except ConfigError as error:
        return error


# --- which worlds a person can play, and where


def playable_env(pool: Pool) -> Env:
    """The world of a pool of one env; raises a ConfigError where a person cannot play it."""
    inner = pool.pool if isinstance(pool, FrameStackPool) else pool
    if not isinstance(inner, NativePool):
        raise ConfigError(
            f"{pool.name} cannot be played by a person: only worlds written for scramjet can, whose positions are "
            f"plain records; `scramjet eval --render` shows an agent play it"
        )
    if pool.num_envs != 1:
        raise ConfigError(f"a game needs a pool of one env, and this one has num_envs={pool.num_envs}")
    return inner.env


def check_players(pool: Pool, players: Sequence[Player | None]) -> None:
    """Refuse players, people being None, that do not fill the places of a pool's world."""
    if len(players) != pool.num_players:
        raise ConfigError(f"{len(players)} players for a game of {pool.name}, which has {pool.num_players} places")
    if pool.played_by is PlayedBy.AGENTS and sum(each is None for each in players) > 1:
        raise ConfigError(f"in {pool.name} all act at once: at most one of them can be a person")


SEAT_NAMES = ("first", "second", "random")


@dataclass(frozen=True, slots=True)
class Table:
    """A person, and who plays against them in all other seats; without an opponent, people play in all seats."""

    opponent: Player | None
    seat: str = "first"
    """`first`: the seat that moves first, `second`: the next one, `random`: drawn for each game, or a number from 1."""

    def players(self, game: Game, seed: int) -> list[Player | None]:
        """Who plays in the game of this seed, by seat; a game under way ends."""
        number = self._seat(game, seed)
        return [None if place == number else self.opponent for place in range(game.pool.num_players)]

    def _seat(self, game: Game, seed: int) -> int:
        """The person's seat, counted from 0."""
        count, seat = game.pool.num_players, self.seat.strip().lower()
        if seat in ("first", "second"):
            return (game.opening_player(seed) + (seat == "second")) % count
        if seat == "random":
            return int(np.random.default_rng([seed, 1]).integers(count))  # another stream than the players draw from
        if seat.isascii() and seat.isdigit() and 1 <= int(seat[:9]) <= count:
            return int(seat) - 1
        places = "1" if count == 1 else f"from 1 to {count}"
        raise ConfigError(f"seat={shortened(self.seat)}: expected {', '.join(SEAT_NAMES)}, or a number {places}")


# --- the game

PERSON = "person"
"""What a person is called where players have names."""


class Game:
    """One game of a native world at a time. Worlds with seats, with agents of whom one is a person, or for one."""

    def __init__(self, pool: Pool, adviser: Adviser | None = None) -> None:
        self.pool: Any = pool
        self.env: Env = playable_env(pool)
        self.adviser = adviser
        self.moves = Moves(self.env)
        self.players: tuple[Player | None, ...] = ()
        self.played: list[PlayedMove] = []
        """All moves of this game so far; of agents that act at once, one each."""
        self.result: Result | None = None
        """How the game ended; None while it goes on."""
        self._wins_or_loses: bool | None = None
        self._perfect = PerfectHints(self.env)
        self._out = pool.allocate()

    def opening_player(self, seed: int) -> int:
        """Who moves first in the game of this seed; 0 where all act at once. Ends the game under way."""
        self.players = ()
        out = self.pool.reset(unseen_episodes(seed), out=self._out)
        return int(out.turn[0]) if self.pool.played_by is PlayedBy.SEATS else 0

    def begin(self, players: Sequence[Player | None], seed: int) -> None:
        """Begin a new game: one player for each seat or agent, None for a person; one object may have several."""
        check_players(self.pool, players)
        self.pool.reset(unseen_episodes(seed), out=self._out)
        self.players = tuple(players)
        for each in self._distinct_players():
            each.begin(self.pool)
        if self.adviser is not None:
            self.adviser.begin(self.pool)
        self.played, self.result = [], None
        self._generator = np.random.default_rng(seed)
        self._returns = np.zeros(self.pool.num_players)
        self._history: list[Moment] = []
        self._states = [self.pool.states()[0]]  # of all positions so far: one more than there are in the history

    def _distinct_players(self) -> list[Player]:
        """Every player but people, once each."""
        return list({id(each): each for each in self.players if each is not None}.values())

    @property
    def is_over(self) -> bool:
        """Whether the game has ended."""
        return self.result is not None

    @property
    def to_move(self) -> tuple[int, ...]:
        """Who moves next: a seat, or all agents that are alive; nobody once the game is over."""
        if self.is_over:
            return ()
        if self.pool.played_by is PlayedBy.SEATS:
            return (int(self._out.turn[0]),)
        if self.pool.played_by is PlayedBy.AGENTS:
            return tuple(np.flatnonzero(self._out.turn).tolist())
        return (0,)

    @property
    def person_to_move(self) -> int | None:
        """The person whose move it is; None while it is somebody else's."""
        return next((player for player in self.to_move if self.players[player] is None), None)

    def name_of(self, player: int) -> str:
        """What a player is called."""
        who = self.players[player]
        return PERSON if who is None else who.name

    def legal_moves(self) -> list[Move]:
        """The moves of the person to move; of the first player to move where it is nobody's."""
        if self.is_over:
            return []
        row = self._row(self._mover())
        return [self.moves[int(number)] for number in np.flatnonzero(self.moves.legal(self._out.mask[row]))]

    def move(self, number: int) -> list[PlayedMove]:
        """The person to move makes the move of this number; agents that act at the same time move with it.

        Returns the moves made. Raises a PlayError where it is no person's turn or the move is not legal.
        """
        person = self.person_to_move
        if person is None:
            raise PlayError("the game is over: begin a new one" if self.is_over else "it is not a person's move")
        if all(number != move.number for move in self.legal_moves()):
            names = ", ".join(move.name for move in self.legal_moves())
            raise PlayError(f"move {number} is not legal here; legal: {names}")
        return self._advance({person: number})

    def reply(self) -> list[PlayedMove]:
        """Those to move who are no people move once; returns their moves. Raises a PlayError in a person's turn."""
        if self.is_over or self.person_to_move is not None:
            raise PlayError("the game is over: begin a new one" if self.is_over else "it is a person's move")
        return self._advance({})

    @property
    def can_undo(self) -> bool:
        """Whether a person has moved in this game."""
        return any(moment.is_persons for moment in self._history)

    def undo(self) -> None:
        """Go back to the position in which a person moved last: board, memories and random numbers as they were."""
        if not self.can_undo:
            raise PlayError("there is no move to take back")
        last = max(i for i, moment in enumerate(self._history) if moment.is_persons)
        moment = self._history[last]
        for memory in moment.memories:
            if isinstance(memory, ConfigError):
                raise PlayError(f"no move can be taken back: {memory}")
        del self._history[last:], self._states[last + 1 :], self.played[moment.num_played :]
        self.pool.restore(moment.pool, out=self._out)
        self._generator.bit_generator.state = moment.generator
        for player, memory in zip(self._distinct_players(), moment.memories, strict=True):
            player.recall(memory)
        if self.adviser is not None:
            self.adviser.recall(moment.adviser)
        self._returns = moment.returns.copy()
        self.result = None

    def thoughts(self) -> Thoughts:
        """What the adviser thinks of the position, in the place of the person to move, or of the first to move."""
        if self.adviser is None:
            raise PlayError("there is no network to ask: play against a run")
        if self.is_over:
            raise PlayError("the game is over")
        if self._wins_or_loses is None:
            self._wins_or_loses = ends_in_win_or_loss(self.env)
        player = self._mover()
        return self.adviser.think(self._out, self._row(player), player, self.moves, win_or_lose=self._wins_or_loses)

    @property
    def has_hints(self) -> bool:
        """Whether anybody can say something of a position: a network, or a solver."""
        return self.adviser is not None or self._perfect.knows_world

    def perfect_verdicts(self) -> dict[int, str]:
        """What perfect play says of each legal move, by number: "a win in 3 plies", "a draw".

        Empty where no solver knows the world, or where it would take long, as at the beginning of a game.
        """
        return {} if self.is_over else self._perfect.verdicts(self._record(0))

    def text(self, moves_back: int = 0) -> str:
        """The position as text, the final one too; or the one some steps before.

        While people play it is what one of them may see (`Env.ascii_for`): the person to move, else the first. Once the
        game is over, or where no person plays, it is all of it (`Env.ascii`).
        """
        record, viewer = self._record(moves_back), self._viewer()
        return self.env.ascii(record) if viewer is None else self.env.ascii_for(record, viewer)

    def picture(self, moves_back: int = 0) -> np.ndarray:
        """The position as an RGB picture [height, width, 3], for the same eyes as `text` (`Env.render_for`, `render`).

        Raises a WorldError where the world has no picture, or none for these eyes.
        """
        record, viewer = self._record(moves_back), self._viewer()
        return self.env.render(record) if viewer is None else self.env.render_for(record, viewer)

    def places(self) -> list[Place]:
        """Where on the picture the legal moves of the person to move lie; empty where the world does not say."""
        return [] if self.person_to_move is None else find_places(self.env, self._record(0), self.legal_moves())

    def move_at(self, x: float, y: float) -> Move | None:
        """The move that a click on the picture means, in shares of its width and height; None where it means none."""
        number = action_at(self.env, self._record(0), x, y)
        return None if number is None else self.moves[number]

    def _viewer(self) -> int | None:
        """Through whose eyes the game is shown; None where all of it may be seen."""
        people = [player for player, who in enumerate(self.players) if who is None]
        person = self.person_to_move
        return None if self.is_over or not people else people[0] if person is None else person

    def _record(self, moves_back: int) -> Any:
        return self.pool.as_record(self._states[max(0, len(self._states) - 1 - moves_back)])

    def as_dict(self) -> dict[str, Any]:
        """Everything that a page shows of the game, for JSON."""
        return {
            "world": self.pool.name,
            "players": [{"name": self.name_of(i), "is_person": who is None} for i, who in enumerate(self.players)],
            "to_move": list(self.to_move),
            "person_to_move": self.person_to_move,
            "legal_moves": [move.as_dict() for move in self.legal_moves()],
            "played": [played.as_dict() for played in self.played],
            "returns": self._returns.tolist(),
            "result": None if self.result is None else self.result.as_dict(),
            "can_undo": self.can_undo,
            "text": self.text(),
        }

    def _mover(self) -> int:
        person = self.person_to_move
        return self.to_move[0] if person is None else person

    def _row(self, player: int) -> int:
        """The row of the pool in which a player sees and acts."""
        return player if self.pool.played_by is PlayedBy.AGENTS else 0

    def _advance(self, chosen: dict[int, int]) -> list[PlayedMove]:
        """One step of the game: the moves in `chosen`, by player, and those of the others to move."""
        moment = self._moment()
        numbers = {**chosen, **self._choices([player for player in self.to_move if player not in chosen])}
        if self.adviser is not None:
            self.adviser.watch(self._out)
        self._history.append(moment)
        forfeited = next((player for player, number in numbers.items() if number is None), None)
        if forfeited is not None:
            self._forfeit(forfeited)
            return []
        made = [
            PlayedMove(player, self.moves[number]) for player, number in sorted(numbers.items()) if number is not None
        ]
        self._step(made)
        return made

    def _moment(self) -> Moment:
        return Moment(
            pool=self.pool.snapshot(),
            generator=self._generator.bit_generator.state,
            memories=tuple(map(memory_of, self._distinct_players())),
            adviser=None if self.adviser is None else self.adviser.memory(),
            returns=self._returns.copy(),
            num_played=len(self.played),
            is_persons=self.person_to_move is not None,
        )

    def _choices(self, movers: list[int]) -> dict[int, int | None]:
        """The moves that players choose, by seat or agent; None for one that is not legal."""
        numbers: dict[int, int | None] = {}
        for player in self._distinct_players():
            own = [mover for mover in movers if self.players[mover] is player]
            if not own:
                continue
            rows = np.array([self._row(mover) for mover in own])
            actions = player.choose(self._out, rows, self._generator)
            for mover, row, action in zip(own, rows, actions, strict=True):
                number = self.moves.number_of(action)
                is_legal = number is not None and self.moves.legal(self._out.mask[row])[number]
                numbers[mover] = number if is_legal else None
        return numbers

    def _step(self, made: list[PlayedMove]) -> None:
        """Step the pool with these moves; the final position is kept, as the pool begins the next game at once."""
        actions = np.zeros((self.pool.num_rows, *self.moves.actions.shape[1:]), np.int64)
        for played in made:
            actions[self._row(played.player)] = self.moves.actions[played.move.number]
        after, _ = self.pool.simulate(self.pool.states(), actions)
        out = self.pool.step(actions, out=self._out)
        for player in self._distinct_players():
            player.see(out)
        if self.adviser is not None:
            self.adviser.see(out)
        self.played += made
        self._returns += np.ravel(out.reward)
        is_over = bool(self.pool.states()["_steps"][0] == 0)
        self._states.append(after[0])
        if is_over:
            best = np.flatnonzero(self._returns == self._returns.max()).tolist()
            self.result = Result(tuple(self._returns.tolist()), tuple(best), was_cut=bool(out.truncated.any()))

    def _forfeit(self, player: int) -> None:
        """End the game: this player made an illegal move, and the others win."""
        others = tuple(each for each in range(self.pool.num_players) if each != player)
        self._states.append(self._states[-1])
        self.result = Result(tuple(self._returns.tolist()), others, forfeited=player)
