import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import type { ProviderClientFactory } from "../system/net/provider_client.ts";
import { createOpenAiCompatible, withDefaultModel } from "./openai/openai_compatible.ts";
import { withDialect } from "./dialect/with_dialect.ts";
import type { Provider, ProviderLayer } from "./provider.ts";
import type { UpstreamSettings } from "./upstream/upstream_http.ts";
import { type ProviderSettings, readProviderAddress, readProviderKey, VENDORS } from "./provider_settings.ts";
import { VendorForms } from "./vendors/vendor_forms.ts";

/** Services that a provider over HTTP uses. */
export interface OpenProviderOptions {
  /** Key path of the settings, such as `providers.work`, for errors */
  readonly table: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly random: Random;
  readonly net: ProviderClientFactory;
  /** Layers around those that every provider has, the innermost first. Default: none */
  readonly layers?: readonly ProviderLayer[] | undefined;
  /** Receives the key and where it comes from, so that it is redacted everywhere */
  readonly onSecret?: (secret: string, name?: string) => void;
}

/** A provider without retries. */
export interface OpenedProvider {
  readonly provider: Provider;
  /** Model for requests that name none. Empty: the server is asked for it when it is needed */
  readonly model: string;
}

/**
 * Opens a provider over HTTP. Sends nothing before its first use.
 * @param name name of the provider, as resolved models have it
 * @throws {ConfigError} a key or address that is missing or unreadable
 */
export async function openProvider(
  name: string,
  settings: ProviderSettings,
  options: OpenProviderOptions,
): Promise<OpenedProvider> {
  const { table, env, clock, random, net } = options;
  const { key, source } = await readProviderKey(settings, table, env);
  if (key !== undefined) options.onSecret?.(key, source);
  const { origin, basePath } = readProviderAddress(settings, table, env);
  const upstream = {
    upstream: { name, keySource: source, key, now: clock.now },
    client: net({ provider: name, origin }),
    basePath,
    timeoutMs: settings.timeout_secs * 1000,
    silenceMs: (settings.silence_secs || settings.timeout_secs * 10) * 1000,
    nextId: () => random.id("call_"),
  };
  const { kind, vision } = settings;
  const forms = new VendorForms({ kind, origin, vision });
  const isAnthropic = kind === "anthropic";
  const server = isAnthropic
    ? { plain: (await import("./anthropic/anthropic.ts")).createAnthropic(upstream, forms), layers: [] }
    : await openCompatible(upstream, { kind, forms });
  const { plain, forTools = plain } = server;
  const provider = layered(forTools, [
    ...server.layers,
    withDialect(forms),
    ...(isAnthropic ? [] : [withDefaultModel]),
    pastToolLayers(plain),
    ...(options.layers ?? []),
  ]);
  return { provider, model: settings.model || (VENDORS[settings.kind]?.model ?? "") };
}

/** Returns a provider within layers, the innermost first: one stream goes through all of them. */
export function layered(provider: Provider, layers: readonly ProviderLayer[]): Provider {
  return layers.reduce((inner, layer) => ({ ...inner, ...layer(inner) }), provider);
}

/** Makes the layer by which a request with a model and without a tool, a call or a choice of one goes by the layers that are about these. */
function pastToolLayers(plain: Provider): ProviderLayer {
  return (inner) => ({
    stream(request, options) {
      const { model, tools, toolChoice, messages } = request;
      const isPlain = model !== "" && tools.length === 0 && typeof toolChoice !== "object" &&
        !messages.some((message) => message.role === "assistant" && message.tool_calls !== undefined);
      return (isPlain ? plain : inner).stream(request, options);
    },
  });
}

/** Server that was opened. */
interface OpenedServer {
  readonly plain: Provider;
  /** Server for requests with tools. Default: the same */
  readonly forTools?: Provider;
  /** Layers that look after tools, the innermost first */
  readonly layers: readonly ProviderLayer[];
}

/** Opens a server of the OpenAI format. One without TLS is local, and may tell of its models' templates. */
async function openCompatible(
  settings: UpstreamSettings,
  { kind, forms }: { readonly kind: string; readonly forms: VendorForms },
): Promise<OpenedServer> {
  const open = (own: UpstreamSettings) => createOpenAiCompatible(own, forms);
  const isLocal = settings.client.origin.startsWith("http:") && (kind === "ollama" || kind === "openai_compatible");
  const plain = open(settings);
  if (!isLocal) return { plain, layers: [] };
  const [{ withToolSupport }, { withWrittenCalls }] = await Promise.all([
    import("./vendors/tool_support.ts"),
    import("./vendors/written_calls.ts"),
  ]);
  return {
    plain,
    forTools: withToolSupport(open, { kind, settings, forms }),
    layers: [withWrittenCalls(settings.nextId)],
  };
}
