import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders } from "../../../fixtures/scripted_provider.ts";
import { createRouter } from "../../../handlers/router.ts";
import { ROUTES } from "../../../handlers/routes.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { MCP_CREDENTIALS } from "../../../lib/extensions/mcp/oauth/mcp_credential.ts";
import { createServices } from "../../../lib/gateway.ts";
import { DATABASE_NAME } from "../../../lib/storage/back_up.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import { toConfig } from "../../support/config_edits.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { fetchSites, type Site } from "../../support/fetch_bench.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const { site } = fetchSites();

type Reply = Readonly<Record<string, unknown>>;

interface Bench {
  readonly clock: FakeClock;
  readonly phone: Site;
  send(method: string, path: string, body?: object): Promise<{ readonly status: number; readonly reply: Reply }>;
  setLogged(isLogged: boolean): void;
}

/** Runs a gateway with a budget and rules, whose sign-in at "wiki" is not to be read any more. */
function withGateway(use: (bench: Bench) => Promise<void>): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const [dataDir, workspaceRoot] = [join(folder, "data"), join(folder, "work")];
    for (const made of [dataDir, workspaceRoot]) mkdirSync(made);
    const before = await openSqliteStore({ path: join(dataDir, DATABASE_NAME), clock: systemClock });
    await before.batch([{ op: "put", collection: MCP_CREDENTIALS.name, key: "wiki", body: { v: 1 } }]);
    await before.close();
    const phone = await site((_request, response) => response.end("{}"));
    let isLogged = true;
    const usage = { prompt_tokens: 70_000, completion_tokens: 15_000, total_tokens: 85_000 };
    const script = [{ text: "Done", usage }, {
      errorBefore: new ProviderError("provider_error", "It is away", { provider: "scripted" }),
    }];
    const services = await createServices({
      config: toConfig({
        budget: { tokens_per_day: 100_000 },
        mcp: { servers: { wiki: { url: "http://127.0.0.1:9/mcp" } } },
        url_access: { allow_loopback: true },
        notify: [{
          ...{ name: "phone", kind: "webhook", url: phone.origin, secret_env: "SECRET" },
          events: ["run_ended", "run_failed", "budget_near", "gateway_degraded", "sign_in_needed"],
        }],
      }),
      folders: { dataDir, workspaceRoot, home: folder },
      environment: { SECRET: "the secret of the hook" },
      about: { version: "0.0.0-test" },
      log: { sink: () => {}, isHealthy: () => isLogged },
      kit: { clock },
      models: { providers: createScriptedProviders(createScriptedProvider(script, { clock })) },
    });
    const { token } = await services.tokens.issue({ scopes: ["admin"], label: "test" });
    const router = createRouter({ services, routes: ROUTES });
    try {
      await use({
        clock,
        phone,
        setLogged: (next) => void (isLogged = next),
        async send(method, path, body) {
          const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
          const sent = body === undefined ? {} : { body: JSON.stringify(body) };
          const request = new Request(`http://127.0.0.1${path}`, { method, headers, ...sent });
          const reply = await router.fetch(request, { remoteAddress: "127.0.0.1" });
          return { status: reply.status, reply: await reply.json() as Reply };
        },
      });
    } finally {
      await services.close();
    }
  });
}

test("a gateway tells of its runs, and by its own looks of the budget, a sign-in and its state, each once", () =>
  withGateway(async ({ clock, phone, send, setLogged }) => {
    const told = () => phone.seen.flatMap(({ body }) => eventsOf(JSON.parse(body)));
    /** Lets time pass until all of these were told of, whether as one message or several. */
    const tells = (...events: readonly string[]) =>
      until(async () => {
        await clock.advance(1000);
        return events.every((event) => told().includes(event));
      }, () => `${events.join()}: ${told().join()}`);
    const run = async (status: string) => {
      const { reply: { id } } = await send("POST", "/v1/runs", { message: "Look after the beans" });
      await until(async () => (await send("GET", `/v1/runs/${id}`)).reply["status"] === status, `it is not ${status}`);
    };
    await tells("sign_in_needed");
    await run("completed");
    await tells("run_ended", "budget_near");
    setLogged(false);
    await tells("gateway_degraded");
    await run("failed");
    await tells("run_failed");
    for (let look = 0; look < 4; look++) await clock.advance(30_000);
    // On its way a message may go out twice: what is told of has one record
    const { reply } = await send("GET", "/v1/deliveries");
    const titles = (reply["data"] as readonly { readonly title: string }[]).map(({ title }) => title);
    assert.deepEqual(titles.sort(), [
      "A run has ended",
      "A run has failed",
      "Sign in to wiki",
      "The day's tokens are nearly used",
      "The gateway is degraded",
    ]);
  }));

function eventsOf({ alerts }: { readonly alerts: readonly { readonly event: string }[] }): readonly string[] {
  return alerts.map(({ event }) => event);
}
