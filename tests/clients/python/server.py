"""A server of the Python SDK, version 1 or 2, whose tools count.

    server.py            over stdio
    server.py --http     over Streamable HTTP; its URL is the first line on standard output

Each call adds a line, the tool's name and its argument, to the file that SEMEL_COUNT names, and is
answered `ms` milliseconds later. The file whose name ends in .pids has the process beside each line,
and the one that ends in .over has the lines of calls that returned.
"""

import os
import socket
import sys
from typing import TypedDict

import anyio
import uvicorn

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("counting")


class Order(TypedDict):
    order: str
    number: int


def add(suffix: str, line: str) -> None:
    with open(os.environ["SEMEL_COUNT"] + suffix, "a") as file:
        file.write(line + "\n")


async def count(tool: str, text: str, ms: int) -> int:
    """Adds the line, and tells how many there are now."""
    line = f"{tool} {text}"
    add(".pids", f"{os.getpid()} {line}")
    add("", line)
    with open(os.environ["SEMEL_COUNT"]) as file:
        number = len(file.readlines())
    await anyio.sleep(ms / 1000)
    add(".over", line)
    return number


@server.tool(structured_output=False)
async def pay(to: str, ms: int = 0) -> str:
    """Pays somebody."""
    return f"paid {to}, call {await count('pay', to, ms)}"


@server.tool()
async def order(to: str, ms: int = 0) -> Order:
    """Orders something. It has an output schema."""
    return {"order": to, "number": await count("order", to, ms)}


@server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))
async def look(to: str, ms: int = 0) -> str:
    """Looks at something and changes nothing."""
    return f"saw {to}, call {await count('look', to, ms)}"


def listen() -> None:
    """Serves HTTP on a port that is free."""
    door = socket.create_server(("127.0.0.1", 0))
    app = server.streamable_http_app()
    print(f"http://127.0.0.1:{door.getsockname()[1]}/mcp", flush=True)
    anyio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve, [door])


if sys.argv[1:] == ["--http"]:
    listen()
else:
    server.run()
