"""A run on disk: what its checkpoints say and hold, the results it recorded, and the worlds it came from."""
