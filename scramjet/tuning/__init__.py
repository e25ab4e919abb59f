"""Sweeps and populations: a study tries settings in many runs. Read loop.py first."""
