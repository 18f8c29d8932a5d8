import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Store } from "../../lib/storage/store.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { onMachine } from "../cli/support/run_in.ts";
import { NO_POSTGRES, withDatabase } from "../support/postgres_server.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

const CONFIG = { cron: { enabled: true }, autonomy: { level: "full" }, channels: { mail: {} } };
const PROCEDURE = `name = "Ship"
[[steps]]
id = "touch"
title = "Ship it"
requires_approval = true
tool = "memory_store"
input = { key = "shipped", value = "yes" }
`;

async function use(gateway: RunningGateway, tool: string, input: unknown): Promise<string> {
  const { is_error, output } = await jsonOf(await gateway.call(`/v1/tools/${tool}/call`, { body: { input } })) as {
    readonly is_error: boolean;
    readonly output: string;
  };
  assert.equal(is_error, false, `${tool}: ${output}`);
  return output;
}

/** The schedule is due in a second, whenever the gateway starts. */
async function makeDue(store: Store): Promise<void> {
  const stored = await store.get("schedules", "daily");
  const body = { ...stored?.body as object, next_at: systemClock.now() + 1_000 };
  await store.batch([{ op: "put", collection: "schedules", key: "daily", body }]);
}

describe("records that were moved to PostgreSQL", { skip: NO_POSTGRES }, () => {
  test("go on at a gateway with the same configuration: runs, procedures, schedules, tokens, memory, mailboxes, audit", () =>
    withDatabase((url) =>
      onMachine(({ run, dataDir }) =>
        withWorld(async (world) => {
          const workspace = await world.workspace({ ".postern/sops/ship.toml": PROCEDURE });
          const place = { dataDir, workspace };
          let token = "";
          let id = "";
          await withWorld(async (before) => {
            const gateway = await before.gateway({ ...place, config: CONFIG, script: [{ hang: "before" }] });
            token = (await gateway.services.tokens.issue({ scopes: ["chat"], label: "one" })).token;
            ({ id } = await jsonOf(await gateway.call("/v1/runs", { body: { message: "Work" } })) as { id: string });
            await until(() => gateway.provider.requests.length === 1);
            await use(gateway, "cron_add", { id: "daily", schedule: "0 0 * * *", prompt: "Look around" });
            await use(gateway, "sop_execute", { sop: "ship" });
            await use(gateway, "memory_store", { key: "bread", value: "The sourdough needs water" });
            await use(gateway, "agents_ipc", { op: "send", from: "a", to: "me", payload: "a sealed message" });
            await until(async () => await gateway.services.store.count("open_approvals") > 0);
            await makeDue(gateway.services.store);
          });
          const env = { POSTERN__STORAGE__URL_ENV: "RECORDS", RECORDS: url };
          const moved = await run(["storage", "migrate", "--from", "sqlite", "--to", "postgres"], { env });
          assert.equal(moved.code, 0, moved.stderr);
          const gateway = await world.gateway({
            ...place,
            config: {
              ...CONFIG,
              storage: { driver: "postgres", url, key_env: "RECORDS_KEY" },
              cluster: { lease_secs: 1 },
            },
            environment: { RECORDS_KEY: Buffer.alloc(32, 7).toString("base64") },
            script: ["the answer", "looked around"],
          });
          const { call, services } = gateway;
          const status = async () => (await jsonOf(await call(`/v1/runs/${id}`))).status;
          await until(async () => await status() === "completed");
          const { data: runs } = await jsonOf(await call("/v1/runs")) as { data: { kind: string; status: string }[] };
          assert.ok(runs.length >= 1);
          await until(async () => {
            const { data: [schedule] } = await jsonOf(await call("/v1/schedules")) as { data: { last: unknown }[] };
            return schedule?.last !== null;
          });
          const accepted = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
          assert.equal(accepted.status, 200);
          assert.match(await use(gateway, "memory_recall", { query: "water for sourdough" }), /sourdough needs water/);
          assert.match(await use(gateway, "agents_ipc", { op: "recv", to: "me" }), /a sealed message/);
          assert.equal((await jsonOf(await call("/v1/audit/verify"))).ok, true);
          const { data: [question] } = await jsonOf(await call("/v1/approvals?status=pending")) as {
            data: { id: string }[];
          };
          await call(`/v1/approvals/${question?.id}`, { body: { decision: "approve" } });
          await until(async () => await services.store.get("memory", "default/shipped") !== undefined);
          assert.equal((await jsonOf(await call("/health"))).status, "ok");
        })
      )
    ));
});
