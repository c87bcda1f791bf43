"""Settings: every environment variable Celeriac reads, in one place.

Each field is read from ``CELERIAC_<FIELD NAME>``. Durations are in seconds, sizes in bytes unless the name
says otherwise.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from celeriac.sessions.errors import ConfigurationError

__all__ = ["Settings", "load_settings"]


class Settings(BaseSettings):
    """What can be configured, with its default and what it is for."""

    model_config = SettingsConfigDict(env_prefix="CELERIAC_", frozen=True, extra="ignore")

    # --- where things are kept
    redis_url: str | None = None
    """The session store, e.g. ``redis://host:6379/0``. Unset: an embedded Valkey in `data_dir`."""
    broker_url: str | None = None
    """Celery's broker. Unset: the session store itself, which makes commit and enqueue one act."""
    data_dir: Path = Path(".celeriac")
    """Where the embedded store and generated keys live."""
    appendfsync: Literal["always", "everysec"] = "always"
    """The embedded store's fsync policy; ``everysec`` is faster and may lose the last 2 s, at a power cut
    and also when the store is killed while the disk is busy (it then writes after it has answered)."""

    # --- agents and models
    agents: str | None = None
    """Where agents are defined: a module (``acme.agents``) or a file path; several with commas."""
    default_agent: str | None = None
    """The agent of a session that names none. Unset: the first one that a worker announced."""
    mcp_config: Path | None = None
    """YAML file with the MCP servers whose tools agents get through `McpToolSource`."""
    mcp_token_dir: Path | None = None
    """Where the OAuth tokens for MCP servers are kept. Unset: ``mcp-tokens`` in `data_dir`."""
    connector_config_file: Path | None = None
    """YAML or JSON file with the connections of connectors; it holds credentials, so only the worker may read it."""
    model: str | None = None
    """Default model of every agent, e.g. ``openai/gpt-5-mini``; it is then allowed for all of them."""

    # --- steps
    lease_seconds: float = Field(8.0, ge=0.5, le=300)
    """How long a claimed step may be silent before its worker counts as lost."""
    wake_interval_seconds: float = Field(0.5, ge=0.05, le=30)
    """How often each worker looks at the wake index."""
    resend_seconds: float = Field(3.0, ge=0.2, le=300)
    """After how long a ready step that nobody claimed is sent again (then doubling, to a minute)."""
    model_attempts: int = Field(3, ge=1, le=3)
    """Attempts of one model call before the turn fails."""
    model_timeout_seconds: float = Field(600, gt=0)
    """Longest time of one model call."""
    retry_base_seconds: float = Field(1.0, ge=0.0, le=60)
    """First wait before a failed attempt is repeated; it doubles, up to `retry_max_seconds`."""
    retry_max_seconds: float = Field(30.0, ge=0.0, le=3600)
    """Longest wait that we choose; a provider may ask for longer, up to `provider_wait_max_seconds`."""
    provider_wait_max_seconds: float = Field(900.0, ge=0.0)
    """Longest ``Retry-After`` that is honoured; a longer one fails at once with a clear message."""
    shutdown_seconds: float = Field(60, ge=0, le=86_400)
    """How long a worker that was asked to stop may go on with what it runs; then it gives that up."""
    watchdog_seconds: float = Field(20, ge=1, le=3600)
    """How long a worker with room may take nothing while work is queued, before it connects anew; and after
    that, before it ends with an error so that it is started again."""
    worker_concurrency: int = Field(16, ge=1, le=1000)
    """Steps that one worker runs at a time."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What workers log of their own; Celery's own messages follow its ``--loglevel``."""
    log_format: Literal["text", "json"] = "text"
    """How workers and the web write their logs: lines for people, or a JSON object a line."""
    otel: bool = False
    """Whether workers write OpenTelemetry traces (``celeriac[otel]``); the standard OTEL_* variables say where to."""
    worker_pool: Literal["threads", "prefork"] = "threads"
    """Celery's pool: ``threads`` for models and I/O, ``prefork`` for tools that need the CPU."""

    # --- sizes
    message_max_bytes: int = Field(256 * 1024, ge=1024)
    """Longest text of a user message."""
    image_max_bytes: int = Field(5 * 1024 * 1024, ge=1024)
    """Largest image of a user message: Anthropic takes up to 5 MB for each; OpenAI takes more."""
    images_max_per_message: int = Field(10, ge=0, le=100)
    """Images that one message may show."""
    images_max_bytes: int = Field(20 * 1024 * 1024, ge=1024)
    """Size of all images of one message: a request of Anthropic may have 32 MB, and base64 takes a third more."""
    images_max_per_request: int = Field(20, ge=0, le=100)
    """How many of the newest images one model call sends; of older ones only a word."""
    result_shown_bytes: int = Field(32 * 1024, ge=256)
    """How much of a tool's result the model reads."""
    result_kept_bytes: int = Field(256 * 1024, ge=1024)
    """How much of a tool's result the call record keeps."""
    queue_max_messages: int = Field(100, ge=1)
    """Messages that may wait in a session's queue."""
    history_max_steps: int = Field(2000, ge=10)
    """Entries of step history kept per session."""
    session_max_bytes: int = Field(64 * 1024 * 1024, ge=64 * 1024)
    """How much of the store one session may take; beyond that its turns fail, and it can still be read."""
    pack_after_seconds: float = Field(60.0, ge=0, le=7 * 24 * 3600)
    """How long a session must have been idle before its records are compressed."""
    events_max: int = Field(2000, ge=100)
    """Live events kept per session, for resuming a stream."""
    events_ttl_seconds: int = Field(24 * 3600, ge=60)
    """How long a quiet session's live events are kept."""

    audit_max: int = Field(2_000, ge=100)
    """Entries of the audit log kept in each of the 64 partitions, of logins, and of refused tokens."""

    # --- the web
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=1, le=65535)
    session_key: SecretStr | None = None
    """Key of the session tokens. Unset: one is made at start and said so."""
    operators: SecretStr | None = None
    """Operators as ``name:role:sha256-of-token``, several with commas."""
    trusted_proxies: str | None = None
    """Addresses or networks of your proxies, with commas (``10.0.0.5, fd00::/64``): what they forward is believed."""
    proxy_user_header: str | None = None
    """Header in which a trusted proxy names who is logged in, e.g. ``X-Remote-User``. The proxy must remove it
    from what callers send."""
    proxy_roles: str | None = None
    """Roles of those whom a proxy names: ``name:role``, several with commas; ``*:role`` is everybody else's."""
    limit_sessions_per_minute: int = Field(600, ge=0)
    """Sessions that one client may start in a minute over the web; 0 is no limit. A client is an operator, or
    an address."""
    limit_messages_per_minute: int = Field(120, ge=0)
    """Messages that one session takes in a minute over the web; 0 is no limit."""
    limit_logins_per_minute: int = Field(30, ge=0)
    """Attempts to log in from one address in a minute; 0 is no limit."""
    web_threads: int = Field(300, ge=4)
    """Threads of one web process; event streams use at most this less 50."""
    web_processes: int = Field(2, ge=1)


@lru_cache(maxsize=1)
def load_settings() -> Settings:
    """Read the settings from the environment, once per process.

    Returns:
        The settings.

    Raises:
        ConfigurationError: A variable holds something wrong; the message names each one.
    """
    try:
        return Settings()
    except ValidationError as error:
        lines = [
            f"CELERIAC_{'.'.join(str(part) for part in item['loc']).upper()}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        ]
        raise ConfigurationError(
            "These settings cannot be used:\n  " + "\n  ".join(lines)
        ) from None
