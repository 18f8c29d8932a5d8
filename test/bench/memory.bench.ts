/**
 * Prints what storing and recalling costs with many memories in SQLite, in milliseconds: `node test/bench/memory.bench.ts [records]`,
 * 100,000 by default. The words of the texts have the frequencies of a language: a few are in most texts, most in very few.
 */
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { systemClock } from "../../lib/base/clock.ts";
import { createMemory, type RecallInput } from "../../lib/memory/memory.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const RECORDS = Number(process.argv[2] ?? 100_000);
const RECALLS = 300;
const WORDS = 20_000;
const SYLLABLES = "con pro sta de re in ter ma lo ti ser ver pla ne tion ing er al ic us".split(" ");

const random = createSeededRandom();
const fraction = () => new DataView(random.bytes(4).buffer).getUint32(0) / 2 ** 32;
const words = Array.from({ length: WORDS }, (_, index) => wordOf(index));
/** Zipf's law: the n-th word is n times rarer than the first */
const someWord = () => words[Math.floor(WORDS ** fraction()) - 1] ?? "";
const wordOfRank = (from: number, to: number) => words[Math.floor(from + fraction() * (to - from))] ?? "";
const someText = () => ["the project", ...Array.from({ length: 20 + Math.floor(fraction() * 40) }, someWord)].join(" ");

const folder = mkdtempSync(join(tmpdir(), "postern-bench-"));
try {
  const path = join(folder, "postern.db");
  const store = await openSqliteStore({ path, clock: systemClock });
  const memory = createMemory({ store, clock: systemClock });
  const begun = performance.now();
  for (let index = 0; index < RECORDS; index += 64) {
    await Promise.all(Array.from({ length: Math.min(64, RECORDS - index) }, (_, offset) => {
      const number = index + offset;
      // One in a hundred is in a namespace of its own
      const namespace = number % 100 === 0 ? "small" : "default";
      return memory.store({ key: `note ${number}`, namespace, value: someText(), tags: [`tag${number % 1000}`] });
    }));
  }
  const perRecord = (performance.now() - begun) / RECORDS;
  console.log(`${RECORDS} records stored, ${perRecord.toFixed(3)} ms each, ${statSync(path).size >> 20} MB`);

  const kinds: Readonly<Record<string, () => RecallInput>> = {
    "a rare word": () => ({ query: wordOfRank(2000, WORDS) }),
    "three words of a language": () => ({ query: [someWord(), someWord(), someWord()].join(" ") }),
    "a sentence": () => ({ query: someText() }),
    "a word of every text": () => ({ query: "the" }),
    "two words of every text and a rare one": () => ({ query: `the project ${wordOfRank(500, 5000)}` }),
    "the most common words": () => ({ query: words.slice(0, 16).join(" ") }),
    "beginnings of many words": () => ({ query: "con pro sta ter ser ver pla tion ing" }),
    "a tag": () => ({ query: `tag${Math.floor(fraction() * 1000)}` }),
    "100 results": () => ({ query: wordOfRank(100, 1000), limit: 100 }),
    "a small namespace, a common word": () => ({ query: "the", namespace: "small" }),
    "a small namespace, a sentence": () => ({ query: someText(), namespace: "small" }),
    "an empty namespace": () => ({ query: someText(), namespace: "empty" }),
    "syntax of FTS5": () => ({ query: `"${someWord()}" NEAR(the project) OR text:* NOT (the -the ^the` }),
    "100,000 words": () => ({ query: "the project ".repeat(50_000) }),
    "the newest": () => ({}),
    "the newest of a small namespace": () => ({ namespace: "small" }),
    "the newest of an empty namespace": () => ({ namespace: "empty" }),
    "a key": () => ({ key: `note ${1 + Math.floor(fraction() * RECORDS)}` }),
  };
  const all: number[] = [];
  for (const [name, next] of Object.entries(kinds)) {
    const times: number[] = [];
    for (let index = 0; index < RECALLS; index++) {
      const input = next();
      const start = performance.now();
      await memory.recall(input);
      times.push(performance.now() - start);
    }
    all.push(...times);
    print(name, times);
  }
  print("all", all);
  await store.close();
} finally {
  rmSync(folder, { recursive: true });
}

function print(name: string, times: number[]): void {
  times.sort((a, b) => a - b);
  const at = (part: number) => (times[Math.ceil(times.length * part) - 1] ?? 0).toFixed(2).padStart(7);
  console.log(`${name.padEnd(40)} p50 ${at(0.5)} ms  p99 ${at(0.99)} ms`);
}

/** Common words are short and rare ones long, as in a language */
function wordOf(index: number): string {
  const length = 1 + Math.floor(Math.log10(index + 10)) + Math.floor(fraction() * 2);
  return Array.from({ length }, () => SYLLABLES[Math.floor(fraction() * SYLLABLES.length)] ?? "").join("");
}
