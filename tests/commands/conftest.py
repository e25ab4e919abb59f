"""Tiny finished runs, each trained when a test first asks for it; tests only read them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.command_calls import TINY, call

QUICK = "--no-fused --num-envs 8 --num-steps 16 --total-timesteps 512 --minibatch-size 64 --policy.hidden 8 "
QUICK += "--eval.every 0 --eval.final-episodes 0 --checkpoint.every 1 --checkpoint.keep-last-n none"
FOUR = f"connect_four {QUICK} --policy.encoder mlp --policy.symmetry none --self-play.pool-fraction 0 "
FOUR += "--env.opening-plies 0"
RUNS = {
    "tiny": f"cartpole {' '.join(TINY)} --checkpoint.every 1",
    "four": FOUR,
    "single": f"{FOUR} --env.random-opponent",
    "second": f"{FOUR} --seed 2",
    "memory": f"{FOUR} --policy.memory gru --policy.memory-size 8",
    "opened": f"{FOUR} --env.opening-plies 4",
    "frames": f"cartpole {QUICK} --frame-stack 2",
    "other": f"gym:CartPole-v1 {QUICK}",
    "swing": f"pendulum {QUICK}",
    "cards": f"kuhn {QUICK} --self-play.pool-fraction 0",
    "snakes": f"snake {QUICK} --policy.encoder mlp --env.step-reward 0",
}


class Runs:
    """`runs["four"]` is the path of a run, runs/four in the folder where the test stands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Path:
        if not (self.folder / name).exists():
            words = [*RUNS[name].split(), "--runs-dir", self.folder, "--run-name", name, "--display", "quiet"]
            assert call("train", *words) == 0
        return self.folder / name


@pytest.fixture(scope="module", autouse=True)
def nothing_ahead() -> Iterator[None]:
    """Kernels are compiled when they are called: tests/executors/ has the process that does so ahead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scramjet.executors.compile_ahead.compile_ahead", lambda: None)
        yield


@pytest.fixture(scope="session")
def all_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("commands") / "runs")


@pytest.fixture
def runs(all_runs: Runs, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Runs:
    """The runs, in the current folder: commands find them by name."""
    all_runs.folder.mkdir(exist_ok=True)
    monkeypatch.chdir(all_runs.folder.parent)
    return all_runs
