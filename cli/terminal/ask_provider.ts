import { systemClock } from "../../lib/base/clock.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import { discoverLocalServers, type LocalServer } from "../../lib/providers/discovery/local_servers.ts";
import { createProviderMemory } from "../../lib/providers/discovery/provider_memory.ts";
import { createServerOwners } from "../../lib/providers/discovery/server_owner.ts";
import { firstChatModel } from "../../lib/providers/models/model_list.ts";
import { VENDORS } from "../../lib/providers/provider_settings.ts";
import { createProviderClients } from "../../lib/system/net/provider_client.ts";
import type { CliIo } from "../command.ts";
import { providerName, type TriedProvider, tryProvider, VENDOR_NAMES } from "../doctor/try_provider.ts";
import type { ProviderChoice } from "../starter_config.ts";
import { askLine, choose, MAX_TRIES, type Read } from "./choose.ts";
import { printable, printableLine } from "./terminal_text.ts";

/** Choice of a provider, with a key that is not stored yet. */
export interface AskedProvider extends ProviderChoice {
  readonly key?: string | undefined;
}

/** Kinds that are chosen by their number, from 2 on */
const KINDS = Object.keys(VENDOR_NAMES);
/** Kinds that need neither an address nor a key. */
const PLAIN_KINDS = ["auto", "offline", "none"];
/** Models that a list shows. Further ones are chosen by their names */
const MAX_SHOWN = 9;

/**
 * Asks which provider, for its key where it needs one, and which of its models. Each key is tried, and none is shown.
 * @param empty meaning of an empty answer, for the person
 */
export async function askProvider(io: CliIo, empty: string): Promise<AskedProvider | undefined> {
  const servers = await findServers(io);
  const shown = servers.map(({ software, baseUrl, models }, index) =>
    `\n  ${index + 5}  ${software} at ${printableLine(baseUrl)}: ${shortList(models, 3)}`
  );
  const question = `Which model?
  1  whichever is there: a key in the environment, a local server, else the offline assistant
  2  OpenAI
  3  Anthropic
  4  OpenRouter${shown.join("")}
  or the address of another server, such as http://127.0.0.1:8000/v1
  Empty: ${empty}`;
  const chosen = await choose(io, {
    question,
    read: (answer) => answer === "" ? { value: undefined } : readProvider(answer, servers),
  });
  if (chosen === undefined || PLAIN_KINDS.includes(chosen.kind)) return chosen;
  const server = servers.find(({ baseUrl }) => baseUrl === chosen.baseUrl);
  return server === undefined
    ? await askKey(io, chosen)
    : await askModel(io, chosen, { models: server.models, usual: firstChatModel(server.models.map((id) => ({ id }))) });
}

async function findServers({ env }: CliIo): Promise<readonly LocalServer[]> {
  const { servers } = await discoverLocalServers({
    net: createProviderClients({ clock: systemClock }),
    clock: systemClock,
    env,
    ownerOf: createServerOwners({
      localUsers: () => defaultConfig().provider.local_users,
      memory: createProviderMemory(),
    }),
  });
  return servers;
}

/** Reads a provider: the number of a question, a kind, or an address. @param servers those that have numbers. Default: none */
export function readProvider(answer: string, servers: readonly LocalServer[] = []): Read<ProviderChoice> {
  const number = Number(answer);
  if (number === 1) return { value: { kind: "auto" } };
  const named = answer.toLowerCase();
  const kind = KINDS[number - 2] ?? [...KINDS, ...PLAIN_KINDS, "ollama"].find((name) => name === named);
  if (kind !== undefined) return { value: { kind } };
  const server = servers[number - 5];
  if (server !== undefined) return { value: { kind: server.kind, baseUrl: server.baseUrl } };
  const url = answer.includes("://") ? URL.parse(answer) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    return { wrong: `"${answer}" is neither one of ${[...KINDS, ...PLAIN_KINDS, "ollama"].join(", ")} nor an address` };
  }
  if (url.username !== "" || url.password !== "") {
    return { wrong: "An address with a user name or password in it is not taken" };
  }
  return { value: { kind: "openai_compatible", baseUrl: answer } };
}

/** Tries the provider with what is there, and asks for a key until one works or none is given. */
async function askKey(io: CliIo, chosen: ProviderChoice): Promise<AskedProvider> {
  const name = providerName(chosen);
  const variable = VENDORS[chosen.kind]?.keyEnv;
  const isThere = variable === undefined || (io.env[variable] ?? "") !== "";
  let key: string | undefined;
  for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
    if (attempt > 0 || !isThere) {
      const without = variable === undefined ? "it needs none" : `it comes from ${variable} at each start`;
      key = await askLine(io, `\nKey of ${name} (it is not shown; empty: ${without})\n> `, { isHidden: true });
      if (key === "") return chosen;
      if (/[^!-~]/.test(key)) {
        io.stderr("A key has no blanks and no signs that are not on every keyboard\n");
        continue;
      }
    }
    const tried = await tryProvider(chosen, { env: io.env, key });
    if (tried.kind === "refused") {
      if (attempt > 0 || variable !== undefined) io.stderr(`${printable(tried.reason)}\n`);
      continue;
    }
    io.stderr(`${answered(chosen, tried)}\n`);
    return {
      ...await askModel(
        io,
        chosen,
        tried.kind === "answers" ? { models: tried.models, usual: tried.model } : undefined,
      ),
      key,
    };
  }
  return chosen;
}

/** Says what a try has shown. */
export function answered(chosen: ProviderChoice, tried: TriedProvider): string {
  const name = providerName(chosen);
  if (tried.kind !== "answers") return `${name} could not be tried: ${printable(tried.reason)}`;
  const note = chosen.kind === "openrouter"
    ? "; it lists them to everybody, so that its first answer tries the key"
    : "";
  return `${name} answers; models: ${tried.models.length}${note}`;
}

async function askModel(
  io: CliIo,
  chosen: ProviderChoice,
  found: { readonly models: readonly string[]; readonly usual: string | undefined } | undefined,
): Promise<ProviderChoice> {
  if (found === undefined || found.models.length < 2) return chosen;
  const { models, usual } = found;
  const listed = models.length > MAX_SHOWN ? [] : models;
  const lines = listed.map((id, index) => `\n  ${index + 1}  ${printableLine(id)}`);
  const names = listed.length > 0 ? "" : `\n  Its name: ${shortList(models, MAX_SHOWN)}`;
  const model = await choose(io, {
    question: `\nWhich of its models?${lines.join("")}${names}\n  Empty: ${printableLine(usual ?? "the first one")}`,
    read(answer): Read<string> {
      if (answer === "") return { value: undefined };
      const named = listed[Number(answer) - 1] ?? models.find((id) => id === answer);
      return named === undefined ? { wrong: `"${answer}" is none of its models` } : { value: named };
    },
  });
  return { ...chosen, model };
}

function shortList(names: readonly string[], count: number): string {
  const more = names.length > count ? `, and ${names.length - count} more` : "";
  return `${names.slice(0, count).map(printableLine).join(", ")}${more}`;
}
