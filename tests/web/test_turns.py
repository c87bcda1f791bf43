from __future__ import annotations

import threading

from celeriac.web.turns import Turns


def test_whoever_waits_comes_before_one_that_returns() -> None:
    turns = Turns(1)
    waits, order = threading.Event(), []

    def wait() -> None:
        waits.set()
        with turns.turn():
            order.append("waited")

    with turns.turn():
        thread = threading.Thread(target=wait)
        thread.start()
        waits.wait()
        while not turns._waiting:
            threading.Event().wait(0.001)
    with turns.turn():
        order.append("returned")
    thread.join()
    assert order == ["waited", "returned"]


def test_no_more_than_the_places_at_a_time() -> None:
    turns = Turns(3)
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with turns.turn():
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 3
    assert turns._free == 3
