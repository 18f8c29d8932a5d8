/**
 * Prints how long `content_search` takes beside `grep -rnE` on a generated tree of 50,000 files and 500 MB, in milliseconds, and how many
 * times as long: `node test/bench/content_search.bench.ts [files]`. The tree lies in a temporary folder, is read once before the
 * measuring, and removed afterwards.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { median } from "./median.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { createToolBench } from "../support/tool_bench.ts";

const FILES = Number(process.argv[2] ?? 50_000);
const FILE_BYTES = 10_000;
const FILES_IN_FOLDER = 50;
const ROUNDS = 5;
const WORDS = "const let function return await import export string number value index result error config request type"
  .split(
    " ",
  );

interface Case {
  readonly name: string;
  readonly pattern: string;
  readonly caseInsensitive?: boolean;
}

const CASES: readonly Case[] = [
  { name: "a literal", pattern: "needle_in_hay" },
  { name: "a literal and more", pattern: "needle_in_[a-z]+ is" },
  { name: "one of two literals", pattern: "(needle_in|not_there)_hay" },
  { name: "a literal at the end", pattern: "[a-z]+_in_hay" },
  { name: "a literal that is everywhere", pattern: "function .*needle" },
  { name: "no literal", pattern: "[0-9]{5}$" },
  { name: "without case", pattern: "NEEDLE_in_hay", caseInsensitive: true },
];

const root = mkdtempSync(join(tmpdir(), "postern-bench-"));
try {
  const bytes = makeTree();
  console.log(`${FILES} files, ${Math.round(bytes / 1e6)} MB`);
  const { call } = createToolBench({ root, timeoutMs: 600_000 });
  for (const test of CASES) {
    const input = { pattern: test.pattern, case_insensitive: test.caseInsensitive ?? false };
    const flags = test.caseInsensitive === true ? "-rniE" : "-rnE";
    const ours: number[] = [];
    const theirs: number[] = [];
    let found = { ours: 0, theirs: 0 };
    // The first round warms up
    for (let round = 0; round <= ROUNDS; round++) {
      const grep = await timed(() => spawnSync("grep", [flags, test.pattern, root], { encoding: "utf8" }).stdout);
      const search = await timed(async () => (await call("content_search", input)).result);
      if (round === 0) continue;
      theirs.push(grep.ms);
      ours.push(search.ms);
      const { matches } = search.value.data as { readonly matches: readonly unknown[] };
      found = { ours: matches.length, theirs: grep.value.split("\n").length - 1 };
    }
    const [search, grep] = [median(ours), median(theirs)];
    console.log(
      `${test.name.padEnd(32)} content_search ${search.toFixed(0).padStart(6)} ms  grep ${
        grep.toFixed(0).padStart(6)
      } ms  ` +
        `${(search / grep).toFixed(1).padStart(5)}x  ${found.ours} and ${found.theirs} lines`,
    );
  }
} finally {
  rmSync(root, { recursive: true });
}

async function timed<T>(work: () => T | Promise<T>): Promise<{ readonly ms: number; readonly value: T }> {
  const start = performance.now();
  const value = await work();
  return { ms: performance.now() - start, value };
}

/** Files of very different sizes; one in 5,000 has the needle in its last line. @returns their bytes */
function makeTree(): number {
  const random = createSeededRandom();
  const next = () => new DataView(random.bytes(4).buffer).getUint32(0) / 2 ** 32;
  const lines: string[] = [];
  for (let length = 0; length < 4_000_000; length += lines.at(-1)?.length ?? 0) {
    const words = Array.from({ length: 3 + Math.floor(next() * 12) }, () => {
      const word = WORDS[Math.floor(next() * WORDS.length)] ?? "";
      return next() < 0.3 ? `${word}${Math.floor(next() * 1000)}` : word;
    });
    lines.push(`  ${words.join(" ")};\n`);
  }
  const text = new TextEncoder().encode(lines.join(""));
  let total = 0;
  for (let index = 0; index < FILES; index++) {
    const folder = join(root, `part${Math.floor(index / 2500)}`, `module${Math.floor(index / FILES_IN_FOLDER)}`);
    if (index % FILES_IN_FOLDER === 0) mkdirSync(folder, { recursive: true });
    const size = Math.round(FILE_BYTES * Math.exp(2 * (next() + next() + next() - 1.5)) * 0.63);
    const start = Math.floor(next() * (text.length - size));
    const content = text.subarray(start, start + size);
    const path = join(folder, `file${index}.ts`);
    writeFileSync(path, content);
    if (index % 5000 === 17) writeFileSync(path, "\nthe needle_in_hay is here 12345\n", { flag: "a" });
    total += size;
  }
  return total;
}
