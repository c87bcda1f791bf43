"""Obtain OAuth tokens for an MCP server with the SDK's providers, one exchange at a time.

A provider is an `httpx2.Auth`: a generator of the requests it needs, around one request that it signs. Here it is
driven without that one: in its place it is given the refusal that the server has already sent, so that nothing is
sent to the server twice, and the provider's requests go out over a client of their own with limits of their own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import (
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
)
from pydantic import AnyUrl, JsonValue, ValidationError

from celeriac.connectors.mcp_addresses import guarded_transport
from celeriac.connectors.mcp_config import HttpServer, OAuth
from celeriac.connectors.mcp_http import NotAuthorised, read_body
from celeriac.connectors.mcp_providers import (
    LoginProvider,
    Storage,
    as_json,
    record_of,
    restore,
)
from celeriac.connectors.mcp_tokens import TokenRecord
from celeriac.connectors.redactor import Redactor
from celeriac.sessions.errors import CeleriacError, ConfigurationError

__all__ = ["Browser", "GrantEnded", "Grants"]

# It logs each failure with a traceback and with what the authorisation server answered; we tell of it ourselves.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)

_MAX_BYTES = 1024 * 1024
_MAX_WORDS = 300
_SECRET_FIELDS = ("access_token", "refresh_token", "id_token", "client_secret")
_LONG_AGO = 1.0
_WRONG = "its authorisation server answered what OAuth does not allow"


class GrantEnded(Exception):
    """The authorisation server takes the refresh token no more."""


@dataclass(frozen=True, slots=True)
class Browser:
    """The part of a login that a person does.

    Args:
        redirect_uri: Where their browser comes back to.
        show: Shows the address to open.
        result: Waits for what the browser brings back.
    """

    redirect_uri: str
    show: Callable[[str], Awaitable[None]]
    result: Callable[[], Awaitable[AuthorizationCodeResult]]


class Grants:
    """Obtains tokens for one server.

    Args:
        server: The server; it has `oauth`.
        values: The values by variable of the worker.
        redact: Learns what the authorisation server hands out.

    Raises:
        ConfigurationError: The server has no `oauth`.
    """

    def __init__(self, server: HttpServer, values: Mapping[str, str], redact: Redactor) -> None:
        if server.oauth is None:
            raise ConfigurationError(f"{server.printable()} has no `oauth`")
        self._server = server
        self._oauth: OAuth = server.oauth
        self._values = values
        self._redact = redact
        self._limit = server.connect_seconds

    async def refreshed(self, record: TokenRecord) -> TokenRecord:
        """Exchange a refresh token.

        Args:
            record: What is known; it has one.

        Returns:
            What is known then.

        Raises:
            GrantEnded: It is not taken any more, or the client that was registered for it is not.
            NotAuthorised: It could not be done just now.
        """
        storage = Storage(record, self._client(record))
        provider = self._login_provider(storage, record, None)
        # The SDK takes what is stored for valid; this makes it renew.
        provider.context.token_expiry_time = _LONG_AGO
        status, body = await self._drive(provider, self._probe({}), None, limit=self._limit)
        if storage.new is None:
            word = _error_of(body)
            if word == "invalid_grant" or (word == "invalid_client" and record.client is not None):
                raise GrantEnded(word)
            if status == 200:
                raise NotAuthorised(_WRONG)
            said = f": {self._redact(word)[:_MAX_WORDS]}" if word else ""
            raise NotAuthorised(
                f"its authorisation server answered HTTP {status} to a refresh{said}"
            )
        return record_of(provider, storage.new).model_copy(
            update={"client": record.client, "wanted_scope": record.wanted_scope}
        )

    async def granted(
        self, record: TokenRecord | None, request: httpx2.Request, refusal: httpx2.Response
    ) -> TokenRecord:
        """Obtain a token in the worker's own name.

        Args:
            record: What is known.
            request: What the server refused.
            refusal: Its answer, which says what it wants.

        Returns:
            What is known then.

        Raises:
            NotAuthorised: There is none.
        """
        storage = Storage(record, None)
        provider = self._own_provider(storage)
        restore(provider, record)
        answer = _challenge(refusal, " ".join(self._oauth.scopes))
        await self._drive(provider, self._probe(request.headers), answer, limit=self._limit)
        return self._obtained(provider, storage)

    async def logged_in(self, record: TokenRecord | None, browser: Browser) -> TokenRecord:
        """Obtain tokens through a person's login.

        Args:
            record: What is known of an earlier one.
            browser: What the person does.

        Returns:
            What is known then.

        Raises:
            NotAuthorised: It failed.
            CeleriacError: The person's part failed.
        """
        storage = Storage(None, self._client(None))
        provider = self._login_provider(storage, None, browser)
        wanted = None if record is None else record.wanted_scope
        if record is not None and wanted is not None:
            wanted = union_scopes(record.scope, wanted)
        answer = _challenge(await self._asked(), union_scopes(" ".join(self._oauth.scopes), wanted))
        await self._drive(provider, self._probe({}), answer, limit=None)
        new = self._obtained(provider, storage)
        if storage.registered is None:
            return new
        return new.model_copy(update={"client": as_json(storage.registered)})

    async def _asked(self) -> httpx2.Response:
        """Ask the server for something without a token, so that it says what it wants."""
        ping = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
        headers = {name: self._values[value] for name, value in self._server.headers.items()}
        headers["Accept"] = "application/json, text/event-stream"
        request = httpx2.Request("POST", self._server.url, json=ping, headers=headers)
        try:
            async with self._http() as client:
                response = await client.send(request, stream=True, follow_redirects=False)
                await response.aclose()
        except httpx2.TransportError as error:
            raise NotAuthorised(f"it cannot be reached: {error}") from None
        return response

    def _obtained(self, provider: OAuthClientProvider, storage: Storage) -> TokenRecord:
        if storage.new is None:
            raise NotAuthorised("its authorisation server gave no token")
        return record_of(provider, storage.new)

    def _client(self, record: TokenRecord | None) -> OAuthClientInformationFull | None:
        """Return the client of the configuration, or the one that was registered."""
        oauth = self._oauth
        if oauth.client_id_env is not None:
            secret = oauth.client_secret_env and self._values[oauth.client_secret_env]
            method = oauth.token_endpoint_auth_method if secret else "none"
            return OAuthClientInformationFull(
                client_id=self._values[oauth.client_id_env],
                client_secret=secret,
                token_endpoint_auth_method=method,
            )
        if record is None or record.client is None:
            return None
        return OAuthClientInformationFull.model_validate(record.client)

    def _login_provider(
        self, storage: Storage, record: TokenRecord | None, browser: Browser | None
    ) -> OAuthClientProvider:
        provider = LoginProvider(
            self._server.url,
            OAuthClientMetadata(
                redirect_uris=[AnyUrl(browser.redirect_uri)] if browser else None,
                client_name="Celeriac",
            ),
            storage,
            redirect_handler=browser.show if browser else None,
            callback_handler=browser.result if browser else None,
            client_metadata_url=self._oauth.client_metadata_url,
        )
        provider.issuer = self._oauth.issuer
        restore(provider, record)
        return provider

    def _own_provider(self, storage: Storage) -> OAuthClientProvider:
        oauth, values = self._oauth, self._values
        client_id = values[oauth.client_id_env or ""]
        if oauth.private_key_env is None:
            return ClientCredentialsOAuthProvider(
                self._server.url,
                storage,
                client_id,
                values[oauth.client_secret_env or ""],
                oauth.token_endpoint_auth_method,
                issuer=oauth.issuer,
            )
        signed = SignedJWTParameters(
            issuer=client_id,
            subject=client_id,
            signing_key=values[oauth.private_key_env],
            signing_algorithm=oauth.signing_algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            self._server.url,
            storage,
            client_id,
            signed.create_assertion_provider(),
            issuer=oauth.issuer,
        )

    def _probe(self, headers: Mapping[str, str]) -> httpx2.Request:
        """Return what stands for the request to the server; the SDK looks at its protocol version."""
        version = headers.get("mcp-protocol-version")
        return httpx2.Request(
            "POST", self._server.url, headers={"mcp-protocol-version": version} if version else {}
        )

    def _http(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=self._limit, transport=guarded_transport())

    async def _drive(
        self,
        provider: OAuthClientProvider,
        probe: httpx2.Request,
        refusal: httpx2.Response | None,
        *,
        limit: float | None,
    ) -> tuple[int, bytes]:
        """Run a provider until it has signed the probe, or again after its refusal.

        Returns:
            Status and body of the last answer to a request of the provider.
        """
        try:
            async with asyncio.timeout(limit), self._http() as client:
                return await self._run(client, provider, probe, refusal)
        except CeleriacError:
            raise  # of the person's part
        except (TimeoutError, httpx2.TransportError) as error:
            why = str(error) or "no answer in time"
            told = f"its authorisation server cannot be reached: {why}"
            raise NotAuthorised(self._redact(told)) from None
        except Exception as error:  # noqa: BLE001 - a stranger's answers, read by a stranger's code
            raise NotAuthorised(
                self._redact(f"no access token: {_words(error)}")[:_MAX_WORDS]
            ) from None

    async def _run(
        self,
        client: httpx2.AsyncClient,
        provider: OAuthClientProvider,
        probe: httpx2.Request,
        refusal: httpx2.Response | None,
    ) -> tuple[int, bytes]:
        last = (0, b"")
        flow = provider.async_auth_flow(probe)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not probe:
                    answer = await client.send(outgoing, stream=True, follow_redirects=False)
                    next_request = answer.next_request
                    body = await read_body(answer, _MAX_BYTES)
                    self._learn(body)
                    last = (answer.status_code, body)
                    answer = httpx2.Response(
                        answer.status_code, headers=_plain(answer), content=body, request=outgoing
                    )
                    answer.next_request = next_request
                elif refusal is not None:
                    answer, refusal = refusal, None
                else:
                    return last
                outgoing = await flow.asend(answer)
        except StopAsyncIteration:
            return last
        finally:
            await flow.aclose()

    def _learn(self, body: bytes) -> None:
        said = _object(body)
        self._redact.learn(str(said[field]) for field in _SECRET_FIELDS if said.get(field))


def _challenge(refusal: httpx2.Response, scopes: str | None) -> httpx2.Response:
    """Return a refusal that says what the server's says, and wants these scopes as well."""
    said = {
        "error": "insufficient_scope" if refusal.status_code == 403 else None,
        "scope": union_scopes(scopes, extract_scope_from_www_auth(refusal)),
        "resource_metadata": extract_resource_metadata_from_www_auth(refusal),
    }
    words = ", ".join(f'{key}="{value}"' for key, value in said.items() if value)
    status = 403 if refusal.status_code == 403 else 401
    return httpx2.Response(status, headers={"WWW-Authenticate": f"Bearer {words}"})


def _plain(answer: httpx2.Response) -> dict[str, str]:
    """The headers of an answer whose body is read and decoded."""
    left_out = ("content-encoding", "content-length", "transfer-encoding")
    return {name: value for name, value in answer.headers.items() if name not in left_out}


def _object(body: bytes) -> dict[str, JsonValue]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _error_of(body: bytes) -> str | None:
    """Return the word of an OAuth error, if that is what the body is."""
    word = _object(body).get("error")
    return word if isinstance(word, str) else None


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError) or isinstance(error.__context__, ValidationError):
        # Its words show what was answered, cut so that no redaction would know it.
        return _WRONG
    return str(error) or type(error).__name__
