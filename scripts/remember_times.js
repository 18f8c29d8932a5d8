/**
 * A reporter of `node:test` that writes the seconds that the tests of each file took, as JSON: what the next run is planned by.
 * Tests that share a process are told apart by the files that they stand in. A test that a file of `test/support/` adds, as `gitTest`
 * does, counts for no file: the times that come with the project have such files.
 */
import { relative } from "node:path";
import process from "node:process";

const TEST_FILE = /^test\/.*\.(?:test|system)\.ts$/;

/** @param {AsyncIterable<import("node:test/reporters").TestEvent>} source */
export default async function* rememberTimes(source) {
  /** Seconds by file @type {Map<string, number>} */
  const seconds = new Map();
  for await (const { type, data } of source) {
    if ((type !== "test:pass" && type !== "test:fail") || data.nesting !== 0 || data.file === undefined) continue;
    const file = relative(process.cwd(), data.file).replaceAll("\\", "/");
    if (TEST_FILE.test(file)) seconds.set(file, (seconds.get(file) ?? 0) + data.details.duration_ms / 1000);
  }
  const entries = [...seconds].sort(([one], [other]) => (one < other ? -1 : 1));
  yield `${
    JSON.stringify(Object.fromEntries(entries.map(([file, time]) => [file, Number(time.toFixed(2))])), null, 2)
  }\n`;
}
