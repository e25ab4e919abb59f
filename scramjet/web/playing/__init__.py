"""Play in the page: a person at the board, against a checkpoint, a scripted player or another person, or alone."""
