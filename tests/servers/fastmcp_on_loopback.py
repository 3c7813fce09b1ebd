"""The FastMCP server of the images, on loopback. The argument is its transport."""

import os
import sys

from fastmcp_server import server

server.run(transport=sys.argv[1], host="127.0.0.1", port=int(os.environ["PORT"]), show_banner=False)
