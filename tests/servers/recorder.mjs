// An MCP server that keeps every tools/call it was sent, headers and all, and shows them at /seen: what the front door lets
// through, and what it does not. The first argument is the text that its only tool answers; with a second one it gives each
// client the id of a session.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

const seen = [];
const text = process.argv[2] ?? "recorded";
const answers = {
  initialize: () => ({
    protocolVersion: "2025-11-25",
    capabilities: { tools: {} },
    serverInfo: { name: "recorder", version: "1.0.0" },
  }),
  ping: () => ({}),
  "tools/list": () => ({ tools: [{ name: "record", inputSchema: { type: "object" } }] }),
  "tools/call": () => ({ content: [{ type: "text", text }] }),
};

const server = createServer((request, response) => {
  const reply = (status, body) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(body === undefined ? "" : JSON.stringify(body));
  };
  if (request.method === "GET" && request.url === "/seen") return reply(200, seen);
  if (request.method !== "POST") return reply(405);
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => {
    const message = JSON.parse(body);
    if (message.method === "tools/call") seen.push({ headers: request.headers, message });
    if (message.id === undefined) return reply(202);
    if (message.method === "initialize" && process.argv[3]) response.setHeader("mcp-session-id", randomUUID());
    const result = answers[message.method]?.();
    const error = { code: -32601, message: `no method ${message.method}` };
    reply(200, { jsonrpc: "2.0", id: message.id, ...(result ? { result } : { error }) });
  });
});
server.listen(8000);
process.on("SIGTERM", () => server.close(() => process.exit(0)));
