"""What a Celery worker does before it takes its first step."""

from __future__ import annotations

import gc
import logging
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    celeryd_init,
    worker_ready,
)
from kombu.utils.url import maybe_sanitize_url

from celeriac.connectors.mcp_config import load_mcp_config
from celeriac.connectors.models import ModelClients
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import CeleriacError, ConfigurationError, StoreUnavailable
from celeriac.sessions.settings import Settings, load_settings
from celeriac.sessions.store.connection import connect
from celeriac.tasks import bootstep
from celeriac.tasks.celery import queue_named
from celeriac.tasks.dispatch import CeleryDispatcher
from celeriac.tasks.doctor import examine_eviction
from celeriac.tasks.logs import set_up_logs
from celeriac.tasks.runtime import Runtime, load_worker_agents, name_worker, runtime
from celeriac.tasks.tracing import check_tracing
from celeriac.tasks.urls import broker_url_for, store_url

__all__ = ["install"]

_log = logging.getLogger(__name__)


def install(app: Celery) -> None:
    """Prepare the workers of this app: store, agents, models, wake loop."""
    bootstep.install(app)
    celeryd_init.connect(_prepare, weak=False)
    after_setup_logger.connect(_set_up_logs, weak=False)
    after_setup_task_logger.connect(_set_up_logs, weak=False)
    worker_ready.connect(_ready, weak=False)


def _prepare(sender: str, instance: object, **_: object) -> None:
    """Before anything connects or forks: a worker that cannot work says why and ends."""
    app: Celery = instance.app  # type: ignore[attr-defined]
    # Celery warns root of pickled messages; this app accepts JSON alone.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    try:
        settings = load_settings()
        name_worker(sender)
        _find_broker(app, settings)
        # Before agents name its servers: a fault is then told as what it is.
        load_mcp_config(settings.mcp_config)
        check_tracing(settings)
        agents = _load_agents(settings)
        ModelClients.preload(_service_models(agents.values(), settings))
        _consume(app, {tool.definition.queue for a in agents.values() for tool in a.tools})
        _settle_memory()
    except CeleriacError as error:
        sys.exit(f"celeriac: the worker cannot start: {error}")
    except Exception as error:  # noqa: BLE001 - Celery would log it and start a worker that cannot work
        traceback.print_exception(error)
        sys.exit(f"celeriac: the worker cannot start: {type(error).__name__}: {error}")


def _load_agents(settings: Settings) -> Mapping[str, AgentDefinition]:
    try:
        return load_worker_agents(settings)
    except ConfigurationError as error:
        if error.__cause__ is not None:
            # Their author wants to see where in their code it was.
            traceback.print_exception(error.__cause__)
        raise


def _settle_memory() -> None:
    """What is loaded now stays: the garbage collector need not look at it again, and children share it."""
    gc.collect()
    gc.freeze()
    # The default of 700 collects several times within a step.
    gc.set_threshold(10_000, 20, 20)


def _set_up_logs(**_: object) -> None:
    logging.getLogger("celeriac").setLevel(load_settings().log_level)
    set_up_logs(load_settings().log_format)


def _service_models(agents: Iterable[AgentDefinition], settings: Settings) -> set[str]:
    """Name the models that need a client of the worker's own."""
    names = {
        name
        for agent in agents
        if agent.harness is None
        for name in agent.models
        if name not in agent.model_clients
    }
    return names | {settings.model} if settings.model else names


def _find_broker(app: Celery, settings: Settings) -> None:
    store = store_url(settings)
    # Neither connects: a store or broker that is away just now is waited for.
    connect(store).close()
    if settings.broker_url is None:
        app.conf.update(broker_url=broker_url_for(store))
        return
    try:
        app.connection_for_read().transport  # noqa: B018 - made here, to see that it can be
    except (KeyError, ImportError) as error:
        address = maybe_sanitize_url(settings.broker_url)
        raise ConfigurationError(
            f"CELERIAC_BROKER_URL {address!r} cannot be used: {error.args[0]}"
        ) from None


def _consume(app: Celery, queues: set[str | None]) -> None:
    """Consume the queues that tools name, unless ``-Q`` chooses others."""
    known = {queue.name for queue in app.conf.task_queues}
    extra = [queue_named(name) for name in sorted(filter(None, queues)) if name not in known]
    app.conf.task_queues = [*app.conf.task_queues, *extra]


def _refuse_eviction(here: Runtime) -> None:
    found = examine_eviction(here.store.client)
    if found.level == "wrong":
        raise ConfigurationError(f"The store's {found.text}")


def _ready(sender: object, **_: object) -> None:
    app: Celery = sender.app  # type: ignore[attr-defined]
    here = runtime()
    try:
        CeleryDispatcher(app, here.settings).self_test()
        _refuse_eviction(here)
    except StoreUnavailable as error:
        _log.warning("The store could not be examined now: %s", error)
    except CeleriacError as error:
        # Celery logs what its signal handlers raise and goes on; this worker must not.
        sys.stderr.write(f"celeriac: the worker cannot start: {error}\n")
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - an outage just now says nothing about the envelope
        _log.warning("The form of Celery's messages could not be checked now: %s", error)
    _log.info("Worker %s is ready with agents %s", here.owner, ", ".join(here.agents))
