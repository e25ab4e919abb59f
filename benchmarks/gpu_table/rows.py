"""The rows of the table of `benchmarks/gpu.py`: worlds, networks and sizes, and the peer in JAX that does the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from scramjet.policies.config import MemoryName, PolicyConfig
from scramjet.training.config.files import starting_config

MLP_SIZES = ((64, 128), (256, 128), (1024, 128), (4096, 128), (16384, 64), (65536, 32))


@dataclass(frozen=True)
class Row:
    """One training to measure."""

    name: str
    world: str
    num_envs: int
    num_steps: int
    network: str
    """The network in words."""
    policy: Callable[[], PolicyConfig] = PolicyConfig
    """Makes the settings of the network; those of a preset are read from its file."""
    peer: tuple[str, ...] | None = None
    """The program in JAX under `benchmarks/peers/` and its words, without sizes; None where there is none."""

    @property
    def batch_size(self) -> int:
        """Env steps in an update."""
        return self.num_envs * self.num_steps

    def resized(self, num_envs: int | None, num_steps: int | None) -> Row:
        """The same work at another size, where one is given."""
        return replace(self, num_envs=num_envs or self.num_envs, num_steps=num_steps or self.num_steps)


def memory_row(memory: MemoryName) -> Row:
    """CartPole with a recurrent core of 128 units behind a layer of 128, policy and value on one trunk."""

    def policy() -> PolicyConfig:
        return PolicyConfig(hidden=(128,), shared_trunk=True, memory=memory, memory_size=128)

    words = ("jax_training.py", "--work", memory)
    return Row(memory, "cartpole", 4096, 64, f"128, then {memory} 128, shared", policy, words)


def connect_four_policy() -> PolicyConfig:
    """The preset's network without its residual block and its mirrored boards: one layer of 32 channels."""
    return replace(preset_policy("connect_four"), grid_blocks=0, symmetry="none")


def preset_policy(world: str) -> PolicyConfig:
    """The network of a world's preset."""
    return starting_config(world).policy


def mlp_row(num_envs: int, num_steps: int) -> Row:
    """CartPole with separate 64x64 tanh networks."""
    return Row(f"mlp-{num_envs}", "cartpole", num_envs, num_steps, "64x64", peer=("jax_cartpole.py",))


ROWS = (
    memory_row("lstm"),
    memory_row("gru"),
    memory_row("mingru"),
    Row(
        "connect_four",
        "connect_four",
        4096,
        32,
        "3x3x32, then 128, shared",
        connect_four_policy,
        ("jax_training.py", "--work", "connect_four"),
    ),
    Row(
        "preset-connect_four",
        "connect_four",
        4096,
        32,
        "its preset's: a block of 32 more, boards mirrored",
        lambda: preset_policy("connect_four"),
    ),
    Row("snake", "snake", 4096, 32, "its preset's: 3x3x16 twice, then 128", lambda: preset_policy("snake")),
    Row("maze", "maze", 4096, 32, "its preset's: value propagation", lambda: preset_policy("maze")),
    Row("pendulum", "pendulum", 4096, 32, "64x64", peer=("jax_training.py", "--work", "pendulum")),
    Row("squared", "squared", 4096, 32, "64x64", peer=("jax_training.py", "--work", "squared")),
    *(mlp_row(*size) for size in MLP_SIZES),
)


def rows_named(names: list[str] | None) -> tuple[Row, ...]:
    """The rows whose names begin with one of `names`; all of them without names.

    Raises a ValueError that lists the names there are where one fits no row.
    """
    for name in names or ():
        if not any(row.name.startswith(name) for row in ROWS):
            raise ValueError(f"no row {name!r}; there are {', '.join(row.name for row in ROWS)}")
    return ROWS if names is None else tuple(row for row in ROWS if row.name.startswith(tuple(names)))
