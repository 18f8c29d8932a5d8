import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { checkClusterToken, GatewayLinks, type LinkFetch } from "../../lib/cluster/gateway_links.ts";
import { GATEWAY_FENCES, GATEWAY_LEASES, RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createDirectFetch } from "../../lib/system/net/direct_fetch.ts";
import { createFakeClock } from "../support/fake_clock.ts";

const TOKEN = "0123456789abcdef0123456789abcdef";

function reasonsOf(cluster: Readonly<Record<string, unknown>>): readonly string[] {
  const found = validateConfig([{ cluster }]);
  return "findings" in found ? found.findings.map(({ path, reason }) => `${path.join(".")} ${reason}`) : [];
}

test("an address for the others is refused at the start unless it is https, this machine, or allowed to be insecure", () => {
  const token_env = "T";
  for (
    const advertise_url of [
      "https://gw.example",
      "https://gw.example:8443/agent/",
      "http://127.0.0.1:42617",
      "http://localhost:1",
      "http://[::1]:1",
    ]
  ) {
    assert.deepEqual(reasonsOf({ advertise_url, token_env }), [], advertise_url);
  }
  for (
    const advertise_url of [
      "http://gw.example",
      "http://10.0.0.7:42617",
      "http://127.0.0.1.evil.example",
      "http://localhost.evil.example",
    ]
  ) {
    assert.match(reasonsOf({ advertise_url, token_env }).join(), /must be https.*insecure = true/, advertise_url);
    assert.deepEqual(reasonsOf({ advertise_url, token_env, insecure: true }), [], advertise_url);
  }
  for (const advertise_url of ["https://u:p@gw.example", "https://gw.example?x=1", "https://gw.example#x"]) {
    assert.match(reasonsOf({ advertise_url, token_env }).join(), /no user, no password/, advertise_url);
  }
  assert.match(reasonsOf({ advertise_url: "ftp://gw.example", token_env }).join(), /http or https/);
  assert.match(reasonsOf({ advertise_url: "https://gw.example" }).join(), /cluster.token_env advertise_url needs it/);
});

test("a token that is not set, short or no header is refused with its setting and its variable", () => {
  assert.equal(checkClusterToken(TOKEN, "T"), TOKEN);
  for (const token of [undefined, "", "short", `${TOKEN}\n`, `${TOKEN} x`, TOKEN.repeat(17)]) {
    assert.throws(() => checkClusterToken(token, "T"), {
      code: "config_environment",
      message: /^Cannot use cluster\.token_env: the environment variable "T" /,
    });
  }
  assert.throws(() => checkClusterToken(undefined, "T"), / is not set$/);
  assert.throws(() => checkClusterToken("", "T"), / is empty$/);
});

function linksOf(fetch: LinkFetch, { insecure = false } = {}) {
  const store = createMemoryStore();
  const clock = createFakeClock();
  return { store, clock, links: new GatewayLinks({ store, clock, id: "gw_me", token: TOKEN, insecure, fetch }) };
}

async function addGateway(
  { store }: Pick<ReturnType<typeof linksOf>, "store">,
  { fence = 1, advertise_url }: { readonly fence?: number; readonly advertise_url: string },
): Promise<void> {
  const about = { host: "h", pid: 1, version: "1", started_at: "2026-01-01T00:00:00.000Z", advertise_url };
  await store.batch([
    { op: "put", collection: GATEWAY_FENCES.name, key: "gw_1", body: { v: 1 } },
    { op: "put", collection: GATEWAY_LEASES.name, key: "gw_1", body: { v: 1, fence, until: 0, about } },
    {
      op: "put",
      collection: RUN_CLAIMS.name,
      key: "run_1",
      body: { v: 1, gateway: "gw_1", fence, conversation_id: null, parent_id: null },
    },
  ]);
}

test("the token goes to the address of a joined gateway alone, which passes the check of the own one", async () => {
  const sent: string[] = [];
  const linked = linksOf((request) => {
    sent.push(`${request.url} ${request.headers.get("authorization")}`);
    return Promise.reject(new TypeError("refused"));
  });
  const ask = async () => {
    const owner = await linked.links.ownerOf("run_1");
    if (owner.kind !== "elsewhere") return owner.kind;
    const { signal } = new AbortController();
    try {
      for await (const _ of linked.links.events(owner.gateway, { runId: "run_1", after: 7, signal }));
      return "ended";
    } catch (error) {
      return String(error);
    }
  };
  assert.equal(await ask(), "nobody");
  await addGateway(linked, { advertise_url: "https://gw.example/agent/" });
  assert.match(await ask(), /cannot be made/);
  assert.deepEqual(sent.splice(0), [`https://gw.example/agent/v1/cluster/runs/run_1/events?after=7 Bearer ${TOKEN}`]);
  for (const advertise_url of ["http://gw.example", "file:///etc/passwd", "https://a@gw.example", "no address"]) {
    await linked.store.batch([{ op: "delete", collection: GATEWAY_FENCES.name, key: "gw_1" }]);
    await addGateway(linked, { advertise_url });
    assert.match(await ask(), /advertise_url of gateway gw_1 cannot be used/, advertise_url);
  }
  // Fenced off: its lease and its claim have an earlier fence
  await linked.store.batch([{ op: "put", collection: GATEWAY_FENCES.name, key: "gw_1", body: { v: 1 } }]);
  assert.equal(await ask(), "nobody");
  assert.deepEqual(sent, []);
  assert.equal(linked.clock.pending(), 0);
});

test("no other token is taken for that of the cluster, and none without one", () => {
  const { links } = linksOf(() => Promise.reject(new Error("unused")));
  assert.equal(links.accepts(TOKEN), true);
  for (const token of ["", TOKEN.slice(1), `${TOKEN}0`, TOKEN.toUpperCase()]) assert.equal(links.accepts(token), false);
  const none = new GatewayLinks({
    ...{ store: createMemoryStore(), clock: createFakeClock(), id: "gw_me", insecure: true, token: undefined },
    fetch: () => Promise.reject(new Error("unused")),
  });
  assert.equal(none.accepts(""), false);
  assert.equal(none.accepts("undefined"), false);
});

test("the direct fetch follows no redirect, and sends what it was given", async () => {
  const seen: string[] = [];
  const server = createServer((request, reply) => {
    seen.push(`${request.method} ${request.url} ${request.headers.authorization}`);
    if (request.url === "/moved") reply.writeHead(307, { location: "/stolen" }).end();
    else reply.writeHead(200, { "content-type": "text/event-stream" }).end("data: 1\n\n");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const direct = createDirectFetch();
  try {
    const headers = { authorization: "Bearer x" };
    assert.equal((await direct.fetch(new Request(`${base}/moved`, { headers, redirect: "manual" }))).status, 307);
    const reply = await direct.fetch(new Request(`${base}/ok`, { method: "POST", body: "{}", headers }));
    assert.equal(await reply.text(), "data: 1\n\n");
    assert.deepEqual(seen, ["GET /moved Bearer x", "POST /ok Bearer x"]);
  } finally {
    await direct.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
  const { port } = new URL(base);
  await assert.rejects(createDirectFetch().fetch(new Request(`http://127.0.0.1:${port}/gone`)));
});
