"""Scramjet: reinforcement learning at the speed of the hardware, from plain Python."""

__version__ = "0.1.0"
