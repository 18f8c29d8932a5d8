import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import { onMachine } from "../cli/support/run_in.ts";
import { configOf } from "../support/running_gateway.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The audit's records of a type, oldest first, without what the chain adds. */
async function recordsOf(gateway: RunningGateway, type: string): Promise<readonly Fields[]> {
  const { data } = await jsonOf(gateway.call(`/v1/audit?type=${type}`)) as { data: readonly Fields[] };
  return data.toReversed().map(({ v: _v, seq: _s, time: _t, prev: _p, hash: _h, type: _type, ...fields }) => fields);
}

const pairWith = (gateway: RunningGateway, code: string, body: Fields = {}) =>
  fetch(`${gateway.url}/pair`, {
    method: "POST",
    headers: { "x-pairing-code": code, "content-type": "application/json" },
    body: JSON.stringify(body),
  });

const ENV = { via: "http", token_id: "env" };

test("pairing, tokens issued and tokens revoked are in the audit, never a token or a code", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ agent: false });
    const { code } = await jsonOf(gateway.call("/v1/pairing-code", { method: "POST" })) as { code: string };
    const paired = await jsonOf(pairWith(gateway, code, { label: "Firefox", idle_ttl_seconds: 60 })) as Fields;
    const made = await jsonOf(gateway.call("/v1/tokens", { body: { label: "script", ttl_seconds: 60 } })) as Fields;
    const kept = await jsonOf(gateway.call("/v1/tokens", { body: {} })) as Fields;
    await jsonOf(gateway.call(`/v1/tokens/${made["id"]}`, { method: "DELETE" }));
    assert.equal((await gateway.call("/v1/tokens/tok_none", { method: "DELETE" })).status, 404);
    await jsonOf(gateway.call("/v1/tokens", { method: "DELETE" }));
    for (let miss = 0; miss < 5; miss++) assert.equal((await pairWith(gateway, "WRONG")).status, 403);
    assert.deepEqual(await recordsOf(gateway, "pairing"), [
      { action: "code_made", address: null, by: ENV },
      {
        action: "paired",
        token_id: paired["token_id"],
        label: "Firefox",
        scopes: ["admin"],
        expires_at: null,
        idle_ttl_seconds: 60,
        address: "127.0.0.1",
      },
      { action: "locked", address: "127.0.0.1", by: null },
    ]);
    const idle = { idle_ttl_seconds: null };
    assert.deepEqual(await recordsOf(gateway, "token"), [
      {
        action: "issued",
        token_id: made["id"],
        label: "script",
        scopes: ["chat"],
        expires_at: made["expires_at"],
        ...idle,
        by: ENV,
      },
      { action: "issued", token_id: kept["id"], label: "", scopes: ["chat"], expires_at: null, ...idle, by: ENV },
      { action: "revoked", token_ids: [made["id"]], count: 1, by: ENV },
      { action: "revoked", token_ids: [paired["token_id"], kept["id"]], count: 2, by: ENV },
    ]);
    const all = await (await gateway.call("/v1/audit?limit=1000")).text();
    for (const secret of [code, code.replace("-", ""), ...[paired, made, kept].map(({ token }) => String(token))]) {
      assert.ok(!all.includes(secret));
    }
    assert.equal((await jsonOf(gateway.call("/v1/audit/verify"))).ok, true);
  }));

test("a configuration that is taken over is in the audit by its keys; one that is refused, or says nothing new, is not", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ agent: false });
    const base = { provider: { kind: "offline" } };
    const reload = (tables: Fields, options = {}) =>
      gateway.services.reload(() => Promise.resolve(configOf({ ...base, ...tables })), options);
    await reload({ autonomy: { level: "full" }, storage: { driver: "memory" } });
    await reload({ autonomy: { level: "full" }, storage: { driver: "memory" } });
    await gateway.services.reload(() => Promise.reject(new ConfigError("config_invalid", "No")));
    await reload({ autonomy: { level: "full" }, storage: { driver: "memory" } }, { always: true });
    assert.deepEqual(await recordsOf(gateway, "config"), [
      { action: "taken_over", keys: ["autonomy.level"], needs_restart: ["storage.driver"] },
      { action: "taken_over", keys: [], needs_restart: ["storage.driver"] },
    ]);
  }));

test("a rule that is stored and revoked is in the audit, in the words that were shown", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ agent: false, config: { security: { write_file: { enabled: true } } } });
    const input = { path: "a.txt", content: "a" };
    const asked = await jsonOf(gateway.call("/v1/tools/write_file/call", { body: { input } })) as Fields;
    const answer = { decision: "approve", remember: "always" };
    const { stored_rule: rule } = await jsonOf(
      gateway.call(`/v1/approvals/${asked["approval_id"]}`, { body: answer }),
    ) as { stored_rule: Fields };
    await jsonOf(gateway.call(`/v1/approval-rules/${rule["id"]}`, { method: "DELETE" }));
    const { id: rule_id, tool, input_digest, decision, text } = rule;
    const record = { rule_id, tool, input_digest, decision, text, by: ENV };
    assert.deepEqual(await recordsOf(gateway, "rule"), [
      { action: "stored", ...record },
      { action: "revoked", ...record },
    ]);
  }));

test("trust in a configuration file is in the audit, once, also when it was given without the gateway", () =>
  onMachine(async ({ cwd, run, withGateway }) => {
    const file = join(cwd, "postern.toml");
    await writeFile(file, '[provider]\nkind = "none"\n');
    assert.equal((await run(["trust"])).code, 0);
    const trusts = async () => {
      const shown = await run(["audit", "show", "--type", "trust", "--json"]);
      assert.equal(shown.code, 0, shown.stderr);
      return (JSON.parse(shown.stdout) as { records: readonly Fields[] }).records;
    };
    const [first, ...others] = await trusts();
    assert.deepEqual([first?.["subject"], first?.["name"], others], ["config_file", file, []]);
    assert.match(String(first?.["sha256"]), /^[0-9a-f]{64}$/);
    const finished = await withGateway([], async () => {
      assert.equal((await trusts()).length, 1, "a restart is no new trust");
      await writeFile(`${file}.new`, '[provider]\nkind = "none"\n[gateway]\nrate_limit_max = 500\n');
      await rename(`${file}.new`, file);
      assert.equal((await run(["trust"])).code, 0);
      await until(async () => (await trusts()).length === 2, "The second trust was not recorded");
      const shown = await run(["audit", "show"]);
      assert.match(shown.stdout, new RegExp(`trust +cli +trusted config_file ${file}`));
      assert.match(shown.stdout, /config +taken_over gateway\.rate_limit_max/);
      assert.match(shown.stdout, /pairing +code_made/);
    });
    assert.equal(finished.code, 0, finished.stderr);
  }));
