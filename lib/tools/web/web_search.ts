import * as v from "valibot";
import { lazily } from "../../base/lazily.ts";
import { defineTool } from "../runtime/define_tool.ts";

/** Time beside the search itself, so that the limit of the request is met first and says what took too long. */
const MARGIN_MS = 5_000;

const searching = lazily(() => import("./search_web.ts"));

/** `web_search`: results of the configured search service, numbered (docs/design/tools.md "Web"). */
export const webSearch = defineTool({
  name: "web_search",
  description: "Searches the web. Gives numbered results, each with title, URL, date and snippet",
  access: "network",
  verbatim: true,
  // A search changes nothing at the provider but its count of searches
  repeatable: true,
  enabled: ({ web_search }) => web_search.enabled,
  enabledBy: "[web_search] enabled = true",
  timeoutMs: ({ web_search }) => web_search.timeout_secs * 1000 + MARGIN_MS,
  needs: ["guardedFetch", "environment", "redactor"],
  input: v.strictObject({
    query: v.pipe(v.string(), v.minLength(1), v.maxLength(1000), v.description("Words to search for")),
    max_results: v.optional(
      v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(100), v.description("Default: as configured")),
    ),
  }),
  textField: "query",
  async screen(_input, { config, services }) {
    (await searching()).requireSettings(config.web_search, services.environment);
  },
  run: async (input, context) => await (await searching()).searchWeb(input, context),
});
