import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import { mainOf, RUN, RUN_ENV } from "../../support/gateway_process.ts";
import { jsonOf } from "../../support/json_of.ts";
import { restoredText } from "../../../cli/commands/backup.ts";
import type { PluginInfo } from "../../../lib/base/records/extension_views.ts";
import { writeTar } from "../../../lib/extensions/plugins/tar.ts";
import type { SkillInfo } from "../../../lib/base/records/extension_views.ts";
import { samplePackage, sampleTool } from "../../support/plugin_package.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const PROCESS = { kind: "process", wasm: undefined, process: { command: "node" } };
const KEY = new Uint8Array(32).fill(7);

async function fill({ dataDir, run }: Machine): Promise<void> {
  // Makes the data directory
  await run(["pair"]);
  const store = await openSqliteStore({ path: join(dataDir, "postern.db"), clock: systemClock });
  await store.insertOnce("documents", "one", { v: 1, text: "kept" });
  await store.close();
  writeFileSync(join(dataDir, "agents_ipc.key"), KEY, { mode: 0o600 });
}

test("backup makes one file of the owner with all records and the key, and says that it holds the key", () =>
  onMachine(async (machine) => {
    await fill(machine);
    const { code, stderr } = await machine.run(["backup", "kept.db"]);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /the key agents_ipc.key/);
    const path = join(machine.cwd, "kept.db");
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.deepEqual(readdirSync(machine.cwd), ["kept.db"]);
    const database = new DatabaseSync(path, { readOnly: true });
    const kept = database.prepare("SELECT body FROM records WHERE collection = 'documents'").get();
    assert.equal(kept?.["body"], '{"v":1,"text":"kept"}');
    assert.deepEqual(database.prepare("SELECT content FROM backup_files").get()?.["content"], KEY);
    database.close();
  }));

test("a backup holds the packages of installed plugins, and a restore puts them back, but none that is forged", () =>
  onMachine(async (machine) => {
    const { run, cwd, dataDir } = machine;
    for (const id of ["words", "forged", "lost"]) {
      writeFileSync(join(cwd, `${id}.tar`), samplePackage({ ...PROCESS, id, tools: [sampleTool(`${id}_count`)] }));
      assert.equal((await run(["plugin", "install", "--package", `${id}.tar`])).code, 0);
    }
    assert.equal((await run(["plugin", "enable", "words", "--yes"])).code, 0);
    const { digest } = JSON.parse((await run(["plugin", "info", "forged", "--json"])).stdout);
    const lost = JSON.parse((await run(["plugin", "info", "lost", "--json"])).stdout).digest;
    rmSync(join(dataDir, "plugins", lost), { recursive: true });
    const store = new DatabaseSync(join(dataDir, "postern.db"));
    // A second record with the content of the first one, as no version writes it
    store.exec(`INSERT INTO records (collection, key, version, body, created_at, updated_at)
      SELECT collection, 'twin of ' || key, version, body, created_at, updated_at FROM records WHERE collection = 'plugins'`);
    store.close();
    const made = await run(["backup", "kept.db"]);
    assert.match(made.stdout, / records and 2 plugins of /, made.stderr);
    assert.match(made.stderr, /files of the plugin lost are missing or damaged/);
    const database = new DatabaseSync(join(cwd, "kept.db"));
    const forge = database.prepare("UPDATE backup_files SET content = ? WHERE name = ?");
    forge.run(samplePackage({ version: "9.9.9" }), `plugins/${digest}.tar`);
    const insert = database.prepare("INSERT INTO backup_files (name, content) VALUES (?, ?)");
    insert.run(`plugins/../../${digest}.tar`, samplePackage());
    insert.run("plugins/x.tar", samplePackage());
    database.close();
    rmSync(dataDir, { recursive: true });
    const restored = await run(["restore", "kept.db"]);
    assert.equal(restored.code, 0, restored.stderr);
    const env = { POSTERN__PLUGINS__ALLOW_PROCESS: "true" };
    const plugins: readonly PluginInfo[] = JSON.parse((await run(["plugin", "list", "--json"], { env })).stdout);
    assert.deepEqual(plugins.map(({ id, state, on }) => [id, state, on]), [
      ["forged", "installed", false],
      ["lost", "installed", false],
      ["words", "enabled", true],
    ]);
    assert.deepEqual(readdirSync(join(dataDir, "plugins")), [plugins[2]?.digest]);
  }));

function skillTar(name: string, files: Readonly<Record<string, string>> = {}): Uint8Array {
  const main = `---\nname: ${name}\ndescription: Does ${name}\n---\nDo it.\n`;
  const all = Object.entries({ "SKILL.md": main, ...files });
  const entries = all.map(([path, text]) => ({
    path: `${name}/${path}`,
    bytes: new TextEncoder().encode(text),
    executable: path.endsWith(".sh"),
  }));
  return writeTar(entries, { writesExtended: true });
}

test("a backup holds the files of installed skills, and a restore puts them back, but none that is forged", () =>
  onMachine(async (machine) => {
    const { run, cwd, dataDir } = machine;
    const long = `${"é".repeat(90)}.md`;
    const inner = "---\nname: kept\ndescription: Another\n---\nDo it twice.\n";
    const sources = {
      kept: skillTar("kept", { [long]: "long", "run.sh": "ls", "kept/SKILL.md": inner }),
      ...Object.fromEntries(["changed", "forged", "linked", "lost"].map((name) => [name, skillTar(name)])),
    };
    for (const [name, bytes] of Object.entries(sources)) {
      writeFileSync(join(cwd, `${name}.tar`), bytes);
      const { code, stderr } = await run(["skill", "install", "--name", name, "--source", `${name}.tar`]);
      assert.equal(code, 0, stderr);
    }
    const at = (path: string) => join(dataDir, "skills", path);
    writeFileSync(at("changed/SKILL.md"), "another");
    cpSync(at("linked"), join(cwd, "linked"), { recursive: true });
    for (const name of ["lost", "linked"]) rmSync(at(name), { recursive: true });
    symlinkSync(join(cwd, "linked"), at("linked"));
    const made = await run(["backup", "kept.db"]);
    assert.match(made.stdout, / records and 2 skills of /);
    for (const name of ["changed", "lost", "linked"]) {
      assert.match(made.stderr, new RegExp(`files of the skill ${name} are missing or changed, and not in the backup`));
    }
    assert.equal(made.stderr.match(/files of the skill/g)?.length, 3);
    const database = new DatabaseSync(join(cwd, "kept.db"));
    const forge = database.prepare("UPDATE backup_files SET content = ? WHERE name = ?");
    assert.equal(forge.run(skillTar("forged", { "more.md": "" }), "skills/forged.tar").changes, 1);
    const insert = database.prepare("INSERT INTO backup_files (name, content) VALUES (?, ?)");
    // Without a record a skill would be on, as one that a person put there
    insert.run("skills/unknown.tar", skillTar("unknown"));
    insert.run("skills/../../out.tar", skillTar("out"));
    insert.run("skills/lost.tar", new Uint8Array(1_024).fill(7));
    database.close();
    rmSync(dataDir, { recursive: true });
    const restored = await run(["restore", "kept.db"]);
    assert.equal(restored.code, 0, restored.stderr);
    for (const name of ["changed", "forged", "linked", "lost"]) {
      const line = `postern skill add ${name} <where it came from: ${join(cwd, `${name}.tar`)}>`;
      assert.ok(restored.stderr.replace(/\s+/g, " ").includes(line), `${name}: ${restored.stderr}`);
    }
    assert.deepEqual(readdirSync(join(dataDir, "skills")), ["kept"]);
    assert.deepEqual(readdirSync(at("kept")).sort(), ["SKILL.md", "kept", "run.sh", long].sort());
    assert.equal(readFileSync(at(`kept/${long}`), "utf8"), "long");
    assert.deepEqual(["run.sh", "SKILL.md"].map((path) => statSync(at(`kept/${path}`)).mode & 0o777), [0o700, 0o600]);
    const { skills } = JSON.parse((await run(["skill", "list", "--json"])).stdout);
    assert.deepEqual(skills.map(({ name, state }: SkillInfo) => [name, state]), [["kept", "on"]]);
  }));

test("a restore says which packages of MCP servers must be installed again, and how", () =>
  onMachine(async (machine) => {
    const { run, cwd, home, dataDir } = machine;
    await fill(machine);
    const install = (folder: string, record: Readonly<Record<string, unknown>>) => {
      const path = join(dataDir, "mcp/packages", folder);
      mkdirSync(path, { recursive: true });
      const start = { command: { path: "/usr/bin/node", inside: false }, args: ["dist/index.js"], notes: [] };
      const facts = { integrity: "sha512-x", digest: "", installed_at: "", ...start };
      writeFileSync(join(path, "install.json"), JSON.stringify({ version: 1, ...facts, ...record }));
      return path;
    };
    const notes = install("npm-acme+notes-1.2.3", { registry: "npm", name: "@acme/notes", package_version: "1.2.3" });
    install("pypi-clock-2.0", { registry: "pypi", name: "clock", package_version: "2.0" });
    install("npm-evil-1.0.0", { registry: "npm", name: "evil; rm -rf ~", package_version: "1.0.0" });
    mkdirSync(join(dataDir, "mcp/packages/unfinished"));
    mkdirSync(join(home, ".config/postern"), { recursive: true });
    const server = { command: "/usr/bin/node", args: [join(notes, "dist/index.js"), "hunter2"] };
    const gone = { command: "/usr/bin/node", args: [join(dataDir, "mcp/packages/npm-later-1.0.0/x.js")] };
    const table = (name: string, { command, args }: typeof server) =>
      `[mcp.servers.${name}]\ncommand = "${command}"\nargs = ${JSON.stringify(args)}\n`;
    writeFileSync(join(home, ".config/postern/postern.toml"), table("notes", server) + table("later", gone));
    const made = await run(["backup", "kept.db"]);
    assert.match(made.stderr, /2 packages of MCP servers are not in the backup, which has their names/);
    const restored = await run(["restore", "kept.db", "--json"]);
    assert.equal(restored.code, 0, restored.stderr);
    assert.match(
      restored.stderr,
      /^ {2}notes +postern mcp add npm:@acme\/notes@1\.2\.3 --name notes --replace -- <arguments>$/m,
    );
    assert.match(restored.stderr, /^ {2}pypi:clock==2\.0 +postern mcp add pypi:clock==2\.0$/m);
    assert.match(restored.stderr, /^ {2}later +postern mcp add <package> --name later --replace$/m);
    assert.match(restored.stderr, /copy its folder mcp\/packages back/);
    assert.doesNotMatch(restored.stderr, /evil|hunter2|packages\/unfinished/);
    assert.deepEqual(JSON.parse(restored.stdout).mcp_packages, [
      { server: "notes", package: "npm:@acme/notes@1.2.3" },
      { server: "later", package: null },
      { server: null, package: "pypi:clock==2.0" },
    ]);
    assert.equal(existsSync(join(dataDir, "mcp")), false);
    assert.ok(existsSync(join(cwd, "kept.db")));
    // The list of accepted files is not in a backup
    renameSync(join(home, ".config/postern/postern.toml"), join(cwd, "postern.toml"));
    assert.equal((await run(["trust"])).code, 0);
    const accepted = await run(["restore", "kept.db"]);
    assert.match(accepted.stderr, /^ {2}notes +postern mcp add npm:.* --name notes --replace -- <arguments>$/m);
  }));

test("backup replaces no file, and needs records", () =>
  onMachine(async (machine) => {
    const none = await machine.run(["backup", "kept.db"]);
    assert.equal(none.code, 78);
    assert.match(none.stderr, /there is no database yet/);
    assert.ok(!existsSync(join(machine.cwd, "kept.db")));
    await fill(machine);
    writeFileSync(join(machine.cwd, "kept.db"), "mine");
    const refused = await machine.run(["backup", "kept.db"]);
    assert.equal(refused.code, 78);
    assert.match(refused.stderr, /the file exists/);
    assert.equal(readFileSync(join(machine.cwd, "kept.db"), "utf8"), "mine");
  }));

test("backup takes no file of another backup away, which may be at work, and says what to do", () =>
  onMachine(async (machine) => {
    await fill(machine);
    const partial = join(machine.cwd, "kept.db.partial");
    writeFileSync(partial, "at work");
    const { code, stderr } = await machine.run(["backup", "kept.db"]);
    assert.equal(code, 78);
    assert.match(stderr, /kept\.db\.partial" exists: another backup is at work, or was cut off, then remove that file/);
    assert.equal(readFileSync(partial, "utf8"), "at work");
  }));

test("backup goes on from what a killed one left, once the file that it names is removed", () =>
  onMachine(async (machine) => {
    await fill(machine);
    const path = join(machine.cwd, "kept.db");
    // Between its last steps there is an empty file of the name; before them there is SQLite's journal of the partial one
    writeFileSync(path, "");
    const refused = await machine.run(["backup", "kept.db"]);
    assert.equal(refused.code, 78);
    assert.match(refused.stderr, /the file exists and is empty, as a backup leaves it that was cut off: remove it/);
    rmSync(path);
    writeFileSync(`${path}.partial-journal`, new Uint8Array(512));
    assert.equal((await machine.run(["backup", "kept.db"])).code, 0);
    assert.deepEqual(readdirSync(machine.cwd), ["kept.db"]);
    assert.equal((await machine.run(["restore", "kept.db"])).code, 0);
  }));

test("doctor --repair removes what a killed repair left of its backup, and no whole one", () =>
  onMachine(async (machine) => {
    await fill(machine);
    const kept = "before-repair-2026-01-01T00-00-00.000Z.db";
    writeFileSync(join(machine.dataDir, kept), "whole");
    for (const name of ["db.partial", "db.partial-journal", "db"]) {
      writeFileSync(
        join(machine.dataDir, `before-repair-2026-01-02T00-00-00.000Z.${name}`),
        name === "db" ? "" : "half",
      );
    }
    assert.equal((await machine.run(["doctor", "--repair"])).code, 0);
    assert.deepEqual(readdirSync(machine.dataDir).filter((name) => name.startsWith("before-repair")), [kept]);
  }));

test(
  "backup that the disk has no room for leaves nothing",
  { skip: process.platform === "win32" },
  () =>
    onMachine(async (machine) => {
      await fill(machine);
      // A limit of 40 blocks of a file, 20 or 40 KB, stands for the full disk
      const limited = [
        "-c",
        'trap "" XFSZ; ulimit -f 40; exec "$@"',
        "sh",
        ...RUN,
        mainOf(),
        "backup",
        "kept.db",
      ];
      const env = { ...RUN_ENV, HOME: machine.home, NODE_DISABLE_COMPILE_CACHE: "1" };
      const { status, stderr } = spawnSync("sh", limited, { cwd: machine.cwd, env, encoding: "utf8" });
      assert.equal(status, 78, stderr);
      assert.match(stderr, /Cannot back up /);
      assert.deepEqual(readdirSync(machine.cwd), []);
    }),
);

test("backup of a running gateway holds what it has just written, and leaves it at work", () =>
  onMachine(async (machine) => {
    await machine.withGateway([], async ({ address }) => {
      assert.equal((await machine.run(["token", "create", "--label", "one"])).code, 0);
      const { code, stderr } = await machine.run(["backup", "kept.db"]);
      assert.equal(code, 0, stderr);
      const database = new DatabaseSync(join(machine.cwd, "kept.db"), { readOnly: true });
      const tokens = database.prepare("SELECT count(*) AS n FROM records WHERE collection = 'tokens'").get();
      assert.equal(tokens?.["n"], 1);
      database.close();
      assert.equal((await machine.run(["token", "create", "--label", "two"])).code, 0);
      assert.equal((await jsonOf(await fetch(new URL("/health", address)))).status, "ok");
      const repaired = await machine.run(["doctor", "--repair"]);
      assert.equal(repaired.code, 1);
      assert.match(repaired.stderr, /a gateway or node uses it/);
    });
  }));

test("doctor --repair says that nothing is damaged, and makes no backup then", () =>
  onMachine(async (machine) => {
    await fill(machine);
    const { code, stdout } = await machine.run(["doctor", "--repair"]);
    assert.deepEqual([code, stdout], [0, "Every record can be read: nothing was changed\n"]);
    assert.ok(!readdirSync(machine.dataDir).some((name) => name.startsWith("before-repair")));
  }));

/** Files in the place of the database that are none of Postern's, or not whole. */
const RUINS: readonly (readonly [what: string, ruin: (path: string) => void, said: RegExp])[] = [
  ["the database of another program", (path) => {
    rmSync(path);
    const database = new DatabaseSync(path);
    database.exec("CREATE TABLE notes (text)");
    database.close();
  }, /the database of another program/],
  ["half a database", (path) => truncateSync(path, Math.floor(statSync(path).size / 2)), /damaged/],
  ["no database", (path) => writeFileSync(path, "notes ".repeat(1000)), /damaged or no database/],
  ["a log without its database", (path) => {
    writeFileSync(`${path}-wal`, "records");
    rmSync(path);
  }, /its log holds records/],
];
for (const [what, ruin, said] of RUINS) {
  test(`doctor --repair refuses ${what} with the way out, and changes nothing; doctor calls it no fine one`, () =>
    onMachine(async (machine) => {
      await fill(machine);
      const path = join(machine.dataDir, "postern.db");
      ruin(path);
      const content = () => existsSync(path) ? readFileSync(path, "latin1") : null;
      const before = content();
      const { code, stderr } = await machine.run(["doctor", "--repair"]);
      assert.equal(code, 78, stderr);
      assert.match(stderr, said);
      assert.match(stderr, /Cannot repair .*; restore a backup with postern restore <file>/);
      assert.equal(content(), before);
      const { checks } = JSON.parse((await machine.run(["doctor", "--json"])).stdout);
      const { state } = checks.find(({ name }: { name: string }) => name === "database");
      assert.equal(state, "failure");
    }));
}

test("in a narrow terminal the word of care after a backup breaks between words", () =>
  onMachine(async ({ run }) => {
    await run(["pair"]);
    const { stderr } = await run(["backup", "kept.db"], { terminal: true, columns: 40 });
    assert.ok(stderr.split("\n").every((line) => line.length <= 40), stderr);
  }));

const NO_PARTS = { plugins: 0, skills: 0, lostSkills: [], lostPackages: [] };

test("a restore ends with what waits for the person, each with its command, and leaves out what does not", () => {
  const held = { runs: 1, procedures: 0, deliveries: 2, schedules: 0, approvals: 0, tokens: 1 };
  const text = restoredText({ ...NO_PARTS, held, before: "/data.before", plugins: 1, keepTokens: false }, undefined);
  assert.match(text, /^ {2}1 run +decide about each: postern run list --status needs_review$/m);
  assert.match(text, /^ {2}2 deliveries {2}release or drop each/m);
  assert.match(text, /^The tokens of the backup are revoked: pair/m);
  assert.doesNotMatch(text, /procedure {2}|schedule|approval/);
  assert.match(text, /copy its folder sops back/);
  assert.match(text, /^Plugins you disabled or removed after the backup are back/m);
  const nothing = { runs: 0, procedures: 0, deliveries: 0, schedules: 0, approvals: 0, tokens: 0 };
  assert.equal(
    restoredText({ ...NO_PARTS, held: nothing, before: null, keepTokens: false }, undefined),
    "\nNo work was unfinished in the backup.\nNo token counts: pair each client with postern pair.",
  );
});
