import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { COLLECTIONS } from "../../handlers/stored_records.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { scanAll } from "../../lib/storage/read_records.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

const CONFIG = {
  ...{ cron: { enabled: true }, autonomy: { level: "full" }, security: { enable_agents_ipc: true } },
};
const PROCEDURE = `name = "Ship"
[[steps]]
id = "touch"
title = "Ship it"
requires_approval = true
tool = "memory_store"
input = { key = "shipped", value = "yes" }
`;
/** Collections whose records this journey changes. */
const CHANGED = [
  ...["approvals", "conversations", "mailboxes", "memory", "plans", "runs", "schedules", "sop_executions", "tokens"],
];

async function use({ call }: RunningGateway, tool: string, input: unknown): Promise<void> {
  const { is_error, output } = await jsonOf(await call(`/v1/tools/${tool}/call`, { body: { input } })) as {
    readonly is_error: boolean;
    readonly output: string;
  };
  assert.equal(is_error, false, `${tool}: ${output}`);
  assert.ok(!output.includes("from_the_future"), `${tool} shows the field`);
}

/** Adds a field that this version does not know to each record, as a newer version might, and to the run or the messages in a record. */
async function addFields(path: string): Promise<ReadonlyMap<string, number>> {
  const store = await openSqliteStore({ path, clock: systemClock });
  const versions = new Map<string, number>();
  for (const collection of Object.keys(COLLECTIONS)) {
    for await (const { key, version, body } of scanAll(store, collection)) {
      if (typeof body !== "object" || body === null || Array.isArray(body)) continue;
      const more = { from_the_future: key };
      const run = "run" in body ? { run: { ...body.run as object, ...more } } : {};
      const entries = "entries" in body
        ? { entries: (body.entries as object[]).map((one) => ({ ...one, ...more })) }
        : {};
      await store.putIfVersion(collection, key, version, { ...body, ...more, ...run, ...entries });
      versions.set(`${collection} ${key}`, version + 1);
    }
  }
  await store.close();
  return versions;
}

test("a field of a newer version survives each change that this version makes, and no reply shows it", () =>
  withWorld(async (world) => {
    const workspace = await world.workspace({ ".postern/sops/ship.toml": PROCEDURE });
    const dataDir = join(await world.folder(), "data");
    const place = { dataDir, workspace, config: CONFIG };
    const talk = async ({ call, services }: RunningGateway, messages: number) => {
      assert.equal((await call("/v1/runs", { body: { message: "Hi", conversation_id: "c1" } })).status, 202);
      await until(async () => {
        const stored = await services.store.get("conversations", "c1");
        return (stored?.body as { readonly messages?: number } | undefined)?.messages === messages;
      });
    };
    let [token, run] = ["", ""];
    await withWorld(async (before) => {
      const script = ["hello", { hang: "before" }] as const;
      const gateway = await before.gateway({ ...place, script });
      const { call, services, provider } = gateway;
      ({ token } = await services.tokens.issue({ scopes: ["chat"], label: "one" }));
      await talk(gateway, 2);
      ({ id: run } = await jsonOf(await call("/v1/runs", { body: { message: "Work" } })) as { id: string });
      await until(() => provider.requests.length === 2);
      await use(gateway, "cron_add", { id: "daily", schedule: "0 0 * * *", prompt: "Look around" });
      await use(gateway, "sop_execute", { sop: "ship" });
      await use(gateway, "memory_store", { key: "bread", value: "flour" });
      await use(gateway, "task_plan", { action: "create", tasks: ["one", "two"] });
      await use(gateway, "agents_ipc", { op: "send", from: "a", to: "me", payload: "one" });
      await until(async () => await services.store.count("open_approvals") > 0);
    });
    const versions = await addFields(join(dataDir, "postern.db"));
    const gateway = await world.gateway({ ...place, script: ["done", "hello again", "more"] });
    const { call, services: { store } } = gateway;
    await until(async () => (await jsonOf(await call(`/v1/runs/${run}`))).status === "completed");
    await talk(gateway, 4);
    const models = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
    assert.equal(models.status, 200);
    await use(gateway, "cron_update", { id: "daily", schedule: "0 1 * * *" });
    await use(gateway, "memory_store", { key: "bread", value: "flour and water" });
    await use(gateway, "task_plan", { action: "update", id: "1", status: "completed" });
    await use(gateway, "agents_ipc", { op: "send", from: "a", to: "me", payload: "two" });
    const { data: [question] } = await jsonOf(await call("/v1/approvals?status=pending")) as { data: { id: string }[] };
    assert.equal((await call(`/v1/approvals/${question?.id}`, { body: { decision: "approve" } })).status, 200);
    await until(async () => await store.get("memory", "default/shipped") !== undefined);
    for (const path of ["/v1/runs", "/v1/schedules", "/v1/approvals", "/v1/conversations", "/v1/tokens"]) {
      const reply = await (await call(path)).text();
      assert.ok(!reply.includes("from_the_future"), `${path} shows the field`);
    }
    const changed = new Set<string>();
    for (const [place, version] of versions) {
      const [collection = "", key = ""] = place.split(" ");
      const now = await store.get(collection, key);
      if (now === undefined || now.version === version) continue;
      if (!CHANGED.includes(collection)) continue;
      changed.add(collection);
      const body = now.body as { readonly run?: object; readonly entries?: readonly object[] };
      const [part] = body.entries ?? [body.run ?? body];
      assert.equal((part as { readonly from_the_future?: string })?.from_the_future, key, place);
    }
    assert.deepEqual([...changed].sort(), CHANGED, "some were not changed");
  }));
