"""What tests in several folders use. Which tests run is said in tiers.py."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    import torch

pytest_plugins = ["tests.tiers"]

hypothesis.settings.register_profile("no deadline", deadline=None)  # a busy machine takes any time it likes
hypothesis.settings.load_profile("no deadline")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background, and what tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup or from cron: a handler is not inherited
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What is remembered for the user goes here, not into the home of whoever runs the tests."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCRAMJET_STATE_DIR", str(folder))
        yield folder


def pytest_configure() -> None:
    """Said before what it is for is first imported.

    Where there is no NVIDIA GPU, Triton interprets its kernels. Torch has this worker's share of the cores. JAX, whose
    worlds ours are compared with, compiles as quickly as it can: it does so once for each test, and for a second of
    work.
    """
    if not Path("/dev/nvidiactl").exists():
        os.environ["TRITON_INTERPRET"] = "1"
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:  # each has its share of the cores; threads that wait for others in a loop would take what they need
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))
    quickly = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{quickly} {os.environ.get('XLA_FLAGS', '')}".strip()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What was imported and collected stays until the end: Python need not look through it for garbage.

    It is a million objects, and a compiler makes so many new ones that Python would look through all of them again and
    again: for a tenth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.fixture(params=["interpreter", pytest.param("cuda", marks=pytest.mark.gpu)])
def triton_device(request: pytest.FixtureRequest) -> "torch.device":
    """Where the tensors of a test of Triton's kernels lie: on the CPU, interpreted, or on a CUDA device.

    Numbers are seeded, and products of float32 are not rounded.
    """
    pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")
    import torch

    if request.param == "interpreter" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("tried on the GPU itself")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    return torch.device("cpu" if request.param == "interpreter" else "cuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--extras", action="store_true", help="install every extra into an environment of its own")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need a GPU say so where there is none; those that install much wait to be asked for."""
    for item in items:
        if item.get_closest_marker("extras") and not config.getoption("--extras"):
            item.add_marker(pytest.mark.skip(reason="installs gigabytes: make test-extras"))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from scramjet.compile.cuda import cuda_is_ready

    if not cuda_is_ready():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, a torch built for CUDA, and numba-cuda"))


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """A test that draws numbers without a generator of its own draws the same ones each time."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def exact_products(request: pytest.FixtureRequest) -> None:
    """A test on the GPU begins with float32 products: a run that an earlier test trained may have left others."""
    if request.node.get_closest_marker("gpu"):
        from scramjet.runtime.devices import set_precision

        set_precision("float32")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread and seeded: small tensors gain nothing from threads, and lose much on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
