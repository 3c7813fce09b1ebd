"""A small MCP server in the way that FastMCP's own documentation writes one."""

import asyncio
import os

from fastmcp import Context, FastMCP

server = FastMCP("fastmcp-sample")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def where() -> str:
    """Name the pod that answers."""
    return os.environ.get("HOSTNAME", "")


@server.tool
async def count(to: int, pause: float, context: Context) -> str:
    """Count slowly, with a progress notification at each step."""
    for step in range(1, to + 1):
        await context.report_progress(step, to)
        await asyncio.sleep(pause)
    return f"counted to {to}"


if __name__ == "__main__":
    server.run(transport="http", host="0.0.0.0", port=int(os.environ.get("PORT", "8000")), show_banner=False)
