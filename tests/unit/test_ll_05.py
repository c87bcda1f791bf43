"""LL-05: the wait that a provider asks for is honoured without a worker; there is one layer of retries.

The requests themselves are counted in ``tests/connectors``: one for each attempt.
"""

from __future__ import annotations

import pytest

from celeriac.sessions.draft import Rules
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Role
from celeriac.sessions.state import StepName
from celeriac.sessions.views import turn_view
from tests.unit.world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.send("hello")
    return world


@pytest.mark.parametrize("wait_ms", [1, 1_500, 7_000, Rules().provider_wait_max_ms])
def test_ll_05_no_attempt_before_the_stated_time_and_no_worker_meanwhile(
    world: World, wait_ms: int
) -> None:
    step = world.start_model()
    sent = len(world.sent)
    world.breaks(step, "busy", delay_ms=wait_ms, kind=FailureKind.BUSY)
    [waiting] = world.state.steps
    assert not waiting.timing.claimed
    assert waiting.timing.not_before == world.now + wait_ms == world.state.wake_at
    shown = turn_view(world.state)
    assert shown is not None
    assert (shown.steps[0].state, shown.steps[0].last_failure) == ("retrying", FailureKind.BUSY)
    world.pass_time(wait_ms - 1)
    world.wake()
    assert world.claim(waiting) is None
    assert len(world.sent) == sent, "no message is with the broker either"
    world.pass_time(1)
    world.wake()
    assert world.claim(waiting) is not None


def test_ll_05_three_attempts_and_no_more(world: World) -> None:
    attempts = 0
    while not world.idle:
        world.wait_for_retry()
        attempts += 1
        world.breaks(world.start_model(), f"busy {attempts}", delay_ms=1, kind=FailureKind.BUSY)
    assert attempts == 3
    notice = world.log[-1]
    assert notice.role is Role.NOTICE
    assert notice.text == "This turn failed: the model call failed 3 times; the last error: busy 3"
    assert notice.failure is FailureKind.BUSY


@pytest.mark.parametrize("wait_ms", [Rules().provider_wait_max_ms + 1, 3_600_000])
def test_ll_05_a_wait_over_the_cap_ends_the_turn_and_says_so(world: World, wait_ms: int) -> None:
    world.breaks(world.start_model(), "busy", delay_ms=wait_ms, kind=FailureKind.BUSY)
    assert world.idle
    text = world.log[-1].text
    assert text.startswith("This turn failed: busy (the provider asks to wait ")
    assert f"{wait_ms // 1000} s" in text
    assert "CELERIAC_PROVIDER_WAIT_MAX_SECONDS" in text


def test_ll_05_stop_acts_at_once_during_the_wait(world: World) -> None:
    world.breaks(world.start_model(), delay_ms=600_000, kind=FailureKind.BUSY)
    world.cancel()
    assert world.idle
    assert world.state.wake_at is None
    assert world.route[-2:] == [StepName.RUN_MODEL, StepName.APPLY_TURN_CONTROL]


@pytest.mark.parametrize(
    "kind",
    [FailureKind.QUOTA, FailureKind.AUTHENTICATION, FailureKind.CONTENT_POLICY],
)
def test_what_no_wait_puts_right_is_not_tried_again(world: World, kind: FailureKind) -> None:
    world.breaks(world.start_model(), retryable=False, delay_ms=1_000, kind=kind)
    assert world.idle
    assert world.log[-1].failure is kind
