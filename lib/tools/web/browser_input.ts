import * as v from "valibot";
import type { Config } from "../../config/config.ts";

/** Operations of the tool. */
const OPS = [
  ...["navigate", "snapshot", "click", "fill", "type", "press", "hover", "select", "upload", "download"],
  ...["scroll", "text", "title", "url", "back", "screenshot", "wait", "handoff", "close"],
] as const;

const short = (description: string, max: number) =>
  v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(max), v.description(description)));

/** Schema of the input of one call. */
export const browserInputSchema = v.strictObject({
  op: v.pipe(v.picklist(OPS), v.description("What to do")),
  url: short("navigate, download: http or https address", 8192),
  ref: v.optional(
    v.pipe(
      v.string(),
      v.regex(/^(?:f\d{1,6})?e\d{1,9}$/),
      v.description("click, fill, type, hover, select, upload, download: element from snapshot, as e12"),
    ),
  ),
  text: v.optional(
    v.pipe(v.string(), v.maxLength(100_000), v.description("fill, type: the text; handoff: what a person shall do")),
  ),
  secret: short("fill: [secrets] name for a password field", 64),
  value: short("select: value or label of the option", 1000),
  key: short("press: key, as Enter or Control+A", 64),
  direction: v.optional(v.pipe(v.picklist(["up", "down", "left", "right"]), v.description("scroll. Default down"))),
  amount: v.optional(
    v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(100_000), v.description("scroll: pixels. Default 600")),
  ),
  path: short(
    "upload: file to give; screenshot: new PNG file, needless if you see pictures; download: new file. Relative to the allowed root",
    4096,
  ),
  for: short("wait: text that must appear", 1000),
  timeout_secs: v.optional(
    v.pipe(v.number(), v.minValue(1), v.maxValue(3600), v.description("wait: default as configured")),
  ),
});

/** Input of one call. */
export type BrowserInput = v.InferOutput<typeof browserInputSchema>;

/** Returns the sites that the browsers of runs are signed in to, in the order in which their logins are given. */
export function loginsOf({ browser: { logins } }: Pick<Config, "browser">): readonly string[] {
  return [...new Set(logins)];
}
