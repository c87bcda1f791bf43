"""What stands between the SDK's OAuth providers and a server's `TokenRecord`."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, JsonValue

from celeriac.connectors.mcp_tokens import TokenRecord

__all__ = ["LoginProvider", "Storage", "as_json", "record_of", "restore"]


class LoginProvider(OAuthClientProvider):
    """The SDK's, which goes to no other authorisation server than the configured one."""

    issuer: str | None = None

    def _select_authorization_server(self, advertised: list[str]) -> str:
        issuer = self.issuer
        fitting = [one for one in advertised if issuer is not None and issuers_match(one, issuer)]
        return (fitting or advertised)[0]

    def _expected_issuer(self) -> str:
        found = super()._expected_issuer()
        if self.issuer is not None and self.context.auth_server_url is None:
            # A server of 2025-03-26 names none: its own origin publishes what its authorisation server is. Who
            # that calls itself must be what is configured.
            at_home = urlsplit(self.issuer)[:2] == urlsplit(found)[:2]
            found = self.issuer if at_home else found
        if self.issuer is not None and not issuers_match(found, self.issuer):
            raise OAuthFlowError(f"it names the authorisation server {found}, not {self.issuer}")
        return found


class Storage:
    """What the SDK's providers read and write; `TokenFile` is written afterwards, as a whole.

    Args:
        record: The tokens that there are.
        client: The client, if there is one.
    """

    def __init__(
        self, record: TokenRecord | None, client: OAuthClientInformationFull | None
    ) -> None:
        self.new: OAuthToken | None = None
        self.registered: OAuthClientInformationFull | None = None
        self._client = client
        self._tokens = None
        if record is not None and record.access_token is not None:
            self._tokens = OAuthToken(
                access_token=record.access_token,
                refresh_token=record.refresh_token,
                scope=record.scope,
            )

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens that there were."""
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Take those that were obtained."""
        self.new = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Take the client that was registered."""
        self.registered = client_info


def restore(provider: OAuthClientProvider, record: TokenRecord | None) -> None:
    """Give a provider what an earlier one found out.

    Args:
        provider: The provider; it has done nothing yet.
        record: What is known of the server.
    """
    if record is None or record.authorization_server is None:
        return
    context = provider.context
    context.oauth_metadata = OAuthMetadata.model_validate(record.authorization_server)
    if record.protected_resource is not None:
        resource = ProtectedResourceMetadata.model_validate(record.protected_resource)
        context.protected_resource_metadata = resource
        context.auth_server_url = str(context.oauth_metadata.issuer)


def record_of(provider: OAuthClientProvider, tokens: OAuthToken) -> TokenRecord:
    """Return what is to be kept after a provider got tokens.

    Args:
        provider: The provider.
        tokens: The tokens.
    """
    now = time.time()
    context = provider.context
    return TokenRecord(
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        obtained_at=now,
        expires_at=None if tokens.expires_in is None else now + tokens.expires_in,
        scope=tokens.scope,
        authorization_server=as_json(context.oauth_metadata),
        protected_resource=as_json(context.protected_resource_metadata),
    )


def as_json(model: BaseModel | None) -> dict[str, JsonValue] | None:
    """Return one of the SDK's models as it is kept."""
    return None if model is None else model.model_dump(mode="json", exclude_none=True)
