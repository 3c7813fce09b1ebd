"""Drives FastMCP's client."""

import driver
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport


def chosen(request):
    """The transport that the request asks for."""
    if program := request.get("command"):
        return StdioTransport(program[0], program[1:], keep_alive=False)
    kind = SSETransport if request.get("transport") == "sse" else StreamableHttpTransport
    return kind(request["url"], headers=request.get("headers"))


async def session(request):
    async with Client(chosen(request), mode=driver.mode(request)) as client:
        tools = await client.list_tools()
        report = {
            "protocolVersion": client.protocol_version,
            "server": client.server_info.name if client.server_info else "",
            "tools": [tool.name for tool in tools],
        }

        def begin(call):
            return client.call_tool(call["name"], call.get("arguments", {}), raise_on_error=False)

        return report | await driver.calls(request, begin)


driver.main(session)
