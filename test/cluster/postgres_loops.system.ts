import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { SOP_EXECUTIONS } from "../../lib/automation/sops/execution_record.ts";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { MAKER } from "../support/cron_fixture.ts";
import { LEASE_MS, openLink, type PostgresLink, startMember } from "../support/postgres_gateways.ts";
import { NO_POSTGRES } from "../support/postgres_server.ts";
import { withSchema } from "../support/postgres_stores.ts";
import { ask } from "../support/supervised.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const PROCEDURE = `
[[steps]]
id = "call"
manual = "Call"

[[steps]]
id = "tell"
instructions = "Tell"
`;

/** A receiver of replies that refuses until the test says otherwise. */
async function startReceiver() {
  const got: string[] = [];
  const state = { status: 503 };
  const server = createServer((request, reply) => {
    got.push(`${request.headers["x-postern-attempt"]} ${request.headers["idempotency-key"]}`);
    request.resume().on("end", () => reply.writeHead(state.status).end());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a socket of IP
  return {
    got,
    state,
    url: `http://127.0.0.1:${port}/in`,
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

const ahead = (ms: number): Clock => ({ ...systemClock, now: () => systemClock.now() + ms });

/** Lets the model of a gateway call a tool, in a run that a person started. */
async function call(services: GatewayServices, tool: string, input: unknown): Promise<void> {
  const run = await services.agent?.runs.start(
    ask(JSON.stringify({ tool, input }), { durable: true, caller: { via: "cli", tokenId: null, scopes: ["admin"] } }),
  );
  const ended = await services.agent?.runs.ended(run?.id ?? "", AbortSignal.timeout(20_000));
  assert.equal(ended?.status, "completed", JSON.stringify(ended));
}

/** The model makes the call that it is told to make, once. */
const script = (
  { messages }: { readonly messages: readonly { readonly role: string; readonly content?: unknown }[] },
) => {
  const last = messages.at(-1);
  const asked = last?.role === "user" && String(last.content).startsWith("{")
    ? JSON.parse(String(last.content)) as { readonly tool: string; readonly input: Readonly<Record<string, unknown>> }
    : undefined;
  return asked === undefined ? "Told" : { toolCalls: [{ name: asked.tool, arguments: asked.input }] };
};

test("over PostgreSQL, loops of a gateway that is cut off go on at another, whatever the wall clocks say", {
  skip: NO_POSTGRES,
}, () =>
  withSchema((url, schema) =>
    withTemporaryFolder(async (folder) => {
      const receiver = await startReceiver();
      const sops = join(folder, "sops");
      mkdirSync(sops);
      writeFileSync(join(sops, "release.toml"), PROCEDURE);
      const config = {
        autonomy: { level: "full" },
        sops: { dirs: [sops] },
        channels: { alerts: { reply_url: receiver.url } },
      };
      const links: PostgresLink[] = [await openLink(url, schema), await openLink(url, schema)];
      const [one, two] = links as [PostgresLink, PostgresLink];
      const a = await startMember(one, join(folder, "a"), script, { config, clock: ahead(600_000) });
      const b = await startMember(two, join(folder, "b"), script, {
        config: { ...config, cron: { enabled: true } },
        clock: ahead(-600_000),
      });
      try {
        await a.cron.add({ id: "soon", schedule: "in 2 seconds", prompt: "work" }, MAKER);
        await call(a, "sop_execute", { sop: "release" });
        const [execution] = await two.store.scan(SOP_EXECUTIONS.name, { limit: 1 });
        const promise = await a.deliveries.promise({ channel: "alerts", sender: "ann", messageId: undefined });
        const run = await a.agent?.runs.start(
          ask("go", { durable: true, ...(promise === undefined ? {} : { claim: promise }) }),
        );
        await a.deliveries.watch(run?.id ?? "");
        await until(() => receiver.got.length === 1);
        await until(async () => (await b.cron.history("soon", { limit: 10 }))?.firings.length === 1);
        const { firings = [] } = await b.cron.history("soon", { limit: 10 }) ?? {};
        const late = Date.parse(firings[0]?.at ?? "") - Date.parse(firings[0]?.time ?? "");
        assert.ok(firings[0]?.status === "started" && late >= 0 && late < 1_500, JSON.stringify(firings));

        await systemClock.sleep(LEASE_MS + 300);
        await one.close();
        receiver.state.status = 204;
        // The attempt that comes next is the second, after 5 s
        await until(async () => (await b.deliveries.page({ limit: 1 })).deliveries[0]?.status === "delivered");
        assert.deepEqual(receiver.got, [`1 ${run?.id}`, `2 ${run?.id}`]);
        await call(b, "sop_advance", { execution_id: execution?.key });
        await until(async () => {
          const stored = await two.store.get(SOP_EXECUTIONS.name, execution?.key ?? "");
          return (stored?.body as { readonly status?: string } | undefined)?.status === "completed";
        });
        assert.equal((await b.cron.history("soon", { limit: 10 }))?.firings.length, 1);
      } finally {
        await b.drain(0);
        await b.close();
        await a.drain(0).catch(() => {});
        await a.close().catch(() => {});
        await two.close();
        await receiver.close();
      }
    })
  ));
