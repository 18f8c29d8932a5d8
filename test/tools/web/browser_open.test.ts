import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { createCommandLookup, SEARCH_PATH } from "../../../lib/system/process/command_lookup.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { isGone } from "../../support/is_gone.ts";
import { killIfThere } from "../../support/kill_if_there.ts";
import {
  type ConfigChanges,
  createToolBench,
  type ToolBench,
  type ToolBenchOptions,
} from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const ON: ConfigChanges = { autonomy: { level: "full" }, browser: { enabled: true } };
const HOSTS: Readonly<Record<string, readonly string[]>> = {
  "example.com": ["93.184.216.34"],
  "www.example.com": ["93.184.216.34"],
  "inside.example.com": ["93.184.216.34", "10.0.0.7"],
};
const OPENS = 'printf "%s\\n" "$@" > "$beside/args.txt"; env > "$beside/env.txt"';

interface User {
  readonly bench: ToolBench;
  readonly workspace: Workspace;
  /** Returns a file that a script wrote; undefined when there is none. */
  written(name: string): string | undefined;
}

/** Runs `use` with openers that are scripts. In each `$beside` is a folder beside the workspace. */
function withOpeners(
  openers: Readonly<Record<string, string>>,
  use: (user: User) => Promise<void>,
  options: Partial<ToolBenchOptions> = {},
): Promise<void> {
  return withWorkspace({}, async (workspace) => {
    const folder = join(workspace.outside, "bin");
    mkdirSync(folder);
    for (const [name, body] of Object.entries(openers)) {
      const head = `#!/bin/sh\nPATH=${SEARCH_PATH.join(":")}\nbeside='${workspace.outside}'\n`;
      writeFileSync(join(folder, name), `${head}${body}\n`);
      chmodSync(join(folder, name), 0o755);
    }
    const bench = createToolBench({
      ...{ root: workspace.root, config: ON, environment: { DISPLAY: ":99" }, searchPath: [folder] },
      lookup: (host) => Promise.resolve(HOSTS[host] ?? []),
      ...options,
    });
    const written = (name: string) => {
      const path = join(workspace.outside, name);
      return existsSync(path) ? readFileSync(path, "utf8") : undefined;
    };
    await use({ bench, workspace, written });
  });
}

test("xdg-open gets the address as one argument, and the answer says no more than what was started", () =>
  withOpeners({ "xdg-open": OPENS, gdbus: OPENS }, async ({ bench, written }) => {
    const { result, access } = await bench.call(
      "browser_open",
      "https://Example.com/a b?q=$(id)`id`|x;y&z='1'\\\"#top",
    );
    const opened = "https://example.com/a%20b?q=$(id)%60id%60%7Cx;y&z=%271%27%5C%22#top";
    assert.equal(written("args.txt"), `${opened}\n`);
    assert.match(
      result.output,
      /^Asked the user's browser, by xdg-open, to open https:.*; whether the page is shown is not known$/,
    );
    assert.equal((result.data as { running?: boolean }).running, false);
    assert.equal(access, "network");
  }));

test("the opener gets the user's session and home, and no secret of the gateway", () =>
  withOpeners({ "xdg-open": OPENS }, async ({ bench, written }) => {
    await bench.call("browser_open", "https://example.com/");
    const names = (written("env.txt") ?? "").split("\n").map((line) => line.split("=")[0] ?? "");
    for (const name of ["HOME", "XDG_CURRENT_DESKTOP", "WAYLAND_DISPLAY", "BROWSER"]) {
      assert.ok(names.includes(name), name);
    }
    assert.deepEqual(names.filter((name) => /KEY|LD_|POSTERN|MARK/.test(name)), []);
  }, {
    environment: {
      ...{ WAYLAND_DISPLAY: "wayland-0", HOME: "/home/me", XDG_CURRENT_DESKTOP: "GNOME", BROWSER: "firefox" },
      ...{ OPENAI_API_KEY: "sk-secret", LD_PRELOAD: "/x.so", POSTERN_TOKEN: "pst_x" },
    },
  }));

test("without xdg-open the portal is asked, with an address that gdbus reads as it is", () =>
  withOpeners({ gdbus: OPENS }, async ({ bench, written }) => {
    const { result } = await bench.call("browser_open", "https://example.com/it's?a=\\n");
    assert.match(result.output, /by gdbus/);
    assert.deepEqual((written("args.txt") ?? "").trimEnd().split("\n").slice(-4), [
      "org.freedesktop.portal.OpenURI.OpenURI",
      "''",
      "'https://example.com/it\\'s?a=%5Cn'",
      "{}",
    ]);
  }));

test("gio replaces xdg-open", () =>
  withOpeners({ gio: OPENS, gdbus: "exit 1" }, async ({ bench, written }) => {
    assert.match((await bench.call("browser_open", "https://example.com/")).result.output, /by gio,/);
    assert.equal(written("args.txt"), "open\nhttps://example.com/\n");
  }));

test("macOS has open, and needs no display variables", () =>
  withOpeners({ open: OPENS, "xdg-open": "exit 4" }, async ({ bench, written }) => {
    assert.match((await bench.call("browser_open", "https://example.com/")).result.output, /by open,/);
    assert.equal(written("args.txt"), "https://example.com/\n");
  }, { environment: {}, desktop: { platform: "darwin" } }));

for (
  const [what, openers, environment, says] of [
    ["there is no display", { "xdg-open": OPENS }, {}, /neither WAYLAND_DISPLAY nor DISPLAY is set/],
    ["there is no opener", { open: OPENS }, { DISPLAY: ":0" }, /looked for xdg-open, gio, gdbus$/],
    ["the opener finds no browser", { "xdg-open": "exit 3" }, { DISPLAY: ":0" }, /status 3: it found no program/],
    ["the opener is killed", { "xdg-open": "kill -KILL $$" }, { DISPLAY: ":0" }, /was killed by SIGKILL$/],
  ] as const
) {
  test(`an error says when ${what}`, () =>
    withOpeners(openers as Readonly<Record<string, string>>, async ({ bench, written }) => {
      const { result } = await bench.call("browser_open", "https://example.com/");
      assert.equal(result.isError, true);
      assert.match(result.output, says);
      assert.equal(written("args.txt"), undefined);
    }, { environment }));
}

for (
  const [url, says, more] of [
    ["file:///etc/passwd", /only http: and https:/],
    ["javascript:alert(1)", /only http: and https:/],
    ["vscode://file/x", /only http: and https:/],
    ["--help", /it is no URL/],
    ["https://me:secret@example.com/", /user or a password before the "@"/],
    ["https://example.com@evil.test/", /user or a password before the "@"/],
    ["http://127.0.0.1:8000/", /allow_loopback = true/],
    ["http://[::ffff:10.0.0.1]/", /private or reserved/],
    ["http://169.254.169.254/latest/", /private or reserved/],
    ["http://0x7f000001/", /this machine/],
    ["https://inside.example.com/", /10\.0\.0\.7 is a private/],
    ["https://nowhere.test/", /could not be looked up/],
    ["https://example.com/", /domain_blocklist names/, { url_access: { domain_blocklist: ["example.com"] } }],
    ["https://www.example.com/", /to \[url_access\] domain_allowlist/, {
      url_access: { enforce_domain_allowlist: true, domain_allowlist: ["example.com"] },
    }],
    ["https://www.example.com/", /to \[browser\] allowed_domains/, {
      browser: { enabled: true, allowed_domains: ["example.com"] },
    }],
    ["http://127.0.0.1:4000/v1/models", /gateway itself/, { url_access: { allow_loopback: true } }],
    ["http://127.0.0.1:4000/health", /gateway itself/, { url_access: { allow_loopback: true } }],
    ["https://example.com/?k=sk%2Dhidden%2D123456", /known as a secret/],
  ] as readonly (readonly [string, RegExp, ConfigChanges?])[]
) {
  test(`nothing is started for ${url}: ${says.source}`, () =>
    withOpeners({ "xdg-open": OPENS }, async ({ bench, written }) => {
      bench.redactor.add("sk-hidden-123456");
      bench.configure({ ...ON, ...more });
      const { result } = await bench.call("browser_open", { url });
      assert.equal(result.isError, true);
      assert.match(result.output, says);
      assert.doesNotMatch(result.output, /me:secret/);
      assert.equal(written("args.txt"), undefined);
    }, { ownPort: 4000 }));
}

test("a host that is not listed is refused before its name is looked up, and before anybody is asked", () =>
  withOpeners({ "xdg-open": OPENS }, async ({ bench }) => {
    bench.configure({ browser: { enabled: true, allowed_domains: ["example.com"] } });
    const approver = () => assert.fail("nobody is asked");
    const { result } = await bench.call("browser_open", "https://tell.evil.test/", { approver });
    assert.match(result.output, /allowed_domains to allow it$/);
  }, { lookup: () => assert.fail("the name is not looked up") }));

for (
  const [what, change] of [
    ["the workspace is", (root: string) => ({ environment: { DISPLAY: ":0", HOME: root } })],
    ["the workspace holds", (root: string) => ({ environment: { DISPLAY: ":0", HOME: join(root, "home") } })],
    ["the workspace is where the settings are of", (root: string) => ({
      environment: { DISPLAY: ":0", XDG_CONFIG_HOME: join(root, "config") },
    })],
    ["the workspace is in the list of data folders, beside", (root: string) => ({
      environment: { DISPLAY: ":0", XDG_DATA_DIRS: `/usr/share:${join(root, "share")}` },
    })],
    ["the workspace has the program that BROWSER names, beside", (root: string) => ({
      environment: { DISPLAY: ":0", BROWSER: `firefox:${join(root, "open.sh")} --new %s` },
    })],
    ["write_file reaches the folder of applications in", () => ({
      environment: { DISPLAY: ":0", XDG_DATA_HOME: "/home/nobody/share" },
      config: { ...ON, write_file: { allowed_root: "/home/nobody/share/applications" } },
    })],
    ["a link in the workspace's place is", (root: string) => ({
      environment: { DISPLAY: ":0", HOME: `${root}-link` },
    })],
    ["write_file reaches", (root: string) => ({
      environment: { DISPLAY: ":0", HOME: join(root, "..", "outside") },
      config: { ...ON, write_file: { allowed_root: "../outside" } },
    })],
  ] as readonly (readonly [string, (root: string) => Partial<ToolBenchOptions>])[]
) {
  test(`nothing is opened where ${what} the user's home: tools could have chosen the program`, () =>
    withOpeners({ "xdg-open": OPENS }, async ({ workspace, written }) => {
      symlinkSync(workspace.root, `${workspace.root}-link`);
      const { call } = createToolBench({
        ...{ root: workspace.root, config: ON, searchPath: [join(workspace.outside, "bin")] },
        lookup: () => Promise.resolve(["93.184.216.34"]),
        ...change(workspace.root),
      });
      const { result } = await call("browser_open", "https://example.com/");
      assert.match(result.output, /which decides what program opens it/);
      assert.equal(written("args.txt"), undefined);
    }));
}

const STAYS = 'echo $$ > "$beside/pid"; while :; do sleep 1; done';

test("a browser that the opener became stays open: it is the user's, not the gateway's", async () => {
  const clock = createFakeClock();
  await withOpeners({ "xdg-open": STAYS }, async ({ bench, written }) => {
    let isOver = false;
    const called = bench.call("browser_open", "https://example.com/").finally(() => (isOver = true));
    await until(() => written("pid")?.endsWith("\n") ?? false);
    const pid = Number(written("pid"));
    try {
      await until(async () => {
        await clock.advance(5000);
        return isOver;
      });
      const { result } = await called;
      assert.match(result.output, /by xdg-open, which is still running,/);
      assert.equal((result.data as { running?: boolean }).running, true);
      await bench.processes.close();
      assert.ok(process.kill(pid, 0), "it is there");
    } finally {
      killIfThere(-pid);
    }
    assert.ok(await isGone(String(pid)));
  }, { desktop: { clock } });
});

test("a call that is cancelled while the opener works ends it", () =>
  withOpeners({ "xdg-open": STAYS }, async ({ bench, written }) => {
    const controller = new AbortController();
    const called = bench.call("browser_open", "https://example.com/", { signal: controller.signal });
    await until(() => written("pid")?.endsWith("\n") ?? false);
    controller.abort();
    await assert.rejects(called);
    assert.ok(await isGone(written("pid") ?? ""));
  }));

const xdgOpen = await createCommandLookup().find("xdg-open");
const skip = process.platform === "linux" && xdgOpen !== undefined ? false : "not installed: xdg-open";

test(
  "the real xdg-open hands the address to the user's browser",
  { skip },
  () =>
    withOpeners({ firefox: OPENS }, async ({ workspace, written }) => {
      const { outside } = workspace;
      // No folder of the machine says which program opens addresses
      const folders = ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS"];
      const environment = {
        ...Object.fromEntries(folders.map((name) => [name, outside])),
        ...{ DISPLAY: ":99", BROWSER: join(outside, "bin", "firefox") },
      };
      const lookup = () => Promise.resolve(["93.184.216.34"]);
      const { call } = createToolBench({ root: workspace.root, config: ON, environment, lookup });
      const { result } = await call("browser_open", "https://example.com/*?q=$(id)&a=%20b");
      assert.match(result.output, /by xdg-open, to open/);
      assert.equal(written("args.txt"), "https://example.com/*?q=$(id)&a=%20b\n");
    }),
);
