"""The flags of `scramjet bench`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from scramjet.commands.command_line import parse
from scramjet.errors import ConfigError
from scramjet.policies.config import MemoryName
from scramjet.settings import MAX_COUNT, Positional, require, require_counts, settle
from scramjet.training.config.run_config import MAX_THREADS

DESCRIPTION = """Measure a world's speed: env steps alone, rollouts (policy and envs), whole training.

Training is separate 64x64 tanh networks, 128-step rollouts, 4 epochs, 4 minibatches, unless told otherwise.
Each figure is the median of repeats after a warm-up, in env steps per second; env steps also show the best repeat.

  scramjet bench
  scramjet bench cartpole --num-envs 1024 --num-threads 1 2
  scramjet bench cartpole --memory lstm --hidden 128 --shared-trunk
  scramjet bench all
  scramjet bench cartpole --device cuda --num-envs 4096 65536
  scramjet bench my_world.py --json
  scramjet bench gym:CartPole-v1 --num-envs 8 64

On the GPU, env steps are measured 32 at a time as a CUDA graph, with legal random actions chosen beforehand.
"""


@dataclass(frozen=True)
class Arguments:
    """The arguments of `scramjet bench`: what to measure."""

    env: Annotated[str, Positional("ENV")] = "cartpole"
    """A world's name or file. all: measures the env steps of every world at 1024 envs. Another library's world, such as
    gym:ID: measures the env steps of each pool that can step it."""
    num_envs: tuple[int, ...] = ()
    """Numbers of envs to measure with; by default 64 to 4096, on the GPU 1024 to 65536."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device to measure on."""
    precision: Literal["float32", "tf32", "bfloat16"] = "tf32"
    """Precision of matrix products on the GPU."""
    fused: bool = True
    """Use compiled functions instead of torch's operators where they can run the policy."""
    num_threads: tuple[int, ...] = ()
    """Numbers of threads to measure with; by default 1 and all cores."""
    num_steps: int = 128
    """Steps of each env in a rollout."""
    num_epochs: int = 4
    """Passes over the samples of each rollout."""
    num_minibatches: int = 4
    """Gradient steps per pass."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers of policy and value."""
    shared_trunk: bool = False
    """One trunk for policy and value, instead of one each."""
    memory: MemoryName | None = None
    """Recurrent core of the policy."""
    memory_size: int = 128
    """Units of the recurrent core."""
    seconds: float = 2.0
    """Seconds to measure each figure for."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def __post_init__(self) -> None:
        settle(self)
        if not all(1 <= count <= MAX_COUNT for count in self.num_envs):
            raise ConfigError(f"--num-envs {list(self.num_envs)} must each be at least 1, and at most {MAX_COUNT}")
        if not all(1 <= count <= MAX_THREADS for count in self.num_threads):
            raise ConfigError(f"--num-threads {list(self.num_threads)} must each be from 1 to {MAX_THREADS}")
        require_counts(self, ("num_steps", "num_epochs", "num_minibatches", "memory_size"))
        require(self, ("seconds",), lambda x: x > 0, "must be above 0")


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet bench", description=DESCRIPTION),)
