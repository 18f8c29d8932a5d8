/**
 * Changes between consecutive versions of real packages, each made a patch by git and applied by `apply_patch`: the file has then the bytes
 * of the next version, or the patch was refused.
 *
 * The packages of `corpora.json` come through npm, pip and cargo, from the registries that these are configured for; nothing of a
 * package is run. Where a registry cannot be reached its test is skipped. A package whose SHA-256 differs fails.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { isThere } from "../support/git_fixture.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { createToolBench } from "../support/tool_bench.ts";
import { withWorkspace } from "../support/workspace.ts";
import corpora from "./corpora.json" with { type: "json" };

interface Package {
  readonly registry: string;
  readonly name: string;
  readonly versions: readonly { readonly version: string; readonly sha256: string }[];
}

/** Text of one file in two consecutive versions. */
interface Change {
  readonly name: string;
  readonly before: string;
  readonly after: string;
}

const MAX_BYTES = 500_000;
const PACKAGES: readonly Package[] = corpora;

/** Returns what failed, or undefined. */
function run(program: string, args: readonly string[], folder: string): string | undefined {
  const { status, stderr, error } = spawnSync(program, args, { cwd: folder, encoding: "utf8", timeout: 300_000 });
  return status === 0 ? undefined : `${program}: ${error?.message ?? stderr.trim().split("\n").at(-1)}`;
}

/** Fetches the packages of one registry into `folder`, one file each, named by `fileOf`. Returns what failed. */
type Fetch = (packages: readonly Package[], folder: string) => string | undefined;

const fileOf = (name: string, version: string) => `${name}-${version}`;

const fetchNpm: Fetch = (packages, folder) => {
  for (const { name, versions } of packages) {
    const failed = run("npm", ["pack", "--silent", ...versions.map(({ version }) => `${name}@${version}`)], folder);
    if (failed !== undefined) return failed;
    for (const { version } of versions) {
      writeFileSync(join(folder, fileOf(name, version)), readFileSync(join(folder, `${name}-${version}.tgz`)));
    }
  }
  return undefined;
};

/** Fetches wheels, because pip runs the code of a package when it fetches its sources. */
const fetchPypi: Fetch = (packages, folder) => {
  const only = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.13", "--implementation", "py"];
  for (const { name, versions } of packages) {
    for (const { version } of versions) {
      const own = join(folder, `wheel-${name}-${version}`);
      const args = ["-m", "pip", "download", "--quiet", ...only, "--abi", "none", "--platform", "any", "--dest", own];
      const failed = run("python3", [...args, `${name}==${version}`], folder);
      if (failed !== undefined) return failed;
      writeFileSync(join(folder, fileOf(name, version)), readFileSync(join(own, readdirSync(own)[0] ?? "")));
    }
  }
  return undefined;
};

/** Fetches with one project for each place in the lists of versions, because a project has one version of a crate. */
const fetchCrates: Fetch = (packages, folder) => {
  const home = process.env["CARGO_HOME"] ?? join(homedir(), ".cargo");
  for (let i = 0; packages.some(({ versions }) => versions[i] !== undefined); i++) {
    const project = join(folder, `project-${i}`);
    mkdirSync(join(project, "src"), { recursive: true });
    writeFileSync(join(project, "src/lib.rs"), "");
    const wanted = packages.flatMap(({ name, versions }) =>
      versions.slice(i, i + 1).map(({ version }) => ({ name, version }))
    );
    const lines = wanted.map(({ name, version }) => `${name} = { version = "=${version}", default-features = false }`);
    const head = ["[package]", 'name = "corpus"', 'version = "0.0.0"', 'edition = "2021"', "[dependencies]"];
    writeFileSync(join(project, "Cargo.toml"), [...head, ...lines, ""].join("\n"));
    const failed = run("cargo", ["fetch", "--quiet"], project);
    if (failed !== undefined) return failed;
    for (const { name, version } of wanted) {
      const [crate = ""] = globSync(join(home, `registry/cache/*/${name}-${version}.crate`));
      writeFileSync(join(folder, fileOf(name, version)), readFileSync(crate));
    }
  }
  return undefined;
};

/** Returns the text files of a fetched package by their path, without the version in it. */
function unpack(file: string, into: string): ReadonlyMap<string, string> {
  mkdirSync(into);
  const isZip = readFileSync(file).subarray(0, 2).toString("latin1") === "PK";
  const failed = isZip ? run("python3", ["-m", "zipfile", "-e", file, into], into) : run("tar", ["-xzf", file], into);
  assert.equal(failed, undefined);
  const texts = new Map<string, string>();
  for (const entry of readdirSync(into, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const bytes = readFileSync(path);
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
    const isText = !bytes.includes(0) && Buffer.from(text).equals(bytes);
    if (isText && bytes.length <= MAX_BYTES) {
      texts.set(path.slice(into.length).replace(/^(\/[^/]+)-\d[^/]*/, "$1"), text);
    }
  }
  return texts;
}

/** Checks and unpacks what was fetched, and compares each version with the next. */
function changesOf({ name, versions }: Package, folder: string): readonly Change[] {
  const trees = versions.map(({ version, sha256 }) => {
    const file = join(folder, fileOf(name, version));
    assert.equal(createHash("sha256").update(readFileSync(file)).digest("hex"), sha256, `${name} ${version}`);
    return unpack(file, join(folder, `tree-${name}-${version}`));
  });
  return trees.slice(1).flatMap((tree, i) =>
    [...tree].flatMap(([path, after]): readonly Change[] => {
      const before = trees[i]?.get(path);
      if (before === undefined || before === after) return [];
      return [{ name: `${name} ${versions[i]?.version} ${path}`, before, after }];
    })
  );
}

interface GitHunk {
  readonly numbers: string;
  readonly heading: string;
  readonly lines: readonly string[];
}

function diff(folder: string, context: number): readonly GitHunk[] {
  const options = ["diff", "--no-index", "--no-color", "--no-ext-diff", "--text", `-U${context}`, "before", "after"];
  const { stdout } = spawnSync("git", options, { cwd: folder, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
  const hunks: { numbers: string; heading: string; lines: string[] }[] = [];
  for (const line of stdout.replace(/\n$/, "").split("\n")) {
    const match = /^(@@ -\S+ \+\S+ @@) ?(.*)$/.exec(line);
    if (match !== null) hunks.push({ numbers: match[1] ?? "", heading: match[2] ?? "", lines: [] });
    else hunks.at(-1)?.lines.push(line);
  }
  return hunks;
}

/** Line that begins a hunk, by the form of the patch. A heading in front of added lines alone would mean: right below it. */
const FORMS: Readonly<Record<string, (hunk: GitHunk) => string>> = {
  numbers: ({ numbers, heading }) => `${numbers} ${heading}`.trimEnd(),
  headings: ({ heading, lines }) => lines.every((line) => line.startsWith("+")) ? "@@" : `@@ ${heading}`.trimEnd(),
  bare: () => "@@",
};

type Outcome = "equal" | "refused" | "different";

async function applyAll(changes: readonly Change[]): Promise<ReadonlyMap<string, readonly [Outcome, string][]>> {
  const outcomes = new Map<string, [Outcome, string][]>();
  await withWorkspace({}, async ({ root, path, write }) => {
    const config = {
      write_file: { enabled: true, max_write_bytes: 2 * MAX_BYTES },
      autonomy: { level: "full" },
    } as const;
    const { call } = createToolBench({ root, config });
    for (const { name, before, after } of changes) {
      write("before", before);
      write("after", after);
      for (const context of [0, 1, 3]) {
        const hunks = diff(root, context);
        for (const [form, toHeader] of Object.entries(FORMS)) {
          write("file", before);
          const body = hunks.flatMap((hunk) => [toHeader(hunk), ...hunk.lines]);
          const patch = ["*** Begin Patch", "*** Update File: file", ...body, "*** End Patch"].join("\n");
          const { result } = await call("apply_patch", { patch });
          const isEqual = readFileSync(path("file"), "utf8") === after;
          const outcome = result.isError ? "refused" : isEqual ? "equal" : "different";
          const key = `-U${context} ${form}`;
          outcomes.set(key, [...outcomes.get(key) ?? [], [outcome, `${name}: ${result.output}`]]);
        }
      }
    }
  });
  return outcomes;
}

for (const [registry, fetchAll] of Object.entries({ npm: fetchNpm, pypi: fetchPypi, crates: fetchCrates })) {
  test(`changes between versions of packages from ${registry}: equal or refused`, async (context) => {
    if (!isThere("git")) return context.skip("git is not installed");
    await withTemporaryFolder(async (folder) => {
      const packages = PACKAGES.filter((one) => one.registry === registry);
      const failed = fetchAll(packages, folder);
      if (failed !== undefined) return context.skip(`cannot fetch the packages: ${failed}`);
      const changes = packages.flatMap((one) => changesOf(one, folder));
      const outcomes = await applyAll(changes);
      const pairs = packages.reduce((sum, { versions }) => sum + versions.length - 1, 0);
      console.log(`${registry}: ${pairs} pairs of versions, ${changes.length} changed files`);
      const count = (list: readonly [Outcome, string][], outcome: Outcome) => list.filter(([own]) => own === outcome);
      for (const [key, list] of outcomes) {
        const columns = (["equal", "refused", "different"] as const).map((own) => `${own} ${count(list, own).length}`);
        console.log(`${key.padEnd(14)} ${columns.join("  ")}`);
      }
      assert.ok(changes.length > 10);
      const all = [...outcomes];
      assert.deepEqual(all.flatMap(([key, list]) => count(list, "different").map(([, what]) => `${key} ${what}`)), []);
      // The file is the one that the numbers were made for
      const numbered = all.filter(([key]) => key.endsWith("numbers"));
      assert.deepEqual(
        numbered.flatMap(([key, list]) => count(list, "refused").map(([, what]) => `${key} ${what}`)),
        [],
      );
    });
  });
}
