"""Another worker process: ``oauth_client.py SERVER TIMES`` calls ``echo`` so often at once, and prints the ends."""

from __future__ import annotations

import asyncio
import json
import sys

from celeriac.connectors.mcp_config import HttpServer
from tests.connectors.mcp_talk import opened


async def main(server: HttpServer, times: int) -> None:
    async with opened({"guarded": server}, resources=False) as here:
        calls = [here.call("echo", key=f"key-{number}", text="x") for number in range(times)]
        results = await asyncio.gather(*calls)
    sys.stdout.write(json.dumps([result.value for result in results]))


if __name__ == "__main__":
    asyncio.run(main(HttpServer.model_validate_json(sys.argv[1]), int(sys.argv[2])))
