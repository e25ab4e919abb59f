"""Records of a run, a clock that tests move, and a terminal whose screen can be read."""

import io
import re

from rich.console import Console

from scramjet.training.display import LiveDisplay, RunInfo, Summary
from scramjet.training.display.text import next_commands

INFO = RunInfo(
    run_name="cartpole-20260712-101500", run_path="runs/cartpole-20260712-101500", env="cartpole",
    num_envs=1024, num_steps=128, num_threads=2, first_step=0, total_steps=2_000_000, num_parameters=9155,
    note="resumed at step 1,024",
)  # fmt: skip
SUMMARY = Summary(
    run_path="runs/cartpole-7", run_name="cartpole-7", step=1_000_448, trained=1_000_448, seconds=75.0,
    steps_per_second=142_000.0, return_100=489.2, recent_episodes=100, best_return=500.0,
    evaluation={"mean_return": 498.5, "std_return": 3.25, "mean_length": 498.5, "episodes": 100},
    stopped_by=None, env="cartpole",
)  # fmt: skip

ERASED = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def a_record(update: int, **changes) -> dict:
    score = 500 * update / 100
    record = {
        "update": update, "step": update * 16_384, "episodes": 40, "return_mean": score, "return_min": score / 2,
        "return_max": score * 2, "length_mean": score, "return_100": score, "length_100": score, "stat/win": 0.25,
        "policy_loss": -0.0123, "value_loss": 31.5, "entropy": 0.61, "approx_kl": 0.0101, "approx_kl_k1": 0.0099,
        "clip_fraction": 0.11, "explained_variance": 0.81, "grad_norm": 0.65, "learning_rate": 0.00025,
        "clip_epsilon": 0.2, "entropy_coef": 0.01, "epochs": 4,
        "time": {
            "elapsed_seconds": update / 10, "steps_per_second": 142_000.0, "rollout_seconds": 0.03,
            "prepare_seconds": 0.01, "learn_seconds": 0.05, "evaluate_seconds": 0.01, "checkpoint_seconds": 0.0,
        },
    }  # fmt: skip
    return record | changes


EVALUATION = {"eval/mean_return": 475.5, "eval/std_return": 9.5, "eval/mean_length": 475.5, "eval/episodes": 100}


class FakeClock:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen:
    """A live display on a terminal of a given size that writes to memory."""

    def __init__(self, width: int = 80, height: int = 24, encoding: str = "utf-8", info: RunInfo | None = INFO) -> None:
        self.bytes = io.BytesIO()
        self.file = io.TextIOWrapper(self.bytes, encoding=encoding, write_through=True)
        self.console = Console(
            file=self.file, force_terminal=True, width=width, height=height, _environ={"TERM": "xterm-256color"}
        )
        self.clock = FakeClock()
        self.display = LiveDisplay(self.console, clock=self.clock)
        if info is not None:
            self.display.start(info)

    def play(self, *records: dict) -> None:
        for record in records:
            self.clock.now += 10.0
            self.display.record(record)

    @property
    def output(self) -> str:
        return self.bytes.getvalue().decode(self.file.encoding)

    @property
    def lines(self) -> list[str]:
        """The frame that stands on the screen now: all after the last time the one before it was erased."""
        return ESCAPE.sub("", ERASED.split(self.output)[-1]).split("\n")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def commands(summary: Summary) -> list[str]:
    return [command for _, command in next_commands(summary)]
