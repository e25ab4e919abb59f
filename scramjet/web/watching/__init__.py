"""Watch a checkpoint play in the browser: one env in a thread of its own, its pictures and what the policy thinks."""
