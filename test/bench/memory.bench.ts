/**
 * Prints what storing and recalling costs with many memories in SQLite, through HTTP: `node test/bench/memory.bench.ts [records]`,
 * 100,000 by default. A gateway listens on 127.0.0.1, and its client is in the same process, so that the figures hold the client's time
 * too. Milliseconds of the wall, and of the processor, which other work on the machine changes less.
 *
 * The words of the texts have the frequencies of a language: a few are in most texts, most in very few. One text in five is made of Han
 * characters with such frequencies. The last lines call the tool `memory_recall`, whose calls are written to the audit.
 */
import { statSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import type { RecallInput } from "../../lib/memory/memory.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const RECORDS = Number(process.argv[2] ?? 100_000);
const RECALLS = 300;
const WORDS = 20_000;
const SYLLABLES = "con pro sta de re in ter ma lo ti ser ver pla ne tion ing er al ic us".split(" ");
const HAN = 3_000;

const random = createSeededRandom();
const fraction = () => new DataView(random.bytes(4).buffer).getUint32(0) / 2 ** 32;
const words = Array.from({ length: WORDS }, (_, index) => wordOf(index));
/** Zipf's law: the n-th word is n times rarer than the first */
const rankOf = (count: number) => Math.floor(count ** fraction()) - 1;
const someWord = () => words[rankOf(WORDS)] ?? "";
const someHan = () => String.fromCodePoint(0x4e00 + rankOf(HAN) * 5);
const wordOfRank = (from: number, to: number) => words[Math.floor(from + fraction() * (to - from))] ?? "";
const someText = () => ["the project", ...Array.from({ length: 20 + Math.floor(fraction() * 40) }, someWord)].join(" ");
const hanText = (length: number) => Array.from({ length }, someHan).join("");

const KINDS: Readonly<Record<string, () => RecallInput>> = {
  "a rare word": () => ({ query: wordOfRank(2000, WORDS) }),
  "three words of a language": () => ({ query: [someWord(), someWord(), someWord()].join(" ") }),
  "a sentence": () => ({ query: someText().slice(0, 1000) }),
  "a word of every text": () => ({ query: "the" }),
  "two words of every text and a rare one": () => ({ query: `the project ${wordOfRank(500, 5000)}` }),
  "the most common words": () => ({ query: words.slice(0, 16).join(" ") }),
  "beginnings of many words": () => ({ query: "con pro sta ter ser ver pla tion ing" }),
  "a compound of two words": () => ({ query: wordOfRank(500, 5000) + wordOfRank(500, 5000) }),
  "a tag": () => ({ query: `tag${Math.floor(fraction() * 1000)}` }),
  "100 results": () => ({ query: wordOfRank(100, 1000), limit: 100 }),
  "a Han character": () => ({ query: someHan() }),
  "four Han characters": () => ({ query: hanText(4) }),
  "a sentence of Han characters": () => ({ query: hanText(30) }),
  "a small namespace, a common word": () => ({ query: "the", namespace: "small" }),
  "a small namespace, a sentence": () => ({ query: someText().slice(0, 1000), namespace: "small" }),
  "an empty namespace": () => ({ query: someText().slice(0, 1000), namespace: "empty" }),
  "syntax of FTS5": () => ({ query: `"${someWord()}" NEAR(the project) OR text:* NOT (the -the ^the` }),
  "1,000 characters": () => ({ query: "the project ".repeat(84).slice(0, 1000) }),
  "the newest": () => ({}),
  "the newest of a small namespace": () => ({ namespace: "small" }),
};

await withRunningGateway({ config: { gateway: { rate_limit_max: 0 } } }, async (gateway) => {
  const { memory } = gateway.services;
  const begun = performance.now();
  for (let index = 0; index < RECORDS; index += 64) {
    await Promise.all(Array.from({ length: Math.min(64, RECORDS - index) }, (_, offset) => {
      const number = index + offset;
      // Each hundredth memory is in a namespace of its own
      const namespace = number % 100 === 0 ? "small" : "default";
      const value = number % 5 === 3 ? hanText(40 + Math.floor(fraction() * 80)) : someText();
      return memory.store({ key: `note ${number}`, namespace, value, tags: [`tag${number % 1000}`] });
    }));
  }
  const perRecord = (performance.now() - begun) / RECORDS;
  const megabytes = statSync(join(gateway.dataDir, "postern.db")).size >> 20;
  console.log(`${RECORDS} records stored, ${perRecord.toFixed(3)} ms each, ${megabytes} MB`);
  await measure("GET /v1/memory", ({ query, namespace, limit }) => {
    const search = new URLSearchParams({ limit: String(limit ?? 10), namespace: namespace ?? "default" });
    if (query !== undefined) search.set("query", query);
    return ask(gateway, `/v1/memory?${search}`);
  });
  await measure("memory_recall", (input) => ask(gateway, "/v1/tools/memory_recall/call", { input }));
});

async function ask({ url, token }: RunningGateway, path: string, body?: object): Promise<void> {
  const reply = await fetch(url + path, {
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
  });
  const text = await reply.text();
  if (!reply.ok || text.includes('"is_error":true')) throw new Error(text);
}

async function measure(door: string, recall: (input: RecallInput) => Promise<void>): Promise<void> {
  const all: Spent[] = [];
  for (const [name, next] of Object.entries(KINDS)) {
    const spent: Spent[] = [];
    for (let index = 0; index < RECALLS; index++) {
      const input = next();
      const cpu = process.cpuUsage();
      const start = performance.now();
      await recall(input);
      const wallMs = performance.now() - start;
      const { user, system } = process.cpuUsage(cpu);
      spent.push({ wallMs, cpuMs: (user + system) / 1000 });
    }
    all.push(...spent);
    print(`${door}: ${name}`, spent);
  }
  print(`${door}: all`, all);
}

interface Spent {
  readonly wallMs: number;
  readonly cpuMs: number;
}

function print(name: string, spent: readonly Spent[]): void {
  const at = (key: keyof Spent, part: number) => {
    const sorted = spent.map((one) => one[key]).sort((a, b) => a - b);
    return (sorted[Math.ceil(sorted.length * part) - 1] ?? 0).toFixed(2).padStart(7);
  };
  const wall = `p50 ${at("wallMs", 0.5)} ms  p99 ${at("wallMs", 0.99)} ms`;
  console.log(`${name.padEnd(55)} ${wall}  processor p50 ${at("cpuMs", 0.5)} ms  p99 ${at("cpuMs", 0.99)} ms`);
}

/** Common words are short and rare ones long, as in a language */
function wordOf(index: number): string {
  const length = 1 + Math.floor(Math.log10(index + 10)) + Math.floor(fraction() * 2);
  return Array.from({ length }, () => SYLLABLES[Math.floor(fraction() * SYLLABLES.length)] ?? "").join("");
}
