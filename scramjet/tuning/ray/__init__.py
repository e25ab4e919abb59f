"""Trials on a Ray cluster: Ray Tune places them on its nodes, and the study stays what it is."""
