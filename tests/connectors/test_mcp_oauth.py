"""OAuth for HTTP servers, against a real authorisation server: who gets a token, when, and what it means for a call."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
)

from celeriac.connectors.mcp_config import HttpServer, values_of
from celeriac.connectors.mcp_grants import Browser, Grants
from celeriac.connectors.mcp_providers import LoginProvider, Storage
from celeriac.connectors.mcp_tokens import TokenFile, TokenRecord, token_file, token_folder
from celeriac.connectors.redactor import Redactor
from celeriac.sessions.errors import ToolNotRun
from celeriac.sessions.settings import load_settings
from celeriac.sessions.tools import ToolResult
from tests.connectors import oauth_client
from tests.connectors.mcp_talk import http_server, opened, outcome, until
from tests.mcp_servers.oauth_world import MORE, SCOPE, World, world

LOGIN = {"grant": "authorization_code"}
ID, SECRET = "worker-7", "s3cret/with:odd=signs"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("CELERIAC_MCP_TOKEN_DIR", str(tmp_path / "tokens"))
    monkeypatch.setenv("TEST_CLIENT_ID", ID)
    monkeypatch.setenv("TEST_CLIENT_SECRET", SECRET)
    load_settings.cache_clear()
    with world() as made:
        made.clients[ID] = OAuthClientInformationFull(
            client_id=ID, client_secret=SECRET, redirect_uris=None
        )
        yield made
    load_settings.cache_clear()


def guarded(here: World, **oauth: object) -> HttpServer:
    return http_server(here.url, oauth=oauth)


def own_name(here: World, **more: object) -> HttpServer:
    return guarded(
        here,
        grant="client_credentials",
        issuer=here.issuer,
        client_id_env="TEST_CLIENT_ID",
        client_secret_env="TEST_CLIENT_SECRET",
        **more,
    )


def file_of(server: HttpServer) -> TokenFile:
    return token_file(
        token_folder(load_settings()), "guarded", server, values_of("guarded", server)
    )


async def log_in(server: HttpServer) -> TokenRecord:
    """Log in as a person does: open the address, and bring back what the browser is sent back with."""
    brought: dict[str, str] = {}

    async def show(address: str) -> None:
        async with httpx.AsyncClient() as client:
            answer = await client.get(address)
        assert answer.status_code == 302, answer.text
        brought.update(httpx.URL(answer.headers["location"]).params)

    async def result() -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(brought)

    browser = Browser("http://127.0.0.1:1/callback", show, result)
    file = file_of(server)
    record = await Grants(server, values_of("guarded", server), Redactor([])).logged_in(
        file.load(), browser
    )
    file.save(record)
    return record


def change(server: HttpServer, **fields: object) -> None:
    record = file_of(server).load()
    assert record is not None
    file_of(server).save(record.model_copy(update=fields))


def test_a_worker_asks_for_a_token_in_its_own_name(here: World) -> None:
    async def main() -> None:
        server = own_name(here)
        async with opened({"guarded": server}, resources=False) as open_:
            assert (await open_.call("echo", text="Grüße")).value == "Grüße"
            assert (await open_.call("act", key="key-1")).value == "done"
        assert here.grants == ["client_credentials"]
        # Another process uses the same token.
        async with opened({"guarded": server}, resources=False) as open_:
            assert (await open_.call("echo", text="again")).value == "again"
        assert here.grants == ["client_credentials"]
        record = file_of(server).load()
        assert record is not None
        assert record.scope == SCOPE
        assert record.refresh_token is None

    asyncio.run(main())


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_the_secret_is_sent_as_configured(here: World, method: str) -> None:
    async def main() -> None:
        server = own_name(here, token_endpoint_auth_method=method)
        async with opened({"guarded": server}, resources=False) as open_:
            end = await outcome(open_.call("echo", text="x"))
        # The SDK sends no client id along in the body with Basic; the server takes both ways.
        assert isinstance(end, ToolResult), end

    asyncio.run(main())


def test_a_key_signs_instead_of_a_secret(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    monkeypatch.setenv("TEST_PRIVATE_KEY", pem)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    here.public_key = public.decode()
    here.clients["signer"] = OAuthClientInformationFull(client_id="signer")
    monkeypatch.setenv("TEST_CLIENT_ID", "signer")
    server = guarded(
        here,
        grant="client_credentials",
        issuer=here.issuer,
        client_id_env="TEST_CLIENT_ID",
        private_key_env="TEST_PRIVATE_KEY",
        signing_algorithm="ES256",
    )

    async def main() -> None:
        async with opened({"guarded": server}, resources=False) as open_:
            assert (await open_.call("echo", text="x")).value == "x"
        file_of(server).delete()
        monkeypatch.setenv("TEST_PRIVATE_KEY", pem.replace("A", "B"))
        async with opened({"guarded": server}, resources=False) as open_:
            (why,) = await open_.unlisted()
        assert "no access token" in why
        assert pem.splitlines()[1][:20] not in why

    asyncio.run(main())
    assert here.grants == ["client_credentials"]


def test_a_secret_goes_to_no_other_authorisation_server(here: World) -> None:
    async def main() -> None:
        server = own_name(here)
        assert server.oauth is not None
        other = server.oauth.model_copy(update={"issuer": "https://auth.example"})
        server = server.model_copy(update={"oauth": other})
        async with opened({"guarded": server}, resources=False) as open_:
            (why,) = await open_.unlisted()
        assert "issuer" in why
        assert here.grants == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("issuer", "named", "taken"),
    [
        ("http://here.example/oauth", None, True),
        ("http://here.example", None, True),
        ("https://here.example/oauth", None, False),
        ("http://here.example:81/oauth", None, False),
        ("http://there.example/oauth", None, False),
        ("http://here.example/oauth", "http://here.example/other", False),
    ],
)
def test_a_server_that_names_no_authorisation_server_may_have_one_elsewhere_on_its_host(
    issuer: str, named: str | None, taken: bool
) -> None:
    provider = LoginProvider(
        "http://here.example/mcp", OAuthClientMetadata(redirect_uris=None), Storage(None, None)
    )
    provider.issuer = issuer
    provider.context.auth_server_url = named
    if taken:
        assert provider._expected_issuer() == issuer
    else:
        with pytest.raises(OAuthFlowError, match="it names the authorisation server"):
            provider._expected_issuer()


def test_an_expired_token_in_the_workers_name_is_replaced(here: World) -> None:
    async def main() -> None:
        server = own_name(here)
        async with opened({"guarded": server}, resources=False) as open_:
            await open_.tools()
            here.access.clear()
            assert (await open_.call("act", key="key-1")).value == "done"
        assert here.acts == ["key-1"], "what was refused did not run"
        assert here.grants == ["client_credentials"] * 2
        assert "tools/call" in here.refused

    asyncio.run(main())


def test_more_scope_is_asked_for_where_a_call_wants_it_and_once(here: World) -> None:
    async def main() -> None:
        server = own_name(here)
        async with opened({"guarded": server}, resources=False) as open_:
            assert (await open_.call("admin")).value == "administered"
        record = file_of(server).load()
        assert record is not None
        assert set(str(record.scope).split()) == {SCOPE, MORE}
        assert here.grants == ["client_credentials"] * 2

    asyncio.run(main())


def test_nobody_logged_in_the_server_is_left_out_and_told(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        async with opened({"guarded": server}, resources=False) as open_:
            (why,) = await open_.unlisted()
            assert "MCP server guarded: nobody has logged in to it" in why
            assert "run `celeriac mcp login guarded`" in why
            assert here.sent == [], "nothing was asked"
            assert here.registrations == 0
            await log_in(server)
            async with asyncio.timeout(30):
                while not await open_.tools():
                    await asyncio.sleep(0.05)
            assert (await open_.call("echo", text="in")).value == "in"
        assert here.registrations == 1

    asyncio.run(main())


def test_a_login_is_stored_for_its_owner_alone(here: World) -> None:
    server = guarded(here, **LOGIN)
    asyncio.run(log_in(server))
    path = file_of(server).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    stored = json.loads(path.read_text())
    assert stored["refresh_token"] in here.issued
    assert urlsplit(stored["authorization_server"]["token_endpoint"]).netloc in here.issuer


def test_an_expiring_token_is_renewed_before_it_is_used(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        first = await log_in(server)
        change(server, obtained_at=time.time() - 100, expires_at=time.time() + 8)
        async with opened({"guarded": server}, resources=False) as open_:
            assert (await open_.call("echo", text="x")).value == "x"
        assert here.grants == ["authorization_code", "refresh_token"]
        assert here.refused == ["ping"], "only the login met a refusal"
        assert first.access_token not in here.sent
        record = file_of(server).load()
        assert record is not None
        assert record.refresh_token != first.refresh_token, "it was rotated"
        assert record.client == first.client

    asyncio.run(main())


def test_a_revoked_access_token_is_renewed_in_the_middle_of_a_session(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        async with opened({"guarded": server}, resources=False) as open_:
            await open_.tools()
            here.access.clear()
            assert (await open_.call("act", key="key-1")).value == "done"
        assert here.acts == ["key-1"]
        assert here.grants == ["authorization_code", "refresh_token"]

    asyncio.run(main())


def test_a_token_that_another_process_renewed_is_taken(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        async with opened({"guarded": server}, resources=False) as open_:
            await open_.tools()
            here.access.clear()
            await asyncio.to_thread(_in_another_process, here, server)
            assert here.grants == ["authorization_code", "refresh_token"]
            assert (await open_.call("act", key="key-2")).value == "done"
        assert here.grants == ["authorization_code", "refresh_token"]

    asyncio.run(main())


def _in_another_process(here: World, server: HttpServer, times: int = 1) -> list[str]:
    script = str(Path(oauth_client.__file__))
    with subprocess.Popen(
        [sys.executable, script, server.model_dump_json(exclude_defaults=True), str(times)],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return [str(one) for one in json.loads(said)]


def test_processes_that_renew_at_once_use_a_refresh_token_once(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        change(server, expires_at=time.time() - 1)
        here.pause_seconds = 0.3
        runs = [asyncio.to_thread(_in_another_process, here, server, 8) for _ in range(3)]
        for answers in await asyncio.gather(*runs):
            assert answers == ["x"] * 8
        assert here.grants == ["authorization_code", "refresh_token"]

    asyncio.run(main())


def test_a_login_that_was_revoked_ends_the_calls_as_not_run(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        async with opened({"guarded": server}, resources=True) as open_:
            await open_.tools()
            here.revoke_everything()
            end = await outcome(open_.call("act", key="key-1"))
            assert isinstance(end, ToolNotRun), end
            assert "its login has ended (invalid_grant): run `celeriac mcp login guarded`" in str(
                end
            )
            # From then on it is left out, without asking anybody.
            await open_.unlisted()
            (pooled,) = open_.source._pooled()
            session = pooled._session
            assert session is not None
            await until(lambda: session._task is None or session._task.done(), "it is closed")
            asked = len(here.sent)
            (why,) = await open_.unlisted()
            assert "run `celeriac mcp login guarded`" in why
            assert len(here.sent) == asked
        assert here.acts == []
        assert here.grants == ["authorization_code", "refresh_token 400"]

    asyncio.run(main())


def test_a_server_that_takes_no_token_is_told(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        here.takes_no_token = True
        async with opened({"guarded": server}, resources=False) as open_:
            (why,) = await open_.unlisted()
        assert "it does not take the token of the last login" in why

    asyncio.run(main())


def test_an_authorisation_server_that_is_down_costs_nothing_that_is_known(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        here.down = True
        # The access token is about to expire, and still good.
        change(server, obtained_at=time.time() - 100, expires_at=time.time() + 8)
        async with opened({"guarded": server}, resources=False) as open_:
            assert (await open_.call("echo", text="x")).value == "x"
            here.access.clear()
            end = await outcome(open_.call("act", key="key-1"))
            assert isinstance(end, ToolNotRun)
            assert "its authorisation server answered HTTP 503 to a refresh" in str(end)
            here.down = False
            async with asyncio.timeout(30):
                while not await open_.tools():
                    await asyncio.sleep(0.05)
            assert (await open_.call("act", key="key-2")).value == "done"
        assert here.acts == ["key-2"]

    asyncio.run(main())


def test_a_login_with_too_little_scope_asks_for_another_login(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        async with opened({"guarded": server}, resources=False) as open_:
            end = await outcome(open_.call("admin", key="key-1"))
            assert isinstance(end, ToolNotRun)
            assert f"it wants more rights than the last login gave ({MORE})" in str(end)
            assert (await open_.call("echo", text="x")).value == "x", "the rest works"
            record = await log_in(server)
            assert set(str(record.scope).split()) == {SCOPE, MORE}
            assert (await open_.call("admin", key="key-2")).value == "administered"

    asyncio.run(main())


def test_configured_scopes_are_asked_for(here: World) -> None:
    record = asyncio.run(log_in(guarded(here, **LOGIN, scopes=[SCOPE, MORE])))
    assert set(str(record.scope).split()) == {SCOPE, MORE}


def test_a_client_of_the_configuration_is_not_registered(here: World) -> None:
    here.clients[ID] = OAuthClientInformationFull.model_validate(
        {
            "client_id": ID,
            "client_secret": SECRET,
            "token_endpoint_auth_method": "client_secret_post",
            "redirect_uris": ["http://127.0.0.1:1/callback"],
            "scope": f"{SCOPE} {MORE}",
        }
    )
    server = guarded(
        here,
        **LOGIN,
        issuer=here.issuer,
        client_id_env="TEST_CLIENT_ID",
        client_secret_env="TEST_CLIENT_SECRET",
        token_endpoint_auth_method="client_secret_post",
    )

    async def main() -> None:
        await log_in(server)
        change(server, expires_at=time.time() - 1)
        async with opened({"guarded": server}, resources=False) as open_:
            assert (await open_.call("echo", text="x")).value == "x"

    asyncio.run(main())
    assert here.registrations == 0
    assert here.grants == ["authorization_code", "refresh_token"]
    assert SECRET not in file_of(server).path.read_text()


def test_other_headers_are_sent_with_the_token(here: World) -> None:
    async def main() -> None:
        server = http_server(here.url, oauth=LOGIN, headers={"X-Tenant": "TEST_CLIENT_ID"})
        await log_in(server)
        async with opened({"guarded": server}, resources=False) as open_:
            assert (await open_.call("echo", text="x")).value == "x"
        assert here.tenants == {ID}

    asyncio.run(main())


def test_a_slow_call_keeps_no_other_waiting(here: World) -> None:
    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        async with opened({"guarded": server}, resources=False) as open_:
            await open_.tools()
            slow = asyncio.create_task(open_.call("wait", key="key-1", seconds=30))
            for number in range(3):
                assert (await open_.call("echo", key=f"k{number}", text="x")).value == "x"
            assert not slow.done()
            slow.cancel()

    asyncio.run(main())


def test_no_secret_is_told_or_logged(here: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []

    async def main() -> None:
        server = guarded(here, **LOGIN)
        await log_in(server)
        change(server, expires_at=time.time() - 1)
        here.answers_wrongly = True
        async with opened({"guarded": server}, resources=False) as open_:
            said.extend(await open_.unlisted())
        here.answers_wrongly = False
        async with opened({"guarded": own_name(here)}, resources=False) as open_:
            said.append(repr(await open_.call("echo", text="x")))
            here.answers_wrongly = True
            here.access.clear()
            open_.source.forget_tools("guarded")
            said.extend(await open_.unlisted())
            said.append(repr(server))
        record = file_of(server).load()
        said.append(repr(record))

    asyncio.run(main())
    assert " ".join(said).count("what OAuth does not allow") == 2
    # The servers of the test log too; what is looked at is ours.
    logged = [
        r.getMessage() for r in caplog.records if r.name.startswith(("celeriac", "mcp.client"))
    ]
    for secret in [*here.issued, SECRET]:
        assert secret not in " ".join(said)
        assert secret not in " ".join(logged)
