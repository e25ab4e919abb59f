"""Settings of remote actors that cannot be, each named with the fix."""

import http.server
import importlib.util
import socket
import threading

import pytest

from scramjet.errors import ConfigError
from scramjet.training.asynchronous.ray.cluster import RayCluster
from scramjet.training.config.resolution import resolve
from tests.helpers.async_runs import settings
from tests.helpers.run_files import train


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ray_address": "auto"}, "add --mode async --actors ray"),
        ({"actors": "ray", "mode": "sync", "num_actors": 1}, "add --mode async"),
        ({"actors": "ray", "ray_address": ""}, "ray_address is empty"),
        ({"actors": "ray", "record_schedule": True}, "record_schedule is for actors of this process"),
        ({"actors": "ray", "num_actors": 3}, "do not evenly divide num_envs=8; try --num-actors 2"),
    ],
)
def test_what_cannot_be_is_named_with_the_fix(changes, words):
    with pytest.raises(ConfigError, match=words):
        settings(**changes)


def test_remote_actors_step_envs_that_local_ones_cannot():
    assert resolve(settings("vec:CartPole-v1", actors="ray")).num_actors == 2
    assert settings("gym:CartPole-v1", actors="ray", frame_stack=2).frame_stack == 2


def test_without_ray_the_extra_to_install_is_named_and_no_run_is_begun(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    with pytest.raises(ConfigError, match=r"pip install 'scramjet\[ray\]'"):
        train(settings(actors="ray"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_address_where_nobody_listens_is_named():
    pytest.importorskip("ray")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            with pytest.raises(ConfigError, match=f"{address}.*start it with ray start --head"):
                RayCluster(address, num_cpus=1)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        with pytest.raises(ConfigError, match="what listens there is not Ray"):
            RayCluster(f"127.0.0.1:{page.server_port}", num_cpus=1)
        page.shutdown()
    for address in ("somewhere", "host:port", "10.0.0.1:70000"):
        with pytest.raises(ConfigError, match="must be auto, HOST:PORT"):
            RayCluster(address, num_cpus=1)
