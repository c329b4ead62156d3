"""Scalars in the event files that TensorBoard reads, so that nobody must install a framework to write a few numbers.

A file is a row of records: length, its checksum, an `Event` in protocol-buffer wire format, its checksum. Messages and
field numbers are those of TensorFlow's `event.proto` and `summary.proto`.
"""

import struct
import time
from pathlib import Path

VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5  # wire types
START = 1  # SessionLog: what earlier files hold from this step on no longer counts


def open_file(folder: Path, purge_step: int | None = None) -> Path:
    """Starts an event file; with `purge_step` TensorBoard forgets older events from that step on."""
    path = folder / f"events.out.tfevents.{time.time_ns()}"
    path.write_bytes(record(event(0, field(3, BYTES, b"brain.Event:2"))))
    if purge_step is not None:
        with path.open("ab") as file:
            file.write(record(event(purge_step, field(7, BYTES, field(1, VARINT, START)))))
    return path


def append(path: Path, step: int, scalars: dict[str, float]) -> None:
    """Adds one event with all scalars of a step."""
    values = [field(1, BYTES, field(1, BYTES, tag.encode()) + field(2, FLOAT, x)) for tag, x in scalars.items()]
    with path.open("ab") as file:
        file.write(record(event(step, field(5, BYTES, b"".join(values)))))


def event(step: int, content: bytes) -> bytes:
    return field(1, DOUBLE, time.time()) + field(2, VARINT, step) + content


def field(number: int, wire_type: int, value: bytes | float | int) -> bytes:
    """One field of a message: its number and type, then the value."""
    head = varint(number << 3 | wire_type)
    if isinstance(value, bytes):
        return head + varint(len(value)) + value
    if wire_type == VARINT:
        return head + varint(int(value))
    return head + struct.pack("<d" if wire_type == DOUBLE else "<f", value)


def varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; the high bit says that more follow."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted, because data that contain their own checksum are bad for checksums."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table_entry(index: int) -> int:
    for _ in range(8):
        index = index >> 1 ^ (0x82F63B78 if index & 1 else 0)  # Castagnoli's polynomial, bits reversed
    return index


TABLE = tuple(_table_entry(i) for i in range(256))
