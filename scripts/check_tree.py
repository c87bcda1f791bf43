"""Check the tree for what no linter looks at: file sizes, the four links, no second lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("connectors", "sessions", "tasks", "web")
MAX_LINES = 600  # a file that wants more is two files; aim at 400
SIZED = {".css", ".html", ".js", ".lua", ".py"}


def files() -> list[Path]:
    """What is committed or about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name]


def faults() -> list[str]:
    found = []
    for path in files():
        if path.suffix in SIZED and path.is_file() and not path.is_symlink():
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > MAX_LINES:
                found.append(
                    f"{path.relative_to(ROOT)} has {lines} lines; the limit is {MAX_LINES}"
                )
    for part in PARTS:
        link = ROOT / "celeriac" / part
        if not link.is_symlink() or link.readlink() != Path("..", part):
            found.append(f"celeriac/{part} must be a link to ../{part}")
    if (ROOT / "uv.lock").exists():
        found.append("uv.lock: the locks are requirements/*.txt; a second one would drift")
    return found


if __name__ == "__main__":
    found = faults()
    sys.stderr.writelines(f"tree: {fault}\n" for fault in found)
    sys.exit(1 if found else 0)
