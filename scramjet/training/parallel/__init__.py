"""Several processes train one run: what they tell each other and decide together; a process alone does none of it."""
