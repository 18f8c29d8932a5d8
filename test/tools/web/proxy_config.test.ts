import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProxySettings } from "../../../lib/system/net/proxy_choice.ts";
import { createToolBench } from "../../support/tool_bench.ts";

async function ask(proxy: ProxySettings, input: unknown) {
  return (await createToolBench({ root: import.meta.dirname, proxy }).call("proxy_config", input)).result;
}

const NONE: ProxySettings = { http: "", https: "", no_proxy: [] };
const variables: Readonly<Record<string, string>> = {
  https_proxy: "http://me:hunter2@env.test:8080/?key=hunter2",
  NO_PROXY: ".inner.test,10.0.0.0/8",
};
const SET: ProxySettings = {
  ...NONE,
  http: "http://me:hunter2@own.test:3128",
  no_proxy: ["near.test"],
  environment: (name) => variables[name],
};

test("tells the proxy of each scheme and why, without user and password", async () => {
  const { output, data, isError } = await ask(SET, { op: "get" });
  assert.equal(isError, false);
  assert.deepEqual(output.split("\n"), [
    "http: through http://own.test:3128, [proxy] http names it; names are looked up here",
    "https: through http://env.test:8080, https_proxy names it; names are looked up here",
  ]);
  assert.doesNotMatch(JSON.stringify(data), /hunter2/);
  assert.equal(
    (await ask(NONE, { op: "get" })).output,
    "http: direct, no proxy is set\nhttps: direct, no proxy is set",
  );
});

test("tells the way of one URL, with the entry that takes it past the proxy", async () => {
  const way = async (url: string, settings = SET) => (await ask(settings, { op: "get", url })).output;
  assert.equal(
    await way("http://near.test/x"),
    'http://near.test direct, the entry "near.test" of [proxy] no_proxy names the host',
  );
  assert.equal(
    await way("https://a.inner.test"),
    'https://a.inner.test direct, the entry ".inner.test" of NO_PROXY names the host',
  );
  assert.equal(
    await way("https://10.1.1.1/"),
    'https://10.1.1.1 direct, the entry "10.0.0.0/8" of NO_PROXY names the host',
  );
  assert.equal(await way("http://localhost:1/"), "http://localhost:1 direct, this machine is always reached directly");
  assert.match(
    await way("https://me:hunter2@far.test/"),
    /^https:\/\/far\.test through http:\/\/env\.test:8080, https_proxy names it/,
  );
  assert.match(
    await way("http://far.test/", { ...SET, resolve: "proxy" }),
    /; the proxy looks names up, and no address is checked$/,
  );
});

test("tells why a proxy cannot be used", async () => {
  const settings = {
    ...NONE,
    environment: (name: string) => name === "HTTP_PROXY" ? "socks5://me:hunter2@p:1" : undefined,
  };
  assert.match(
    (await ask(settings, { op: "get", url: "http://a.test/" })).output,
    /cannot be reached: HTTP_PROXY names a proxy of the kind socks5:/,
  );
});

test("refuses what is no http or https URL", async () => {
  for (const url of ["ftp://a.test", "a.test", "http://["]) {
    const { isError, output } = await ask(NONE, { op: "get", url });
    assert.ok(isError, url);
    assert.match(output, /"url" must be an http or https address/);
  }
});
