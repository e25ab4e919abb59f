"""Tournaments: who meets whom, what was played so far, and the ratings that follow."""
