"""A person at the board: moves by their names, what a policy thinks of them, and the dialogue in the terminal."""
