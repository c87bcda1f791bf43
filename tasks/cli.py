"""The command line: ``celeriac dev | worker | web | doctor | models | unknown | reconcile | audit | mcp``."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.settings import load_settings

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="celeriac")
def main() -> None:
    """Durable AI-agent sessions rooted in Celery."""


@main.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), default=None, help="Port of the page [8080]."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder of the embedded store [.celeriac].",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Workers to start."
)
@click.option(
    "--agents", default=None, help="Module or file with your AgentDefinitions [the demo agent]."
)
def dev(port: int | None, data: Path | None, workers: int, agents: str | None) -> None:
    """Start everything here: store, workers and the page. Ctrl-C stops it."""
    chosen = {
        "CELERIAC_PORT": None if port is None else str(port),
        "CELERIAC_DATA_DIR": None if data is None else str(data),
        "CELERIAC_AGENTS": agents,
    }
    os.environ.update({name: value for name, value in chosen.items() if value is not None})
    from celeriac.tasks.dev import run_dev  # noqa: PLC0415 - needs a POSIX system

    sys.exit(_told(lambda: run_dev(workers)))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("celery_options", nargs=-1, type=click.UNPROCESSED)
def worker(celery_options: tuple[str, ...]) -> None:
    """Start one worker. Options after ``--`` go to Celery, e.g. ``-- -Q celeriac.tool -c 4``."""
    from celeriac.tasks.dev import worker_command  # noqa: PLC0415

    argv = [*worker_command(), *celery_options]
    os.execv(argv[0], argv)  # noqa: S606 - our own Python


@main.command()
def web() -> None:
    """Start the web server (gunicorn)."""
    argv = [sys.executable, "-m", "celeriac.web.serve"]
    os.execv(argv[0], argv)  # noqa: S606 - our own Python


@main.command()
def doctor() -> None:
    """Check the store, its durability, the workers and the settings; exits 1 when something is wrong."""
    from celeriac.tasks.doctor import run_doctor  # noqa: PLC0415

    sys.exit(_told(lambda: run_doctor(load_settings())))


@main.command()
def models() -> None:
    """List the models of each agent: the default, whether the workers have a key, whether a price is known."""
    from celeriac.tasks.dispatch import open_client  # noqa: PLC0415
    from celeriac.tasks.models_cli import list_models  # noqa: PLC0415

    sys.exit(_told(lambda: list_models(open_client())))


@main.command()
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most to list."
)
def unknown(limit: int) -> None:
    """List the calls that may or may not have taken effect."""
    from celeriac.tasks.calls_cli import list_unknown  # noqa: PLC0415
    from celeriac.tasks.dispatch import open_client  # noqa: PLC0415

    sys.exit(_told(lambda: list_unknown(open_client(), limit=limit)))


@main.command()
@click.argument("session")
@click.argument("call")
@click.option("--by", default=None, help="Who asks [your login name].")
def check(session: str, call: str, by: str | None) -> None:
    """Have a call of unknown outcome looked up at its provider now."""
    from celeriac.tasks.calls_cli import check_unknown  # noqa: PLC0415
    from celeriac.tasks.dispatch import open_client  # noqa: PLC0415

    name = by or getpass.getuser()
    sys.exit(_told(lambda: check_unknown(open_client(), session, call, by=name)))


@main.command()
@click.argument("session")
@click.argument("call")
@click.option("--succeeded", "outcome", flag_value="succeeded", help="It took effect.")
@click.option("--failed", "outcome", flag_value="failed", help="It did not take effect.")
@click.option("--note", default=None, help="What you found; the agent reads it.")
@click.option("--by", default=None, help="Who says so [your login name].")
def reconcile(
    session: str, call: str, outcome: str | None, note: str | None, by: str | None
) -> None:
    """Say how a call of unknown outcome ended, once you have looked at the provider."""
    if outcome is None:
        raise click.UsageError("Say how it ended: --succeeded or --failed.")
    from celeriac.tasks.calls_cli import settle_unknown  # noqa: PLC0415
    from celeriac.tasks.dispatch import open_client  # noqa: PLC0415

    name = by or getpass.getuser()
    sys.exit(
        _told(
            lambda: settle_unknown(
                open_client(), session, call, succeeded=outcome == "succeeded", by=name, note=note
            )
        )
    )


@main.command()
@click.option("--session", "session_id", default=None, help="Only entries about this session.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Most to list."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, an entry a line.")
def audit(session_id: str | None, limit: int, *, as_json: bool) -> None:
    """List decisions, operators' acts, logins and refusals, the newest first."""
    from celeriac.tasks.audit_cli import list_audit  # noqa: PLC0415
    from celeriac.tasks.dispatch import open_client  # noqa: PLC0415

    sys.exit(_told(lambda: list_audit(open_client(), session_id, limit=limit, as_json=as_json)))


@main.group()
def mcp() -> None:
    """MCP servers whose tools agents get (CELERIAC_MCP_CONFIG)."""


@mcp.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def mcp_list(*, as_json: bool) -> None:
    """Connect to every server and list its tools: their effects, whether they ask, and why."""
    from celeriac.tasks.mcp_cli import list_mcp  # noqa: PLC0415

    sys.exit(_told(lambda: list_mcp(load_settings(), as_json=as_json)))


@mcp.command("login")
@click.argument("server")
def mcp_login(server: str) -> None:
    """Log in to a server that wants OAuth, and keep its tokens for the workers of this machine."""
    from celeriac.tasks.mcp_login import log_in  # noqa: PLC0415

    sys.exit(_told(lambda: log_in(load_settings(), server)))


@mcp.command("logout")
@click.argument("server")
def mcp_logout(server: str) -> None:
    """Delete the tokens of a server."""
    from celeriac.tasks.mcp_login import log_out  # noqa: PLC0415

    sys.exit(_told(lambda: log_out(load_settings(), server)))


def _told(action: Callable[[], int]) -> int:
    """Run a command; an error that we raise on purpose is a message, not a traceback."""
    try:
        return action()
    except CeleriacError as error:
        click.echo(click.style("celeriac: ", fg="red", bold=True) + str(error), err=True)
        return 1
