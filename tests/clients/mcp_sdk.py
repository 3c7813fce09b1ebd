"""Drives the official Python SDK."""

import driver
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


async def session(request):
    async with create_mcp_http_client(headers=request.get("headers")) as http:
        if request.get("transport") == "sse":
            transport = sse_client(request["url"], headers=request.get("headers"))
        else:
            transport = streamable_http_client(request["url"], http_client=http)
        async with Client(transport, mode=driver.mode(request)) as client:
            listed = await client.list_tools()
            report = {
                "protocolVersion": client.protocol_version,
                "server": client.server_info.name if client.server_info else "",
                "tools": [tool.name for tool in listed.tools],
            }
            if call := request.get("call"):
                result = await client.call_tool(call["name"], call.get("arguments", {}))
                report |= {"text": driver.text_of(result), "isError": bool(result.is_error)}
            return report


driver.main(session)
