from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright
from pydantic import SecretStr
from werkzeug.serving import make_server

from celeriac.sessions.settings import Settings
from celeriac.web import create_app
from celeriac.web.parts import EXTENSION
from celeriac.web.stream import StreamTiming
from tests.web.fake_client import FakeClient

_CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Longer than ever needed on an idle machine: a condition that holds is seen at once anyway.
expect.set_options(timeout=20_000)
TOKEN = "ana's own token"
OpenPage = Callable[..., Page]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep them in one process: each starts a browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))
            item.add_marker(pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    # Not for the whole run: Playwright's event loop would stay in the way of other tests' own loops.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def fake() -> FakeClient:
    return FakeClient()


@pytest.fixture
def address(fake: FakeClient, tmp_path: Path) -> Iterator[str]:
    """A real server on loopback, with one operator: Ana."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    settings = Settings(
        data_dir=tmp_path,
        session_key=SecretStr("a key that only tests know, and long"),
        operators=SecretStr(f"Ana:operator:{digest}"),
    )
    app = create_app(fake, settings)
    streams = app.extensions[EXTENSION].streams
    streams.timing = StreamTiming(block=0.05)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    # Or closing would wait for streams whose browser has gone without a word.
    server.daemon_threads = True  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    streams.close()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def requests() -> list[str]:
    """The address of every request that any page has made."""
    return []


@pytest.fixture
def open_page(
    chromium: Browser, address: str, fake: FakeClient, requests: list[str]
) -> Iterator[OpenPage]:
    """Opens a page with Ana logged in; any script error fails the test."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def note(request: Request) -> None:
        requests.append(request.url)

    def open_it(path: str, **options: object) -> Page:
        context = chromium.new_context(base_url=address, **options)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("request", note)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: (
                errors.append(message.text) if "Security Policy" in message.text else None
            ),
        )
        page.goto("/login")
        page.get_by_label("Operator token").fill(TOKEN)
        page.get_by_role("button", name="Log in with token").click()
        page.goto(path)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def sid(fake: FakeClient) -> str:
    return fake.create_session(message="Please cancel order A-1").session_id
