"""Helpers of garden.py in a module of their own."""

import math

BONUS = 0.125
STRONG = 0.4


def turn(action, wind):
    """The direction in which one ends up; a strong wind turns it."""
    if abs(wind) > STRONG:
        return (action + steps_turned(wind)) % 4
    return action


def steps_turned(wind):
    return 1 if wind > 0 else 3


def distance(row, column, center):
    return math.sqrt((row - center) ** 2 + (column - center) ** 2)
