"""Search over any native world: particles (SPO) and trees (Gumbel AlphaZero), many roots at once."""
