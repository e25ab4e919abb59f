"""The replay: a ring of rollouts, drawn from by sequence or by sample, saved and put back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from scramjet.errors import CheckpointError, ConfigError
from scramjet.training.search.replay import Replay, num_rollouts_kept

NUM_STEPS, NUM_SEQUENCES = 3, 2


@dataclass(slots=True)
class Record:
    """What a rollout leaves in these tests."""

    obs: Any  # {"a": [T + 1, N]}
    mask: Tensor | None
    reward: Tensor  # [T, N]


def rollout(number: int) -> Record:
    """The reward of step t of sequence n in rollout k is 100 k + 10 t + n."""
    t, n = torch.arange(NUM_STEPS + 1.0).unsqueeze(1), torch.arange(float(NUM_SEQUENCES))
    whole = 100 * number + 10 * t + n
    return Record({"a": whole}, None, whole[:-1])


def filled(num_added: int, num_rollouts: int = 3) -> Replay[Record]:
    replay = Replay(rollout(0), num_rollouts, "lower it")
    for number in range(num_added):
        replay.add(rollout(number))
    return replay


@pytest.mark.parametrize("num_added", [1, 2, 3, 4, 7])
def test_the_newest_rollouts_are_kept_and_only_they_can_be_drawn(num_added: int) -> None:
    replay = filled(num_added)
    kept = range(max(0, num_added - 3), num_added)
    assert replay.num_kept == NUM_SEQUENCES * len(kept)
    drawn = replay.sequences(torch.arange(replay.num_kept))
    assert sorted((drawn.reward[0] // 100).unique().tolist()) == [float(number) for number in kept]
    assert drawn.mask is None


def test_a_sequence_is_whole_and_a_sample_is_one_step_of_it() -> None:
    replay = filled(2)
    sequences = replay.sequences(torch.tensor([3, 0]))
    assert sequences.reward.T.tolist() == [[101, 111, 121], [0, 10, 20]]
    assert sequences.obs["a"].T.tolist() == [[101, 111, 121, 131], [0, 10, 20, 30]]
    samples = replay.samples(torch.tensor([2, 0]), torch.tensor([3, 1]))
    assert samples.reward.tolist() == [121, 1]
    assert samples.obs["a"].tolist() == [121, 1]


def test_a_replay_put_back_goes_on_as_the_saved_one() -> None:
    saved, restored = filled(4), filled(0)
    restored.restore({name: tensor.clone() for name, tensor in saved.tensors().items()})
    for replay in (saved, restored):
        replay.add(rollout(9))
    assert restored.num_kept == saved.num_kept
    assert torch.equal(restored.record.reward, saved.record.reward)
    assert torch.equal(restored.record.obs["a"], saved.record.obs["a"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replay/reward", torch.zeros(NUM_STEPS, 5)),
        ("replay/reward", torch.zeros(NUM_STEPS, 6, dtype=torch.int64)),
        ("replay/reward", torch.full((NUM_STEPS, 6), float("nan"))),
        ("replay/counts", torch.tensor([4, 0])),
        ("replay/counts", torch.tensor([1, 1, 1])),
        ("replay/counts", torch.tensor([1, 3])),
        ("replay/counts", torch.tensor([-1, 0])),
        ("replay/counts", torch.tensor([2, 0])),
    ],
)
def test_a_replay_that_does_not_fit_is_refused(name: str, value: Tensor) -> None:
    replay = filled(1)
    with pytest.raises(CheckpointError, match="checkpoint"):
        replay.restore({**replay.tensors(), name: value})


def test_a_replay_larger_than_memory_says_what_to_lower() -> None:
    with pytest.raises(ConfigError, match=r"a replay of 1000000000000 rollouts .* lower it"):
        Replay(rollout(0), 10**12, "lower it")


@pytest.mark.parametrize(("replay_size", "expected"), [(1, 1), (48, 1), (95, 1), (96, 2), (1000, 20)])
def test_whole_rollouts_are_kept_and_one_at_least(replay_size: int, expected: int) -> None:
    assert num_rollouts_kept(replay_size, 48) == expected
