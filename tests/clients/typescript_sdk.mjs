// Drives the official TypeScript SDK.
import { info, listAndCall, report, request, require, run, transport } from "./typescript.mjs";

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { SSEClientTransport: Sse } = require("@modelcontextprotocol/sdk/client/sse.js");
const { StdioClientTransport: Stdio } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport: Http } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const client = new Client(info);
await run(client, async () => {
  const chosen = transport({ Http, Sse, Stdio });
  // Not every transport tells what was agreed on.
  const agreed = chosen.setProtocolVersion?.bind(chosen);
  chosen.setProtocolVersion = (version) => {
    report.protocolVersion = version;
    agreed?.(version);
  };
  await client.connect(chosen);
  await listAndCall(client, (tool, options) => client.callTool(tool, undefined, options));
  if (chosen.sessionId && !request.interrupted) await chosen.terminateSession();
});
