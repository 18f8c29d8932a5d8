import * as v from "valibot";
import { storedObject } from "../../base/records/stored_object.ts";
import { canonicalDigest, type JsonObject } from "../../base/json.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { McpStatus, McpToolDefinition } from "./mcp_connection.ts";
import type { ServerSignIn } from "./http_transport.ts";
import type { EraVerdict } from "./probe_program.ts";
import type { McpServerSettings } from "./start_program.ts";

const text = v.string();
const time = v.number();
const table = v.record(v.string(), v.unknown());

const toolSchema = v.object({
  name: text,
  title: v.optional(text),
  description: text,
  input_schema: table,
  output_schema: v.optional(table),
  hints: v.object({ readOnly: v.boolean(), destructive: v.boolean(), idempotent: v.boolean(), openWorld: v.boolean() }),
  digest: text,
});

const recordSchema = storedObject({
  v: v.literal(1),
  /** Digest of the settings and the account that the rest was learned with */
  identity: text,
  /** Era of the protocol, and when it was found out, in milliseconds since the epoch */
  verdict: v.nullable(v.object({ kind: v.picklist(["legacy", "modern"]), discover: v.optional(table), at: time })),
  list: v.nullable(
    v.object({ at: time, ttl_ms: v.nullable(time), tools: v.array(toolSchema), left_out: v.optional(v.array(text)) }),
  ),
  about: v.nullable(table),
});

type ServerBody = v.InferOutput<typeof recordSchema>;

/** Collection of what is known of MCP servers. The key is the name. */
export const MCP_SERVERS = new Collection("mcp_servers", recordSchema);

/** Facts about a server that it told itself. */
export type ServerFacts = Pick<
  McpStatus,
  "era" | "protocolVersion" | "server" | "capabilities" | "instructions"
>;

/** Knowledge of one server that outlives its sessions and the gateway. */
export interface ServerKnowledge {
  readonly verdict: { readonly verdict: EraVerdict; readonly at: number } | undefined;
  readonly list: {
    readonly tools: readonly McpToolDefinition[];
    /** Sentences about tools that are not offered: see `McpStatus.leftOut` */
    readonly leftOut: readonly string[];
    /** Milliseconds since the epoch */
    readonly at: number;
    /** Milliseconds that the server allows the list to be kept. Undefined: it does not say */
    readonly ttlMs: number | undefined;
  } | undefined;
  readonly facts: ServerFacts | undefined;
}

/** Knowledge of a server that was never asked. */
export const NOTHING_KNOWN: ServerKnowledge = { verdict: undefined, list: undefined, facts: undefined };

/** Characters of a record as JSON. A longer list is read again by each gateway. */
const MAX_RECORD = 2 * 1_048_576;

/** Options of KnownServers. */
export interface KnownServersOptions {
  readonly store: Store;
  readonly log: Logger;
  /** Returns the newest configuration. */
  readonly config: () => Config;
  /** Sign-in to servers by `url`. Default: nobody is signed in */
  readonly signIn?: Pick<ServerSignIn, "credential"> | undefined;
}

/** Returns a digest of what a server is asked with now: other settings, or another account, make it another server. */
async function presentIdentity(name: string, { config, signIn }: KnownServersOptions): Promise<string> {
  const { servers } = config().mcp;
  const credential = await signIn?.credential(name);
  if (!Object.hasOwn(servers, name)) return "";
  const { command, args, env, url, headers } = servers[name] as McpServerSettings; // The table has the name
  return canonicalDigest({ command, args, env, url, headers, credential });
}

/** Knowledge of servers that is kept over restarts. */
export class KnownServers {
  readonly #options: KnownServersOptions;
  readonly #identities: Map<string, string>;
  readonly #known: Map<string, ServerKnowledge>;
  /** Servers whose list is too large to be kept, which the log has */
  readonly #tooLarge = new Set<string>();
  #last = Promise.resolve();

  private constructor(
    options: KnownServersOptions,
    identities: Map<string, string>,
    known: Map<string, ServerKnowledge>,
  ) {
    this.#options = options;
    this.#identities = identities;
    this.#known = known;
  }

  /** Reads what is known. What was learned with other settings is left out. */
  static async read(options: KnownServersOptions): Promise<KnownServers> {
    const identities = new Map<string, string>();
    for (const name of Object.keys(options.config().mcp.servers)) {
      identities.set(name, await presentIdentity(name, options));
    }
    const known = new Map<string, ServerKnowledge>();
    for await (const { key, value } of MCP_SERVERS.all(options.store)) {
      if (identities.get(key) === value.identity) known.set(key, toKnowledge(value));
    }
    return new KnownServers(options, identities, known);
  }

  /** Returns what is known of a server. */
  of(name: string): ServerKnowledge {
    return this.#known.get(name) ?? NOTHING_KNOWN;
  }

  /** Drops what is known of a server, whose record is gone. */
  forgotten(name: string): void {
    this.#known.delete(name);
    this.#identities.delete(name);
  }

  /** Makes what is known of a server that of its present settings: nothing, where it was learned with others. */
  async refresh(name: string): Promise<void> {
    const identity = await presentIdentity(name, this.#options);
    if (this.#identities.get(name) === identity) return;
    this.#identities.set(name, identity);
    this.#known.delete(name);
    await this.#last;
    const found = await MCP_SERVERS.tryRead(this.#options.store, name);
    if (found?.value.identity === identity) this.#known.set(name, toKnowledge(found.value));
  }

  /** Forgets what is known of a server. What is learned from now on belongs to the account that is signed in now. */
  async forget(name: string): Promise<void> {
    try {
      this.#identities.set(name, await presentIdentity(name, this.#options));
    } catch (error) {
      // No gateway takes what is kept under this one for its own
      this.#identities.set(name, "");
      this.#options.log.error("The account at an MCP server cannot be read", { server: name, error });
    }
    await this.write(name, NOTHING_KNOWN);
  }

  /** Keeps what is known, after what was kept before. A failure is logged: the next gateway asks the server then. */
  write(name: string, known: ServerKnowledge): Promise<void> {
    this.#known.set(name, known);
    return this.#last = this.#last.then(() => this.#write(name, known)).catch((error: unknown) => {
      this.#options.log.error("What is known of an MCP server cannot be kept", { server: name, error });
    });
  }

  async #write(name: string, known: ServerKnowledge): Promise<void> {
    const whole = toBody(known, this.#identities.get(name) ?? "");
    const length = JSON.stringify(whole).length;
    const body = length > MAX_RECORD ? { ...whole, list: null } : whole;
    if (body !== whole) this.#noteTooLarge(name, length);
    await this.#options.store.batch([MCP_SERVERS.put(name, body)]);
  }

  #noteTooLarge(server: string, length: number): void {
    if (this.#tooLarge.has(server)) return;
    this.#tooLarge.add(server);
    this.#options.log.warn(
      "The list of tools of an MCP server is too large to be kept: each start of the gateway asks for it",
      {
        server,
        characters: length,
        max_characters: MAX_RECORD,
      },
    );
  }
}

function toBody({ verdict, list, facts }: ServerKnowledge, identity: string): ServerBody {
  return {
    v: 1,
    identity,
    // The kinds of a verdict have no fields that the schema does not know
    verdict: verdict === undefined ? null : { ...verdict.verdict, at: verdict.at } as ServerBody["verdict"],
    list: list === undefined ? null : {
      at: list.at,
      ttl_ms: list.ttlMs ?? null,
      ...(list.leftOut.length === 0 ? {} : { left_out: [...list.leftOut] }),
      tools: list.tools.map(({ inputSchema, outputSchema, title, ...rest }) => ({
        ...rest,
        ...(title === undefined ? {} : { title }),
        input_schema: inputSchema,
        ...(outputSchema === undefined ? {} : { output_schema: outputSchema }),
      })),
    },
    // JSON by way of its text
    about: facts === undefined ? null : JSON.parse(JSON.stringify(facts)) as Record<string, unknown>,
  };
}

function toKnowledge({ verdict, list, about }: ServerBody): ServerKnowledge {
  return {
    verdict: verdict === null ? undefined : {
      at: verdict.at,
      // The SDK checks an answer of the new era before it uses it
      verdict:
        (verdict.kind === "modern" ? { kind: "modern", discover: verdict.discover } : { kind: "legacy" }) as EraVerdict,
    },
    list: list === null ? undefined : {
      at: list.at,
      ttlMs: list.ttl_ms ?? undefined,
      leftOut: list.left_out ?? [],
      tools: list.tools.map(({ input_schema: inputSchema, output_schema: outputSchema, title, ...rest }) => ({
        ...rest,
        title,
        // Both came as JSON
        inputSchema: inputSchema as JsonObject,
        outputSchema: outputSchema as JsonObject | undefined,
      })),
    },
    // The facts were written by this class, and are shown, never acted on
    facts: about === null ? undefined : { capabilities: {}, ...about } as ServerFacts,
  };
}
