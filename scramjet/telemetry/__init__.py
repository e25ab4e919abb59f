"""What a run tells while it trains: its metrics, what each means, and where they go."""
