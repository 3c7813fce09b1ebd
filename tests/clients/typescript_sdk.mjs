// Drives the official TypeScript SDK, over HTTP or, where the request has a command, over the standard streams of that program. The request
// and the report are those of driver.py.
import { createRequire } from "node:module";

const require = createRequire(process.env.MOORING_NODE_MODULES + "/");
const dns = require("node:dns");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const request = JSON.parse(process.argv[2]);
if (request.address) {
  // Lead every name to one address, as a person's DNS leads a public host to the ingress controller.
  const lookup = dns.lookup;
  dns.lookup = (_host, ...rest) => lookup(request.address, ...rest);
}

const report = {};
const client = new Client({ name: "mooring-tests", version: "1.0.0" });
try {
  const [command, ...args] = request.command ?? [];
  const Http = request.transport === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
  const transport = command
    ? new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" })
    : new Http(new URL(request.url), { requestInit: { headers: request.headers ?? {} } });
  // Not every transport tells what was agreed on.
  const agreed = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    report.protocolVersion = version;
    agreed?.(version);
  };
  await client.connect(transport);
  const { tools } = await client.listTools();
  report.server = client.getServerVersion()?.name;
  report.tools = tools.map((tool) => tool.name);
  if (request.call) {
    const result = await client.callTool({ name: request.call.name, arguments: request.call.arguments ?? {} });
    report.text = result.content.filter((part) => part.type === "text").map((part) => part.text);
    report.isError = Boolean(result.isError);
  }
  if (transport.sessionId) await transport.terminateSession();
} catch (error) {
  report.error = `${error.name}: ${error.message}`;
}
await client.close(); // ends a program that was started
console.log(JSON.stringify(report));
process.exit(0);
