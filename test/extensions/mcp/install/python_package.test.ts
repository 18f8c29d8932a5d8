import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { InstallerPrograms, InstallerStep } from "../../../../lib/extensions/mcp/install/installer_program.ts";
import { McpInstallError } from "../../../../lib/extensions/mcp/install/package_spec.ts";
import { installFromPypi } from "../../../../lib/extensions/mcp/install/python_package.ts";
import { withTemporaryFolder } from "../../../support/temporary_folder.ts";

// The real pip is in test/long/mcp_pypi.long.ts: it takes seconds for each step on a busy machine

const DIGEST = "a".repeat(64);
const LOCKED = `mcp-server-clock==2.0.0 --hash=sha256:${DIGEST}\n`;
const REQUEST = { name: "mcp-server-clock", version: undefined, program: undefined };

interface Script {
  readonly programs: readonly string[];
  /** Answer of `pip --version` */
  readonly pip?: string;
  /** Report of pip, or the list of uv */
  readonly resolved?: string;
  readonly entryPoints?: string;
  /** Error of the resolving step */
  readonly fails?: string;
}

function reportOf(version: string, sha256: string): string {
  const one = {
    metadata: { name: "mcp-server-clock", version },
    download_info: { archive_info: { hashes: { sha256 } } },
  };
  return JSON.stringify({ version: "1", install: [one] });
}

/** Programs that do what uv and pip leave behind, and keep each command. */
function scripted(folder: string, script: Script): InstallerPrograms & { readonly steps: readonly InstallerStep[] } {
  const steps: InstallerStep[] = [];
  const { resolved = reportOf("2.0.0", DIGEST), entryPoints = "[console_scripts]\nclock = acme_clock:main\n" } = script;
  return {
    steps,
    find: (name) => Promise.resolve(script.programs.includes(name) ? `/usr/bin/${name}` : undefined),
    run(step) {
      steps.push(step);
      const { args } = step;
      if (args.includes("--version")) return Promise.resolve(script.pip ?? "pip 23.2.1 from /x");
      const isResolve = args.includes("--dry-run") || args.includes("compile");
      if (isResolve && script.fails !== undefined) {
        return Promise.reject(new McpInstallError("installer_failed", `Cannot ${step.title}: ${script.fails}`));
      }
      if (args.includes("--dry-run")) writeFileSync(join(folder, "report.json"), resolved);
      if (args.includes("--require-hashes")) {
        const info = join(folder, "venv/lib/python3.11/site-packages/mcp_server_clock-2.0.0.dist-info");
        mkdirSync(info, { recursive: true });
        writeFileSync(join(info, "entry_points.txt"), entryPoints);
      }
      return Promise.resolve(args.includes("compile") ? resolved : "");
    },
  };
}

const withScript = (script: Script, use: (folder: string, programs: ReturnType<typeof scripted>) => Promise<void>) =>
  withTemporaryFolder((folder) => use(folder, scripted(folder, script)));

/** Flags without which a package could run its code, or another file could be installed than the resolved one. */
function assertLocked(folder: string, steps: readonly InstallerStep[]): void {
  const fills = steps.filter(({ args }) => args.includes("install") || args.includes("compile"));
  assert.equal(fills.length, 2);
  for (const { args } of fills) assert.match(args.join(" "), /--only-binary :all:/);
  const last = fills.at(-1)?.args.join(" ") ?? "";
  assert.match(last, /--require-hashes/);
  assert.match(last, /--no-deps/);
  assert.match(last, /--requirements? requirements\.txt\b/);
  assert.equal(readFileSync(join(folder, "requirements.txt"), "utf8"), LOCKED);
}

for (
  const [what, script] of [
    ["pip", { programs: ["python3"] }],
    ["uv", { programs: ["uv", "python3"], resolved: `mcp-server-clock==2.0.0 \\\n    --hash=sha256:${DIGEST}\n` }],
  ] as const
) {
  test(`a package of PyPI is resolved by ${what} to digests first, then exactly those files are installed`, () =>
    withScript(script, async (folder, programs) => {
      const found = await installFromPypi(REQUEST, { folder, programs });
      assert.deepEqual(found, {
        ...{ registry: "pypi", name: "mcp-server-clock", version: "2.0.0", integrity: `sha256:${DIGEST}` },
        command: { path: "venv/bin/python", inside: true },
        args: ["postern-start.py"],
        notes: ["1 package installed"],
      });
      const start = readFileSync(join(folder, "postern-start.py"), "utf8");
      assert.equal(start, "import sys\nfrom acme_clock import main\nsys.exit(main())\n");
      assertLocked(folder, programs.steps);
      const isUv = ({ file }: InstallerStep) => file === "/usr/bin/uv";
      assert.equal(programs.steps.every(isUv), what === "uv");
    }));
}

test("a pip that cannot fill other environments is put into the new one", () =>
  withScript({ programs: ["python3"], pip: "pip 22.2 from /x" }, async (folder, programs) => {
    await installFromPypi(REQUEST, { folder, programs });
    const [, make, resolve] = programs.steps;
    assert.deepEqual(make?.args, ["-I", "-m", "venv", "venv"]);
    assert.equal(resolve?.file, join(folder, "venv/bin/python"));
  }));

for (
  const [what, script, expected, version] of [
    [
      "without a wheel",
      { fails: "ERROR: No matching distribution found for mcp-server-clock" },
      { code: "package_not_found", message: /no wheel .* a package without a wheel would run its own code/ },
    ],
    ["whose file has no digest", { resolved: reportOf("2.0.0", "md5") }, {
      code: "package_refused",
      message: /a digest that is no SHA-256/,
    }],
    ["whose report has no digest at all", { resolved: "{}" }, {
      code: "package_refused",
      message: /no SHA-256 digest of each file/,
    }],
    ["in another version than the wanted one", { resolved: reportOf("2.0.1", DIGEST) }, {
      code: "package_tampered",
      message: /the registry has 2\.0\.1 in place of 2\.0\.0/,
    }, "2.0.0"],
    ["whose version brings another line of requirements", {
      resolved: reportOf("2.0.0\n--index-url http://127.0.0.1:9/", DIGEST),
    }, { code: "package_refused", message: /calls itself "2\.0\.0\\n--index-url .*which is no name or version/ }],
    ["without a program", { entryPoints: "[other]\nclock = a:b\n" }, {
      code: "package_refused",
      message: /it has no program/,
    }],
    ["with a program that is no name", { entryPoints: "[console_scripts]\nclock = a;import os:main\n" }, {
      code: "package_refused",
      message: /it has no program/,
    }],
    ["with several programs", { entryPoints: "[console_scripts]\none = a:b\ntwo = a:c\n" }, {
      code: "package_refused",
      message: /its programs are "one", "two"; choose one with --program/,
    }],
    ["with more programs than anybody reads", {
      entryPoints: `[console_scripts]\n${Array.from({ length: 2000 }, (_, index) => `p${index} = a:b\n`).join("")}`,
    }, {
      code: "package_refused",
      message: /^.{0,200}its programs are "p0", .{0,100} and 1995 more; choose one with --program$/,
    }],
  ] as const
) {
  test(`a package of PyPI ${what} is refused`, () =>
    withScript({ programs: ["python3"], ...script }, async (folder, programs) => {
      await assert.rejects(installFromPypi({ ...REQUEST, version }, { folder, programs }), expected);
      assert.equal(existsSync(join(folder, "postern-start.py")), false);
    }));
}
