"""A session of many long messages in a real browser: all of it is there, and what blocked the page is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.test_session_page import live
from tests.web.fake_client import FakeClient

pytestmark = pytest.mark.timeout(180)

CODE = "\n".join(
    f"    total_{number} = sum(line.price * {number} for line in lines)" for number in range(150)
)
LONG = f"Here is part {{}}:\n\n```python\ndef price(lines):\n{CODE}\n```\n"
WATCH = """window.tasks = [];
  new PerformanceObserver(list => window.tasks.push(...list.getEntries().map(one => Math.round(one.duration))))
    .observe({type: "longtask", buffered: true});"""
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def blocked(page: Page) -> list[int]:
    """The tasks of over 50 ms since the last time, in milliseconds."""
    page.evaluate(FRAMES)
    tasks: list[int] = page.evaluate("() => window.tasks.splice(0)")
    return tasks


def test_two_hundred_messages_of_long_code_are_shown_and_streamed_below(
    open_page: OpenPage, fake: FakeClient, record_property: Callable[[str, object], None]
) -> None:
    sid = fake.create_session().session_id
    for number in range(200):
        fake.say(sid, LONG.format(number))
    page = open_page("/sessions")
    page.add_init_script(WATCH)
    page.goto(f"/sessions/{sid}")
    live(page)
    expect(page.locator(".message--assistant pre")).to_have_count(200)
    told = {"shown": blocked(page)}
    fake.sessions[sid].turn_id = "t1"
    for number in range(300):
        fake.delta(sid, f"word {number} ")
    expect(page.locator("#live")).to_contain_text("word 299")
    told["streamed"] = blocked(page)
    fake.reply(sid, LONG.format("last"))
    expect(page.locator(".transcript > article").last).to_contain_text("Here is part last")
    # The first ones make room, and the page says where they went.
    expect(page.get_by_role("link", name="Show older messages")).to_be_visible()
    told["read anew"] = blocked(page)
    page.mouse.move(400, 300)
    for _ in range(20):
        page.mouse.wheel(0, -3000)
    told["scrolled"] = blocked(page)
    for what, tasks in told.items():
        print(f"{what}: tasks over 50 ms: {tasks}")  # noqa: T201 - no bound holds on every machine
        record_property(f"long_tasks_{what}", str(tasks))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
