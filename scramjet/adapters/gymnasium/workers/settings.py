"""What the settings of a worker pool must satisfy."""

from __future__ import annotations

from scramjet.engine.pool import check_count
from scramjet.errors import ConfigError


def check_settings(num_envs: int, num_workers: int, timeout: float, on_error: str, batch_size: int | None) -> None:
    """Refuse numbers of workers, seconds or rows that do not go together."""
    check_count("num_workers", num_workers)
    if num_workers > num_envs:
        raise ConfigError(f"num_workers={num_workers} but num_envs={num_envs}; use at most one worker an env")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ConfigError(f"timeout={timeout!r} must be a number of seconds above 0")
    if on_error not in ("fail", "restart"):
        raise ConfigError(f"on_error={on_error!r} must be 'fail' or 'restart'")
    if batch_size is None:
        return
    check_count("batch_size", batch_size)
    share = num_envs // num_workers
    if batch_size > num_envs or (batch_size < num_envs and (num_envs % num_workers or batch_size % share)):
        raise ConfigError(
            f"batch_size={batch_size} must be the envs of whole workers, and num_envs={num_envs} split evenly over "
            f"num_workers={num_workers}; num_workers={num_envs} allows any"
        )
