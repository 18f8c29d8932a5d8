import assert from "node:assert/strict";
import { test } from "node:test";
import { onMachine } from "./support/run_in.ts";

const MAX = 20;
const env = { POSTERN__GATEWAY__RATE_LIMIT_MAX: String(MAX) };
const OPEN = { ...env, POSTERN__GATEWAY__REQUIRE_PAIRING: "false" };

/** Sends requests without a token until all of one more round are refused with 429. */
async function flood(address: string, path: string, init?: RequestInit): Promise<void> {
  for (;;) {
    const replies = await Promise.all(Array.from({ length: MAX }, () => fetch(new URL(path, address), init)));
    for (const reply of replies) await reply.body?.cancel();
    if (replies.every(({ status }) => status === 429)) return;
  }
}

const FLOODS = [
  { what: "probes", path: "/health", env },
  { what: "probes that look for a life", path: "/health/live", env },
  { what: "requests without a token", path: "/v1/models", env },
  { what: "accepted requests while pairing is off", path: "/v1/models", env: OPEN },
];

for (const { what, path, env } of FLOODS) {
  test(`${what} lock no command out`, () =>
    onMachine(async ({ run, withGateway }) => {
      await withGateway([], async ({ address }) => {
        await flood(address, path);
        const listed = await run(["runs", "list"], { env });
        assert.deepEqual([listed.code, listed.stdout], [0, "There is no run yet\n"], listed.stderr);
        const checked = await run(["doctor", "--json"], { env });
        const gateway = JSON.parse(checked.stdout).checks.find(({ name }: { name: string }) => name === "gateway");
        assert.equal(gateway?.state, "ok", checked.stdout);
      }, { env });
    }));
}

test("a command that uses its own window up is told so, and not that nothing answers", () =>
  onMachine(async ({ run, withGateway }) => {
    await withGateway([], async () => {
      for (let tries = 0; tries <= MAX; tries++) {
        const { code, stderr } = await run(["runs", "list"], { env });
        if (code === 0) continue;
        assert.match(stderr, /Cannot accept more requests now: the limit of 20 is used up, try again in \d+ s/);
        return;
      }
      assert.fail("the window has no end");
    }, { env });
  }));

test("a code of postern pair pairs while strangers guess and use the window of their address up", () =>
  onMachine(async ({ run, withGateway }) => {
    await withGateway([], async ({ address, banner }) => {
      const pair = async (code: string) =>
        await fetch(new URL("/pair", address), { method: "POST", headers: { "x-pairing-code": code } });
      const shown = /Pairing code: (\S+)/.exec(banner)?.[1] ?? assert.fail(banner);
      for (let miss = 0; miss < 5; miss++) assert.equal((await pair("WRNG-CDEF")).status, 403);
      assert.equal((await pair(shown)).status, 429, "the short code of the start can be guessed at");
      const code = async () => JSON.parse((await run(["pair", "--json"], { env })).stdout).code as string;
      const first = await code();
      assert.match(first, /^([A-HJ-NP-Z2-9]{4}-){3}[A-HJ-NP-Z2-9]{4}$/);
      await flood(address, "/pair", { method: "POST", headers: { "x-pairing-code": "WRNG-CDEF" } });
      assert.equal((await pair(first)).status, 200);
      assert.equal((await pair(first)).status, 403, "it counts once");
      const second = await code();
      const third = await code();
      await flood(address, "/pair", { method: "POST", headers: { "x-pairing-code": second } });
      assert.equal((await pair(second)).status, 429, "a newer code took its place");
      assert.equal((await pair(third.toLowerCase())).status, 200);
    }, { env });
  }));
