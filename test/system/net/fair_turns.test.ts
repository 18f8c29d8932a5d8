import assert from "node:assert/strict";
import { test } from "node:test";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { deliverInTurn } from "../../../lib/system/net/fair_turns.ts";
import { createProviderClients } from "../../../lib/system/net/provider_client.ts";

const turn = () => new Promise((resolve) => setImmediate(resolve));
const GET = { method: "GET", path: "/", headers: {}, signal: new AbortController().signal, timeoutMs: 60_000 } as const;

test("a turn of the event loop hands on a part of what has come, in order, and the next turns the rest", async () => {
  await turn();
  const told: number[] = [];
  const atOnce = Array.from({ length: 10 }, (_, index) => deliverInTurn({ deliver: () => void told.push(index) }));
  const counts = [told.length];
  while (told.length < 10) {
    await turn();
    if (told.length !== counts.at(-1)) counts.push(told.length);
  }
  assert.deepEqual(told, told.toSorted((a, b) => a - b));
  assert.deepEqual(counts, [4, 8, 10]);
  assert.equal(atOnce.filter(Boolean).length, 4);
});

test("what comes while others wait does not overtake them", async () => {
  await turn();
  const told: string[] = [];
  const source = (name: string) => ({ deliver: () => void told.push(name) });
  for (let i = 0; i < 5; i++) deliverInTurn(source(`first ${i}`));
  setImmediate(() => {
    for (let i = 0; i < 4; i++) deliverInTurn(source(`second ${i}`));
  });
  for (let i = 0; i < 10; i++) await turn();
  assert.equal(told.length, 9);
  assert.ok(told.indexOf("first 4") < told.indexOf("second 0"));
});

test("replies that break off give what came before, also those that wait for their turn", async (t) => {
  const server = await startFakeServer((_, response) => {
    response.write("part", () => setImmediate(() => response.destroy()));
  });
  t.after(() => server.close());
  const client = createProviderClients({ clock: systemClock })({ provider: "up", origin: server.origin });
  t.after(() => client.close());
  await Promise.all(Array.from({ length: 60 }, async () => {
    const exchange = await client.send(GET);
    assert.equal(Buffer.from(await exchange.read() ?? []).toString(), "part");
    await assert.rejects(exchange.read(), ProviderError);
  }));
});
