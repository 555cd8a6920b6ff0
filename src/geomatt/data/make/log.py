"""Files that grow by whole records: what was written before a crash, a kill or a full disk stays readable."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from geomatt.files import write_error

_HEAD = struct.Struct("<II")  # length and checksum of the record that follows


class RecordLog:
    """Records of bytes in a file. A record that was cut off is ignored, and overwritten by the next one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0  # of the last whole record

    def read(self) -> list[bytes]:
        """All whole records."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        records, self._end = [], 0
        while self._end + _HEAD.size <= len(content):
            length, checksum = _HEAD.unpack_from(content, self._end)
            start = self._end + _HEAD.size
            record = content[start : start + length]
            if len(record) < length or zlib.crc32(record) != checksum:
                break
            records.append(record)
            self._end = start + length
        return records

    def append(self, records: Iterable[bytes]) -> None:
        """Write records at the end and flush them to disk. `read` comes first in each process."""
        body = b"".join(_HEAD.pack(len(r), zlib.crc32(r)) + r for r in records)
        try:
            with open(self.path, "r+b" if self.path.exists() else "w+b") as stream:
                stream.seek(self._end)
                stream.write(body)
                stream.truncate()
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise write_error(self.path, error) from error
        self._end += len(body)
