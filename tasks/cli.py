"""The command line: ``celeriac COMMAND``. What a command does is loaded when it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from celeriac.tasks import cli_calls, cli_connectors, cli_sessions
from celeriac.tasks.cli_common import CommandGroup, json_option, open_cli_client

__all__ = ["main"]


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="celeriac")
def main() -> None:
    """Durable AI-agent sessions rooted in Celery.

    Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 3 the turn waits for a person, 4 no such session or
    call, 5 the session store does not answer.
    """


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

    sys.exit(run_dev(workers))


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
@json_option
def doctor(*, as_json: bool) -> None:
    """Check the store, its durability, the workers and the settings; exits 1 when something is wrong."""
    from celeriac.sessions.settings import load_settings  # noqa: PLC0415
    from celeriac.tasks.doctor import run_doctor  # noqa: PLC0415

    sys.exit(run_doctor(load_settings(), as_json=as_json))


@main.command()
@json_option
def models(*, as_json: bool) -> None:
    """List the models of each agent: the default, whether the workers have a key, whether a price is known."""
    from celeriac.tasks.models_cli import list_models  # noqa: PLC0415

    sys.exit(list_models(open_cli_client(), as_json=as_json))


@main.command()
@json_option
def agents(*, as_json: bool) -> None:
    """List the agents that workers announced: their models and tools."""
    from celeriac.tasks.sessions_cli import list_agents  # noqa: PLC0415

    sys.exit(list_agents(open_cli_client(), as_json=as_json))


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a SHELL complete commands, options and session ids.

    bash and zsh: eval "$(celeriac completion bash)". fish: celeriac completion fish | source.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"{shell} is not known to this click.")
    click.echo(made(main, {}, "celeriac", "_CELERIAC_COMPLETE").source())


@main.group()
def mcp() -> None:
    """MCP servers whose tools agents get (CELERIAC_MCP_CONFIG)."""


@mcp.command("list")
@json_option
def mcp_list(*, as_json: bool) -> None:
    """Connect to every server and list its tools: their effects, whether they ask, and why."""
    from celeriac.sessions.settings import load_settings  # noqa: PLC0415
    from celeriac.tasks.mcp_cli import list_mcp  # noqa: PLC0415

    sys.exit(list_mcp(load_settings(), as_json=as_json))


@mcp.command("login")
@click.argument("server")
def mcp_login(server: str) -> None:
    """Log in to a server that wants OAuth, and keep its tokens for the workers of this machine."""
    from celeriac.sessions.settings import load_settings  # noqa: PLC0415
    from celeriac.tasks.mcp_login import log_in  # noqa: PLC0415

    sys.exit(log_in(load_settings(), server))


@mcp.command("logout")
@click.argument("server")
def mcp_logout(server: str) -> None:
    """Delete the tokens of a server."""
    from celeriac.sessions.settings import load_settings  # noqa: PLC0415
    from celeriac.tasks.mcp_login import log_out  # noqa: PLC0415

    sys.exit(log_out(load_settings(), server))


for _command in (*cli_sessions.COMMANDS, *cli_calls.COMMANDS, *cli_connectors.COMMANDS):
    main.add_command(_command)
