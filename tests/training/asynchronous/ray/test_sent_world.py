"""Worlds of the user's own reach machines that do not have their files."""

import os
import pickle
import sys

import pytest

from scramjet.adapters.registry import load_world
from scramjet.adapters.world_code import file_in
from scramjet.training.asynchronous.ray.sent_world import SentWorld

FACTORY = "import gymnasium\nfrom {helper} import NAME\ndef make():\n    return gymnasium.make(NAME)\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "far_names.py").write_text("NAME = 'CartPole-v1'\n")
    (tmp_path / "far_envs.py").write_text(FACTORY.format(helper="far_names"))
    return tmp_path


def on_another_machine(sent, files):
    """What is left of a world there: the bytes that were sent, and none of the files."""
    data = pickle.dumps(sent)
    for path in files.glob("*.py"):
        path.unlink()
    for name in ("far_envs", "far_names"):
        sys.modules.pop(name, None)
    return pickle.loads(data)


def test_a_file_and_what_it_imports_are_sent_and_the_users_own_file_is_used_where_it_is(files):
    name = f"factory:{files / 'far_envs.py'}:make"
    sent = SentWorld.of(name)
    assert sent.open() == name
    opened = on_another_machine(sent, files).open()
    assert opened != name
    assert os.path.basename(file_in(opened).path) == "far_envs.py"
    assert load_world(opened, {}).env_factory()().spec.id == "CartPole-v1"


def test_a_file_with_other_contents_there_is_not_used(files):
    name = f"factory:{files / 'far_envs.py'}:make"
    sent = SentWorld.of(name)
    (files / "far_names.py").write_text("NAME = 'Acrobot-v1'\n")
    assert load_world(sent.open(), {}).env_factory()().spec.id == "CartPole-v1"


def test_a_module_of_the_users_is_sent_and_an_installed_one_is_not(files, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(files)])
    sent = SentWorld.of("factory:far_envs:make")
    assert set(sent.sources) == {"far_envs.py", "far_names.py"}
    assert SentWorld.of("gym:gymnasium:CartPole-v1").sources is None
    there = on_another_machine(sent, files)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(files)])
    assert load_world(there.open(), {}).env_factory()().spec.id == "CartPole-v1"
