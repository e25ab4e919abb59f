"""Methods: each decides what to run next, from what study.db holds."""
