"""The processes of trials: the program that they are forked from, and the study's side of it."""
