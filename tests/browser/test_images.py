"""Images in the composer: chosen, dropped, taken out again, sent and shown."""

from __future__ import annotations

import pytest
from playwright.sync_api import FilePayload, expect

from tests.browser.conftest import OpenPage
from tests.browser.test_session_page import PHONE, live
from tests.pictures import png
from tests.web.fake_client import FakeClient

DROP = """([form, bytes]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], "dropped.png", { type: "image/png" }));
  form.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
def test_images_are_chosen_dropped_removed_and_sent(
    open_page: OpenPage, fake: FakeClient, options: dict[str, object]
) -> None:
    sid = fake.create_session().session_id
    page = live(open_page(f"/sessions/{sid}", **options))
    pictures: list[FilePayload] = [
        {"name": f"{name}.png", "mimeType": "image/png", "buffer": png(40, height)}
        for height, name in ((30, "first"), (31, "second"))
    ]
    page.get_by_label("Attach images").set_input_files(pictures)
    chosen = page.get_by_label("Chosen images")
    expect(chosen.get_by_role("listitem")).to_have_count(2)
    page.evaluate(DROP, [page.locator("#composer").element_handle(), list(png(40, 32))])
    expect(chosen).to_contain_text("dropped.png")
    page.get_by_role("button", name="Remove second.png").click()
    expect(chosen.get_by_role("listitem")).to_have_count(2)
    page.get_by_role("button", name="Send").click()
    expect(chosen).to_be_hidden()
    shown = page.locator(".message--user img")
    expect(shown).to_have_count(2)
    expect(page.get_by_alt_text("dropped.png")).to_be_visible()
    for number in range(2):
        expect(shown.nth(number)).to_have_js_property("naturalWidth", 40)
    sent = fake.sessions[sid].messages[0]
    assert [image.name for image in sent.images] == ["first.png", "dropped.png"]


def test_without_scripts_the_file_field_does_the_same(
    open_page: OpenPage, fake: FakeClient
) -> None:
    sid = fake.create_session().session_id
    page = open_page(f"/sessions/{sid}", java_script_enabled=False)
    picture: FilePayload = {"name": "a.png", "mimeType": "image/png", "buffer": png()}
    page.get_by_label("Attach images").set_input_files([picture])
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_alt_text("a.png")).to_be_visible()
