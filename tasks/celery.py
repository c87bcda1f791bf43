"""The Celery app, with every setting's reason beside it.

A Celery message is a hint that a session has work. Claims, leases and the wake index make the steps safe, so
Celery's own redelivery is switched off wherever it costs something.
"""

from __future__ import annotations

from celery import Celery
from kombu import Exchange, Queue

from celeriac.sessions.settings import Settings, load_settings
from celeriac.tasks import pool, transport
from celeriac.tasks.names import MODEL_QUEUE, TOOL_QUEUE
from celeriac.tasks.urls import broker_url_for

__all__ = ["app", "make_app", "queue_named"]


def queue_named(name: str) -> Queue:
    """Make a queue with an exchange of its own, so that no broker mixes it with another."""
    return Queue(name, Exchange(name), routing_key=name)


def make_app(settings: Settings) -> Celery:
    """Make a Celery app for these settings.

    Args:
        settings: Where the broker is, and how many steps run at a time.

    Returns:
        The app. With the embedded store its broker URL is set when a worker starts.
    """
    pool.install()
    transport.install()
    celery = Celery("celeriac", set_as_current=False)
    celery.conf.update(
        # A worker learns the embedded store's URL at start; see worker.py.
        broker_url=broker_url_for(settings.redis_url or "redis://127.0.0.1:6379/0"),
        imports=(
            "celeriac.tasks.run_model",
            "celeriac.tasks.compact_context",
            "celeriac.tasks.call_tool",
            "celeriac.tasks.call_single_attempt_tool",
            "celeriac.tasks.reconcile_call",
        ),
        task_queues=[queue_named(MODEL_QUEUE), queue_named(TOOL_QUEUE)],
        task_default_queue=MODEL_QUEUE,
        # Outcomes are in the session: a stored result would cost five more commands a step.
        task_ignore_result=True,
        result_backend=None,
        # Acknowledging late only returns the credit late; safety comes from the claim.
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        worker_prefetch_multiplier=1,
        worker_pool=settings.worker_pool,
        worker_concurrency=settings.worker_concurrency,
        worker_disable_rate_limits=True,
        # Events cost four PUBLISH a step; pages and metrics read the store.
        worker_send_task_events=False,
        task_send_sent_event=False,
        # Free per step, and its subscription notices a dead broker connection.
        worker_enable_remote_control=True,
        # Fencing makes a double run harmless; killing a running step would lose its result.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_consumer="celeriac.tasks.consumer:Consumer",
        worker_log_format="%(asctime)s %(levelname)s %(message)s",
        worker_task_log_format="%(asctime)s %(levelname)s %(message)s",
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_limit=settings.worker_concurrency + 2,
        broker_pool_acquire_timeout=10,
        task_serializer="json",
        accept_content=["json"],
    )
    if settings.broker_url is not None:
        celery.conf.update(broker_url=settings.broker_url)
    if settings.broker_url is None or settings.broker_url.startswith("redis"):
        options = {
            # The unacked bookkeeping costs eight commands a step, can hang a worker after an outage,
            # and saves nothing that the wake index does not find. Without it there is no visibility
            # timeout either, after which a step that still runs would be delivered again.
            "ack_emulation": False,
            # Celery would look at four lists for each queue; steps have no priorities.
            "priority_steps": [0],
            "socket_timeout": 10,
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
            "health_check_interval": 15,
        }
        celery.conf.update(broker_transport_options=options)
    return celery


app = make_app(load_settings())
