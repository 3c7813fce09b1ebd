// Drives the second generation of the official TypeScript SDK, which speaks both eras. The request and the report are
// those of driver.py.
import { createRequire } from "node:module";

const require = createRequire(process.env.MOORING_NODE_MODULES + "/");
const dns = require("node:dns");
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");

const request = JSON.parse(process.argv[2]);
if (request.address) {
  // Lead every name to one address, as a person's DNS leads a public host to the ingress controller.
  const lookup = dns.lookup;
  dns.lookup = (_host, ...rest) => lookup(request.address, ...rest);
}

const modes = { legacy: "legacy", auto: "auto", modern: { pin: "2026-07-28" } };
const report = {};
try {
  const info = { name: "mooring-tests", version: "1.0.0" };
  const client = new Client(info, { versionNegotiation: { mode: modes[request.mode] } });
  const transport = new StreamableHTTPClientTransport(new URL(request.url), {
    requestInit: { headers: request.headers ?? {} },
  });
  await client.connect(transport);
  const { tools } = await client.listTools();
  report.protocolVersion = client.getNegotiatedProtocolVersion();
  report.server = client.getServerVersion()?.name;
  report.tools = tools.map((tool) => tool.name);
  if (request.call) {
    const result = await client.callTool({ name: request.call.name, arguments: request.call.arguments ?? {} });
    report.text = result.content.filter((part) => part.type === "text").map((part) => part.text);
    report.isError = Boolean(result.isError);
  }
  if (transport.sessionId) await transport.terminateSession();
  await client.close();
} catch (error) {
  report.error = `${error.name}: ${error.message}`;
}
console.log(JSON.stringify(report));
process.exit(0);
