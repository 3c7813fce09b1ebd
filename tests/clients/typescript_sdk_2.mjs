// Drives the second generation of the official TypeScript SDK, which speaks both eras.
import { info, listAndCall, report, request, require, run, transport } from "./typescript.mjs";

const { Client, StreamableHTTPClientTransport: Http } = require("@modelcontextprotocol/client");
const { StdioClientTransport: Stdio } = require("@modelcontextprotocol/client/stdio");

const modes = { legacy: "legacy", auto: "auto", modern: { pin: "2026-07-28" } };
const client = new Client(info, { versionNegotiation: { mode: modes[request.mode] } });
await run(client, async () => {
  const chosen = transport({ Http, Stdio });
  await client.connect(chosen);
  report.protocolVersion = client.getNegotiatedProtocolVersion();
  if (request.listen) await client.listen({ toolsListChanged: true });
  await listAndCall(client, (tool, options) => client.callTool(tool, options));
  if (chosen.sessionId && !request.interrupted) await chosen.terminateSession();
});
