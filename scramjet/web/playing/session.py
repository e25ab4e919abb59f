"""A person's games, one after the other: takes the messages of a page and answers each with others."""

from __future__ import annotations

import base64
import logging
import math
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from scramjet.arena.game import Game, Table
from scramjet.arena.play.thoughts import book_moves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Env
from scramjet.errors import ENV_FAILURES, PlayError, ScramjetError
from scramjet.settings import coerce
from scramjet.training.config.run_config import MAX_SEED
from scramjet.web.context import Agents, deed_of
from scramjet.web.pictures import checked_picture, plain_text, png
from scramjet.web.playing.setting import AdjustablePlayer, PlayRequest, Setting, check_strength, make_setting
from scramjet.web.playing.steering import SteeredGame

MOST_TOLD = 300
"""Moves of a game that a page is told, the last ones."""
BEST = "best"
"""The verdict of a move that the opening book has."""
NOT_SHOWN = "This world hides things from its players and does not say what each may see: it has no ascii_for."

Message = dict[str, Any]
Answers = Iterator[Message]


class Session:
    """Plays with one page. Blocks while a player thinks: call it from a thread of its own, never from two at once."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._setting: Setting | None = None
        self._seed = 0

    def answers(self, message: Any) -> Answers:
        """The answers to a message of the page, each as soon as there is one: the position after a person's move comes
        before the opponent thinks. Mistakes are answered too, as `{"kind": "error", "error": ...}`."""
        try:
            yield from self._obey(message)
        except ScramjetError as error:
            yield {"kind": "error", "error": plain_text(str(error))}
        except ENV_FAILURES as error:  # a rule or picture of the user's own
            logging.getLogger(__name__).exception("a game in the page failed")
            said = f"the game failed, the server's terminal shows where: {type(error).__name__}: {error}"
            yield {"kind": "error", "error": plain_text(said)}

    def close(self) -> None:
        """End the game."""
        setting, self._setting = self._setting, None
        if setting is not None:
            setting.game.pool.close()

    def _obey(self, message: Any) -> Answers:
        deeds: dict[str, Callable[[Message], Answers]] = {
            "start": self._start, "new": self._new, "move": self._move, "click": self._click, "act": self._act,
            "undo": self._undo, "hint": self._hint, "strength": self._strength,
        }  # fmt: skip
        yield from deed_of(message, deeds)(message)

    def _start(self, message: Message) -> Answers:
        """Load what the page asks for and begin the first game."""
        request = PlayRequest.read(message)
        yield {"kind": "status", "text": f"loading {request.run or request.world}"}
        self.close()
        self._setting = make_setting(self._agents, request)
        if isinstance(self._setting.opponent, AdjustablePlayer) and self._setting.facts["search"]["strengths"]:
            self._setting.opponent.simulations = request.simulations
        self._seed = secrets.randbelow(2**31) if request.seed is None else request.seed
        yield {"kind": "table", **self._setting.facts, "simulations": self._simulations()}
        try:
            yield from self._begin()
        except Exception:  # such as a seat that there is not: nothing can be played then
            self.close()
            raise

    def _new(self, message: Message) -> Answers:
        """Another game of the same players."""
        self._required()
        self._seed = (self._seed + 1) % (MAX_SEED + 1)
        yield from self._begin()

    def _begin(self) -> Answers:
        setting = self._required()
        if isinstance(setting.game, Game):
            table = Table(setting.opponent, setting.facts["seat"])
            setting.game.begin(table.players(setting.game, self._seed), self._seed)
        else:
            setting.game.begin(self._seed)
        yield from self._play_on()

    def _move(self, message: Message) -> Answers:
        game = self._board_game()
        game.move(coerce("number", message.get("number"), int))
        yield from self._play_on()

    def _click(self, message: Message) -> Answers:
        """The move at a point of the picture; a click that means none, or one that is not legal, changes nothing."""
        game = self._board_game()
        x, y = (coerce(name, message.get(name), float) for name in ("x", "y"))
        if not (0 <= x < 1 and 0 <= y < 1):
            raise PlayError("a click must lie on the picture: x and y are from 0 to 1")
        if game.person_to_move is None:
            raise PlayError("the game is over: begin a new one" if game.is_over else "it is not your move")
        move = game.move_at(x, y)
        if move is not None and any(move.number == legal.number for legal in game.legal_moves()):
            game.move(move.number)
        yield from self._play_on()

    def _act(self, message: Message) -> Answers:
        """One step with real numbers."""
        game = self._required().game
        if not isinstance(game, SteeredGame):
            raise PlayError("this world takes moves, no numbers")
        game.act(coerce("values", message.get("values"), tuple[float, ...]))
        yield self._state()

    def _undo(self, message: Message) -> Answers:
        self._required().game.undo()
        yield from self._play_on()

    def _strength(self, message: Message) -> Answers:
        """How far the opponent looks ahead from now on."""
        simulations = coerce("simulations", message.get("simulations"), int)
        check_strength(simulations)
        setting = self._required()
        if not isinstance(setting.opponent, AdjustablePlayer) or not setting.facts["search"]["strengths"]:
            raise PlayError(setting.facts["search"]["reason"] or "this opponent does not search")
        setting.opponent.simulations = simulations
        yield {"kind": "strength", "simulations": simulations}

    def _hint(self, message: Message) -> Answers:
        """What the network thinks of the person's moves, and what perfect play says of them."""
        game = self._required().game
        if isinstance(game, SteeredGame):
            values, expected = game.suggestion()
            yield {"kind": "hint", "at": game.num_steps, "suggests": values, "value": _finite(expected)}
            return
        if game.person_to_move is None:
            raise PlayError("the game is over" if game.is_over else "it is not your move")
        verdicts = game.perfect_verdicts()
        if game.adviser is None and not self._required().facts["has_verdicts"]:
            raise PlayError("there is no network to ask: play against a run")
        thoughts = None if game.adviser is None else game.thoughts()
        moves, best = game.legal_moves(), [] if verdicts else self._book_moves(game)
        shares = [None] * len(moves) if thoughts is None else map(_finite, thoughts.probabilities)
        yield {
            "kind": "hint",
            "at": len(game.played),
            "value": None if thoughts is None else _finite(thoughts.value),
            "chances": None if thoughts is None or thoughts.chances is None else _finite(thoughts.chances),
            "moves": [
                {
                    **move.as_dict(),
                    "probability": share,
                    "verdict": BEST if move.number in best else verdicts.get(move.number),
                }
                for move, share in zip(moves, shares, strict=True)
            ],
        }

    @staticmethod
    def _book_moves(game: Game) -> list[int]:
        """The best moves of an opening that a book knows."""
        return book_moves(game.env, game.pool.record(0)) if isinstance(game.pool, NativePool) else []

    def _play_on(self) -> Answers:
        """Show the position, and let the others move until it is a person's turn again."""
        yield self._state()
        game = self._required().game
        while isinstance(game, Game) and not game.is_over and game.person_to_move is None:
            game.reply()
            yield self._state()

    def _state(self) -> Message:
        """The position as a page shows it. Nothing in it is hidden from the person through whose eyes it is shown."""
        game = self._required().game
        shown = game.as_dict()
        is_persons = shown["person_to_move"] is not None
        return {
            "kind": "state",
            **shown,
            "text": NOT_SHOWN if self._must_hide("ascii_for") else plain_text(shown["text"]),
            "legal_moves": shown["legal_moves"] if is_persons else [],  # the others' may tell what they hold
            "played": shown["played"][-MOST_TOLD:],
            "num_moves": len(game.played) if isinstance(game, Game) else game.num_steps,
            "places": [place.as_dict() for place in game.places()] if isinstance(game, Game) else [],
            "picture": self._picture(),
        }

    def _picture(self) -> str | None:
        """The picture as a PNG file in base64; None where the world has none for these eyes."""
        game = self._required().game
        world = type(game.env)
        if world.render is Env.render or self._must_hide("render_for"):
            return None
        return base64.b64encode(png(checked_picture(game.picture(), world.__name__))).decode()

    def _must_hide(self, function: str) -> bool:
        """Whether a game hides things from its players, goes on, and does not say by this function what they see."""
        game = self._required().game
        says = getattr(type(game.env), function) is not getattr(Env, function)
        return bool(game.env.hidden) and game.pool.num_players > 1 and not game.is_over and not says

    def _required(self) -> Setting:
        if self._setting is None:
            raise PlayError("no game has begun: start one first")
        return self._setting

    def _board_game(self) -> Game:
        game = self._required().game
        if not isinstance(game, Game):
            raise PlayError("this world takes numbers, no moves")
        return game

    def _simulations(self) -> int:
        opponent = self._required().opponent
        return opponent.simulations if isinstance(opponent, AdjustablePlayer) else 0


def _finite(number: float) -> float | None:
    """A number as JSON has it; None where it is none."""
    return number if math.isfinite(number) else None
