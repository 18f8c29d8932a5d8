import assert from "node:assert/strict";
import { test } from "node:test";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const SECRET = "sk-known-0123456789abcdef";

test("no tool of the web sends a value that is known as a secret, nor looks up a name with it", () =>
  withWorkspace({}, async ({ root }) => {
    const lookedUp: string[] = [];
    const bench = createToolBench({
      root,
      lookup: (host) => {
        lookedUp.push(host);
        return Promise.resolve([]);
      },
      environment: { COMPOSIO_API_KEY: "composio-key", PUSHOVER_TOKEN: "token-of-app", PUSHOVER_USER: "user-of-app" },
      config: {
        autonomy: { level: "full" },
        url_access: {},
        http_request: { enabled: true, allowed_domains: ["*"] },
        web_fetch: { enabled: true },
        web_search: { enabled: true },
        browser: { enabled: true },
        enable_composio: true,
        enable_pushover: true,
      },
    });
    bench.redactor.add(SECRET);
    const url = `https://${SECRET}.example.com/`;
    for (
      const [tool, input] of [
        ["web_fetch", { url }],
        ["web_fetch", { url: `https://example.com/?q=${SECRET.replaceAll("-", "%2d")}` }],
        ["http_request", { method: "GET", url }],
        ["web_search", { query: `what is ${SECRET}` }],
        ["url_validation", { url }],
        ["url_validation", { url, follow_redirects: true }],
        ["browser", { op: "navigate", url }],
        ["browser", { op: "fill", ref: "e1", text: SECRET }],
        ["composio", { action_name: "SEND", params: { text: SECRET } }],
        ["pushover", { message: SECRET }],
      ] as const
    ) {
      const { result } = await bench.call(tool, input);
      assert.match(result.output, /^Cannot send the request: its \w+ holds a value that is known as a secret/, tool);
    }
    assert.deepEqual(lookedUp, []);
  }));
