"""Connect Four by brute force, to check the solver against: every line in a list, every game tried to its end."""

from collections.abc import Callable, Iterator


class BruteForce:
    """Scores positions, given as tuples of the columns played, by plain minimax that remembers whole boards."""

    def __init__(self, rows: int, cols: int) -> None:
        self.rows, self.cols = rows, cols
        self._lines_of: dict[int, list[int]] = {}
        self._scores: dict[tuple[int, int], int] = {}
        for line in self._lines():
            mask = sum(1 << cell for cell in line)
            for cell in line:
                self._lines_of.setdefault(cell, []).append(mask)

    def _lines(self) -> Iterator[list[int]]:
        """The cells, row * cols + column, of each line of four."""
        for row in range(self.rows):
            for column in range(self.cols):
                for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                    ends = row + 3 * down < self.rows and 0 <= column + 3 * right < self.cols
                    if ends:
                        yield [(row + k * down) * self.cols + column + k * right for k in range(4)]

    def score(self, moves: tuple[int, ...]) -> int:
        """The score for the side to move after these columns, counted from 0, of a game that is not over."""
        return self._score(*self._board(moves))

    def is_over(self, moves: tuple[int, ...]) -> bool:
        """Whether the last of these moves won, or filled the board."""
        own, other = self._board(moves[:-1])
        cell = self._landing(own | other, moves[-1])
        return self._wins(own, cell) or len(moves) == self.rows * self.cols

    def every_position(self, visit: Callable[[tuple[int, ...]], None]) -> None:
        """Visit moves that lead to each position in which the game goes on, one way to each."""
        level = {(0, 0): ()}
        while level:
            deeper: dict[tuple[int, int], tuple[int, ...]] = {}
            for (own, other), moves in level.items():
                visit(moves)
                for column in range(self.cols):
                    cell = self._landing(own | other, column)
                    if cell >= 0 and not self._wins(own, cell) and len(moves) + 1 < self.rows * self.cols:
                        deeper.setdefault((other, own | 1 << cell), (*moves, column))
            level = deeper

    def _board(self, moves: tuple[int, ...]) -> tuple[int, int]:
        own = other = 0
        for column in moves:
            own, other = other, own | 1 << self._landing(own | other, column)
        return own, other

    def _landing(self, taken: int, column: int) -> int:
        """The cell where a piece comes to lie; -1 in a full column. Row 0 is the lowest."""
        for row in range(self.rows):
            if not taken >> (row * self.cols + column) & 1:
                return row * self.cols + column
        return -1

    def _wins(self, own: int, cell: int) -> bool:
        with_piece = own | 1 << cell
        return any(with_piece & line == line for line in self._lines_of.get(cell, ()))

    def _score(self, own: int, other: int) -> int:
        if (own, other) in self._scores:
            return self._scores[own, other]
        played = (own | other).bit_count()
        cells = [cell for cell in (self._landing(own | other, column) for column in range(self.cols)) if cell >= 0]
        if any(self._wins(own, cell) for cell in cells):
            score = (self.rows * self.cols + 1 - played) // 2
        else:
            score = max((-self._score(other, own | 1 << cell) for cell in cells), default=0)
        self._scores[own, other] = score
        return score
