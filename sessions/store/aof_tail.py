"""Cut damage off the end of the embedded store's append-only file.

A power cut may leave zeros or garbage behind the last command that reached the disk. The server
loads a file that merely stops too early, but refuses one that ends in garbage, and nobody should
have to repair a file by hand to get at sessions that are all there. Damage with commands behind it
is another matter: cutting there would drop what was acknowledged, so it is left to a person.
"""

from __future__ import annotations

import os
import re
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_COMMAND_START = re.compile(rb"\*[1-9]\d{0,9}\r\n\$\d{1,10}\r\n")
_BLOCK = 1 << 20


def cut_damaged_tail(append_only_dir: Path, keep_in: Path) -> str | None:
    """Remove what follows the last whole command, if no command follows it, and keep it aside.

    Args:
        append_only_dir: The server's directory of append-only files; the server must be stopped.
        keep_in: Directory for the bytes that are cut off.

    Returns:
        What was done, in words, or None when the last file is not damaged in this way.

    Raises:
        OSError: A file could not be read or written.
    """
    path = _last_file(append_only_dir)
    if path is None:
        return None
    with path.open("r+b") as file:
        damage = _find_damage(file)
        if damage is None or _has_command(file, damage[1] + 1):
            return None
        whole_until = damage[0]
        kept = keep_in / f"{path.name}.cut-at-{whole_until}"
        size = _copy_from(file, whole_until, kept)
        file.truncate(whole_until)
        os.fsync(file.fileno())
    return f"cut {size} unreadable bytes off the end of {path.name} and kept them in {kept}"


def _last_file(append_only_dir: Path) -> Path | None:
    """Return the file that was written last; earlier ones and snapshots are never repaired."""
    names: list[str] = []
    for manifest in append_only_dir.glob("*.manifest"):
        names += re.findall(r"^file (\S+) seq \d+ type i", manifest.read_text(), re.MULTILINE)
    return append_only_dir / names[-1] if names else None


def _find_damage(file: IO[bytes]) -> tuple[int, int] | None:
    """Return the end of what is whole, and where the first unreadable command begins."""
    whole_until = 0
    in_transaction = False
    while True:
        start = file.tell()
        command = _read_command(file)
        if command == b"":
            return None
        if command is None:
            return whole_until, start
        if command in {b"MULTI", b"EXEC"}:
            in_transaction = command == b"MULTI"
        # Half a transaction is not whole, however well its commands read.
        if not in_transaction:
            whole_until = file.tell()


def _read_command(file: IO[bytes]) -> bytes | None:
    """Return the next command's name in capitals, b"" at the end, None when it is unreadable."""
    header = file.readline(1024)
    if not header:
        return b""
    if header.startswith(b"#") and header.endswith(b"\r\n"):
        return b"#"
    count = _number(header, b"*")
    if not count:
        return None
    name = b""
    for index in range(count):
        size = _number(file.readline(32), b"$")
        if size is None:
            return None
        if index == 0 and size < 64:
            name = file.read(size)
        else:
            file.seek(size, os.SEEK_CUR)
        if file.read(2) != b"\r\n":
            return None
    return name.upper() or b"?"


def _number(line: bytes, mark: bytes) -> int | None:
    digits = line[1:-2]
    if line[:1] != mark or line[-2:] != b"\r\n" or not digits.isdigit():
        return None
    return int(digits)


def _has_command(file: IO[bytes], offset: int) -> bool:
    file.seek(offset)
    overlap = b""
    while block := file.read(_BLOCK):
        if _COMMAND_START.search(overlap + block):
            return True
        overlap = block[-32:]
    return False


def _copy_from(file: IO[bytes], offset: int, target: Path) -> int:
    """Append the rest of a file to another that only its owner may read; return the size."""
    file.seek(offset)
    size = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as copy:
        while block := file.read(_BLOCK):
            size += copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
    return size
