"""Take what must not be shown out of texts that come from somebody who was given it."""

from __future__ import annotations

from collections.abc import Iterable

from celeriac.sessions.jsonsafe import clean_text

__all__ = ["Redactor"]

_SHORTEST_SECRET = 4


class Redactor:
    """Replaces the values that a server or provider was given by the worker.

    Args:
        secrets: The values.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets: list[str] = []
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Replace these values too, from now on.

        Args:
            secrets: The values.
        """
        found = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        if found.issubset(self._secrets):
            return
        # A value that begins with its scheme is also met without it.
        found |= {last for secret in found if len(last := secret.split()[-1]) >= _SHORTEST_SECRET}
        self._secrets = sorted(found.union(self._secrets), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return clean_text(text)
