"""A hint in the terminal: what a network thinks of each move and of the chances, and what perfect play says."""

from __future__ import annotations

from scramjet.arena.game import Game
from scramjet.arena.play.screen import Screen
from scramjet.arena.play.thoughts import Thoughts

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
