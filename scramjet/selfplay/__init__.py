"""Training against others: frozen earlier selves, policies of other runs and scripted players."""
