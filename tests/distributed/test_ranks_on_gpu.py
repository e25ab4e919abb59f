"""Ranks on a GPU, as far as one card can show it: one rank by NCCL, and two by way of the CPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

import scramjet
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.ranks.group import ProcessGroup
from scramjet.training import start
from scramjet.training.callbacks import Callbacks
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.display import QuietDisplay
from scramjet.training.loop import train_session
from tests.helpers.process_ranks import free_port

DEVICES = [pytest.param("cpu", marks=pytest.mark.rest), pytest.param("cuda", marks=pytest.mark.gpu)]
CONFIG = RunConfig(
    num_envs=16, num_steps=16, total_timesteps=6 * 16 * 16, precision="float32", num_threads=1,
    ppo=scramjet.PPOConfig(num_minibatches=4, num_epochs=2),
    eval=EvaluationConfig(every=0, final_episodes=0), checkpoint=CheckpointConfig(every=0),
)  # fmt: skip
CLOSE = {"rtol": 1e-3, "atol": 1e-5}


class OneOfOne(ProcessGroup):
    """A group of one rank, which exchanges with itself as with others."""

    is_alone = False  # type: ignore[assignment]


def weights_by(ranks: Ranks, folder: Path, run_name: str, device: str) -> dict[str, Tensor]:
    """The weights that a run of this rank ends with."""
    config = replace(CONFIG, device=device)
    session = start.begin(start.StartRequest(runs_dir=folder, ranks=ranks, config=config, run_name=run_name))
    with session.run, contextlib.closing(session):
        return train_session(session, QuietDisplay(), Callbacks()).policy.state_dict()


def must_add_up_in_a_graph(ranks: Ranks, numbers: Tensor) -> None:
    total, one = numbers.clone(), torch.ones_like(numbers)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total.add_(one)
        ranks.add(total)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(total, numbers + 2)


def exchange_with_itself(folder: str, device: str) -> None:
    """Exchange and train as the one rank of a group; give the group up, and do it again in another."""
    numbers, has_nccl = torch.arange(8.0, device=device), device == "cuda"
    for attempt in range(2):
        address = f"tcp://127.0.0.1:{free_port()}"
        dist.init_process_group("cpu:gloo,cuda:nccl" if has_nccl else "gloo", address, rank=0, world_size=1)
        ranks = OneOfOne(has_nccl=has_nccl)
        assert ranks.from_first(b"weights") == b"weights"
        for exchange in (lambda total: dist.broadcast(total, 0), ranks.add):
            total = numbers.clone()
            exchange(total)
            assert torch.equal(total, numbers)
        if has_nccl:
            must_add_up_in_a_graph(ranks, numbers)
        alone = weights_by(ALONE, Path(folder), f"alone-{attempt}", device)
        by_exchange = weights_by(ranks, Path(folder), f"group-{attempt}", device)
        for name, weights in alone.items():
            torch.testing.assert_close(by_exchange[name], weights, **CLOSE)
        if has_nccl:
            dist.group.WORLD._get_backend(torch.device(device)).abort()  # type: ignore[union-attr]
        dist.destroy_process_group()


@pytest.mark.parametrize("device", DEVICES)
def test_a_rank_exchanges_with_itself_also_within_graphs_and_again_after_an_abort(tmp_path: Path, device: str) -> None:
    if device == "cuda" and not dist.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    program = "import sys; from tests.distributed.test_ranks_on_gpu import *; exchange_with_itself(*sys.argv[1:])"
    subprocess.run([sys.executable, "-c", program, str(tmp_path), device], check=True, timeout=240)


@pytest.mark.parametrize("device", DEVICES)
def test_two_processes_on_one_device_train_what_one_trains(tmp_path: Path, device: str) -> None:
    minibatches = 1 if device == "cuda" else 4  # on a GPU each rank shuffles its own samples
    settings = f"--num-envs 16 --num-steps 16 --total-timesteps 1536 --num-minibatches {minibatches} --num-epochs 2"
    settings += f" --num-threads 1 --eval.every 0 --eval.final-episodes 0 --device {device} --precision float32"
    found = []
    for size in (1, 2):
        words = f"train cartpole {settings} --num-processes {size} --runs-dir {tmp_path} --run-name by-{size}"
        subprocess.run([sys.executable, "-m", "scramjet", *words.split()], check=True, timeout=240)
        found.append(load_file(tmp_path / f"by-{size}" / "checkpoints" / "latest" / "model.safetensors"))
    for name, weights in found[0].items():
        torch.testing.assert_close(found[1][name], weights, **CLOSE)
