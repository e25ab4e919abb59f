"""Killed at any moment and taken up again, a run, tournament or study ends as if it had never stopped."""

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import scramjet
from tests.helpers.children import comes_true
from tests.helpers.forked_commands import finish, start
from tests.helpers.killed_runs import AtWrite, assert_same_end, assert_same_end_after_deaths, ended_by

pytestmark = pytest.mark.faults


def small(num_envs: int, num_steps: int, updates: int, every: int = 2) -> str:
    """Flags of a run of so many updates that keeps two checkpoints."""
    total = num_envs * num_steps * updates
    return (
        f"--num-envs {num_envs} --num-steps {num_steps} --num-threads 1 --total-timesteps {total} --eval.every 0 "
        f"--eval.final-episodes 0 --checkpoint.every {every} --checkpoint.keep-last-n 2 --display plain "
    )


PPO = (
    "cartpole --learning-rate 0.002@0,0@end --entropy-coef 0.01@0,0@50% --normalize-observations --normalize-rewards "
    f"--target-kl 0.05 --device cpu {small(32, 16, 18, every=3)} --eval.every 7 --eval.episodes 4"
).split()


def newest(run: Path) -> str | None:
    link = run / "checkpoints" / "latest"
    return os.readlink(link) if link.is_symlink() else None


def test_killed_or_stopped_by_a_signal_while_it_writes_a_checkpoint_a_run_ends_the_same(tmp_path: Path) -> None:
    run, output = tmp_path / "parts", tmp_path / "output"
    new = ["train", *PPO, "--runs-dir", tmp_path, "--run-name"]
    finish(*new, "whole", output=output)
    ended_by(signal.SIGKILL, 1, *new, "parts", output=output)
    assert not list((run / "checkpoints").glob("step_*"))
    again = start(*new, "parts", output=output)
    again.join(120)
    assert again.exitcode == 2
    assert "--resume" in output.read_text()
    ended_by(signal.SIGKILL, 3, "train", "--resume", run, output=output)
    assert list((run / "checkpoints").glob(".tmp-*")), "the kill left no half-written checkpoint"
    assert "--resume" in ended_by(signal.SIGTERM, 1, "train", "--resume", run, output=output)
    last_step = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert newest(run) == f"step_{last_step:08d}"
    finish("train", "--resume", run, output=output)
    assert_same_end(run, tmp_path / "whole")


SELF_PLAY = (
    "connect_four --env.rows 4 --env.cols 4 --env.connect 3 --env.opening-plies 0 --minibatch-size 64 "
    "--learning-rate 0.01 --entropy-coef 0.01 --policy.grid-channels 4 --policy.hidden 16 "
    "--self-play.pool-fraction 0.5 --self-play.opponents-at-once 2 --self-play.snapshot-every 1 "
    f"--self-play.pool-size 3 --self-play.change-every 1 --self-play.exploiters 1 {small(16, 16, 24)} --device "
)
SEARCH = f"{small(8, 8, 16)} --num-minibatches 2 --num-epochs 2 --policy.hidden 8 --policy.encoder mlp --device cpu"
SMALL = f"{small(8, 16, 16)} --minibatch-size 32 --policy.hidden 8"
CUDA = f" {small(64, 32, 24)} --device cuda"
OTHERS = {
    "spo": (f"pendulum --algorithm spo --spo.particles 4 --spo.replay-size 256 --normalize-rewards {SEARCH}", [8]),
    "alphazero": (
        f"tic_tac_toe --algorithm alphazero --alphazero.simulations 4 --alphazero.replay-size 256 {SEARCH}",
        [8],
    ),
    "self-play": (f"{SELF_PLAY} cpu", [2, 8, 13]),
    "noveld, popart and lstm": (
        f"door_key --env.size 5 --curiosity noveld --value-scale popart --normalize-rewards "
        f"--policy.memory lstm --policy.memory-size 8 {SMALL} --device cpu",
        [2, 8],
    ),
    "entropy target, noise and symlog": (
        f"pendulum --target-entropy 0.3 --policy.noise-color 1 --value-scale symlog {SMALL} --device cpu",
        [2, 8],
    ),
    "icm, bins and frames": (
        f"snake --env.size 6 --curiosity icm --policy.value-bins 21 --frame-stack 3 --no-fused {SMALL} --device cpu",
        [2, 8],
    ),
    "e3b over envs in workers": (
        f"gym:CartPole-v1 --num-workers 2 --curiosity e3b --eval.samples {SMALL} --device cpu",
        [2, 8],
    ),
    "self-play with memory": (f"{SELF_PLAY} cpu --policy.memory gru --policy.memory-size 8", [2, 9]),
    "self-play on cuda": (f"{SELF_PLAY} cuda", [2, 8, 13]),
    "fused on cuda": (f"cartpole {CUDA}", [3, 8]),
    "numbers on cuda": (f"pendulum {CUDA}", [3, 8]),
    "lstm on cuda": (f"memory --policy.memory lstm {CUDA}", [3, 8]),
    "mingru on cuda": (f"tmaze --policy.memory mingru {CUDA}", [3, 8]),
    "board on cuda": (f"snake --env.size 6 {CUDA}", [3, 8]),
    "planning on cuda": (f"maze {CUDA}", [3, 8]),
    "agents on cuda": (f"snake --env.size 6 --env.snakes 2 {CUDA}", [3, 8]),
    "curiosity on cuda": (f"door_key --curiosity rnd {CUDA}", [3, 8]),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.gpu if "cuda" in kind else pytest.mark.rest) for kind in OTHERS]
)
def test_killed_while_it_writes_any_kind_of_run_ends_the_same(tmp_path: Path, kind: str) -> None:
    words, deaths = OTHERS[kind]
    assert_same_end_after_deaths(words.split(), tmp_path, deaths)
    whole, parts = (sorted(path.name for path in (tmp_path / run).glob("opponents/*")) for run in ("whole", "parts"))
    assert whole == parts
    assert bool(whole) == ("self-play" in kind)


def kill_when(process: BaseProcess, has_come: Callable[[], bool], delay: float) -> None:
    """Kill a process some time after something has come; it must not have ended before."""
    assert comes_true(lambda: has_come() or process.exitcode is not None, 120)
    time.sleep(delay)
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.rest
def test_killed_at_random_moments_and_resumed_a_run_ends_the_same(tmp_path: Path) -> None:
    chance, run, output = random.Random(20), tmp_path / "b", tmp_path / "output"
    settings = [*PPO, "--total-timesteps", str(32 * 16 * 240), "--runs-dir", str(tmp_path), "--run-name"]
    finish("train", *settings, "a", output=output)
    words: list[str | Path] = [*settings, "b"]
    for _ in range(2):
        before = newest(run)
        kill_when(start("train", *words, output=output), lambda b=before: newest(run) != b, chance.uniform(0, 0.3))
        words = ["--resume", run]
    finish("train", "--resume", run, output=output)
    assert_same_end(run, tmp_path / "a")


TOURNAMENT = (
    "tournament --env connect_four --env.no-random-opponent --games 6 --rounds 2 --players random greedy minimax:1"
)


@pytest.mark.rest
def test_a_tournament_killed_in_the_middle_of_a_line_goes_on_to_the_same_end(tmp_path: Path) -> None:
    words = [*TOURNAMENT.split(), "--out"]
    finish(*words, tmp_path / "whole.jsonl", output=tmp_path / "output")
    for lines in (1, 3):  # the header, and a batch after it was taken up again
        first = AtWrite(lines, module="scramjet.arena.tournaments.log", larger_than=0)
        killed = start(*words, tmp_path / "killed.jsonl", output=tmp_path / "output", first=first)
        killed.join(120)
        assert killed.exitcode == -signal.SIGKILL
        assert not (tmp_path / "killed.jsonl").read_bytes().endswith(b"\n")
    assert "3 players, 36 games" in finish(*words, tmp_path / "killed.jsonl", output=tmp_path / "output")
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


STUDY = "tune cartpole --learning-rate log:1e-4..1e-2 --gamma choice:0.98,0.99 --method halving --trials 3"
STUDY += (
    " --parallel 1 "
    "--seeds 0 --num-envs 32 --num-steps 64 --num-threads 1 --total-timesteps 49152 --checkpoint.every 2 "
    "--eval.every 0 --eval.final-episodes 4 --entropy-coef 0.01@0,0@end --studies-dir"
)


def found(study: Path) -> tuple[list[Any], dict[str, bytes]]:
    """The trials in study.db, by Optuna's own reader and without times; and the newest weights of every run."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials = optuna.load_study(study_name="scramjet", storage=f"sqlite:///{study / 'study.db'}").trials
    weights = {run.name: (run / "checkpoints/latest/model.safetensors").read_bytes() for run in study.glob("runs/*")}
    return [
        (each.number, each.state.name, each.params, each.values, each.intermediate_values) for each in trials
    ], weights


def trials_alive(study: Path) -> list[str]:
    """The processes whose errors go into a study's folder, by the system's own list."""
    alive = []
    for errors in Path("/proc").glob("[0-9]*/fd/2"):
        with contextlib.suppress(OSError):
            if os.readlink(errors).startswith(str(study)):
                alive.append(errors.parts[2])
    return alive


@pytest.mark.rest
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="it looks for processes as Linux shows them")
def test_a_study_killed_twice_ends_as_one_that_was_not_and_its_paused_winner_as_a_run_of_its_own(
    tmp_path: Path,
) -> None:
    delays, output, killed = random.Random(str(tmp_path)), tmp_path / "output", tmp_path / "killed"
    finish(*STUDY.split(), tmp_path, "--study-name", "whole", output=output)
    process = start(*STUDY.split(), tmp_path, "--study-name", "killed", output=output)
    kill_when(process, (killed / "runs" / "trial-0001").is_dir, delays.uniform(0, 0.3))
    assert comes_true(lambda: not trials_alive(killed), 60), "a trial goes on without its study"
    process = start("tune", "--resume", killed, output=output)
    kill_when(process, (killed / "runs" / "trial-0002").is_dir, delays.uniform(0, 0.6))
    assert "trial 2" in finish("tune", "--resume", killed, output=output)
    trials, weights = found(killed)
    assert (trials, weights) == found(tmp_path / "whole")

    states = [state for _, state, *_ in trials]
    assert sorted(states) == ["COMPLETE", "PRUNED", "PRUNED"]
    winner = f"trial-{states.index('COMPLETE'):04}"
    alone = scramjet.train(killed / "trials" / f"{winner}.toml", runs_dir=tmp_path / "alone", display="quiet")
    assert (alone.run_path / "checkpoints/latest/model.safetensors").read_bytes() == weights[winner]
