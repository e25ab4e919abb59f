"""Runs in other people's tools: TensorBoard, Aim, Weights & Biases, MLflow and Trackio.

A tool is behind a `Tracker` (tracker.py); a `Feed` (feed.py) brings it the lines of a run's metrics.jsonl, each once,
whether the run trains now (background.py) or is read afterwards (`scramjet sync`).
"""
