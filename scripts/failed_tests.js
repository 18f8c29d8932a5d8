/**
 * A reporter of `node:test` that lists the tests that failed, each with its file and its error: what is printed once more after the
 * tests on Deno, since thousands of lines lie between.
 */

import { inspect } from "node:util";

/** Length of the error of one test, in UTF-16 code units: two texts that differ can be very long */
const MAX_REASON = 4_000;

/** @param {AsyncIterable<import("node:test/reporters").TestEvent>} source */
export default async function* failedTests(source) {
  /** Last words of each process: all that is known of one that failed as a whole @type {Map<string, string>} */
  const errorOutput = new Map();
  for await (const { type, data } of source) {
    if (type === "test:stderr") {
      errorOutput.set(data.file, ((errorOutput.get(data.file) ?? "") + data.message).slice(-MAX_REASON));
    }
    if (type !== "test:fail") continue;
    const { error } = data.details;
    // A test around it fails for this reason alone, and would be named as often as it has failed tests
    if (error.failureType === "subtestsFailed") continue;
    const { cause } = error;
    const reason = cause instanceof Error
      ? cause.stack ?? cause.message
      // An error of another process may come as an object that is no text
      : `${typeof cause === "string" ? cause : inspect(cause ?? error.message)}\n${
        errorOutput.get(data.file ?? "") ?? ""
      }`;
    yield `${data.name} (${data.file ?? "?"}:${data.line ?? "?"})\n${
      reason.slice(0, MAX_REASON).trimEnd().replaceAll(/^/gm, "  ")
    }\n`;
  }
}
