"""An authorisation server and an MCP server that it protects, both made with the SDK, on ports of their own.

They run in threads of the test, which sees what they were asked and changes what they answer. A refresh token is
good for one use: if one comes twice, everything that was granted with it is revoked, as RFC 9700 has it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import jwt
import uvicorn
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import ToolAnnotations
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["World", "world"]

SCOPE = "mcp:use"
MORE = "mcp:admin"


class World:
    """Both servers.

    Args:
        issuer: Address of the authorisation server.
        resource: Address of the MCP server.
    """

    def __init__(self, issuer: str, resource: str) -> None:
        self.issuer = issuer
        self.url = f"{resource}/mcp"
        self.lifetime_seconds = 3600
        self.public_key = ""
        """PEM of the key that signs for clients without a secret."""
        self.down = False
        """The token endpoint answers 503."""
        self.pause_seconds = 0.0
        """How long the token endpoint thinks."""
        self.answers_wrongly = False
        self.takes_no_token = False
        """The MCP server takes none at all."""
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.used_up: set[str] = set()
        self.issued: list[str] = []
        """Every secret that was handed out."""
        self.grants: list[str] = []
        """Grant of each request for a token, with the error if there was one."""
        self.registrations = 0
        self.refused: list[str] = []
        """Method of each request to the MCP server that was answered 401 or 403."""
        self.acts: list[str] = []
        """Idempotency keys of the writes that ran."""
        self.sent: list[str] = []
        """Token of each request to the MCP server."""
        self.tenants: set[str] = set()
        """Every X-Tenant that requests to it had."""

    def new_token(self, client_id: str, scopes: list[str], *, refreshable: bool) -> OAuthToken:
        access, refresh = f"at-{secrets.token_hex(16)}", f"rt-{secrets.token_hex(16)}"
        self.access[access] = AccessToken(
            token=access,
            client_id=client_id,
            scopes=scopes,
            expires_at=int(time.time()) + self.lifetime_seconds,
            resource=self.url,
        )
        self.issued.append(access)
        if refreshable:
            self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
            self.issued.append(refresh)
        return OAuthToken(
            access_token=access,
            expires_in=self.lifetime_seconds,
            scope=" ".join(scopes),
            refresh_token=refresh if refreshable else None,
        )

    def revoke_everything(self) -> None:
        self.access.clear()
        self.refresh.clear()


class _Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    def __init__(self, here: World) -> None:
        self._here = here

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self._here.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self._here.registrations += 1
        self._here.clients[client_info.client_id] = client_info
        if client_info.client_secret:
            self._here.issued.append(client_info.client_secret)

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = secrets.token_hex(20)
        self._here.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [SCOPE],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self._here.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self._here.codes[authorization_code.code]
        return self._here.new_token(client.client_id, authorization_code.scopes, refreshable=True)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        if refresh_token in self._here.used_up:
            self._here.revoke_everything()
            raise TokenError("invalid_grant", "it was used already")
        return self._here.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self._here.refresh[refresh_token.token]
        self._here.used_up.add(refresh_token.token)
        return self._here.new_token(client.client_id, scopes, refreshable=True)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return None if self._here.takes_no_token else self._here.access.get(token)

    async def verify_token(self, token: str) -> AccessToken | None:
        return await self.load_access_token(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self._here.revoke_everything()


class _TokenEndpoint:
    """The SDK's, and client credentials, which it does not know."""

    def __init__(self, here: World, authority: _Authority) -> None:
        self._here = here
        self._sdk = TokenHandler(authority, ClientAuthenticator(authority))

    async def __call__(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        grant = form["grant_type"]
        await asyncio.sleep(self._here.pause_seconds)
        response = await self._answer(request, grant, form)
        word = "" if response.status_code == 200 else f" {response.status_code}"
        self._here.grants.append(f"{grant}{word}")
        return response

    async def _answer(self, request: Request, grant: str, form: dict[str, str]) -> Response:
        here = self._here
        if here.down:
            return Response(status_code=503)
        if here.answers_wrongly:
            here.issued.append("rt-in-a-broken-answer-0123456789")
            return JSONResponse({"refresh_token": here.issued[-1], "expires_in": 3})
        if grant == "client_credentials":
            return self._own_name(request, form)
        try:
            answer: Response = await self._sdk.handle(request)
        except TokenError as error:
            return JSONResponse({"error": error.error}, 400)
        return answer

    def _own_name(self, request: Request, form: dict[str, str]) -> Response:
        client_id = form.get("client_id", "")
        secret = form.get("client_secret")
        head = request.headers.get("authorization", "")
        if head.startswith("Basic "):
            client_id, secret = map(unquote, base64.b64decode(head[6:]).decode().split(":"))
        if "client_assertion" in form:
            client_id, secret = self._signed_by(form["client_assertion"])
        client = self._here.clients.get(client_id)
        if client is None or client.client_secret != secret:
            return JSONResponse({"error": "invalid_client"}, 401)
        scopes = form.get("scope", SCOPE).split()
        made = self._here.new_token(client.client_id, scopes, refreshable=False)
        return JSONResponse(made.model_dump(exclude_none=True))

    def _signed_by(self, assertion: str) -> tuple[str, None]:
        issuer = f"{self._here.issuer}/"  # as its metadata have it
        said = jwt.decode(assertion, self._here.public_key, algorithms=["ES256"], audience=issuer)
        assert said["iss"] == said["sub"]
        return str(said["sub"]), None


def _authority_app(here: World) -> Starlette:
    authority = _Authority(here)
    routes = create_auth_routes(
        authority,
        AnyHttpUrl(here.issuer),
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=[SCOPE, MORE], default_scopes=[SCOPE, MORE]
        ),
    )
    token = _TokenEndpoint(here, authority)

    async def answer(request: Request) -> Response:
        return await token(request)

    return Starlette(routes=[Route("/token", answer, methods=["POST"]), *routes])


def _mcp_app(here: World) -> ASGIApp:
    server = MCPServer(
        "guarded",
        token_verifier=_Authority(here),
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(here.issuer),
            resource_server_url=AnyHttpUrl(here.url),
            required_scopes=[SCOPE],
            validate_token_resource=True,
        ),
    )

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def wait(seconds: float) -> str:
        """Take a while."""
        await asyncio.sleep(seconds)
        return "waited"

    @server.tool()
    def act(context: Context) -> str:
        """Change something."""
        meta = dict(context.request_context.meta or {})
        here.acts.append(str(meta["celeriac/idempotencyKey"]))
        return "done"

    @server.tool()
    def admin() -> str:
        """Needs more."""
        return "administered"

    return _Gate(here, server.streamable_http_app(json_response=True))


class _Gate:
    """Sees what comes to the MCP server, and wants another scope for one tool."""

    def __init__(self, here: World, app: ASGIApp) -> None:
        self._here, self._app = here, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        said = json.loads(body)
        method = str(said.get("method"))
        headers = dict(scope["headers"])
        token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        self._here.sent.append(token)
        self._here.tenants.add(headers.get(b"x-tenant", b"").decode())
        is_admin = method == "tools/call" and said["params"]["name"] == "admin"
        known = self._here.access.get(token)
        if is_admin and known is not None and MORE not in known.scopes:
            self._here.refused.append(method)
            told = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{MORE}"'}
            await JSONResponse({}, 403, headers=told)(scope, receive, send)
            return

        given = False

        async def again() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def seen(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] in (401, 403):
                self._here.refused.append(method)
            await send(message)

        await self._app(scope, again, seen)


@contextmanager
def _serving(app: ASGIApp, listener: socket.socket) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def world() -> Iterator[World]:
    """Run both servers."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        issuer, resource = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in listeners)
        here = World(issuer, resource)
        stack.enter_context(_serving(_authority_app(here), listeners[0]))
        stack.enter_context(_serving(_mcp_app(here), listeners[1]))
        yield here
