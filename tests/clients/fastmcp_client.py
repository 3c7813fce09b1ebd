"""Drives FastMCP's client."""

import driver
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StreamableHttpTransport


async def session(request):
    kind = SSETransport if request.get("transport") == "sse" else StreamableHttpTransport
    transport = kind(request["url"], headers=request.get("headers"))
    async with Client(transport, mode=driver.mode(request)) as client:
        tools = await client.list_tools()
        report = {
            "protocolVersion": client.protocol_version,
            "server": client.server_info.name if client.server_info else "",
            "tools": [tool.name for tool in tools],
        }
        if call := request.get("call"):
            result = await client.call_tool(call["name"], call.get("arguments", {}), raise_on_error=False)
            report |= {"text": driver.text_of(result), "isError": bool(result.is_error)}
        return report


driver.main(session)
