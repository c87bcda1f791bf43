"""The agents of `fault_agents`, in a worker that notes each use of a connection by another process than its maker.

Loaded before the worker forks.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from redis.connection import AbstractConnection

from tests.tasks.fault_agents import faults, leave_mark

__all__ = ["faults"]

# redis-py leaves these without types.
_send: Callable[..., object] = AbstractConnection.send_packed_command
_on_connect: Callable[..., object] = AbstractConnection.on_connect_check_health


def _connected(connection: AbstractConnection, *arguments: object, **options: object) -> object:
    vars(connection)["made_by"] = os.getpid()
    leave_mark("connection", "", 0)
    return _on_connect(connection, *arguments, **options)


def _checked_send(connection: AbstractConnection, *arguments: object, **options: object) -> object:
    maker = vars(connection).get("made_by", os.getpid())
    if maker != os.getpid():
        leave_mark("foreign", "", 0, maker=maker)
    return _send(connection, *arguments, **options)


for name, method in {
    "on_connect_check_health": _connected,
    "send_packed_command": _checked_send,
}.items():
    setattr(AbstractConnection, name, method)
