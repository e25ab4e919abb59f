"""Compiled kernels on disk, so that a second start does not compile again.

An entry is named by a fingerprint of everything the code depends on, so it is never stale; it is written aside and
renamed, so several processes may start at once; it carries its own hash, so a damaged one is compiled anew.
Numba's own cache looks at one source file's time stamp and would miss a changed helper module.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numba.core import compiler, serialize
from numba.core.caching import _Cache
from numba.core.runtime import rtsys

from scramjet.engine.cache_folder import entry_directory
from scramjet.engine.linked import calls_by_address

MAX_ENTRIES = 256
_DIGEST_BYTES = 32


@cache
def _tell_not_kept(folder: Path, reason: str) -> None:
    """Once: each of many kernels meets the same."""
    fix = "set SCRAMJET_CACHE_DIR to a folder that can be written, or each start compiles anew"
    warnings.warn(f"compiled kernels are not kept in {folder}: {reason}; {fix}", stacklevel=2)


class KernelCache(_Cache):
    """What Numba asks before it compiles one kernel, and tells after."""

    def __init__(self, fingerprint: str | Callable[[], str], kernel: str) -> None:
        """A function is asked for the fingerprint when it is first needed."""
        self._fingerprint = fingerprint
        self.kernel = kernel
        self._enabled = True

    @cached_property
    def directory(self) -> Path:
        """Where this kernel is kept, for each of its signatures."""
        fingerprint = self._fingerprint if isinstance(self._fingerprint, str) else self._fingerprint()
        return entry_directory(fingerprint)

    @property
    def cache_path(self) -> str:
        return str(self.directory)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled kernel for these argument types, or None."""
        if not self._enabled:
            return None
        try:
            content = self._path(signature, target_context.codegen()).read_bytes()
        except OSError:
            return None
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        self._make_ready(target_context)
        with contextlib.suppress(OSError):
            os.utime(self.directory)  # recently used: kept longest
        try:
            return self._rebuild(target_context, pickle.loads(payload))
        except Exception:  # written by an environment that differs in what the fingerprint does not see
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a freshly compiled kernel; a disk that cannot be written only costs the next start its time."""
        self._give_environments(result)
        if not self._enabled or not self._is_lasting(result):
            return
        payload = serialize.dumps(self._reduce(result))
        path = self._path(signature, self._library(result).codegen)
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.directory, delete=False) as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(file.name, path)
            _forget_oldest(self.directory.parent)
        except OSError as error:
            _tell_not_kept(self.directory.parent, error.strerror or str(error))

    def _make_ready(self, target_context: Any) -> None:
        """What machine code needs to run. All that the compiler knows of Python stays unloaded: it takes long."""
        rtsys.initialize(target_context)

    def _give_environments(self, result: Any) -> None:
        """To the helpers in it, what they print and raise with: Numba would have given it to their own machine code."""
        result.library._ensure_finalized()
        for environment in result._find_referenced_environments():
            result.library.codegen.set_env(environment.env_name, environment)

    def _is_lasting(self, result: Any) -> bool:
        """Whether the code has no addresses of this process in it."""
        return not result.library.has_dynamic_globals and not calls_by_address(result.library)

    def _library(self, result: Any) -> Any:
        return result.library

    def _reduce(self, result: Any) -> Any:
        return result._reduce()

    def _rebuild(self, target_context: Any, reduced: Any) -> Any:
        return compiler.CompileResult._rebuild(target_context, *reduced)

    def _path(self, signature: Any, codegen: Any) -> Path:
        key = hashlib.sha256(repr((signature, codegen.magic_tuple())).encode()).hexdigest()
        return self.directory / f"{self.kernel}-{key[:16]}"

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class CudaKernelCache(KernelCache):
    """The same for kernels of the GPU."""

    def __init__(self, fingerprint: str | Callable[[], str], kernel: str) -> None:
        super().__init__(fingerprint, f"{kernel}-cuda-{version('numba-cuda')}")

    def _make_ready(self, target_context: Any) -> None:
        target_context.refresh()

    def _give_environments(self, result: Any) -> None:
        """There is no Python on a GPU."""

    def _is_lasting(self, result: Any) -> bool:
        return True

    def _library(self, result: Any) -> Any:
        return result._codelibrary

    def _reduce(self, result: Any) -> Any:
        return result._reduce_states()

    def _rebuild(self, target_context: Any, reduced: Any) -> Any:
        from numba.cuda.dispatcher import _Kernel

        return _Kernel._rebuild(**reduced)


def _forget_oldest(directory: Path) -> None:
    """Keep the cache from growing for ever: drop the entries unused for longest."""
    entries = [entry for entry in directory.iterdir() if entry.is_dir()]
    if len(entries) <= MAX_ENTRIES:
        return
    entries.sort(key=lambda entry: entry.stat().st_mtime)
    for entry in entries[: len(entries) - MAX_ENTRIES]:
        shutil.rmtree(entry, ignore_errors=True)
