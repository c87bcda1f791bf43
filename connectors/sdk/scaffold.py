"""Write a connector to start from: a package of its own, with a manifest, code and tests that pass."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from celeriac.sessions.errors import DefinitionError

__all__ = ["write_scaffold"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")


def write_scaffold(name: str, folder: Path) -> Path:
    """Write a connector.

    Args:
        name: Its name, e.g. ``acme``.
        folder: A folder that does not exist yet.

    Returns:
        The folder.

    Raises:
        DefinitionError: The name is malformed, or the folder exists.
    """
    if _NAME.fullmatch(name) is None:
        raise DefinitionError(
            f"{name!r} is no name of a connector: use at most 30 small letters, digits and _, a letter first"
        )
    if folder.exists():
        raise DefinitionError(f"{folder} exists already; name another folder with --folder")
    words = {
        "{{name}}": name,
        "{{NAME}}": name.upper(),
        "{{Name}}": "".join(part.title() for part in name.split("_")),
    }
    source = resources.files("celeriac.connectors.sdk") / "skeleton"
    for template, target in (
        ("pyproject.toml.txt", "pyproject.toml"),
        ("README.md.txt", "README.md"),
        ("connector.json.txt", f"celeriac_{name}/connector.json"),
        ("init.py.txt", f"celeriac_{name}/__init__.py"),
        ("test.py.txt", f"tests/test_{name}.py"),
    ):
        text = (source / template).read_text(encoding="utf-8")
        for mark, word in words.items():
            text = text.replace(mark, word)
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
