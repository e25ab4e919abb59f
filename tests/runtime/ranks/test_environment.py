"""The variables of a launcher say which rank a process is; wrong ones are refused with the fix."""

from __future__ import annotations

import os

import pytest

from scramjet.errors import ConfigError
from scramjet.runtime.machine.cores import available_cores, free_cores
from scramjet.runtime.ranks.environment import Launch, is_first_rank, is_launched, launch_of


@pytest.mark.parametrize("variables", [{}, {"WORLD_SIZE": "1"}, {"WORLD_SIZE": "1", "RANK": "0"}, {"WORLD_SIZE": ""}])
def test_one_process_is_not_launched(variables: dict[str, str]) -> None:
    assert launch_of(variables) is None
    assert not is_launched(variables)
    assert is_first_rank(variables)


def test_a_loop_over_ranks_needs_two_variables() -> None:
    assert launch_of({"WORLD_SIZE": "2", "RANK": "1"}) == Launch(1, 2, 1, 2, "127.0.0.1", 29500)
    assert not is_first_rank({"WORLD_SIZE": "2", "RANK": "1"})


def test_torchrun_says_the_rest() -> None:
    given = {
        "WORLD_SIZE": "8",
        "RANK": "5",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "1234",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
    }
    assert launch_of(given) == Launch(5, 8, 1, 4, "10.0.0.7", 1234, True, 2, 3)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"RANK": "0"}, "RANK='0' is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set and RANK is not"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, r"RANK='2' must be .* 0 to 1 \(WORLD_SIZE is 2"),
        ({"WORLD_SIZE": "two", "RANK": "0"}, "WORLD_SIZE='two' must be a whole number"),
        ({"WORLD_SIZE": "0", "RANK": "0"}, "WORLD_SIZE='0' must be"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK='-1' must be"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_PORT": "99999"}, "MASTER_PORT='99999' must be"),
        ({"WORLD_SIZE": "2", "RANK": "0", "LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE='3' must be"),
        ({"WORLD_SIZE": "4", "RANK": "3", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "2"}, "LOCAL_RANK='2' must be"),
    ],
)
def test_wrong_variables_are_named(variables: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        launch_of(variables)


def test_the_ranks_of_a_machine_divide_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)), raising=False)
    assert available_cores() == 12
    for name, value in {"WORLD_SIZE": "8", "RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert available_cores() == free_cores() == 3
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert available_cores() == 1
