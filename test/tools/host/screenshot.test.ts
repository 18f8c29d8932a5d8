import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { createCommandLookup, SEARCH_PATH } from "../../../lib/system/process/command_lookup.ts";
import { isGone } from "../../support/is_gone.ts";
import {
  type ConfigChanges,
  createToolBench,
  type ToolBench,
  type ToolBenchOptions,
} from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { OUTSIDE, withWorkspace, type Workspace } from "../../support/workspace.ts";
import { startXvfb } from "../../support/xvfb.ts";

const PIXEL = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);
const FULL: ConfigChanges = { autonomy: { level: "full" } };
const X11 = { DISPLAY: ":99" };
const WAYLAND = { WAYLAND_DISPLAY: "wayland-0", DISPLAY: ":0", XDG_RUNTIME_DIR: "/run/user/1" };
/** Beginning of a script: `$file` is its last argument. */
const HEAD = `#!/bin/sh\nPATH=${SEARCH_PATH.join(":")}\nfor file; do :; done\n`;

interface Screen {
  readonly bench: ToolBench;
  readonly workspace: Workspace;
  /** Path of a file beside the workspace, that scripts know as `$beside/<name>`. */
  beside(name: string): string;
  /** Names of pictures that are still there. */
  left(): readonly string[];
}

/** Runs `use` with programs that are scripts. In each `$beside` is a folder beside the workspace with `pixel.png`. */
function withPrograms(
  programs: Readonly<Record<string, string>>,
  use: (screen: Screen) => Promise<void>,
  options: Partial<ToolBenchOptions> = {},
): Promise<void> {
  return withWorkspace({ "notes.txt": "mine\n", "old.png": "old" }, async (workspace) => {
    const folder = join(workspace.outside, "bin");
    mkdirSync(folder);
    writeFileSync(join(workspace.outside, "pixel.png"), PIXEL);
    for (const [name, body] of Object.entries(programs)) {
      writeFileSync(join(folder, name), `${HEAD}beside='${workspace.outside}'\n${body}\n`);
      chmodSync(join(folder, name), 0o755);
    }
    const bench = createToolBench({
      ...{ root: workspace.root, config: FULL, environment: X11, searchPath: [folder] },
      ...options,
    });
    const screen = join(workspace.outside, "..", "screen");
    await use({
      ...{ bench, workspace, beside: (name) => join(workspace.outside, name) },
      left: () => existsSync(screen) ? readdirSync(screen) : [],
    });
  });
}

const TAKES = 'cp "$beside/pixel.png" "$file"';

test("the picture is saved, and nothing of it is left elsewhere", () =>
  withPrograms({ scrot: TAKES }, async ({ bench, workspace, left }) => {
    const { result, access } = await bench.call("screenshot", "shots/now.png");
    assert.equal(result.output, `Saved the screen to "shots/now.png": 1 x 1 pixels, ${PIXEL.length} bytes, by scrot`);
    assert.deepEqual(result.data, {
      ...{ path: "shots/now.png", bytes: PIXEL.length, width: 1, height: 1, program: "scrot", created: true },
    });
    assert.equal(access, "write");
    assert.deepEqual(readFileSync(workspace.path("shots/now.png")), PIXEL);
    assert.deepEqual(left(), []);
  }));

for (
  const [what, installed, environment, platform, expected] of [
    ["Wayland", ["import", "scrot", "spectacle", "grim"], WAYLAND, "linux", "grim"],
    ["Wayland without grim", ["import", "scrot", "spectacle"], WAYLAND, "linux", "spectacle"],
    ["X11", ["grim", "scrot", "import", "maim"], X11, "linux", "scrot"],
    ["X11 with GNOME's own", ["scrot", "gnome-screenshot"], X11, "linux", "gnome-screenshot"],
    ["macOS", ["grim", "screencapture"], {}, "darwin", "screencapture"],
  ] as const
) {
  test(`the first program that fits is taken: ${what}`, () =>
    withPrograms(Object.fromEntries(installed.map((name) => [name, TAKES])), async ({ bench }) => {
      const { result } = await bench.call("screenshot", "a.png");
      assert.deepEqual([result.isError, (result.data as { program?: string }).program], [false, expected]);
    }, { environment, desktop: { platform } }));
}

test("an X program is not asked for a Wayland session: it would see nothing", () =>
  withPrograms({ scrot: TAKES }, async ({ bench }) => {
    const { result } = await bench.call("screenshot", "a.png");
    assert.equal(result.isError, true);
    assert.match(result.output, /looked for grim, gnome-screenshot, spectacle$/);
  }, { environment: WAYLAND }));

test("without a display no program is started", () =>
  withPrograms({ scrot: TAKES, grim: TAKES }, async ({ bench }) => {
    const { result } = await bench.call("screenshot", "a.png");
    assert.equal(result.isError, true);
    assert.match(result.output, /neither WAYLAND_DISPLAY nor DISPLAY is set/);
  }, { environment: { DISPLAY: "", HOME: "/home/me" } }));

test("the program gets the session and nothing else of the gateway's environment", () =>
  withPrograms({ scrot: `env > "$beside/env.txt"; ${TAKES}` }, async ({ bench, beside }) => {
    await bench.call("screenshot", "a.png");
    const lines = readFileSync(beside("env.txt"), "utf8").split("\n");
    assert.ok(lines.includes("DBUS_SESSION_BUS_ADDRESS=unix:path=/bus") && lines.includes("DISPLAY=:99"));
    assert.ok(lines.includes("XAUTHORITY=/home/nobody/.Xauthority"));
    assert.doesNotMatch(lines.join("\n"), /sk-secret|LD_PRELOAD|HOME=\/home\/me/);
  }, {
    environment: {
      ...{ DISPLAY: ":99", DBUS_SESSION_BUS_ADDRESS: "unix:path=/bus" },
      ...{ OPENAI_API_KEY: "sk-secret", LD_PRELOAD: "/x.so", HOME: "/home/me" },
    },
  }));

test("where one program fails the next is tried, and all are named when all fail", () =>
  withPrograms({ scrot: 'echo "no \\"such\\" screen" >&2; exit 1', import: TAKES }, async ({ bench, beside, left }) => {
    assert.match((await bench.call("screenshot", "a.png")).result.output, /by import$/);
    writeFileSync(join(beside("bin"), "import"), "#!/bin/sh\nkill -SEGV $$\n");
    const { result } = await bench.call("screenshot", "b.png");
    assert.equal(
      result.output,
      'Cannot take the screen: scrot ended with status 1 and said "no \\"such\\" screen"; import was killed by SIGSEGV',
    );
    assert.deepEqual(left(), []);
  }));

for (
  const [what, body, says] of [
    ["writes no file", "exit 0", /scrot wrote no picture$/],
    ["writes a text", 'echo hello > "$file"', /no whole PNG$/],
    ["writes nothing into the file", ': > "$file"', /no whole PNG$/],
    ["writes a JPEG", 'printf "\\377\\330\\377\\340" > "$file"', /no whole PNG$/],
    ["writes half a PNG", 'head -c 50 "$beside/pixel.png" > "$file"', /no whole PNG$/],
    ["makes a link to a file outside", 'ln -s "$beside/secret.txt" "$file"', /wrote no picture$/],
    ["makes a pipe", 'mkfifo "$file"', /wrote no picture$/],
    ["makes a folder", 'mkdir "$file"', /wrote no picture$/],
    ["writes without end", 'while :; do cat "$beside/pixel.png"; done > "$file"', /10000 bytes/],
    ["writes much at once", 'head -c 20000 /dev/zero > "$file"', /10000 bytes/],
    // Much at once, so that it comes to the end of what is taken before its time is over
    ["talks without end", "while :; do head -c 100000 /dev/zero; done", /output|stopped/],
  ] as const
) {
  test(`nothing is saved from a program that ${what}`, () =>
    withPrograms({ scrot: `echo $$ > "$beside/pid"; ${body}` }, async ({ bench, workspace, beside, left }) => {
      const { result } = await bench.call("screenshot", { filename: "old.png", overwrite: true });
      assert.equal(result.isError, true);
      assert.match(result.output, says);
      assert.doesNotMatch(result.output, new RegExp(OUTSIDE.trim()));
      assert.equal(readFileSync(workspace.path("old.png"), "utf8"), "old");
      assert.deepEqual(left(), []);
      assert.ok(await isGone(readFileSync(beside("pid"), "utf8")));
    }, { desktop: { limits: { timeoutMs: 5000, maxBytes: 10_000 } } }));
}

const HANGS = 'trap "" TERM; echo $$ > "$beside/pid"; while :; do sleep 1; done';

test("a program that hangs is killed by its limit, also when it ignores to be told", () =>
  withPrograms({ scrot: HANGS }, async ({ bench, beside, left }) => {
    const { result } = await bench.call("screenshot", "a.png");
    assert.equal(result.output, "Cannot take the screen: scrot was stopped after 2 s");
    assert.ok(await isGone(readFileSync(beside("pid"), "utf8")));
    assert.deepEqual(left(), []);
  }, { desktop: { limits: { timeoutMs: 2_000, maxBytes: 10_000 } } }));

test("a cancelled call kills the program and removes its picture", () =>
  withPrograms({ scrot: `${TAKES}; ${HANGS}` }, async ({ bench, workspace, beside, left }) => {
    const controller = new AbortController();
    const called = bench.call("screenshot", "a.png", { signal: controller.signal });
    await until(() => existsSync(beside("pid")) && readFileSync(beside("pid"), "utf8").endsWith("\n"));
    assert.equal(left().length, 1);
    controller.abort();
    await assert.rejects(called);
    assert.ok(await isGone(readFileSync(beside("pid"), "utf8")));
    assert.deepEqual([left(), existsSync(workspace.path("a.png"))], [[], false]);
  }));

for (
  const [what, filename, says] of [
    ["leads out of the root", "../outside/a.png", /outside|absolute|relative|root/],
    ["is absolute", "/tmp/a.png", /outside|absolute|relative|root/],
    ["leads out by a link", "link/a.png", /outside the allowed root/],
    ["is a link", "alias.png", /it is a symbolic link/],
    ["is protected", ".git/a.png", /\.git/],
    ["is a credential's", ".ssh/a.png", /allow_sensitive|credential|sensitive/],
    ["is taken", "old.png", /it exists/],
    ["is no PNG's", "notes.txt", /must end with "\.png"/],
    ["is an ending alone", "shots/.png", /must end with "\.png"/],
    ["has a NUL", "a\0.png", /NUL/],
  ] as const
) {
  test(`no picture is taken for a name that ${what}`, () =>
    withPrograms({ scrot: `touch "$beside/ran"; ${TAKES}` }, async ({ bench, workspace, beside }) => {
      symlinkSync(workspace.outside, workspace.path("link"));
      symlinkSync("notes.txt", workspace.path("alias.png"));
      const { result } = await bench.call("screenshot", { filename });
      assert.equal(result.isError, true);
      assert.match(result.output, says);
      assert.equal(existsSync(beside("ran")), false);
      assert.equal(readFileSync(workspace.path("notes.txt"), "utf8"), "mine\n");
    }));
}

test("supervised asks first, and allowed_root is that of write_file", () =>
  withPrograms({ scrot: TAKES }, async ({ bench, workspace }) => {
    bench.configure({});
    assert.equal((await bench.call("screenshot", "a.png")).ran, false);
    bench.configure({ ...FULL, write_file: { allowed_root: "shots" } });
    mkdirSync(workspace.path("shots"));
    assert.equal((await bench.call("screenshot", "a.png")).result.isError, false);
    assert.deepEqual(readFileSync(workspace.path("shots/a.png")), PIXEL);
  }));

const { find } = createCommandLookup();
const xvfb = await find("Xvfb");
for (const name of ["scrot", "import"]) {
  const program = await find(name);
  const missing = [...xvfb === undefined ? ["Xvfb"] : [], ...program === undefined ? [name] : []];
  const skip = process.platform === "linux" && missing.length === 0 ? false : `not installed: ${missing.join(", ")}`;
  test(`${name} takes a real screen of 320 x 200 pixels`, { skip }, async () => {
    const { display, stop } = await startXvfb(xvfb ?? "");
    try {
      await withPrograms({}, async ({ bench, workspace, beside, left }) => {
        symlinkSync(program ?? "", join(beside("bin"), name));
        const { result } = await bench.call("screenshot", "real.png");
        assert.match(result.output, new RegExp(`: 320 x 200 pixels, \\d+ bytes, by ${name}$`));
        assert.ok(readFileSync(workspace.path("real.png")).length > 100);
        assert.deepEqual(left(), []);
      }, { environment: { DISPLAY: display } });
    } finally {
      stop();
    }
  });
}
