/** Prints the cost of what every request pays for access, in nanoseconds: `node test/bench/access.bench.ts`. */
import { Tokens } from "../../lib/access/tokens.ts";
import { slidingWindow } from "../../lib/access/sliding_window.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { median } from "./median.ts";

const ROUNDS = 7;
const OPERATIONS = 200_000;

/** Median over the rounds of the time one call takes. */
function measure(name: string, operation: (index: number) => void): void {
  const rounds = Array.from({ length: ROUNDS }, () => {
    const start = performance.now();
    for (let index = 0; index < OPERATIONS; index++) operation(index);
    return ((performance.now() - start) * 1e6) / OPERATIONS;
  });
  console.log(`${name.padEnd(44)} ${median(rounds).toFixed(0).padStart(6)} ns/op`);
}

const tokens = await Tokens.open({ store: createMemoryStore(), clock: systemClock, random: createSystemRandom() });
const issued: string[] = [];
for (let index = 0; index < 100; index++) issued.push((await tokens.issue({ scopes: ["chat"], label: "" })).token);
// As a header gives it: a fresh string each time
const headers = issued.map((token) => `Bearer ${token}`);
const bearer = (index: number) => headers[index % headers.length]?.slice("Bearer ".length) ?? "";
const all = slidingWindow({ max: 600, windowMs: 60_000 });
const open = slidingWindow({ max: 1e9, windowMs: 60_000 });
const many = slidingWindow({ max: 600, windowMs: 60_000 });
const keys = Array.from({ length: 20_000 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);

measure("verify, known token", (index) => void tokens.verify(bearer(index)));
measure("verify, unknown token", (index) => void tokens.verify(`pst_unknown${index}`));
measure("window, one key, allowed", () => void open.take("all", performance.now()));
measure("window, one key, refused", () => void all.take("all", performance.now()));
measure(
  "window, 20,000 keys over 10,000 places",
  (index) => void many.take(keys[index % keys.length] ?? "", performance.now()),
);
measure("verify and window, together", (index) => {
  tokens.verify(bearer(index));
  open.take("all", performance.now());
});
