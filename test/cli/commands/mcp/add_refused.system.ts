import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startRegistries } from "../../../support/fake_registries.ts";
import { onMachine } from "../../support/run_in.ts";
import { packagesOf, SERVER, WITH_SCRIPT, withoutNpm } from "./npm_server.ts";

for (
  const [what, packages, target, expected] of [
    [
      "one of whose packages was exchanged",
      [SERVER, { ...WITH_SCRIPT, tampered: true }],
      "npm:@acme/server-notes",
      /the bytes are not those that the registry's metadata promise, and nothing was installed/,
    ],
    [
      "that needs a package from git",
      [{ ...SERVER, manifest: { bin: "x", dependencies: { x: "git+ssh://git@127.0.0.1/x.git" } } }],
      "npm:@acme/server-notes",
      /Cannot install "@acme\/server-notes"/,
    ],
    [
      "whose program lies outside of it",
      [{ ...SERVER, manifest: { bin: { notes: "../../../x" } } }],
      "npm:@acme/server-notes",
      /its program is not in its folder/,
    ],
    ["of another version", [SERVER], "npm:@acme/server-notes@9.9.9", /it has no version "9\.9\.9"/],
  ] as const
) {
  test(
    `mcp add refuses a package ${what}, and leaves nothing`,
    { skip: withoutNpm },
    () =>
      onMachine(async (machine) => {
        await using registries = await startRegistries({ packages });
        const refused = await machine.run(["mcp", "add", target], { env: registries.env(machine.home) });
        assert.equal(refused.code, 1, refused.stdout);
        assert.match(refused.stderr, expected);
        assert.deepEqual(packagesOf(machine), []);
        assert.equal(existsSync(join(machine.home, ".config/postern/postern.toml")), false);
      }),
  );
}

test(
  "mcp add writes nothing of a package outside of its folder",
  { skip: withoutNpm },
  () =>
    onMachine(async (machine) => {
      const files = {
        ...SERVER.files,
        "../../../../escaped.txt": "x",
      };
      await using registries = await startRegistries({
        packages: [{ ...SERVER, manifest: { bin: { notes: "dist/index.js" } }, files }],
      });
      await machine.run(["mcp", "add", "npm:@acme/server-notes"], { env: registries.env(machine.home) });
      const written = readdirSync(machine.home, { recursive: true, encoding: "utf8" });
      const escaped = written.filter((path) => path.endsWith("escaped.txt") && !path.includes("node_modules"));
      assert.deepEqual(escaped, []);
    }),
);
