"""The FastMCP server of the images, on loopback."""

import os

from fastmcp_server import server

server.run(transport="http", host="127.0.0.1", port=int(os.environ["PORT"]), show_banner=False)
