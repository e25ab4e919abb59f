"""Players that are not trained here: random moves, greedy and minimax players, and functions of the user's own."""
