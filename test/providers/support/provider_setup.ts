import type { TestContext } from "node:test";
import type { ProviderEvent } from "../../../lib/base/records/provider_event.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMetrics, type Metrics } from "../../../lib/base/telemetry/metrics.ts";
import { createProviders, type CreateProvidersOptions } from "../../../lib/providers/create_providers.ts";
import type { Provider, ProviderRequest, Providers } from "../../../lib/providers/provider.ts";
import type { ProviderSettings } from "../../../lib/providers/provider_settings.ts";
import { createProviderClients } from "../../../lib/system/net/provider_client.ts";
import { createScriptedProvider } from "../../../fixtures/scripted_provider.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";

export const KEY = "sk-very-secret-key-0123456789";

/** Settings of one provider with the defaults of the configuration, but no retries. */
export function settings(changes: Partial<ProviderSettings> = {}): ProviderSettings {
  return {
    kind: "openai_compatible",
    model: "upstream-model",
    base_url: "",
    api_key_env: "",
    api_key_file: "",
    timeout_secs: 120,
    silence_secs: 0,
    max_retries: 0,
    vision: "auto",
    fallback: [],
    ...changes,
  };
}

export interface Setup {
  readonly providers: Providers;
  readonly metrics: Metrics;
}

/** Options that a test changes: parts of the kit, the configuration and the search stand beside the rest. */
export interface SetupChanges
  extends Partial<Omit<CreateProvidersOptions, "kit" | "config" | "search">>, Partial<CreateProvidersOptions["kit"]> {
  readonly providers?: CreateProvidersOptions["config"]["providers"];
  readonly localOrigins?: readonly string[];
}

/** Providers that are closed when the test ends. Their clock stands still by default: no server that answers is too late. */
export async function setUp(
  context: Pick<TestContext, "after">,
  provider: Partial<ProviderSettings>,
  changes: SetupChanges = {},
): Promise<Setup> {
  const { clock = createFakeClock(), random = createSeededRandom(), log = SILENT, metrics = createMetrics() } = changes;
  const { providers: named = {}, localOrigins = [], ...rest } = changes;
  const providers = await createProviders({
    kit: { clock, random, log, metrics },
    config: { provider: settings(provider), providers: named },
    env: {},
    offline: createScriptedProvider(() => "offline says hello", { name: "offline", models: ["assistant"] }),
    net: createProviderClients({ clock }),
    search: {
      origins: localOrigins,
      ownerOf: () => Promise.resolve({ accepted: true, owner: "run by you", identity: "test" }),
    },
    ...rest,
  });
  context.after(() => providers.close());
  return { providers, metrics };
}

export const REQUEST: ProviderRequest = {
  model: "upstream-model",
  messages: [{ role: "user", content: "Hello" }],
  tools: [],
  parameters: {},
};

/** A signal that nobody aborts. */
export const NEVER: AbortSignal = new AbortController().signal;

/** All events of a turn; an error is thrown. */
export async function collect(
  provider: Provider,
  request: Partial<ProviderRequest> = {},
  signal: AbortSignal = NEVER,
): Promise<ProviderEvent[]> {
  const events: ProviderEvent[] = [];
  for await (const batch of provider.stream({ ...REQUEST, ...request }, { signal })) events.push(...batch);
  return events;
}

/** The text of a turn's events. */
export function textOf(events: readonly ProviderEvent[]): string {
  return events.map((event) => (event.type === "text_delta" ? event.delta : "")).join("");
}

/** Codes of a turn's notices, in order. */
export function noticesOf(events: readonly ProviderEvent[]): string[] {
  return events.flatMap((event) => (event.type === "notice" ? [event.code] : []));
}

/** The calls of a turn, put together from their deltas. */
export function callsOf(
  events: readonly ProviderEvent[],
): { id: string | undefined; name: string | undefined; arguments: string }[] {
  const calls: { id: string | undefined; name: string | undefined; arguments: string }[] = [];
  for (const event of events) {
    if (event.type !== "tool_call_delta") continue;
    const call = calls[event.index] ??= { id: event.call_id, name: event.name, arguments: "" };
    call.arguments += event.arguments_delta;
  }
  return calls;
}
