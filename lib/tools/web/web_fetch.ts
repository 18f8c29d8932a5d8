import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { lazily } from "../../base/lazily.ts";
import { defineTool } from "../runtime/define_tool.ts";

/** Time beside the request itself: a thread reads the page, and a long PDF takes 20 s. */
const MARGIN_MS = 30_000;

const fetching = lazily(() => import("./fetch_page.ts"));

/** `web_fetch`: a page of the web as Markdown (docs/design/tools.md "Web"). */
export const webFetch = defineTool({
  name: "web_fetch",
  description:
    "Fetches a web page and gives `status=<code>`, then its main content as Markdown. Reads HTML, feeds, JSON, text, PDF and Word. A long page is cut, with a notice how to go on",
  access: "network",
  verbatim: true,
  // A GET changes nothing
  repeatable: true,
  enabled: ({ web_fetch }) => web_fetch.enabled,
  enabledBy: "[web_fetch] enabled = true",
  timeoutMs: ({ web_fetch }) => web_fetch.timeout_secs * 1000 + MARGIN_MS,
  needs: ["guardedFetch", "urls", "workers", "documents", "redactor"],
  input: v.strictObject({
    url: v.pipe(v.string(), v.minLength(1), v.maxLength(8000), v.description("As https://example.com/page")),
    start: v.optional(
      v.pipe(
        v.number(),
        v.integer(),
        v.minValue(0),
        v.maxValue(104_857_600),
        v.description("Byte to go on at. Default 0"),
      ),
    ),
  }),
  textField: "url",
  check({ url }) {
    if (/^https?:$/.test(URL.parse(url)?.protocol ?? "")) return;
    throw new ToolError(
      "invalid_input",
      'Cannot call "web_fetch": "url" must be an address such as https://example.com/page',
    );
  },
  effects: ({ url }) => ({ urls: [url] }),
  run: async (input, context) => await (await fetching()).fetchPage(input, context),
});
