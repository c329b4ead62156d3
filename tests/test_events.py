"""Event files: the bytes TensorBoard expects, checked with a reader of our own and against published checksums."""

import struct
from pathlib import Path
from typing import Any

from discorl import events


def parse(message: bytes) -> dict[int, list[Any]]:
    """A message of protocol buffers as values by field number; what is nested stays bytes."""
    fields: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, wire_type = divmod(varint(), 8)
        if wire_type == 0:
            value: Any = varint()
        else:
            size = varint() if wire_type == 2 else {1: 8, 5: 4}[wire_type]
            value = message[at : at + size]
            at += size
        fields.setdefault(number, []).append(value)
    return fields


def read(path: Path) -> list[dict[int, list[Any]]]:
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        body = data[12 : 12 + size]
        assert struct.unpack("<I", data[8:12])[0] == events.masked_crc(data[:8])
        assert struct.unpack("<I", data[12 + size : 16 + size])[0] == events.masked_crc(body)
        found.append(parse(body))
        data = data[16 + size :]
    return found


def unmasked(crc: int) -> int:
    crc = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return (crc >> 17 | crc << 15) & 0xFFFFFFFF


def test_checksums_are_those_of_rfc_3720() -> None:
    assert unmasked(events.masked_crc(bytes(32))) == 0x8A9136AA
    assert unmasked(events.masked_crc(b"\xff" * 32)) == 0x62A8AB43
    assert unmasked(events.masked_crc(bytes(range(32)))) == 0x46DD794E


def test_scalars_can_be_read_back(tmp_path: Path) -> None:
    path = events.open_file(tmp_path)
    events.append(path, 300, {"train/return": -0.5, "rule/entropy": 1.25})
    version, scalars = read(path)
    assert "tfevents" in path.name
    assert version[3] == [b"brain.Event:2"]
    assert scalars[2] == [300]
    values = [parse(value) for value in parse(scalars[5][0])[1]]
    assert [(v[1][0], struct.unpack("<f", v[2][0])[0]) for v in values] == [
        (b"train/return", -0.5),
        (b"rule/entropy", 1.25),
    ]


def test_going_on_tells_tensorboard_what_to_forget(tmp_path: Path) -> None:
    _, session = read(events.open_file(tmp_path, purge_step=41))
    assert session[2] == [41]
    assert parse(session[7][0]) == {1: [events.START]}
