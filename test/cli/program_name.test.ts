import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { programName } from "../../cli/program_name.ts";
import { pairingText } from "../../cli/serve/banner.ts";
import { withProgramName } from "../../lib/base/program_name.ts";
import { VERSION } from "../../lib/base/version.ts";
import { ROOT } from "../support/gateway_process.ts";
import { jsonOf } from "../support/json_of.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { onMachine } from "./support/run_in.ts";

test("the program is named as its reader can start it: npx in a project, by its own name where it is installed", () =>
  withTemporaryFolder((folder) => {
    const nameIn = (at: string) => programName({}, join(folder, at, "dist/chunks/command.js"));
    for (const project of ["project", ".npm/_npx/abc", "share/pnpm/global/5"]) {
      mkdirSync(join(folder, project), { recursive: true });
      writeFileSync(join(folder, project, "package.json"), "{}");
    }
    assert.equal(nameIn("project/node_modules/postern"), "npx postern");
    assert.equal(nameIn("project/node_modules/.pnpm/postern@0.1.0/node_modules/postern"), "npx postern");
    assert.equal(nameIn(".npm/_npx/abc/node_modules/postern"), "npx postern");
    assert.equal(nameIn("lib/node_modules/postern"), "postern");
    assert.equal(nameIn("share/pnpm/global/5/node_modules/postern"), "postern");
    assert.equal(nameIn("checkout/postern"), "postern");
    const given = { POSTERN_PROGRAM: "docker compose exec gateway postern" };
    assert.equal(programName(given, folder), "docker compose exec gateway postern");
    for (const wrong of ["", " ", "postern\npair", "\x1b[2J", "x".repeat(201)]) {
      assert.equal(programName({ POSTERN_PROGRAM: wrong }, folder), "postern", JSON.stringify(wrong));
    }
    return Promise.resolve();
  }));

test("messages name the program as it was started, on the terminal and in what the gateway serves", () =>
  onMachine(async ({ run, withGateway }) => {
    const env = { POSTERN_PROGRAM: "npx postern" };
    assert.match((await run(["pair"], { env })).stderr, /start it with npx postern gateway,/);
    assert.match((await run(["pai"], { env })).stderr, /did you mean npx postern pair\?/);
    const help = await run(["pair", "--help"], { env });
    assert.match(help.stdout, /^Usage: npx postern pair\n[^]*^ {2}npx postern pair$/m);
    assert.match((await run(["token", "list"], { env })).stdout, /Make one with: npx postern token add/);
    assert.match((await run(["doctor"], { env })).stdout, /npx postern/);
    await withGateway([], async ({ banner, address }) => {
      assert.match(banner, /npx postern init writes one/);
      const page = await (await fetch(address)).text();
      assert.match(page, /<code>npx postern pair<\/code>/);
      assert.match(page, /a fresh one from npx postern pair/);
      const reply = await fetch(`${address}pair`, { method: "POST", headers: { "x-pairing-code": "AAAA-AAAA" } });
      assert.match((await jsonOf(reply)).error.message, /"npx postern pair" prints a new one/);
    }, { env });
  }));

test("a gateway that shows no code names the program as it was started", () => {
  const pairing = { code: null, reason: "Paired already" } as const;
  const named = (message: string) => withProgramName(message, "./postern");
  assert.equal(
    pairingText("http://127.0.0.1:1/", { requiresPairing: true, pairing, dataDir: undefined, named }),
    "Paired already. A further code: ./postern pair\n",
  );
});

test("paths, the user postern and other words than commands stay as they are", () => {
  assert.equal(
    withProgramName('sudo -u postern postern pair --data-dir "/srv/postern data"', "npx postern"),
    'sudo -u postern npx postern pair --data-dir "/srv/postern data"',
  );
  for (const same of ["Postern needs Node", "npm:postern and", "./postern pair", "postern.toml", "a postern"]) {
    assert.equal(withProgramName(same, "npx postern"), same);
  }
});

test("the checkout's own postern prints the command's output alone, and names itself", {
  skip: process.platform === "win32" && "it is a script for a POSIX shell",
}, (t) => {
  const folder = mkdtempSync(join(tmpdir(), "elsewhere "));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const shell = (line: string) =>
    spawnSync("sh", ["-c", line], {
      cwd: folder,
      encoding: "utf8",
      env: { PATH: process.env["PATH"], HOME: folder, OWN: join(ROOT, "postern") },
    });
  const captured = shell('VALUE=$("$OWN" --version) && printf %s "$VALUE"');
  assert.deepEqual([captured.stdout, captured.stderr], [VERSION, ""]);
  assert.equal(shell('"$OWN" config schema --json > schema.json').stderr, "");
  assert.ok(JSON.parse(readFileSync(join(folder, "schema.json"), "utf8")).properties.gateway);
  const linked = shell('ln -s "$OWN" mine && ./mine pai');
  assert.match(linked.stderr, /did you mean \.\/mine pair\?/);
});
