"""Bytes that ranks send each other: parts by name, and tensors. Nothing that arrives is run or unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping

from safetensors.torch import load, save
from torch import Tensor

_SIZE = 8
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def packed(parts: Mapping[str, bytes]) -> bytes:
    """Parts by name as one piece of data."""
    sizes = _ENCODER.encode({name: len(part) for name, part in parts.items()}).encode()
    return b"".join([len(sizes).to_bytes(_SIZE, "little"), sizes, *parts.values()])


def unpacked(data: bytes) -> dict[str, bytes]:
    """The parts that `packed` made `data` of."""
    begin = _SIZE + int.from_bytes(data[:_SIZE], "little")
    parts: dict[str, bytes] = {}
    for name, size in json.loads(data[_SIZE:begin]).items():
        parts[name] = data[begin : begin + size]
        begin += size
    return parts


def packed_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors by name as one piece of data, from whichever device they are on."""
    return save({name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()})


def unpacked_tensors(data: bytes) -> dict[str, Tensor]:
    """The tensors that `packed_tensors` made `data` of, on the CPU."""
    return load(data)
