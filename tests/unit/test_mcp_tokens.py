"""The files with the tokens for MCP servers: whole, private, one for each thing they are good for, and locked."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from celeriac.connectors.mcp_config import HttpServer
from celeriac.connectors.mcp_tokens import (
    TokenFile,
    TokenRecord,
    token_file,
    token_files_of,
    token_folder,
)
from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings

RECORD = TokenRecord(access_token="at-secret-1", refresh_token="rt-secret-1", scope="a b")


def server(**more: object) -> HttpServer:
    oauth = {"grant": "authorization_code", **more}
    return HttpServer.model_validate({"url": "https://h/mcp", "oauth": oauth})


def test_what_was_saved_is_loaded_by_its_owner_alone(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "data" / "tokens" / "web.json")
    assert file.load() is None
    file.save(RECORD)
    assert file.load() == RECORD
    assert TokenFile(file.path).load() == RECORD
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.path.parent.iterdir()] == ["web.json"]


def test_a_record_that_another_process_saved_is_seen(tmp_path: Path) -> None:
    mine, other = TokenFile(tmp_path / "web.json"), TokenFile(tmp_path / "web.json")
    mine.save(RECORD)
    assert mine.load() == RECORD
    newer = RECORD.model_copy(update={"access_token": "at-secret-2"})
    other.save(newer)
    assert mine.load() == newer
    assert other.delete()
    assert mine.load() is None
    assert not other.delete()


def test_a_file_that_cannot_be_read_is_told_without_what_is_in_it(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "web.json")
    file.path.write_text(json.dumps({"access_token": ["at-secret-1"]}))
    with pytest.raises(ConfigurationError) as caught:
        file.load()
    assert "delete it, and log in again" in str(caught.value)
    assert "at-secret-1" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "secret" not in repr(RECORD)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a file")
    file = TokenFile(tmp_path / "tokens" / "web.json")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        file.save(RECORD)


def test_a_folder_that_others_may_enter_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        TokenFile(tmp_path / "web.json").save(RECORD)
    assert f"chmod 700 {tmp_path}" in caplog.text


def test_a_token_is_renewed_a_little_before_it_expires() -> None:
    now = time.time()
    fresh = RECORD.model_copy(update={"obtained_at": now, "expires_at": now + 3600})
    assert not fresh.is_stale()
    late = fresh.model_copy(update={"obtained_at": now - 3580, "expires_at": now + 20})
    assert late.is_stale()
    assert not late.is_expired()
    short = fresh.model_copy(update={"expires_at": now + 10})
    assert not short.is_stale(), "a short life is not all margin"
    assert not RECORD.is_stale(), "when it expires is not known"
    assert TokenRecord().is_stale()


def test_tokens_are_for_one_address_and_one_client(tmp_path: Path) -> None:
    values = {"WEB_ID": "one"}

    def path(one: HttpServer, known: dict[str, str] | None = None) -> Path:
        return token_file(tmp_path, "web", one, values if known is None else known).path

    plain = path(server())
    assert path(server()) == plain
    others = [
        path(server().model_copy(update={"url": "https://other/mcp"})),
        path(server(client_id_env="WEB_ID")),
        path(server(client_id_env="WEB_ID"), {"WEB_ID": "two"}),
        path(server(issuer="https://auth.example")),
        path(server(scopes=["a"])),
    ]
    assert len({plain, *others}) == 6
    for one in (*others, plain, tmp_path / "web-api-0123456789abcdef.json"):
        TokenFile(one).save(RECORD)
    assert {file.path for file in token_files_of(tmp_path, "web")} == {plain, *others}
    assert token_files_of(tmp_path / "none", "web") == []


def test_where_they_are_kept(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert token_folder(settings) == tmp_path / "mcp-tokens"
    assert token_folder(settings.model_copy(update={"mcp_token_dir": tmp_path / "x"})) == (
        tmp_path / "x"
    )


def test_one_holds_the_lock_and_a_killed_process_gives_it_back(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "web.json")
    script = (
        "import fcntl, sys, time\n"
        "held = open(sys.argv[1], 'w'); fcntl.flock(held, fcntl.LOCK_EX)\n"
        "print('held', flush=True); time.sleep(600)"
    )

    async def main() -> None:
        async with file.locked(10):
            with pytest.raises(TimeoutError):
                async with file.locked(0.05):
                    pytest.fail("two hold it")
        with subprocess.Popen(
            [sys.executable, "-c", script, f"{file.path}.lock"], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            with pytest.raises(TimeoutError):
                async with file.locked(0.05):
                    pytest.fail("two hold it")
            process.kill()
            async with file.locked(10):
                pass

    asyncio.run(main())
