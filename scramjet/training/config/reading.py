"""Reads the text of a config file, TOML or YAML, within bounds on its size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scramjet.errors import ConfigError, shortened
from scramjet.runtime.files import read_regular, why_unreadable
from scramjet.runtime.toml_text import read_toml

# A config has a few thousand bytes; a file of this size takes seconds to read.
MAX_TOML_BYTES = 1 << 20
MAX_YAML_BYTES = 1 << 16


def read_file(path: Path, *, follow_links: bool = True) -> dict[str, Any]:
    """The values in a TOML or YAML config file.

    `follow_links` reads a file through links, for a path that the user typed; the files of a run are read without.
    """
    return values_in(read_bytes(path, follow_links=follow_links), path)


def read_bytes(path: Path, *, follow_links: bool) -> bytes:
    """The content of a config file of a size that one may have."""
    limit = MAX_YAML_BYTES if path.suffix in (".yaml", ".yml") else MAX_TOML_BYTES
    try:
        return read_regular(path, limit, follow_links=follow_links)
    except OSError as error:
        raise ConfigError(f"cannot read the config file {str(path)[:300]}: it {why_unreadable(error)}") from error
    except ValueError as error:  # a NUL in the path
        raise ConfigError(f"cannot read the config file {shortened(str(path))}: no file has such a name") from error


def values_in(content: bytes, path: Path) -> dict[str, Any]:
    """The values in the content of a config file; `path` says whether it is TOML or YAML."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"the config file '{path}' is not text: {error}") from error
    try:
        if path.suffix in (".yaml", ".yml"):
            data = _read_yaml(text)
        elif path.suffix == ".toml":
            data = read_toml(text)
        else:
            raise ConfigError(f"the config file '{path}' must end in .toml, .yaml or .yml")
    except ValueError as error:
        raise ConfigError(f"the config file '{path}' is not valid: {str(error)[:1000]}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"the config file '{path}' must hold key = value pairs, not {type(data).__name__}")
    return data


def _read_yaml(text: str) -> Any:
    from scramjet.training.config.yaml_text import read_yaml  # loads PyYAML, and most files are TOML

    return read_yaml(text)
