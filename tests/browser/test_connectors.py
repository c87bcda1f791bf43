"""Connectors as a person meets them on the page: real workers, the provider's answers, a real browser."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.connectors.sdk.provider import Provider, json_answer, running_provider
from tests.tasks.cluster import PATIENCE, Cluster

pytestmark = pytest.mark.timeout(240)

AGENTS = str(Path(__file__).parents[1] / "tasks" / "support_agents.py")
TOKEN = "ana's own token"
REFUND = json.dumps({"object": "refund", "id": "re_1", "status": "succeeded", "amount": 500})


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[str]:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    env = {
        "CELERIAC_OPERATORS": f"ana:operator:{digest}",
        "CELERIAC_DEFAULT_AGENT": "support",
        "CELERIAC_CONNECTION_SHOP_CONNECTOR": "stripe",
        "CELERIAC_CONNECTION_SHOP_SECRET_KEY": "sk_test_page",
        "CELERIAC_CONNECTION_SHOP_BASE_URL": provider.url,
    }
    with Cluster(tmp_path_factory.mktemp("page"), agents=AGENTS, env=env) as cluster:
        cluster.start_worker()
        _, url = cluster.start_web()
        yield url


@pytest.fixture
def page(chromium: Browser, base: str) -> Iterator[Page]:
    context = chromium.new_context(base_url=base, viewport={"width": 1000, "height": 1300})
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    page.goto("/login")
    page.get_by_label("Operator token").fill(TOKEN)
    page.get_by_role("button", name="Log in with token").click()
    yield page
    context.close()


def refunds(page: Page, count: int) -> Locator:
    """Begin a session whose model wants so many refunds; return the cards of the calls."""
    call = 'stripe_create_refund {"payment": "ch_1", "amount": 500}'
    page.goto("/sessions")
    page.get_by_label("First message").fill(f"/tools {' '.join([call] * count)}")
    page.get_by_role("button", name="Start session").click()
    cards = page.locator(".call")
    expect(cards).to_have_count(count)
    return cards


def shot(page: Page, name: str) -> None:
    folder = os.environ.get("CELERIAC_TEST_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)


def test_a_call_shows_provider_operation_and_effect(page: Page, provider: Provider) -> None:
    provider.script = [json_answer(REFUND)]
    card = refunds(page, 1).first
    expect(card.locator(".call__title")).to_have_text("Stripe (shop): createRefund")
    expect(card).to_contain_text("Done")
    expect(card.locator(".call__facts")).to_contain_text("Write, safe to repeat")


def test_an_unknown_outcome_is_looked_up_and_those_after_it_were_skipped(
    page: Page, provider: Provider
) -> None:
    busy = json_answer("{}", 500, Retry_After="0")
    provider.script = [busy] * 6
    cards = refunds(page, 3)
    first = cards.first
    expect(first).to_contain_text("Outcome unknown")
    expect(first).to_contain_text("Have it looked up at Stripe (shop), or look there yourself")
    expect(first).to_contain_text("By itself")
    for card in (cards.nth(1), cards.nth(2)):
        expect(card).to_contain_text("Not run")
        expect(card).to_contain_text("of the same response has an unknown outcome")
    shot(page, "unknown")
    provider.script = [json_answer('{"object": "list", "data": [], "has_more": false}')]
    first.get_by_role("button", name="Check at the provider").click()
    expect(first).to_contain_text("Stripe has no refund of this call.")
    expect(first).to_contain_text("Looked up")
    shot(page, "looked-up")
    call_id = (first.get_attribute("id") or "").removeprefix("call-")
    found = {**json.loads(REFUND), "metadata": {"celeriac_call_id": call_id}}
    listed = json.dumps({"object": "list", "data": [found], "has_more": False})
    provider.script = [json_answer(listed)]
    first.get_by_role("button", name="Check at the provider").click()
    expect(first).to_contain_text("Done")
    expect(first.locator(".decision")).to_have_text(
        re.compile(r"Outcome settled later by a look-up at Stripe \(shop\)")
    )
    expect(first.get_by_role("button", name="It happened")).to_have_count(0)
