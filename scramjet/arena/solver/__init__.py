"""Perfect play of Connect Four: a solver of our own, the positions that players are graded by, and a perfect player."""
