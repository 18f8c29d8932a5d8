import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../../lib/base/clock.ts";
import { parseToml } from "../../../../lib/config/toml.ts";
import { openInstallers } from "../../../../lib/extensions/mcp/install/installer_program.ts";
import { installFromNpm } from "../../../../lib/extensions/mcp/install/npm_package.ts";
import { installFromPypi } from "../../../../lib/extensions/mcp/install/python_package.ts";
import { startRegistries } from "../../../support/fake_registries.ts";
import { type Machine, onMachine } from "../../support/run_in.ts";
import { packagesOf, PROGRAM, SERVER, WITH_SCRIPT, withoutNpm } from "./npm_server.ts";

function configOf({ home }: Machine) {
  return parseToml(readFileSync(join(home, ".config/postern/postern.toml"), "utf8"), "postern.toml") as {
    mcp: { servers: Record<string, { command: string; args: string[]; url?: string }> };
    security?: { mcp?: Readonly<Record<string, unknown>> };
  };
}

test(
  "mcp add installs a package of npm once, without its scripts, enters it and tells the audit",
  { skip: withoutNpm },
  () =>
    onMachine(async (machine) => {
      await using registries = await startRegistries({ packages: [SERVER, WITH_SCRIPT] });
      const env = registries.env(machine.home);
      const added = await machine.run(["mcp", "add", "@acme/server-notes", "one", "--", "--flag"], { env });
      assert.equal(added.code, 0, added.stderr);
      assert.match(added.stdout, /^Installed npm:@acme\/server-notes@1\.2\.3 \(sha512-\S+\) into /);
      assert.match(added.stdout, /Install scripts were not run: "left-part"/);
      assert.match(
        added.stdout,
        /It is off\. To let the agent use it:\n {2}postern config set security\.mcp\.enabled true/,
      );
      const { mcp, security } = configOf(machine);
      const { command = "", args = [] } = mcp.servers["notes"] ?? {};
      assert.match(command, /^\/.*\/node$/);
      assert.equal(readFileSync(args[0] ?? "", "utf8"), PROGRAM);
      assert.deepEqual(args.slice(1), ["one", "--flag"]);
      assert.equal(security, undefined);
      const [folder = "", ...others] = packagesOf(machine);
      assert.deepEqual([folder, others], ["npm-acme+server-notes-1.2.3", []]);
      const inside = join(machine.dataDir, "mcp/packages", folder);
      assert.equal(existsSync(join(inside, "node_modules/left-part/ran")), false);
      const lock = JSON.parse(readFileSync(join(inside, "package-lock.json"), "utf8"));
      assert.match(lock.packages["node_modules/left-part"].integrity, /^sha512-/);
      const audit = await machine.run(["audit", "show", "--type", "mcp_server", "--json"]);
      const [record] = JSON.parse(audit.stdout).records;
      assert.deepEqual([record.action, record.server, record.source], [
        "added",
        "notes",
        "npm:@acme/server-notes@1.2.3",
      ]);
      assert.match(record.integrity, /^sha512-/);
      // The same bytes are there tomorrow: nothing is asked of the registry
      const taken = await machine.run(["mcp", "add", "npm:@acme/server-notes"], { env });
      assert.equal(taken.code, 1);
      assert.match(taken.stderr, /there is a \[mcp\.servers\.notes\] already; give another --name, or --replace/);
      const removed = await machine.run(["mcp", "remove", "notes"]);
      assert.equal(removed.code, 0, removed.stderr);
      assert.deepEqual(configOf(machine).mcp, undefined);
      assert.deepEqual(packagesOf(machine), []);
    }),
);

test("mcp add takes a name that both registries have only with the registry", () =>
  onMachine(async (machine) => {
    await using registries = await startRegistries({
      packages: [{ name: "clock", version: "1.0.0" }],
      wheels: [{ name: "clock", version: "1.0.0", files: { "clock.py": "" } }],
    });
    const env = registries.env(machine.home);
    const refused = await machine.run(["mcp", "add", "clock"], { env });
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /npm and PyPI both have .*: "npm:clock" or "pypi:clock"/);
    assert.match((await machine.run(["mcp", "add", "none"], { env })).stderr, /neither npm nor PyPI has it/);
    const gone = { ...env, npm_config_registry: "http://127.0.0.1:1/" };
    assert.match((await machine.run(["mcp", "add", "clock"], { env: gone })).stderr, /npm could not be asked/);
  }));

test("mcp add says which program is missing", () =>
  onMachine(async ({ home, cwd }) => {
    // Programs of the system are found whatever PATH says: their absence is made up
    const options = { env: {}, home, workspace: cwd, clock: systemClock, signal: new AbortController().signal };
    const programs = { ...openInstallers(options), find: () => Promise.resolve(undefined) };
    const request = { name: "x", version: undefined, program: undefined };
    const code = "installer_missing";
    const place = { folder: cwd, programs };
    await assert.rejects(installFromNpm(request, place), { code, message: /no npm; install Node/ });
    await assert.rejects(installFromPypi(request, place), { code, message: /neither uv nor python3/ });
  }));

test("no program of the workspace installs anything, and no variable of the person's reaches an installer", () =>
  onMachine(async ({ home, cwd }) => {
    writeFileSync(join(cwd, "installer"), "#!/bin/sh\nenv\n", { mode: 0o755 });
    mkdirSync(join(home, "bin"));
    writeFileSync(join(home, "bin/installer"), "#!/bin/sh\nenv\n", { mode: 0o755 });
    const PATH = `${cwd}:relative:${join(home, "bin")}`;
    const env = { PATH, NODE_OPTIONS: "--require=x", MY_KEY: "k", https_proxy: "p" };
    const signal = new AbortController().signal;
    const programs = openInstallers({ env, home, workspace: cwd, clock: systemClock, signal });
    const file = await programs.find("installer");
    assert.equal(file, join(home, "bin/installer"));
    const said = await programs.run({ title: "look", file: file ?? "", args: [], cwd: home });
    assert.doesNotMatch(said, /NODE_OPTIONS|MY_KEY/);
    assert.match(said, /^https_proxy=p$/m);
    assert.doesNotMatch(said, new RegExp(`^PATH=.*${cwd}`, "m"));
  }));

test("mcp add enters an address, and refuses one with a password", () =>
  onMachine(async (machine) => {
    const added = await machine.run(["mcp", "add", "https://mcp.acme.test/mcp", "--enable"]);
    assert.equal(added.code, 0, added.stderr);
    assert.equal(configOf(machine).mcp.servers["acme"]?.url, "https://mcp.acme.test/mcp");
    assert.deepEqual({ ...configOf(machine).security?.mcp }, { enabled: true, allowed_servers: ["acme"] });
    assert.match(added.stdout, /The agent may use it/);
    const plain = await machine.run(["mcp", "add", "http://mcp.plain.test/", "--name", "plain"]);
    assert.match(plain.stderr, /requests to mcp\.plain\.test are not encrypted/);
    const old = createServer((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write("event: endpoint\ndata: /messages\n\n");
    });
    await new Promise<void>((resolve) => old.listen(0, "127.0.0.1", resolve));
    const address = `http://127.0.0.1:${(old.address() as AddressInfo).port}/sse`;
    const unspoken = await machine.run(["mcp", "add", address, "--name", "old"]);
    old.closeAllConnections();
    old.close();
    assert.equal(unspoken.code, 1);
    assert.match(unspoken.stderr, /its transport is "sse", and Postern speaks streamable HTTP alone/);
    const refused = await machine.run(["mcp", "add", "https://u:hunter2@acme.test/"]);
    assert.equal(refused.code, 1);
    assert.doesNotMatch(refused.stderr, /hunter2/);
    const named = await machine.run(["mcp", "add", "https://x.test/", "--name", "a__b"]);
    assert.match(named.stderr, /Cannot name a server "a__b"/);
    assert.match((await machine.run(["mcp", "remove", "none"])).stderr, /the servers are "acme", "plain"/);
    assert.equal((await machine.run(["mcp", "remove", "acme"])).code, 0);
    assert.deepEqual({ ...configOf(machine).security?.mcp }, { enabled: true, allowed_servers: [] });
  }));
