"""What the author of a connector imports; `docs/howto/connectors.md` tells how to write one."""

from __future__ import annotations

from celeriac.connectors.sdk.connector import Call, Connector, Described
from celeriac.connectors.sdk.http import ProviderAnswer, ProviderHttp
from celeriac.connectors.sdk.manifest import Manifest, Operation
from celeriac.connectors.sdk.outcomes import Outcome
from celeriac.connectors.sdk.secrets import Secret

__all__ = [
    "Call",
    "Connector",
    "Described",
    "Manifest",
    "Operation",
    "Outcome",
    "ProviderAnswer",
    "ProviderHttp",
    "Secret",
]
