import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { ROUTE_TABLE } from "../../handlers/routes.ts";
import { denoCommand } from "../../scripts/deno.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";

const ENTRIES = ["handlers/mod.ts", "handlers/handlers.ts", "handlers/testing/mod.ts"];

test("all that a program can import has a docstring, and names no type that it cannot see", {
  skip: "Deno" in globalThis && "it starts Deno by itself",
}, async () => {
  const [command, ...argv] = denoCommand;
  const words = [...argv, "doc", "--lint", ...ENTRIES];
  const options = { cwd: PROJECT_ROOT, env: { ...process.env, NO_COLOR: "1" }, maxBuffer: 100_000_000 };
  const { promise, resolve } = Promise.withResolvers<string>();
  execFile(command, words, options, (_error, _stdout, stderr) => resolve(stderr));
  const told = await promise;
  assert.deepEqual(told.match(/^error.*\n +--> .*/gm) ?? [], []);
  assert.match(told, new RegExp(`^Checked ${ENTRIES.length} files`, "m"), told.slice(-1_000));
});

test("the docstring of a handler has the method, path and summary of its route", () => {
  const text = readFileSync(join(PROJECT_ROOT, "handlers/handlers.ts"), "utf8");
  const documented = [...text.matchAll(/^(.*)\nexport const (\w+):/gm)].map(([, docstring, name]) => [name, docstring]);
  const expected = Object.entries(ROUTE_TABLE).map(([name, { method, path, summary }]) => [
    name,
    `/** \`${method} ${path}\`: ${summary} */`,
  ]);
  assert.deepEqual(Object.fromEntries(documented), Object.fromEntries(expected));
});
