"""Runs as they are shown: their files read, curves of their metrics, statistics over seeds, plots, comparisons."""
