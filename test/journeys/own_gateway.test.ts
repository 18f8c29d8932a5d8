import assert from "node:assert/strict";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { jsonOf, withWorld } from "../support/world.ts";

test("tools reach nothing of the gateway but what anyone may read, with every setting open, in every spelling, by redirects", () =>
  withWorld(async (world) => {
    const target = { port: 0 };
    const site = await world.server((request, response) => {
      response.writeHead(307, { location: `http://127.0.0.1:${target.port}${request.path}` }).end();
    });
    const gateway = await world.gateway({
      config: {
        autonomy: { level: "full" },
        gateway: { rate_limit_max: 0 },
        url_access: { allow_loopback: true, block_private_ip: false, public_ranges: ["198.18.0.0/15", "10.0.0.0/8"] },
        http_request: { enabled: true, allowed_domains: ["*"] },
        web_fetch: { enabled: true },
        browser: { enabled: true },
      },
    });
    const { port } = gateway;
    target.port = port;
    const call = async (tool: string, input: unknown) =>
      await jsonOf(gateway.call(`/v1/tools/${tool}/call`, { body: { input } })) as { readonly output: string };
    const own = Object.values(networkInterfaces()).flatMap((faces) => faces ?? [])
      .map(({ address, family }) => family === "IPv6" ? `[${address.split("%")[0]}]` : address);
    const hosts = [
      "127.0.0.1",
      "localhost",
      "0x7f.1",
      "[::1]",
      "0.0.0.0",
      "[::ffff:127.0.0.1]",
      "[::ffff:0:7f00:1]",
      ...own,
    ];
    for (const host of hosts) {
      const url = `http://${host}:${port}/v1/tokens`;
      for (
        const [tool, input] of [["http_request", { method: "GET", url }], ["web_fetch", { url }], ["browser", {
          op: "navigate",
          url,
        }]] as const
      ) {
        assert.match((await call(tool, input)).output, /it is the gateway itself/, `${tool} ${host}`);
      }
      assert.match((await call("url_validation", { url })).output, /^refused \(url_own_gateway\)/, host);
    }
    for (const path of ["/pair", "/v1/tokens", "/ws/chat", "/v1/chat/completions"]) {
      const input = { method: "POST", url: `${site.origin}${path}`, body: "{}" };
      assert.match((await call("http_request", input)).output, /it is the gateway itself/, path);
    }
    const chain = await call("url_validation", { url: `${site.origin}/pair`, follow_redirects: true });
    assert.match(chain.output, /^2\. .*: it is the gateway itself/m);
    assert.match(
      (await call("url_validation", { url: `http://198.18.0.1:${port}/pair` })).output,
      /^refused \(url_own_gateway\)/,
    );
    assert.match(
      (await call("http_request", { method: "GET", url: `http://127.0.0.1:${port}/health` })).output,
      /status=200/,
    );
  }));
