"""Remote actors on a Ray cluster of two nodes, both on this machine."""

import contextlib
import http.server
import importlib.util
import os
import signal
import socket
import threading
from functools import partial

import pytest

import scramjet
from scramjet.distributed.ray_cluster import PROCESS_SETTINGS, RayCluster
from scramjet.errors import ConfigError
from tests.helpers.async_runs import UPDATE, processes, settings
from tests.helpers.forked_commands import start
from tests.helpers.processes import wait_until
from tests.helpers.run_files import lines_of

pytestmark = [pytest.mark.rest, pytest.mark.faults]
if importlib.util.find_spec("ray") is None:
    pytest.skip("needs ray", allow_module_level=True)


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose second node is the last of `cluster.list_all_nodes()`."""
    with pytest.MonkeyPatch.context() as patch:
        # A node where nobody answers is asked five times before it is gone; how long each answer may take stays.
        soon_missed = {"RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "300"}
        for name, value in {**PROCESS_SETTINGS, **soon_missed}.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        node = {"num_cpus": 1, "object_store_memory": 100 << 20}  # room for one actor on each
        head = _patiently(partial(Cluster, initialize_head=True, head_node_args={**node, "include_dashboard": False}))
        _patiently(partial(head.add_node, **node))
        yield head
        head.shutdown()


def _patiently(start):
    """Ray gives its processes 15 s to start, which a machine under heavy load may not be able to do."""
    for _ in range(2):
        with contextlib.suppress(Exception):
            return start()
    pytest.skip("Ray does not start on this machine in time: it is too busy")


class KillsNode:
    """Kills a node of the cluster when both actors play, and ends the run when the one that died is back."""

    def __init__(self, cluster):
        self.cluster, self.before, self.after = cluster, [], []

    def on_update(self, record, session):
        actors = session.collector._actors._actors
        if not self.before and all(actor.has_begun for actor in actors):
            self.before = [actor.node for actor in actors]
            second = self.cluster.list_all_nodes()[-1]
            assert second.node_id in self.before
            self.cluster.remove_node(second, allow_graceful=False)
        if session.pool.restarts and all(actor.has_begun and not actor.failures for actor in actors):
            self.after = [actor.node for actor in actors]
            session.stop("both are back")


def test_a_run_goes_on_when_a_node_is_killed_and_is_resumed_elsewhere(cluster, tmp_path, capsys):
    listener = KillsNode(cluster)
    config = settings(actors="ray", ray_address=cluster.address, total_timesteps=10**9)
    result = scramjet.train(config, runs_dir=tmp_path, display="plain", callbacks=[listener])
    assert result.stopped_by == "callback"
    assert len(set(listener.before)) == 2
    assert len(set(listener.after)) == 1  # on the node that lives
    lines = lines_of(result.run_path)
    assert lines[0]["async/ratio_max"] == pytest.approx(1, abs=1e-4)  # played with the learner's own weights
    restarts = lines[-1]["async/env_restarts"]
    assert restarts in (1, 2)  # the second if Ray placed the actor on the node once more before it knew it was gone
    told = capsys.readouterr()
    assert told.out.count(": restarted: ") == restarts

    end = result.step + 4 * UPDATE
    given = {"ray_address": cluster.address, "runs_dir": tmp_path, "display": "plain"}
    assert scramjet.train(resume=result.run_path, total_timesteps=end, **given).step == end
    assert "resumed with fresh episodes" in capsys.readouterr().out


def test_the_command_starts_ray_by_itself_and_leaves_nothing_behind_after_a_signal(tmp_path):
    words = (
        "train gym:CartPole-v1 --mode async --actors ray --num-envs 4 --num-actors 2 --num-steps 16 --eval.every 0 "
        f"--eval.final-episodes 0 --display plain --run-name r --runs-dir {tmp_path}"
    )
    process = start(*words.split(), output=tmp_path / "output", first=os.setsid)
    try:
        metrics = tmp_path / "r" / "metrics.jsonl"
        wait_until(lambda: process.exitcode is not None or (metrics.exists() and metrics.stat().st_size > 0), 180)
        others = _started_by(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        process.join(90)
        output = (tmp_path / "output").read_text()
        if "Ray could not start" in output:
            pytest.skip("Ray does not start on this machine in time: it is too busy")
        assert process.exitcode == 130, output
        assert "Traceback" not in output
        assert "raylet" not in output
        assert list((tmp_path / "r" / "checkpoints").glob("step_*"))
        assert len(others) > 3
        wait_until(lambda: not processes().keys() & others, 60)
    finally:
        process.kill()


def _started_by(pid):
    """The processes that a process has started, whoever their parents are now."""
    parents = {each: parent for each, (parent, _) in processes().items()}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def test_an_address_where_nobody_listens_is_named():
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
