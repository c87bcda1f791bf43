"""Short questions to a client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Refused
from celeriac.sessions.messages import Role


def refused(work: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        work()
    return caught.value


def texts(client: SessionClient, session_id: str) -> list[tuple[Role, str]]:
    return [(one.role, one.text) for one in client.snapshot(session_id).messages]
