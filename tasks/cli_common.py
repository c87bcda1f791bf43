"""What all commands share: exit codes, errors, safe text, JSON. Loads nothing that takes a while."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from celeriac.sessions.errors import CeleriacError, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from pydantic import BaseModel

    from celeriac.sessions.client import SessionClient

__all__ = [
    "CommandGroup",
    "Exit",
    "acting_client",
    "by_option",
    "complete_session",
    "json_option",
    "login_name",
    "one_line",
    "open_cli_client",
    "plain",
    "print_json",
    "print_models",
    "session_argument",
    "when",
]

Command = TypeVar("Command", bound=Callable[..., object])


class Exit(IntEnum):
    """What a command's exit code says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    """The turn waits for a person."""
    NOT_FOUND = 4
    UNREACHABLE = 5
    """The session store does not answer, or there is none."""


def _exit_code(error: CeleriacError) -> Exit:
    if isinstance(error, NotFound):
        return Exit.NOT_FOUND
    return Exit.UNREACHABLE if isinstance(error, StoreUnavailable) else Exit.FAILED


class CommandGroup(click.Group):
    """Commands whose errors end in a message and an exit code."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except CeleriacError as error:
            # Raised on purpose, so its words are enough.
            said = click.style("celeriac: ", fg="red", bold=True) + plain(str(error))
            click.echo(said, err=True)
            ctx.exit(_exit_code(error))


def complete_session(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the sessions that were active last to a shell, with what they are about."""
    try:
        found = open_cli_client().list_sessions(limit=50).sessions
    except CeleriacError:
        return []
    return [
        CompletionItem(one.session_id, help=one_line(one.title))
        for one in found
        if one.session_id.startswith(incomplete)
    ]


def session_argument(command: Command) -> Command:
    """Give a command the argument SESSION; shells complete it."""
    return click.argument("session", shell_complete=complete_session)(command)


def json_option(command: Command) -> Command:
    """Give a command the option ``--json``."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return option(command)


def by_option(command: Command) -> Command:
    """Give a command that is somebody's act the option ``--by``."""
    option = click.option("--by", default=None, help="Who does it [your login name].")
    return option(command)


def login_name() -> str:
    """Return the name that acts are recorded with unless another one is given."""
    return getpass.getuser()


def open_cli_client() -> SessionClient:
    """Open the sessions that the environment names.

    Raises:
        StoreUnavailable: No store is named, and this folder holds none.
        ConfigurationError: A setting cannot be used.
    """
    from celeriac.sessions.settings import load_settings  # noqa: PLC0415
    from celeriac.sessions.store.embedded_files import LaunchRecord  # noqa: PLC0415

    settings = load_settings()
    if settings.redis_url is None and LaunchRecord.read(settings.data_dir) is None:
        raise StoreUnavailable(
            f"There is no session store: CELERIAC_REDIS_URL is not set, and {settings.data_dir} holds no "
            "embedded store. Set CELERIAC_REDIS_URL, or go to the folder where `celeriac dev` was started."
        )
    from celeriac.tasks.dispatch import open_client  # noqa: PLC0415

    return open_client(settings)


def acting_client(by: str | None) -> tuple[SessionClient, str]:
    """Open the sessions for somebody who acts on them; return them and the name to record.

    Args:
        by: The name that was given, if any.
    """
    from celeriac.sessions.audit import Actor  # noqa: PLC0415

    name = by or login_name()
    actor = Actor(name=name, way="cli", address=socket.gethostname(), own=False)
    return open_cli_client().acting_as(actor), name


def plain(text: str) -> str:
    """Return text without what steers a terminal, or hides or reorders what it shows.

    Such characters are written as JSON does, so that JSON stays the same value.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        one if one in "\n\t" or one.isprintable() else json.dumps(one)[1:-1] for one in text
    )


def one_line(text: str, most: int = 80) -> str:
    """Return the beginning of a text on one line, safe for a terminal."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def print_json(value: object) -> None:
    """Print a value that JSON knows."""
    click.echo(plain(json.dumps(value, indent=2, ensure_ascii=False)))


def print_models(models: tuple[BaseModel, ...]) -> None:
    """Print read models as a JSON array."""
    print_json([model.model_dump(mode="json") for model in models])


def when(milliseconds: int) -> str:
    """Return a moment in words, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
