"""A worker is stuck when it has room, work is queued for it, and it takes nothing."""

from __future__ import annotations

from celeriac.tasks.watchdog import Advice, Watchdog


def advice(dog: Watchdog, *looks: tuple[bool, int]) -> list[Advice]:
    """What it says to one look a second."""
    return [
        dog.look(work_waits=waits, taken=taken, now=second)
        for second, (waits, taken) in enumerate(looks)
    ]


def test_it_connects_anew_and_then_ends() -> None:
    dog = Watchdog(3)
    said = advice(dog, *[(True, 0)] * 7)
    nothing = Advice.NOTHING
    assert said == [nothing] * 3 + [Advice.RECONNECT] + [nothing] * 2 + [Advice.END]
    assert dog.is_stuck


def test_whoever_takes_something_is_not_stuck() -> None:
    dog = Watchdog(3)
    assert set(advice(dog, *[(True, taken) for taken in range(20)])) == {Advice.NOTHING}


def test_waiting_without_work_or_room_is_no_fault() -> None:
    dog = Watchdog(3)
    looks = [(second % 3 != 0, 0) for second in range(20)]
    assert set(advice(dog, *looks)) == {Advice.NOTHING}


def test_an_outage_of_the_store_counts_against_no_worker() -> None:
    dog = Watchdog(3)
    assert advice(dog, *[(True, 0)] * 4)[-1] is Advice.RECONNECT
    dog.forget()
    assert not dog.is_stuck
    assert dog.look(work_waits=True, taken=0, now=60) is Advice.NOTHING
    assert dog.look(work_waits=True, taken=0, now=63) is Advice.RECONNECT


def test_connecting_anew_that_helped_is_forgotten() -> None:
    dog = Watchdog(3)
    assert advice(dog, *[(True, 0)] * 4)[-1] is Advice.RECONNECT
    assert dog.look(work_waits=True, taken=1, now=4) is Advice.NOTHING
    assert not dog.is_stuck
    assert dog.look(work_waits=True, taken=1, now=5) is Advice.NOTHING
    assert dog.look(work_waits=True, taken=1, now=8) is Advice.RECONNECT
