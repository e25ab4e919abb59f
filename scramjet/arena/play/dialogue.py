"""The dialogue with a person at the board, in a terminal: shows the game, asks for moves, answers questions."""

from __future__ import annotations

import enum
from collections.abc import Callable

from rich.console import Console

from scramjet.arena.game import Game, Table
from scramjet.arena.play.moves import PlayedMove
from scramjet.arena.play.screen import Screen, outcome, title_of
from scramjet.arena.play.thoughts import Thoughts
from scramjet.errors import PlayError, did_you_mean, printable

COMMANDS = {
    "hint": "what the network thinks of each move, and of your chances",
    "undo": "take your last move back",
    "moves": "the legal moves",
    "board": "show the board again",
    "new": "begin another game",
    "help": "this list",
    "quit": "leave; Ctrl-D and Ctrl-C do so too",
}
SHORT = {"?": "help", "h": "help", "q": "quit", "exit": "quit", "u": "undo", "n": "new"}
MOST_NAMES = 60
"""Characters of legal moves in a prompt; where there are more, `moves` lists them."""


class Next(enum.Enum):
    """What comes after an answer."""

    ASK = "ask"  # ask again, the position is the same
    SHOW = "show"  # show the new position
    NEW = "new"
    QUIT = "quit"


class Dialogue:
    """Plays games with a person until they have had enough.

    `ask(prompt)` returns a line that the person typed, and raises EOFError at the end of input.
    """

    def __init__(self, game: Game, table: Table, console: Console, ask: Callable[[str], str], seed: int) -> None:
        self._game, self._table, self._ask = game, table, ask
        self._screen = Screen(console)
        self._say = self._screen.say
        self._seed = seed
        self._news: list[str] = []  # what happened since the board was last shown

    def run(self) -> None:
        """Play one game after the other; returns when the person leaves."""
        try:
            while self._play_game() is Next.NEW:
                self._seed += 1
        except (EOFError, KeyboardInterrupt):
            self._say("")
        self._say("Goodbye.")

    def _play_game(self) -> Next:
        """Play one game; returns whether to begin another one."""
        game = self._game
        game.begin(self._table.players(game, self._seed), self._seed)
        self._introduce()
        while True:
            while not game.is_over and game.person_to_move is None:
                with self._screen.waiting_for(self._name(game.to_move[0])):
                    made = game.reply()
                self._tell(made)
            self._show()
            following = Next.ASK
            while following is Next.ASK:
                following = self._after_the_end() if game.is_over else self._turn()
            if following is not Next.SHOW:
                return following

    def _introduce(self) -> None:
        """Say who plays, and who moves first."""
        game = self._game
        others = list(dict.fromkeys(who.name for who in game.players if who is not None))
        num_people = sum(who is None for who in game.players)
        who = (
            f"you against {', '.join(others)}" if others else f"{num_people} people" if num_people > 1 else "you alone"
        )
        first = ""
        if others and len(game.to_move) == 1:
            mover = game.to_move[0]
            first = f" {'You move' if self._is_you(mover) else f'{self._name(mover)} moves'} first."
        self._news = []
        self._say("")
        self._say(f"{title_of(game)}: {who}.{first} Type a move, or help.")

    def _is_you(self, player: int) -> bool:
        """Whether this is the only person in the game."""
        return self._game.players[player] is None and sum(who is None for who in self._game.players) == 1

    def _name(self, player: int) -> str:
        if self._is_you(player):
            return "You"
        who = self._game.players[player]
        return f"Player {player + 1}" if who is None else who.name

    def _turn(self) -> Next:
        """Ask the person for a move and act on the answer."""
        game = self._game
        person = game.person_to_move
        assert person is not None
        whose = "Your move" if self._is_you(person) else f"Move of player {person + 1}"
        names = " ".join(move.name for move in game.legal_moves())
        if len(names) > MOST_NAMES:
            names = f"{len(game.legal_moves())} legal, type moves to see them"
        return self._obey(self._ask(printable(f"{whose} ({names}): ")))

    def _obey(self, answer: str) -> Next:
        """Act on what a person typed in their turn."""
        words = " ".join(answer.split())
        found = self._game.moves.find(words)
        if found is not None and not words.startswith("/"):
            return self._move(found.number, found.name)
        command = words.lower().removeprefix("/")
        return self._command(SHORT.get(command, command), words)

    def _move(self, number: int, name: str) -> Next:
        if all(move.number != number for move in self._game.legal_moves()):
            self._say(f"{name} is not legal now. {self._legal()}")
            return Next.ASK
        self._tell(self._game.move(number))
        return Next.SHOW

    def _command(self, command: str, typed: str) -> Next:
        if command in ("quit", "new"):
            return Next.QUIT if command == "quit" else Next.NEW
        if command == "undo":
            return self._undo()
        if command == "board":
            return Next.SHOW
        person = self._game.person_to_move
        if command == "hint" and person is not None:
            show_hint(self._screen, self._game, self._name(person).lower())
        elif command == "help":
            self._help()
        elif command in ("moves", ""):
            self._say(self._legal())
        else:
            near = did_you_mean(typed, [*COMMANDS, *self._game.moves.names])
            self._say(f"'{typed[:40]}' is no move and no command.{near} {self._legal()} Or type help.")
        return Next.ASK

    def _undo(self) -> Next:
        try:
            self._game.undo()
        except PlayError as error:
            self._say(f"Not now: {error}.")
            return Next.ASK
        self._news = ["Taken back."]
        return Next.SHOW

    def _help(self) -> None:
        width = max(map(len, COMMANDS))
        numbers = "" if self._game.moves.names[0].isdigit() else ", or by its number"
        self._say(f"Type a move by its name{numbers}. {self._legal()}")
        for name, meaning in COMMANDS.items():
            if name == "hint" and not self._game.has_hints:
                continue
            self._say(f"  {name:<{width}}  {meaning}")

    def _legal(self) -> str:
        return f"Legal: {', '.join(move.name for move in self._game.legal_moves())}."

    def _after_the_end(self) -> Next:
        """Ask whether to play again."""
        answer = self._ask("Play again? (yes, no, undo): ").strip().lower().removeprefix("/")
        answer = SHORT.get(answer, answer)
        if answer in ("y", "yes", "new"):
            return Next.NEW
        if answer in ("no", "quit"):
            return Next.QUIT
        if answer == "undo":
            return self._undo()
        self._say("Type yes for another game, no to leave, undo to take your last move back.")
        return Next.ASK

    def _tell(self, made: list[PlayedMove]) -> None:
        self._news += [f"{self._name(played.player)} played {played.move.name}." for played in made]

    def _show(self) -> None:
        """Show the news and the board, and after the end the result."""
        game = self._game
        self._say("")
        if self._news:
            self._say(" ".join(self._news))
        self._news = []
        self._screen.show(game)
        self._say("")
        if game.is_over:
            assert game.result is not None
            self._say(outcome(game.result, [self._name(player) for player in range(len(game.players))]))


# --- hints

MOST_BARS = 12
BAR = 30


def show_hint(screen: Screen, game: Game, whom: str) -> None:
    """Show what is known of the moves of the person to move, who is called `whom`."""
    verdicts = game.perfect_verdicts()
    if game.adviser is not None:
        _show_thoughts(screen, game.thoughts(), verdicts, game.adviser.name)
        screen.say(_expectation(game.thoughts(), whom))
    elif verdicts:
        screen.say("What perfect play says of each move:")
        for move in game.legal_moves():
            screen.say(f"  {move.name}  {verdicts[move.number]}")
    else:
        screen.say("No hint: there is no network to ask; play against a run.")


def _show_thoughts(screen: Screen, thoughts: Thoughts, verdicts: dict[int, str], name: str) -> None:
    """Show the likely moves as bars, the likeliest first, each with its verdict."""
    screen.say(f"How likely {name} would play each move here{', and what perfect play says' if verdicts else ''}:")
    best = sorted(zip(thoughts.probabilities, thoughts.moves, strict=True), key=lambda pair: -pair[0])
    width = max(len(move.name) for _, move in best[:MOST_BARS])
    for probability, move in best[:MOST_BARS]:
        screen.bar(f"{move.name:>{width}}", probability, BAR, verdicts.get(move.number, ""))
    if len(best) > MOST_BARS:
        rest = sum(probability for probability, _ in best[MOST_BARS:])
        screen.say(f"  {len(best) - MOST_BARS} others {100 * rest:.1f} % together")


def _expectation(thoughts: Thoughts, whom: str) -> str:
    """What the network's value says, in words."""
    if thoughts.chances is None:
        return f"It expects a return of {thoughts.value:+.2f} for {whom} from here on."
    return (
        f"It expects a result of {thoughts.value:+.2f} for {whom}, where -1 is lost and +1 won: "
        f"chances {100 * thoughts.chances:.0f} %, a draw counting half."
    )
