// What both TypeScript drivers share: the request from the command line, names that lead to one address, the list and the calls, and the report.
// Request and report are those of driver.py.
import { once } from "node:events";
import { createRequire } from "node:module";
import { connect } from "node:net";

export const require = createRequire(process.env.MOORING_NODE_MODULES + "/");
export const request = JSON.parse(process.argv[2]);
export const report = {};
export const info = { name: "mooring-tests", version: "1.0.0" };

if (request.address) {
  // Lead every name to one address, as a person's DNS leads a public host to the ingress controller.
  const dns = require("node:dns");
  const lookup = dns.lookup;
  dns.lookup = (_host, ...rest) => lookup(request.address, ...rest);
}

// The transport that the request asks for, of those that the SDK has.
export function transport({ Http, Sse, Stdio }) {
  if (request.command) {
    const [command, ...args] = request.command;
    return new Stdio({ command, args, env: process.env, stderr: "ignore" });
  }
  const Kind = request.transport === "sse" ? Sse : Http;
  return new Kind(new URL(request.url), { requestInit: { headers: request.headers ?? {} } });
}

// Begins a call, cancels it as soon as another beside it is answered, and tells whether it ended so.
async function cancelled(call) {
  const stop = new AbortController();
  const begun = call(request.cancel.call, { signal: stop.signal }).then(() => false, () => true);
  await call(request.cancel.after);
  stop.abort("no longer wanted");
  return begun;
}

// Waits until whoever listens at the port hangs up, makes the call twice, and tells the error of each.
async function after(call) {
  const waiting = connect(request.interrupted, "127.0.0.1").resume();
  await once(waiting, "close");
  const errors = [];
  for (let number = 0; number < 2; number++) {
    try {
      const result = await call(request.call, { timeout: 30_000 });
      errors.push(result.isError ? texts(result).join(" ") : null);
    } catch (error) {
      errors.push(`${error.name}: ${error.message}`);
    }
  }
  return errors;
}

const texts = (result) => result.content.filter((part) => part.type === "text").map((part) => part.text);

// The session behind the handshake. `call(tool, options)` is the client's callTool, whose parameters changed.
export async function listAndCall(client, call) {
  const { tools } = await client.listTools();
  report.server = client.getServerVersion()?.name;
  report.tools = tools.map((tool) => tool.name);
  if (request.cancel) report.cancelled = await cancelled(call);
  if (request.call) {
    const result = await call(request.call);
    report.text = texts(result);
    report.isError = Boolean(result.isError);
    if (request.interrupted) report.after = await after(call);
  }
}

// Runs a session, closes the client, which ends a program that was started, and prints the report.
export async function run(client, session) {
  try {
    await session();
  } catch (error) {
    report.error = `${error.name}: ${error.message}`;
  }
  await client.close();
  console.log(JSON.stringify(report));
  process.exit(0);
}
