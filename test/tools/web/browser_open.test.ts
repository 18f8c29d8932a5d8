import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type ConfigChanges, createToolBench, type ToolBenchOptions } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const ALLOWED: ConfigChanges = {
  browser: { enabled: true, allowed_domains: ["93.184.215.14"] },
  autonomy: { level: "full" },
};

/** Opens addresses with programs that are shell scripts of the test; `$out` is the file that `said` reads. */
async function withOpener(
  programs: Readonly<Record<string, string>>,
  use: (open: (url: string) => Promise<string>, said: () => string | undefined) => Promise<void>,
  options: Pick<ToolBenchOptions, "environment" | "desktop"> = {},
): Promise<void> {
  await withWorkspace({}, async ({ root, outside }) => {
    const [bin, out] = [join(outside, "bin"), join(outside, "out")];
    mkdirSync(bin);
    for (const [name, script] of Object.entries(programs)) {
      writeFileSync(join(bin, name), `#!/bin/sh\nout='${out}'\n${script}\n`);
      chmodSync(join(bin, name), 0o755);
    }
    const { call } = createToolBench({
      ...{ root, home: outside, config: ALLOWED, environment: { DISPLAY: ":7", SECRET: "hunter2" } },
      searchPath: [bin],
      ...options,
    });
    await use(
      async (url) => (await call("browser_open", { url })).result.output,
      () => existsSync(out) ? readFileSync(out, "utf8") : undefined,
    );
  });
}

const NOTE = 'printf "%s|%s|%s|%s" "$#" "$1" "$DISPLAY" "$SECRET" > "$out"';

test("an address is one argument, as the policy read it; the program gets the session and no other variable", () =>
  withOpener({ "xdg-open": NOTE }, async (open, said) => {
    assert.equal(
      await open("HTTP://93.184.215.14/?a='$(id)' b"),
      `opened url="http://93.184.215.14/?a=%27$(id)%27%20b"`,
    );
    assert.equal(said(), "1|http://93.184.215.14/?a=%27$(id)%27%20b|:7|");
  }));

test("what the policy refuses starts nothing", () =>
  withOpener({ "xdg-open": NOTE }, async (open, said) => {
    for (const url of ["file:///etc/passwd", "http://127.0.0.1/", "http://93.184.215.15/", "--help", "javascript:1"]) {
      assert.match(await open(url), /^Cannot reach /);
    }
    assert.equal(said(), undefined);
  }));

for (
  const [what, programs, options, message] of [
    ["no display", { "xdg-open": NOTE }, { environment: {} }, /^Cannot open the address: the gateway has no display/],
    ["no program", {}, {}, /looked for xdg-open, gio$/],
    ["no program on macOS", {}, { desktop: { platform: "darwin" } }, /looked for open$/],
    ["a program that fails", { "xdg-open": "exit 3" }, {}, /ended with status 3$/],
  ] as const
) {
  test(`${what} is an error that says so`, () =>
    withOpener(programs, async (open, said) => {
      assert.match(await open("http://93.184.215.14/"), message);
      assert.equal(said(), undefined);
    }, options));
}

for (const [name, desktop] of [["gio", {}], ["open", { platform: "darwin" }]] as const) {
  test(`${name} opens the address where it is the program of the session`, () =>
    withOpener({ [name]: 'printf "%s " "$@" > "$out"' }, async (open, said) => {
      assert.match(await open("http://93.184.215.14/"), /^opened/);
      assert.match(said() ?? "", name === "gio" ? /^open http:.*\/ $/ : /^http:.*\/ $/);
    }, { desktop }));
}
