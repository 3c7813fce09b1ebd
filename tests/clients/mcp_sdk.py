"""Drives the official Python SDK."""

from contextlib import AsyncExitStack

import driver
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


async def chosen(request, stack):
    """The transport that the request asks for."""
    if program := request.get("command"):
        return stdio_client(StdioServerParameters(command=program[0], args=program[1:]))
    if request.get("transport") == "sse":
        return sse_client(request["url"], headers=request.get("headers"))
    http = await stack.enter_async_context(create_mcp_http_client(headers=request.get("headers")))
    return streamable_http_client(request["url"], http_client=http)


async def session(request):
    async with AsyncExitStack() as stack:
        transport = await chosen(request, stack)
        client = await stack.enter_async_context(Client(transport, mode=driver.mode(request)))
        if request.get("listen"):
            await stack.enter_async_context(client.listen(tools_list_changed=True))
        listed = await client.list_tools()
        report = {
            "protocolVersion": client.protocol_version,
            "server": client.server_info.name if client.server_info else "",
            "tools": [tool.name for tool in listed.tools],
        }

        def begin(call):
            return client.call_tool(call["name"], call.get("arguments", {}))

        return report | await driver.calls(request, begin)


driver.main(session)
