"""Ask a connection's provider whether it lets us in."""

from __future__ import annotations

import time

from celeriac.connectors.redactor import Redactor
from celeriac.connectors.sdk.connections import Connection
from celeriac.connectors.sdk.connector import Call
from celeriac.connectors.sdk.http import Dispatch, ProviderHttp
from celeriac.connectors.sdk.source import OpenConnection

__all__ = ["check_connection"]

_SECONDS = 20.0


async def check_connection(connection: Connection) -> tuple[bool, str]:
    """Make the one request that a connector has for this.

    Args:
        connection: The connection.

    Returns:
        Whether the provider lets us in, and what it said; without credentials.
    """
    credentials = connection.credentials()
    clean = Redactor(secret.reveal() for secret in credentials.values())
    opened = OpenConnection.of(connection)
    call = Call(
        id="check",
        arguments={},
        idempotency_key="check",
        credentials=credentials,
        http=ProviderHttp(opened.pool, time.time() + _SECONDS, Dispatch()),
    )
    try:
        return True, clean(await opened.connector.check(call))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is asked for
        return False, clean(str(error) or type(error).__name__)
    finally:
        await opened.aclose()
