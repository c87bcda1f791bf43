"""Credentials in memory: shown by nothing, stored by nothing."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Secret"]

_SHOWN = "[secret]"


class Secret:
    """A credential. Printing, logging, comparing and serialising it give nothing away.

    Args:
        value: The credential.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the credential, for the request that needs it."""
        return self._value

    def __repr__(self) -> str:
        return _SHOWN

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return _SHOWN

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not serialised")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self
