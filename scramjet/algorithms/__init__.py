"""Losses, advantages, reward scaling and schedules: mathematics only, without policies, processes and files."""
