"""A store whose clock is ahead of the machine's: months pass between two starts of it.

The server gets its time from the C library; a few lines that are loaded before it add to that. They are
compiled where there is a C compiler (every machine that runs CI has one), else the tests that need them are
skipped.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from celeriac.sessions.store import embedded
from celeriac.sessions.store.embedded_server import find_server

_SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long ahead(void) {
    const char *seconds = getenv("CLOCK_AHEAD_SECONDS");
    return seconds ? atol(seconds) : 0;
}
int gettimeofday(struct timeval *tv, void *zone) {
    int failed = syscall(SYS_gettimeofday, tv, zone);
    if (!failed && tv) tv->tv_sec += ahead();
    return failed;
}
int clock_gettime(clockid_t id, struct timespec *ts) {
    int failed = syscall(SYS_clock_gettime, id, ts);
    if (!failed && id == CLOCK_REALTIME) ts->tv_sec += ahead();
    return failed;
}
time_t time(time_t *out) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out) *out = ts.tv_sec;
    return ts.tv_sec;
}
"""

needs_moved_clock = pytest.mark.skipif(
    shutil.which("cc") is None, reason="a C compiler is needed to move the store's clock"
)


@contextmanager
def clock_ahead(directory: Path, seconds: int) -> Iterator[None]:
    """Every embedded store that is started meanwhile has a clock that is so many seconds ahead."""
    library = directory / "clock.so"
    if not library.exists():
        source = directory / "clock.c"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    program = directory / "valkey-ahead"
    program.write_text(
        f'#!/bin/sh\nexec env LD_PRELOAD="{library}" CLOCK_AHEAD_SECONDS={seconds} "{find_server()}" "$@"\n'
    )
    program.chmod(0o700)
    with mock.patch.object(embedded, "find_server", return_value=program):
        yield
