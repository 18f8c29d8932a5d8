import { firstBytes } from "../../base/first_bytes.ts";
import type { ToolResult } from "./tool.ts";

/** The most a tool's output may have, in bytes of UTF-8. */
const MAX_OUTPUT_BYTES = 262_144;
/** The most its `data` may have as JSON, in UTF-16 units */
const MAX_DATA = 1_048_576;
/** A secret that lies across the cut must still be whole when it is looked for */
const SLACK_BYTES = 8192;

/** Cuts output and data to their bounds, with a notice, and removes known secrets from both. */
export function boundResult(result: ToolResult, redact: (text: string) => string): ToolResult {
  const size = Buffer.byteLength(result.output);
  const redacted = redact(firstBytes(result.output, MAX_OUTPUT_BYTES + SLACK_BYTES));
  const output = firstBytes(redacted, MAX_OUTPUT_BYTES);
  const notice = size > MAX_OUTPUT_BYTES || output !== redacted
    ? `\n[Output cut at ${MAX_OUTPUT_BYTES} of ${size} bytes: ask for less at a time]`
    : "";
  const data = boundData(result.data, redact);
  return { output: output + notice, isError: result.isError, ...(data === undefined ? {} : { data }) };
}

function boundData(data: unknown, redact: (text: string) => string): unknown {
  const json = JSON.stringify(data);
  if (json === undefined || json.length > MAX_DATA) return undefined;
  return JSON.parse(json, (_key, value: unknown) => (typeof value === "string" ? redact(value) : value));
}
