/** Wheels that the real pip or uv of this machine installs: each of its steps takes seconds on a busy machine. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { parseToml } from "../../lib/config/toml.ts";
import { onMachine } from "../cli/support/run_in.ts";
import { startRegistries } from "../support/fake_registries.ts";

const hasPython = (process.env["PATH"] ?? "").split(delimiter).some((folder) => existsSync(join(folder, "python3")));

/** Configuration that the command writes. */
interface EnteredServers {
  readonly mcp: {
    readonly servers: { readonly clock: { readonly command: string; readonly args: readonly string[] } };
  };
}

test(
  "mcp add installs a wheel of PyPI by its digest, and refuses what has none",
  { skip: hasPython ? false : "there is no python3" },
  () =>
    onMachine(async (machine) => {
      const files = { "acme_clock.py": "import sys\ndef main():\n    print('tick', sys.argv[1:])\n" };
      const entryPoints = "[console_scripts]\nclock = acme_clock:main\n";
      await using registries = await startRegistries({
        wheels: [
          { name: "mcp-server-clock", version: "2.0.0", files, entryPoints },
          { name: "built", version: "1.0.0", files: {}, source: true },
        ],
      });
      const env = registries.env(machine.home);
      const added = await machine.run(["mcp", "add", "pypi:mcp-server-clock", "--", "-x"], { env });
      assert.equal(added.code, 0, added.stderr);
      assert.match(added.stdout, /^Installed pypi:mcp-server-clock==2\.0\.0 \(sha256:[0-9a-f]{64}\)/);
      const config = parseToml(
        readFileSync(join(machine.home, ".config/postern/postern.toml"), "utf8"),
        "postern.toml",
      );
      const { command, args } = (config as unknown as EnteredServers).mcp.servers.clock;
      const started = spawnSync(command, args, { encoding: "utf8", env: {} });
      assert.equal(started.stdout, "tick ['-x']\n");
      const list = readFileSync(join(dirname(args[0] ?? ""), "requirements.txt"), "utf8");
      assert.match(list, /^mcp-server-clock==2\.0\.0 --hash=sha256:[0-9a-f]{64}$/m);
      const refused = await machine.run(["mcp", "add", "pypi:built"], { env });
      assert.equal(refused.code, 1);
      assert.match(refused.stderr, /no wheel .* a package without a wheel would run its own code to be built/);
      assert.deepEqual(readdirSync(join(machine.dataDir, "mcp/packages")), ["pypi-mcp-server-clock-2.0.0"]);
    }),
);
