import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { promisify } from "node:util";
import { buildPackage } from "../support/build_package.ts";
import { ROOT } from "../support/gateway_process.ts";
import { packPackage } from "../support/packed_package.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const run = promisify(execFile);
/** An installation, or a program, that takes longer has stopped */
const LIMIT_MS = 120_000;
const { dependencies }: { readonly dependencies: Readonly<Record<string, string>> } = JSON.parse(
  readFileSync(join(ROOT, "package.json"), "utf8"),
);

/** Uses what is loaded when it is first needed: sockets, schedules, patterns, pages, cached values, edits of TOML. */
const PROGRAM = `
import { createServer } from "node:http";
import { once } from "node:events";
import { createGateway, toNodeHandler } from "postern";
const token = "test-token-of-the-environment-0123456789";
const autonomy = { level: "full" };
const config = { provider: { kind: "offline" }, autonomy, cron: { enabled: true }, web_fetch: { enabled: true }, url_access: { allow_loopback: true } };
const gateway = await createGateway({ dataDir: "data", workspace: ".", environment: { POSTERN_TOKEN: token }, config });
const agent = toNodeHandler(gateway);
const server = createServer((request, response) => {
  if (request.url === "/page") response.setHeader("content-type", "text/html").end("<h1>Gates</h1><p>of a garden");
  else agent(request, response);
}).on("upgrade", agent.upgrade).listen(0, "127.0.0.1");
await once(server, "listening");
const url = \`http://127.0.0.1:\${server.address().port}\`;
const headers = { authorization: \`Bearer \${token}\`, "content-type": "application/json" };
const request = async (path, body) =>
  await (await fetch(url + path, { headers, ...body && { method: "POST", body: JSON.stringify(body) } })).json();
const call = async (tool, input) => (await gateway.tools.call(tool, input, { approved: true })).output;
const { ticket } = await request("/v1/ws-ticket", {});
const socket = new WebSocket(\`\${url.replace("http", "ws")}/ws/chat?ticket=\${ticket}\`);
await new Promise((resolve, reject) => Object.assign(socket, { onopen: resolve, onerror: reject }));
socket.close();
const every = { id: "a", prompt: "Say hello", schedule: "0 5 * * 1" };
console.log(JSON.stringify({
  models: (await request("/v1/models")).data.length > 0,
  search: await call("content_search", { pattern: "g.te", glob: "*.txt" }),
  page: await call("web_fetch", { url: url + "/page" }),
  schedule: await call("cron_add", every),
}));
await gateway.close();
server.close();
server.closeAllConnections();
`;

/** Installs the package into a project, and returns the versions of what it depends on. @param overrides versions that npm must take */
async function install(folder: string, tarball: string, overrides: Readonly<Record<string, string>>) {
  mkdirSync(folder);
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module", overrides }));
  const words = ["install", tarball, "--ignore-scripts", "--omit=optional", "--omit=peer", "--no-audit", "--no-fund"];
  await run("npm", words, { cwd: folder, timeout: LIMIT_MS });
  const { packages } = JSON.parse(readFileSync(join(folder, "package-lock.json"), "utf8"));
  const versionOf = (name: string) => packages[`node_modules/${name}`].version;
  return Object.fromEntries(Object.keys(dependencies).map((name) => [name, versionOf(name)]));
}

async function tryPackage(folder: string): Promise<void> {
  writeFileSync(join(folder, "note.txt"), "a gate\n");
  writeFileSync(join(folder, "program.js"), PROGRAM);
  const { stdout } = await run(process.execPath, ["program.js"], { cwd: folder, timeout: LIMIT_MS });
  const { models, search, page, schedule } = JSON.parse(stdout);
  assert.equal(models, true);
  assert.match(search, /note\.txt:1: a gate/);
  assert.match(page, /# Gates/);
  assert.match(schedule, /^Added "a".*T05:00:00/);
  const main = join(folder, "node_modules/postern/dist/cli/main.js");
  const env = { PATH: process.env["PATH"], HOME: folder };
  await run(process.execPath, [main, "config", "set", "gateway.port", "4000"], { cwd: folder, env });
}

test("the package works with the lowest and the newest versions of its dependencies", {
  skip: "Deno" in globalThis && "it is about npm",
}, (t) =>
  withTemporaryFolder(async (folder) => {
    const lowest = Object.fromEntries(
      Object.entries(dependencies).map(([name, range]) => [name, range.replace("~", "")]),
    );
    const tarball = await packPackage(await buildPackage(), folder);
    let newest: Readonly<Record<string, string>>;
    try {
      newest = await install(join(folder, "newest"), tarball, {});
    } catch (error) {
      return t.skip(`npm could not bring the packages: ${String(error).slice(0, 300)}`);
    }
    assert.deepEqual(await install(join(folder, "lowest"), tarball, lowest), lowest);
    await tryPackage(join(folder, "lowest"));
    const later = Object.keys(lowest).filter((name) => lowest[name] !== newest[name]);
    t.diagnostic(`later versions are there of ${later.join(", ") || "none"}`);
    // Else they are those that were tried
    if (later.length > 0) await tryPackage(join(folder, "newest"));
  }));
