"""A small MCP server in the way that promptise's own documentation writes one, on loopback."""

import os

from promptise.mcp.server import MCPServer

server = MCPServer(name="promptise-sample", version="1.0.0")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


server.run("http", host="127.0.0.1", port=int(os.environ["PORT"]))
