"""``celeriac doctor``: is it set up right, and what is at risk if not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, cast

import click
import redis

from celeriac.connectors.mcp_config import load_mcp_config
from celeriac.connectors.sdk.connections import Connections
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.connection import store_errors
from celeriac.tasks.cli_common import Exit, plain, print_json
from celeriac.tasks.dispatch import open_store
from celeriac.tasks.mcp_cli import NOT_LOGGED_IN, login_of
from celeriac.tasks.models_cli import keyless_models

__all__ = ["Finding", "examine_eviction", "examine_store", "run_doctor"]

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Args:
        level: ``wrong`` makes the doctor fail.
        what: What was looked at.
        text: What was found, and what to do about it.
    """

    level: Level
    what: str
    text: str


def examine_store(client: redis.Redis) -> Iterator[Finding]:
    """Look at the store's version and durability.

    Args:
        client: The store.

    Yields:
        What was found.
    """
    with store_errors():
        info = cast("Mapping[str, object]", client.info())
        # Some hosted services forbid CONFIG: then only what INFO says can be checked.
        try:
            config = cast("Mapping[str, str]", client.config_get("*"))
        except redis.ResponseError:
            config = {}
    yield _version(info)
    yield _eviction(info)
    yield _append_only(info, config)
    skew = abs(time.time() - client.time()[0])
    level: Level = "warning" if skew > 5 else "ok"
    yield Finding(level, "clock", f"this machine and the store differ by {skew:.0f} s")


def _version(info: Mapping[str, object]) -> Finding:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version") or info.get("redis_version"))
    major = int(version.split(".", 1)[0])
    if major < 7:
        return Finding("wrong", "version", f"{name} {version} is too old; 7.0 or later is needed")
    return Finding("ok", "version", f"{name} {version}")


def examine_eviction(client: redis.Redis) -> Finding:
    """Look whether the store may drop sessions when its memory is full.

    Args:
        client: The store.

    Returns:
        What was found.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    with store_errors():
        return _eviction(cast("Mapping[str, object]", client.info("memory")))


def _eviction(info: Mapping[str, object]) -> Finding:
    policy, limit = (
        str(info.get("maxmemory_policy", "")),
        int(cast("int", info.get("maxmemory", 0))),
    )
    if policy == "noeviction":
        return Finding("ok", "eviction", "noeviction: nothing is dropped when memory is full")
    if limit == 0:
        text = f"maxmemory-policy is {policy}; set it to noeviction before you set maxmemory"
        return Finding("warning", "eviction", text)
    text = f"maxmemory-policy is {policy}: sessions can be dropped; set it to noeviction"
    return Finding("wrong", "eviction", text)


def _append_only(info: Mapping[str, object], config: Mapping[str, str]) -> Finding:
    if not info.get("aof_enabled"):
        text = "appendonly is off: a restart loses sessions; set appendonly yes"
        return Finding("wrong", "durability", text)
    policy = config.get("appendfsync", "unknown")
    if policy == "always":
        return Finding("ok", "durability", "appendonly with appendfsync always")
    text = (
        f"appendfsync is {policy}: a power cut may lose the last two seconds, decisions and the marks of writes "
        "that may run only once included; set it to always unless that may be"
    )
    return Finding("warning", "durability", text)


def run_doctor(settings: Settings, *, as_json: bool) -> int:
    """Look at everything and print it.

    Args:
        settings: The settings.
        as_json: Print the findings as JSON.

    Returns:
        0, or 1 when something is wrong.
    """
    findings: list[Finding] = []
    for finding in _examine(settings):
        findings.append(finding)
        if not as_json:
            _show(finding)
    wrong = sum(finding.level == "wrong" for finding in findings)
    if as_json:
        print_json([asdict(finding) for finding in findings])
        return Exit.FAILED if wrong else Exit.OK
    click.echo("\nAll is well." if not wrong else f"\n{wrong} thing(s) must be put right.")
    return Exit.FAILED if wrong else Exit.OK


def _examine(settings: Settings) -> Iterator[Finding]:
    where = "the embedded store in " + str(settings.data_dir)
    yield Finding(
        "ok", "settings", f"store: {'CELERIAC_REDIS_URL' if settings.redis_url else where}"
    )
    yield from _mcp(settings)
    yield from _connections(settings)
    try:
        store = open_store(settings)
        yield from examine_store(store.client)
        client = SessionClient(store, settings)
        yield _workers(client)
        yield _agents(client)
        yield from _models(client)
    except CeleriacError as error:
        yield Finding("wrong", "store", str(error))


def _mcp(settings: Settings) -> Iterator[Finding]:
    if settings.mcp_config is None:
        return
    try:
        servers = load_mcp_config(settings.mcp_config).servers
    except CeleriacError as error:
        yield Finding("wrong", "MCP", str(error))
        return
    names = ", ".join(servers) or "none"
    yield Finding("ok", "MCP", f"servers: {names}; `celeriac mcp list` connects to them")
    for name, server in servers.items():
        if login_of(settings, name, server) == NOT_LOGGED_IN:
            told = f"nobody has logged in to {name} on this machine; workers need `celeriac mcp login {name}`"
            yield Finding("warning", "MCP", told)


def _connections(settings: Settings) -> Iterator[Finding]:
    try:
        connections = Connections(settings.connector_config_file)
    except CeleriacError as error:
        yield Finding("wrong", "connectors", str(error))
        return
    usable = []
    for name in connections.names:
        try:
            connections.get(name)
        except CeleriacError as error:
            yield Finding("wrong", "connectors", str(error))
        else:
            usable.append(name)
    if usable:
        names = ", ".join(usable)
        told = f"connections: {names}; `celeriac connectors check` asks their providers"
        yield Finding("ok", "connectors", told)


def _workers(client: SessionClient) -> Finding:
    workers = client.workers()
    if not workers:
        text = "none was seen in the last 15 s; start one with `celeriac worker`"
        return Finding("wrong", "workers", text)
    stuck = ", ".join(one.name for one in workers if one.stuck)
    if stuck:
        text = f"{stuck} takes nothing although work is queued; see its log, or start it again"
        return Finding("wrong", "workers", text)
    names = ", ".join(f"{one.name} ({one.running}/{one.concurrency} busy)" for one in workers)
    return Finding("ok", "workers", names)


def _agents(client: SessionClient) -> Finding:
    agents = client.agents()
    if not agents:
        return Finding("warning", "agents", "none was announced yet; see CELERIAC_AGENTS")
    missing = [f"{agent.name}: {why}" for agent in agents for why in agent.missing_tools]
    if missing:
        return Finding("warning", "agents", "some tools are missing: " + "; ".join(missing))
    return Finding("ok", "agents", ", ".join(agent.name for agent in agents))


def _models(client: SessionClient) -> Iterator[Finding]:
    for missing in keyless_models(client.workers()):
        yield Finding("warning", "models", missing)


def _show(finding: Finding) -> None:
    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "wrong": ("✗", "red")}
    mark, colour = marks[finding.level]
    click.echo(
        f"{click.style(mark, fg=colour, bold=True)} {finding.what:<11} {plain(finding.text)}"
    )
