import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { type Machine, onMachine } from "./support/run_in.ts";

/** Everything an operator can allow. */
const CONFIG = `enable_git = true
[autonomy]
level = "full"
workspace_only = false
allow_sensitive_file_reads = true
allow_sensitive_file_writes = true
[security]
allowed_commands = ["cp", "mv", "tee", "sed", "ln", "rm", "dd"]
[security.write_file]
enabled = true
[security.shell]
sandbox = "off"
[security.process]
allowed_commands = ["cp"]
`;
const EVIL = "gateway.require_pairing = false\n";

/** A workspace with the gateway's own configuration in it, at `place`; `link`: what --config names, a link to it. */
async function withOwnConfig(
  { place = "postern.toml", link }: { readonly place?: string; readonly link?: string },
  use: (
    call: (tool: string, input: unknown) => Promise<{ code: number; text: string }>,
    machine: Machine,
  ) => Promise<void>,
): Promise<void> {
  await onMachine(async (machine) => {
    const file = join(machine.cwd, place);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, CONFIG);
    if (link !== undefined) {
      mkdirSync(dirname(join(machine.cwd, link)), { recursive: true });
      symlinkSync(file, join(machine.cwd, link));
    }
    writeFileSync(join(machine.cwd, "evil.toml"), EVIL);
    const call = async (tool: string, input: unknown) => {
      const { code, stdout, stderr } = await machine.run([
        "tools",
        "call",
        tool,
        "--yes",
        "--config",
        link ?? place,
        "--input",
        JSON.stringify(input),
      ]);
      return { code, text: stdout + stderr };
    };
    await use(call, machine);
    assert.equal(readFileSync(file, "utf8"), CONFIG, "The configuration was changed");
  });
}

const PATCH = (path: string) =>
  `*** Begin Patch\n*** Update File: ${path}\n@@\n-enable_git = true\n+enable_git = false\n*** End Patch`;

const ATTEMPTS: readonly (readonly [title: string, tool: string, input: (path: string) => unknown])[] = [
  ["write_file", "write_file", (path) => ({ path, content: EVIL, overwrite: true })],
  ["write_file by a detour", "write_file", (path) => ({ path: `.//${path}`, content: EVIL, overwrite: true })],
  ["file_edit", "file_edit", (path) => ({ path, edits: [{ old_text: '"full"', new_text: '"supervised"' }] })],
  ["apply_patch, an update", "apply_patch", (path) => ({ patch: PATCH(path) })],
  ["apply_patch, a removal", "apply_patch", (path) => ({
    patch: `*** Begin Patch\n*** Delete File: ${path}\n*** End Patch`,
  })],
  ["apply_patch, a move onto it", "apply_patch", (path) => ({
    patch:
      `*** Begin Patch\n*** Update File: evil.toml\n*** Move to: ${path}\n@@\n-gateway.require_pairing = false\n+gateway.port = 1\n*** End Patch`,
  })],
  ["shell, as an argument", "shell", (path) => ({ command: `cp evil.toml ${path}` })],
  ["shell, by its target folder", "shell", (path) => ({ command: `cp -t ${dirname(path)} evil.toml ${path}` })],
  ["shell, inside an option", "shell", (path) => ({ command: `dd if=evil.toml of=${path}` })],
  ["shell, in place", "shell", (path) => ({ command: `sed -i s/full/supervised/ ${path}` })],
  ["shell, a link to it", "shell", (path) => ({ command: `ln ${path} other.toml` })],
  ["shell, its removal", "shell", (path) => ({ command: `rm ${path}` })],
  ["process_tool", "process_tool", (path) => ({ op: "start", command: `cp evil.toml ${path}` })],
];

for (const [title, tool, input] of ATTEMPTS) {
  test(`an agent that may do everything cannot change the configuration: ${title}`, () =>
    withOwnConfig({}, async (call) => {
      const { code, text } = await call(tool, input("postern.toml"));
      assert.equal(code, 1, text);
      assert.match(text, /the forbidden path/);
    }));
}

test("a tool that may write beside it can: the refusals are for the file, not for the folder", () =>
  withOwnConfig({}, async (call, { cwd }) => {
    const { code, text } = await call("write_file", { path: "notes.txt", content: "a" });
    assert.equal(code, 0, text);
    const copied = await call("shell", { command: "cp evil.toml copy.toml" });
    assert.equal(copied.code, 0, copied.text);
    assert.equal(readFileSync(join(cwd, "copy.toml"), "utf8"), EVIL);
  }));

for (const [title, tool, input] of ATTEMPTS.filter(([, tool]) => tool !== "process_tool")) {
  test(`where --config names a link, its target is as safe: ${title}`, () =>
    withOwnConfig({ place: "conf/real.toml", link: "postern.toml" }, async (call) => {
      const { code, text } = await call(tool, input("conf/real.toml"));
      assert.equal(code, 1, text);
      assert.match(text, /the forbidden path/);
    }));
}

for (const command of ["mv conf conf2", "cp evil.toml conf", "cp -r other/. conf", "rm -r ./conf", "mv other conf"]) {
  test(`the folder of the configuration is not moved, filled or removed: ${command}`, () =>
    withOwnConfig({ place: "conf/postern.toml" }, async (call) => {
      const { code, text } = await call("shell", { command });
      assert.equal(code, 1, text);
      assert.match(text, /the forbidden path ".*conf\/postern\.toml" is in it/);
    }));
}

for (const [title, tool, input] of ATTEMPTS.filter(([, tool]) => tool !== "process_tool")) {
  test(`where --config names a link to a file outside, it is not exchanged: ${title}`, () =>
    withOwnConfig({ place: "../safe/real.toml", link: "conf/mine.toml" }, async (call, { cwd }) => {
      const { code, text } = await call(tool, input("conf/mine.toml"));
      assert.equal(code, 1, text);
      assert.equal(readlinkSync(join(cwd, "conf/mine.toml")), join(cwd, "../safe/real.toml"));
    }));
}

for (const command of ["mv conf conf2", "cp evil.toml conf", "rm -r ./conf"]) {
  test(`nor is the folder of that link moved, filled or removed: ${command}`, () =>
    withOwnConfig({ place: "../safe/real.toml", link: "conf/mine.toml" }, async (call) => {
      const { code, text } = await call("shell", { command });
      assert.equal(code, 1, text);
      assert.match(text, /the forbidden path ".*conf\/mine\.toml" is in it/);
    }));
}

test("git brings no other version of it back", () =>
  withOwnConfig({}, async (call, { cwd, home }) => {
    const git = (...args: string[]) =>
      execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@b.c", ...args], {
        cwd,
        env: { PATH: process.env["PATH"] ?? "", HOME: home },
      });
    git("init", "-q");
    writeFileSync(join(cwd, "postern.toml"), EVIL);
    git("add", "postern.toml", "evil.toml");
    git("commit", "-q", "-m", "an old one");
    git("branch", "old");
    writeFileSync(join(cwd, "postern.toml"), CONFIG);
    const attempt = async (input: unknown) => {
      const { text, code } = await call("git_operations", input);
      assert.equal(code, 1, text);
      assert.match(text, /the forbidden path/);
      assert.equal(readFileSync(join(cwd, "postern.toml"), "utf8"), CONFIG);
    };
    await attempt({ op: "checkout", paths: ["postern.toml"] });
    await attempt({ op: "checkout", paths: ["."] });
    await attempt({ op: "stash" });
    git("commit", "-q", "-a", "-m", "the new one");
    await attempt({ op: "checkout", branch: "old" });
  }));
