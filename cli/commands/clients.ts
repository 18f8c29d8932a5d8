import { readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { writeAtomically } from "../../lib/base/durable_files.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { lineDifference } from "../../lib/base/line_difference.ts";
import { VERSION } from "../../lib/base/version.ts";
import { createGatewayClient } from "../../lib/system/net/gateway_client.ts";
import { type Client, CLIENTS, type GatewayFacts } from "../clients/client_table.ts";
import { enterBlock } from "../clients/enter_block.ts";
import { type CommandContext, CommandError, defineCliCommand, UsageError } from "../command.ts";
import { whileNobodyWrites } from "../configuration_lock.ts";
import { unlessChanged } from "../edit_configuration.ts";
import { callsBy, expectSuccess, type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { requireYes } from "../terminal/require_yes.ts";
import { printable } from "../terminal/terminal_text.ts";

const NAMES = Object.keys(CLIENTS).join(", ");

/** Command `postern clients <name>`: prints the block that points a client at this gateway, or writes it, with a token made for it. */
export const clientsCommand = defineCliCommand({
  args: {
    client: { type: "positional", required: true, description: `Client to connect: ${NAMES}` },
    write: {
      type: "boolean",
      default: false,
      description: "Write the block into the client's own file, after a question",
    },
    yes: { type: "boolean", default: false, description: "Write without a question" },
  },
  example: "postern clients opencode --write",
  async run(context, { client: name, write, yes }) {
    const client = Object.hasOwn(CLIENTS, name) ? CLIENTS[name] : undefined;
    if (client === undefined) throw new UsageError(`Cannot connect "${name}": the clients are ${NAMES}`);
    const path = client.file === undefined ? undefined : join(context.io.home, client.file);
    if (write && path === undefined) {
      throw new UsageError(`Cannot write for ${client.title}: it reads its environment; leave --write out`);
    }
    return await withGateway(context, async (gateway) => {
      const address = gateway.running?.record.address;
      if (address === undefined) {
        throw new CommandError(`Cannot connect ${client.title}: no gateway is running; start one with postern gateway`);
      }
      const models = await modelsOf(gateway);
      const target = write ? path : undefined;
      const before = target === undefined ? "" : await readOrEmpty(target);
      const enter = (token: string) => enterBlock(client.format, before, client.block({ address, models, token }));
      const shown = await enter(HIDDEN);
      const works = (token: string) => tryCalls(client, { address, models, token });
      const kept = await firstOf(tokensIn(before).filter((token) => !shown.includes(token)), works);
      const isSame = kept !== undefined && await enter(kept.token) === before;
      if (target !== undefined && !isSame) await showChange(context, { client, before, after: shown, target, yes });
      const { id, token } = kept === undefined ? await makeToken(gateway, client) : { id: null, token: kept.token };
      const finish = async () => {
        const tried = kept?.tried ?? await works(token);
        const text = await enter(token);
        if (target === undefined || isSame) return { tried, text };
        await whileNobodyWrites(context.loadOptions, async () => {
          unlessChanged({ path: target, before, after: text }, await readOrEmpty(target));
          // The file holds a token: it is closed to others. Where it is a link, the link stays
          await writeAtomically(await realpath(target).catch(() => target), text, { isPrivate: true });
        });
        return { tried, text };
      };
      const entered = await finish().catch(async (error: unknown) => {
        if (id !== null) await gateway.request({ method: "DELETE", path: `/v1/tokens/${id}` });
        throw error;
      });
      tell(context, { ...entered, client, target, isSame, path, id });
    });
  },
});

/** Stands for a token that is not shown, or not made yet. */
const HIDDEN = "pst_...";
const TOKEN = /pst_[\w-]{43}/g;

function tokensIn(text: string): readonly string[] {
  return [...new Set(text.match(TOKEN))];
}

/** Returns the first token that works, with what worked: a client that is written again keeps its token, so that no older one is left. */
async function firstOf(tokens: readonly string[], works: (token: string) => Promise<readonly string[]>) {
  for (const token of tokens) {
    const tried = await works(token).catch(() => undefined);
    if (tried !== undefined) return { token, tried };
  }
  return undefined;
}

interface Change {
  readonly client: Client;
  readonly before: string;
  readonly after: string;
  readonly target: string;
  readonly yes: boolean;
}

/** Shows what changes in the client's file, without a token, and asks. @throws {CommandError} the person did not say yes */
async function showChange(context: CommandContext, { client, before, after, target, yes }: Change): Promise<void> {
  context.say(
    `${target}\n${printable(lineDifference(before.replaceAll(TOKEN, HIDDEN), after.replaceAll(TOKEN, HIDDEN)))}`,
  );
  if (yes) return;
  await requireYes(context, `Write this, with a token for ${client.title}?`, {
    unasked: `Cannot write ${target}: nobody can be asked here; --yes writes it`,
    refused: "Nothing was written",
  });
}

async function makeToken(gateway: ReachedGateway, { title, scopes, plain }: Client) {
  return await gateway.call("POST /v1/tokens", { body: { label: title, scopes, plain } });
}

/** Tries one call for each thing that the client uses, with its own token. @returns what worked @throws {CommandError} a call was refused */
async function tryCalls({ scopes }: Client, { address, token, models }: GatewayFacts): Promise<readonly string[]> {
  const client = createGatewayClient({ address, token, clock: systemClock, timeoutMs: 10_000 });
  const call = callsBy(async (request) => expectSuccess(await client.request(request)));
  const worked: string[] = [];
  if (scopes.includes("chat")) {
    await call("GET /v1/models");
    worked.push(models.length === 1 ? "1 model" : `${models.length} models`);
  }
  if (scopes.includes("tools")) {
    const { data } = await call("GET /v1/tools");
    const params = {
      protocolVersion: "2025-06-18",
      capabilities: {},
      clientInfo: { name: "postern", version: VERSION },
    };
    const body = { jsonrpc: "2.0", id: 1, method: "initialize", params };
    const headers = { accept: "application/json, text/event-stream" };
    const { status, headers: given, body: reply } = await client.stream({
      method: "POST",
      path: "/mcp",
      body,
      headers,
    });
    await Array.fromAsync(reply);
    if (status >= 400) throw new CommandError(`Cannot speak MCP with the gateway: /mcp answered with status ${status}`);
    const session = given["mcp-session-id"];
    if (typeof session === "string") {
      await client.request({ method: "DELETE", path: "/mcp", headers: { "mcp-session-id": session } });
    }
    worked.push(`${data.filter(({ enabled }) => enabled).length} tools over MCP`);
  }
  return worked;
}

interface Told {
  readonly client: Client;
  readonly text: string;
  /** File that was written. Undefined: none was */
  readonly target: string | undefined;
  /** File that the block belongs into. Undefined: none */
  readonly path: string | undefined;
  /** True where the file was as it should be */
  readonly isSame: boolean;
  /** null: the token is the one that the file had */
  readonly id: string | null;
  readonly tried: readonly string[];
}

function tell(context: CommandContext, { client, text, target, isSame, path, id, tried }: Told): void {
  const data = {
    client: client.title,
    file: path ?? null,
    written: target !== undefined && !isSame,
    token_id: id,
    tried,
    notes: client.notes,
  };
  context.print(
    target === undefined ? { ...data, block: text } : data,
    target === undefined ? text : isSame ? `Nothing to change in ${target}` : `Wrote ${target}`,
  );
  if (context.flags.json) return;
  const place = target !== undefined || path === undefined ? [] : [`This belongs into ${path}; --write writes it.`];
  context.say([
    ...place,
    id === null
      ? `The token that the file has works: ${tried.join(", ")}; postern token list shows it`
      : `The token works: ${tried.join(", ")}. It ends with postern token remove ${id}`,
    ...client.notes,
  ].join("\n"));
}

async function modelsOf(gateway: ReachedGateway): Promise<GatewayFacts["models"]> {
  return (await gateway.call("GET /v1/models")).data;
}

async function readOrEmpty(path: string): Promise<string> {
  return await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return "";
    throw new CommandError(`Cannot read ${path}: ${error.code}`, { cause: error });
  });
}
