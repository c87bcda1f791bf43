"""An MCP server over stdio, written by hand so that it can break every rule. It imports no SDK and starts at once.

``odd_stdio.py FOLDER``: it reads its tools from ``FOLDER/tools.json`` at each listing, and leaves a line in
``FOLDER/journal`` for whatever happens. What a call does is in its arguments:

=============  ==================================================================================
argument       meaning
=============  ==================================================================================
``result``     the result to send, as it is
``long``       length of a text to send as the result, in bytes
``error``      the JSON-RPC error to send
``noise``      what is written around the answer: ``stderr``, ``junk``, ``split``
``gate``       wait until the file ``FOLDER/gate-<gate>`` is there
``progress``   reports before the gate
``changes``    change notices before the gate
``die``        ``before`` the effect, or ``after`` it, without an answer
``child``      start a child that ignores the end of its input
=============  ==================================================================================
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
_lock = threading.Lock()
_pause = threading.Event()
_cancelled: set[object] = set()


def journal(what: str, **more: object) -> None:
    line = json.dumps({"what": what, "pid": os.getpid(), **more})
    with (FOLDER / "journal").open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def write(data: bytes) -> None:
    with _lock:
        os.write(1, data) if len(data) < 4096 else sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def send(**message: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + b"\n")


def is_open(gate: str) -> bool:
    return (FOLDER / f"gate-{gate}").exists()


def make_noise(kind: str) -> None:
    if kind == "stderr":
        sys.stderr.write("x" * 1_000_000 + "\nthe password is " + os.environ.get("ODD_SECRET", ""))
        sys.stderr.flush()
    elif kind == "junk":
        write(b'Welcome to the odd server\n\n{"jsonrpc": "2.0", "id": 1, "resu\n\xff\xfe\n')


def answer(request_id: object, arguments: dict[str, Any]) -> None:
    if "error" in arguments:
        send(id=request_id, error=arguments["error"])
        return
    text = "ü" * (arguments["long"] // 2) if "long" in arguments else "done"
    result = arguments.get("result", {"content": [{"type": "text", "text": text}]})
    if arguments.get("noise") != "split":
        send(id=request_id, result=result)
        return
    line = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}, ensure_ascii=False)
    data = line.encode() + b"\n"
    middle = data.index("ü".encode()) + 1
    write(data[:middle])
    _pause.wait(0.1)
    write(data[middle:])


def run_call(request: dict[str, Any]) -> None:
    request_id, params = request["id"], request["params"]
    arguments, meta = params.get("arguments") or {}, params.get("_meta") or {}
    key = meta.get("celeriac/idempotencyKey")
    journal("entered", tool=params["name"], key=key)
    if arguments.get("die") == "before":
        os.write(2, f"the key {os.environ.get('ODD_SECRET')} is not valid\n".encode())
        os._exit(3)
    if arguments.get("child"):
        script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); signal.pause()"
        child = subprocess.Popen([sys.executable, "-S", "-c", script])
        journal("child", child=child.pid)
    make_noise(arguments.get("noise", ""))
    for number in range(arguments.get("progress", 0)):
        token = meta["progressToken"]
        told = {"progressToken": token, "progress": number + 1, "total": 9, "message": "so far"}
        send(method="notifications/progress", params=told)
        _pause.wait(arguments.get("every", 0.05))
    for _ in range(arguments.get("changes", 0)):
        send(method="notifications/tools/list_changed")
    while "gate" in arguments and not is_open(arguments["gate"]):
        if request_id in _cancelled:
            journal("stopped", key=key)
            return
        _pause.wait(0.01)
    journal("effect", tool=params["name"], key=key)
    if arguments.get("die") == "after":
        os._exit(4)
    answer(request_id, arguments)


def listed(params: dict[str, Any]) -> dict[str, Any]:
    journal("list")
    tools = json.loads((FOLDER / "tools.json").read_text())
    size = int(os.environ.get("ODD_PAGE", "1000"))
    start = int(params.get("cursor") or 0)
    page = {"tools": tools[start : start + size]}
    return page | ({"nextCursor": str(start + size)} if start + size < len(tools) else {})


def resources(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("cursor"):
        return {"resources": [{"name": "second", "uri": "note://2"}]}
    return {"resources": [{"name": "note", "uri": "note://1"}], "nextCursor": "2"}


def resource(params: dict[str, Any]) -> dict[str, Any] | None:
    if params["uri"] != "note://1":
        return None
    return {"contents": [{"uri": "note://1", "text": "the note"}]}


def prompt(params: dict[str, Any]) -> dict[str, Any]:
    text = f"Greet {params['arguments']['who']}."
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


RESOURCES: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "resources/list": resources,
    "resources/templates/list": lambda _: {
        "resourceTemplates": [{"name": "any", "uriTemplate": "note://{id}"}]
    },
    "resources/read": resource,
    "prompts/list": lambda _: {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]},
    "prompts/get": prompt,
}


def handle(request: dict[str, Any]) -> None:
    method, params = request.get("method"), request.get("params") or {}
    if method == "initialize":
        capabilities: dict[str, Any] = {"tools": {"listChanged": bool(os.environ.get("ODD_TELLS"))}}
        if os.environ.get("ODD_RESOURCES"):
            capabilities |= {"resources": {}, "prompts": {}}
        info = {"name": "odd", "version": "1"}
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": info,
        }
        send(id=request["id"], result=result)
    elif method == "tools/list":
        if os.environ.get("ODD_LIST") == "hang":
            return
        send(id=request["id"], result=listed(params))
    elif method == "tools/call":
        threading.Thread(target=run_call, args=[request], daemon=True).start()
    elif os.environ.get("ODD_RESOURCES") and method in RESOURCES:
        answer = RESOURCES[method](params)
        if answer is None:
            send(id=request["id"], error={"code": -32002, "message": "no such resource"})
        else:
            send(id=request["id"], result=answer)
    elif method == "notifications/cancelled":
        journal("cancelled", reason=params.get("reason"))
        _cancelled.add(params["requestId"])
    elif "id" in request:
        send(id=request["id"], error={"code": -32601, "message": f"no {method}"})


def main() -> None:
    journal("start", parent=os.getppid())
    if os.environ.get("ODD_START") == "fail":
        sys.exit("odd: the database password is " + os.environ.get("ODD_SECRET", "none"))
    if os.environ.get("ODD_START") == "hang":
        _pause.wait()
    for line in sys.stdin.buffer:
        handle(json.loads(line))
    journal("end")
    if os.environ.get("ODD_STAYS"):
        _pause.wait()


if __name__ == "__main__":
    main()
