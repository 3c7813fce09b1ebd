// Drives the command line of the inspector: one run for the list, one for the call. The request and the report are those of driver.py;
// a program in place of the url takes no arguments of its own.
import { execFile } from "node:child_process";

const request = JSON.parse(process.argv[2]);
const launcher = process.env.MOORING_NODE_MODULES + "/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
const target = request.command ? [...request.command, "--transport", "stdio"] : [request.url, "--transport", "http"];
const common = ["--cli", ...target, "--protocol-era", request.mode, "--format", "json", "--quiet"];
for (const [name, value] of Object.entries(request.headers ?? {})) common.push("--header", `${name}: ${value}`);

function run(...rest) {
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [launcher, ...common, ...rest], (_failed, out, said) => {
      const text = out.trim() || said.trim();
      try {
        const { result, error } = JSON.parse(text);
        if (result) return resolve(result);
        reject(new Error(error.message));
      } catch {
        reject(new Error(text));
      }
    });
  });
}

const report = {};
try {
  const { tools } = await run("--method", "tools/list");
  report.tools = tools.map((tool) => tool.name);
  if (request.call) {
    const values = JSON.stringify(request.call.arguments ?? {});
    const result = await run("--method", "tools/call", "--tool-name", request.call.name, "--tool-args-json", values);
    report.text = result.content.filter((part) => part.type === "text").map((part) => part.text);
    report.isError = Boolean(result.isError);
  }
} catch (error) {
  report.error = `${error.name}: ${error.message}`;
}
console.log(JSON.stringify(report));
