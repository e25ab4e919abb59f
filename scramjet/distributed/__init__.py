"""Several processes in one training: ranks that fail together, what they send each other, and a cluster of Ray."""
