import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { noContainedBrowser, openSite } from "../support/browser_bench.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";

test(
  "a run reads a page in a browser: the model gets an envelope, and the browser ends with the run",
  {
    skip: await noContainedBrowser(),
  },
  async () => {
    const site = await openSite({
      "/": "<title>Gate</title><p>The gate is <script>document.write('open')</script></p>",
    });
    try {
      await withWorld(async (world) => {
        const call = (input: Readonly<Record<string, unknown>>) => ({
          toolCalls: [{ name: "browser", arguments: input }],
        });
        const gateway = await world.gateway({
          script: [call({ op: "navigate", url: site.origin }), call({ op: "text" }), "It is open"],
          config: {
            autonomy: { level: "full" },
            url_access: { allow_loopback: true },
            browser: { enabled: true, allowed_domains: [`127.0.0.1:${site.port}`] },
          },
        });
        const reply = await jsonOf(
          gateway.call("/v1/chat/completions", {
            body: { messages: [{ role: "user", content: "Is the gate open?" }] },
          }),
        );
        assert.match(JSON.stringify(reply), /It is open/);
        const told = JSON.stringify(gateway.provider.requests.at(-1)?.messages);
        assert.match(told, /<untrusted source=\\*"browser/);
        assert.match(told, /The gate is open/);
        const sockets = join(gateway.dataDir, "browsers");
        assert.ok(readdirSync(gateway.dataDir).includes("browsers"), "there was a browser");
        await until(() => readdirSync(sockets).length === 0, "the browser outlives its run");
      });
    } finally {
      await site.close();
    }
  },
);
