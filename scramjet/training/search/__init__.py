"""Training with search: rollouts played by a search, a replay of them, and the learners of SPO and AlphaZero."""
