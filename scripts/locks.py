"""Write or check the locks: every package pinned by version and hash, no place to fetch it from.

    python scripts/locks.py write [--upgrade]     needs the network and uv (in the dev lock)
    python scripts/locks.py check                 works offline, needs nothing but Python

Each of requirements/*.txt begins with a digest of what it was made from, so that `check` sees at once
when pyproject.toml has moved on without it. npm writes the lock of tests/node (`npm install` there,
with its .npmrc); that one is only checked.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
DIGEST_LINE = "# made from: sha256:"

# The order matters: dev is solved first and the other two keep its versions.
EXTRAS = (
    "claude",
    "client",
    "gevent",
    "google-adk",
    "http",
    "langgraph",
    "litellm",
    "mcp",
    "openai-agents",
    "otel",
    "pydantic-ai",
    "slack",
    "sql",
    "stripe",
)
LOCKS = {
    "dev": (*EXTRAS, "dev"),
    "all": EXTRAS,
    "core": (),
}


def inputs_digest() -> str:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    inputs = [
        pyproject["build-system"]["requires"],
        project["requires-python"],
        project["dependencies"],
        project["optional-dependencies"],
        (REQUIREMENTS / "build.in").read_text(),
        LOCKS,
    ]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def write(*, upgrade: bool) -> None:
    for name, extras in LOCKS.items():
        lock = REQUIREMENTS / f"{name}.txt"
        if name != "dev":
            # uv prefers the versions it finds in the file it is about to replace.
            shutil.copyfile(REQUIREMENTS / "dev.txt", lock)
        command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet"]
        # One lock for every system and Python that we support, whatever machine makes it.
        command += ["--universal", "--python-version", "3.11", "--generate-hashes"]
        command += ["--no-config", "--no-emit-index-url", "--no-emit-find-links"]
        command += ["--custom-compile-command", "make lock"]
        command += [f"--extra={extra}" for extra in extras]
        command += ["--upgrade"] if upgrade and name == "dev" else []
        command += [
            f"--output-file=requirements/{name}.txt",
            "pyproject.toml",
            "requirements/build.in",
        ]
        subprocess.run(command, cwd=ROOT, check=True)
        lock.write_text(f"{DIGEST_LINE}{inputs_digest()}\n{lock.read_text()}")


def faults(lock: Path) -> list[str]:
    """Whatever is wrong with one lock, in words."""
    name = lock.relative_to(ROOT)
    if not lock.is_file():
        return [f"{name} is missing; run `make lock`"]
    found = []
    lines = lock.read_text().splitlines()
    if lines[:1] != [DIGEST_LINE + inputs_digest()]:
        found.append(f"{name} is out of step with pyproject.toml; run `make lock`")
    pinned = re.compile(r"[a-z0-9][a-z0-9.-]*==[^\s@/:]+( ; [^@/:]+)? \\")
    hashed = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            if "://" in line:
                found.append(f"{name}:{number} names a host: {line.strip()!r}")
        elif not pinned.fullmatch(line) and not hashed.fullmatch(line):
            found.append(f"{name}:{number} is neither a pinned version nor a hash: {line!r}")
    return found


def node_faults(folder: Path) -> list[str]:
    """Whatever is wrong with npm's lock, in words."""
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    name = (folder / "package-lock.json").relative_to(ROOT)
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    found = [
        f"package.json: {package} {version!r} is not an exact version"
        for package, version in wanted.items()
        if not re.fullmatch(r"\d+\.\d+\.\d+", version)
    ]
    if packages.pop("")["dependencies"] != wanted:
        found.append(f"{name} is out of step with package.json; run `npm install` in its folder")
    for package, entry in packages.items():
        if "resolved" in entry:
            found.append(f"{name}: {package} names a place to fetch it from: {entry['resolved']!r}")
        if not entry.get("integrity", "").startswith("sha512-"):
            found.append(f"{name}: {package} has no sha512 hash")
    return found


def check() -> int:
    found = [fault for name in LOCKS for fault in faults(REQUIREMENTS / f"{name}.txt")]
    found += node_faults(ROOT / "tests" / "node")
    sys.stderr.writelines(f"locks: {fault}\n" for fault in found)
    return 1 if found else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write"]:
            write(upgrade=False)
        case ["write", "--upgrade"]:
            write(upgrade=True)
        case ["check"]:
            sys.exit(check())
        case _:
            sys.exit(__doc__)
