"""Run by test_checkpoint_kills.py: kills processes that save checkpoints, and looks at what they left.

One process imports torch once and forks a child for each kill, for torch takes seconds to import.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from scramjet.runtime import checkpoints
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint

CALLS_THAT_CHANGE_THE_DISK = (
    "mkdir",
    "write",
    "fsync",
    "rename",
    "replace",
    "symlink",
    "unlink",
    "rmdir",
)


def state(step: int, size: int = 1000, variant: int = 0) -> dict[str, torch.Tensor]:
    """Tensors that can be told from those of any other step."""
    return {"weight": torch.arange(size, dtype=torch.float32) * (step + 1) + variant}


def save(store: CheckpointStore, step: int, is_best: bool = False, variant: int = 0) -> None:
    store.save(step, state(step, variant=variant), state(step), {"count": step}, is_best=is_best)


def die_at_call(number: int) -> None:
    """Make this process kill itself just before its `number`-th disk call; half of a write is done first."""
    calls = 0

    def wrap(name: str, original: Callable) -> Callable:
        def wrapped(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == number:
                if name == "write":
                    original(args[0], args[1][: len(args[1]) // 2])  # type: ignore[index, arg-type]
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return wrapped

    for name in CALLS_THAT_CHANGE_THE_DISK:
        setattr(os, name, wrap(name, getattr(os, name)))


def in_child(work: Callable[[], None], kill_after: float | None = None) -> bool:
    """Run `work` in a forked child; say whether it lived to the end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print("child failed:", repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise RuntimeError("a save failed by itself")
    return os.WIFEXITED(status)


def check(directory: Path, allowed: set[tuple[int, int]], has_gap: bool = False) -> tuple[int, int]:
    """Look at what a kill left, first as a reader does, then as the next writer does.

    `has_gap`: where folders cannot be exchanged, `latest` may lead nowhere until the next writer starts.
    """
    if not has_gap:
        load_checkpoint(directory / "latest")
    load_checkpoint(directory / "best")
    store = CheckpointStore(directory, keep_last_n=2)
    checkpoint, problems = store.load_latest_whole()
    assert problems == [], problems
    assert checkpoint is not None
    variant = int(checkpoint.model["weight"][0])
    assert (checkpoint.step, variant) in allowed, (checkpoint.step, variant)
    assert torch.equal(checkpoint.model["weight"], state(checkpoint.step, variant=variant)["weight"])
    assert checkpoint.metadata == {"count": checkpoint.step}
    for step in store.steps():
        load_checkpoint(directory / f"step_{step:08d}")  # no half-removed one under a checkpoint's name
    assert os.readlink(directory / "latest") == checkpoint.path.name
    if checkpoint.is_best:
        assert os.readlink(directory / "best") == checkpoint.path.name
    assert [name for name in os.listdir(directory) if name.startswith(".")] == []
    return checkpoint.step, variant


def kill_at_every_call(
    folder: Path, next_save: Callable[[CheckpointStore], None], allowed: set, has_gap: bool = False
) -> None:
    """Kill one save at each of its disk calls in turn, each time from the same beginning."""
    found = []
    for number in range(1, 1000):
        directory = folder / "checkpoints"
        shutil.rmtree(directory, ignore_errors=True)
        store = CheckpointStore(directory, keep_last_n=2)
        for step in (1, 2, 3):
            save(store, step, is_best=step == 1)

        def die(store: CheckpointStore = store, number: int = number) -> None:
            die_at_call(number)
            next_save(store)

        lived = in_child(die)
        found.append(check(directory, allowed, has_gap))
        if lived:
            break
    assert number > 10, "the kills missed the save"
    assert set(found) == allowed, "some kills must come before the save counts, some after"


def kill_at_random_moments(folder: Path, seed: int = 17, count: int = 12) -> None:
    """Kill a process that does nothing but save, again and again, each time going on from what is there."""
    moments = random.Random(seed)
    directory = folder / "checkpoints"
    save(CheckpointStore(directory, keep_last_n=2), 1, is_best=True)
    first, longest = 1, 0.06
    for _ in range(count):

        def save_for_ever(first: int = first) -> None:
            store = CheckpointStore(directory, keep_last_n=2)
            for step in range(first + 1, 10**6):
                save(store, step, is_best=step % 3 == 0)

        in_child(save_for_ever, kill_after=moments.uniform(0.0, longest))
        step, _ = check(directory, {(step, 0) for step in range(first, 10**5)})
        longest *= 2 if step == first else 1  # a busy machine is slow to save
        first = step
    assert first > count, "the children hardly saved anything"


def kill_a_new_save(folder: Path) -> None:
    kill_at_every_call(folder, lambda store: save(store, 4, is_best=True), {(3, 0), (4, 0)})


def kill_a_save_again(folder: Path, has_gap: bool = False) -> None:
    kill_at_every_call(folder, lambda store: save(store, 3, variant=7), {(3, 0), (3, 7)}, has_gap)


def kill_a_save_again_in_two_steps(folder: Path) -> None:
    exchange_paths = checkpoints.exchange_paths
    checkpoints.exchange_paths = lambda first, second: False
    kill_a_save_again(folder, has_gap=True)
    checkpoints.exchange_paths = exchange_paths


if __name__ == "__main__":
    torch.set_num_threads(1)
    scenarios = (
        kill_a_new_save,
        kill_a_save_again,
        kill_a_save_again_in_two_steps,
        kill_at_random_moments,
    )
    outcomes = {}
    for scenario in scenarios:
        try:
            scenario(Path(sys.argv[1]) / scenario.__name__)
            outcomes[scenario.__name__] = "passed"
        except Exception:
            outcomes[scenario.__name__] = traceback.format_exc()
    print(json.dumps(outcomes))
