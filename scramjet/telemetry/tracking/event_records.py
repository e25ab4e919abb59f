"""The frames around the events in TensorBoard's files: length, checksum of the length, event, checksum of the event.

TensorBoard's own writer computes the checksum (CRC-32C) in Python, which takes longer than all else about an event.
"""

from __future__ import annotations

import struct

import numpy as np

from scramjet.compile.jit import compiled


def framed(event: bytes) -> bytes:
    """A serialized event as it stands in a file."""
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, masked as in TFRecord: rotated by 15 bits, and a constant added."""
    crc = int(_crc32c(np.frombuffer(data, np.uint8), _TABLE))
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> np.ndarray:
    """The remainder of each byte, for CRC-32C's polynomial in reversed bits."""
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


_TABLE = _table()


@compiled
def _crc32c(data: np.ndarray, table: np.ndarray) -> np.uint32:
    crc = np.uint32(0xFFFFFFFF)
    for byte in data:
        crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
