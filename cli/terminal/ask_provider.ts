import { systemClock } from "../../lib/base/clock.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import { discoverLocalServers, type LocalServer } from "../../lib/providers/discovery/local_servers.ts";
import { createProviderMemory } from "../../lib/providers/discovery/provider_memory.ts";
import { createServerOwners } from "../../lib/providers/discovery/server_owner.ts";
import { firstChatModel } from "../../lib/providers/models/model_list.ts";
import { VENDORS } from "../../lib/providers/provider_settings.ts";
import { createProviderClients } from "../../lib/system/net/provider_client.ts";
import type { CliIo } from "../command.ts";
import { providerName, type TriedProvider, tryProvider, VENDOR_NAMES } from "../doctor/check_provider.ts";
import type { ProviderChoice } from "../starter_config.ts";
import { askLine, choose, MAX_TRIES, type Read } from "./ask_choices.ts";
import { printable, printableLine } from "./terminal_text.ts";

/** Choice of a provider, with a key that is not stored yet. */
export interface AskedProvider extends ProviderChoice {
  readonly key?: string | undefined;
}

/** Kinds that are chosen by their number, from 2 on */
const KINDS = Object.keys(VENDOR_NAMES);
/** Kinds that are chosen by their name alone. */
const NAMED_KINDS = ["auto", "offline", "none", "ollama"];
/** Models that a list shows. Further ones are chosen by their names */
const MAX_SHOWN = 9;

/**
 * Asks which provider, for its key where it needs one, and which of its models. Each key is tried, and none is shown.
 * @param empty meaning of an empty answer, for the person
 */
export async function askProvider(io: CliIo, empty: string): Promise<AskedProvider | undefined> {
  const memory = createProviderMemory();
  const { servers } = await discoverLocalServers({
    net: createProviderClients({ clock: systemClock }),
    clock: systemClock,
    env: io.env,
    ownerOf: createServerOwners({ localUsers: () => defaultConfig().provider.local_users, memory }),
  });
  const shown = servers.map(({ software, baseUrl, models }, index) =>
    `\n  ${index + 5}  ${software} at ${printableLine(baseUrl)}: ${shortList(models, 3)}`
  );
  const question = `Which model?
  1  whichever is there: a key, a local server, else the offline assistant
  2  OpenAI
  3  Anthropic
  4  OpenRouter${shown.join("")}
  or the address of another server, such as http://127.0.0.1:8000/v1
  Empty: ${empty}`;
  const chosen = await choose(io, {
    question,
    read: (answer) => answer === "" ? { value: undefined } : readProvider(answer, servers),
  });
  if (chosen === undefined || NAMED_KINDS.slice(0, 3).includes(chosen.kind)) return chosen;
  const models = servers.find(({ baseUrl }) => baseUrl === chosen.baseUrl)?.models;
  if (models === undefined) return await askKey(io, chosen);
  return await askModel(io, chosen, { models, usual: firstChatModel(models.map((id) => ({ id }))) });
}

/** Reads a provider: the number of a question, a kind, or an address. @param servers those that have numbers. Default: none */
export function readProvider(answer: string, servers: readonly LocalServer[] = []): Read<ProviderChoice> {
  const number = Number(answer);
  if (number === 1) return { value: { kind: "auto" } };
  const named = answer.toLowerCase();
  const kind = KINDS[number - 2] ?? [...KINDS, ...NAMED_KINDS].find((name) => name === named);
  if (kind !== undefined) return { value: { kind } };
  const server = servers[number - 5];
  if (server !== undefined) return { value: { kind: server.kind, baseUrl: server.baseUrl } };
  const url = answer.includes("://") ? URL.parse(answer) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    return { wrong: `"${answer}" is neither one of ${[...KINDS, ...NAMED_KINDS].join(", ")} nor an address` };
  }
  if (url.username !== "" || url.password !== "") {
    return { wrong: "An address with a user name or password in it is not taken" };
  }
  return { value: { kind: "openai_compatible", baseUrl: answer } };
}

/** Tries the provider with what is there, and asks for a key until one is not refused or none is given. */
async function askKey(io: CliIo, chosen: ProviderChoice): Promise<AskedProvider> {
  const variable = VENDORS[chosen.kind]?.keyEnv;
  const without = variable === undefined ? "it needs none" : `it comes from ${variable} at each start`;
  const isNeeded = variable !== undefined && (io.env[variable] ?? "") === "";
  let tried = isNeeded ? undefined : await tryProvider(chosen, io.env);
  let key: string | undefined;
  for (let attempt = 0; tried === undefined || "refused" in tried; attempt++) {
    if (attempt === MAX_TRIES) return chosen;
    if (tried !== undefined && (attempt > 0 || variable !== undefined)) io.stderr(`${printable(tried.refused)}\n`);
    const question = `\nKey of ${providerName(chosen)} (it is not shown; empty: ${without})\n> `;
    key = await askLine(io, question, { isHidden: true });
    if (key === "") return chosen;
    tried = /[^!-~]/.test(key)
      ? { refused: "A key has no blanks and only ASCII" }
      : await tryProvider(chosen, io.env, key);
  }
  io.stderr(`${answered(chosen, tried)}\n`);
  return { ...await askModel(io, chosen, tried), key };
}

/** Says what a try has shown that was not refused. */
export function answered(chosen: ProviderChoice, tried: Exclude<TriedProvider, { readonly refused: string }>): string {
  const name = providerName(chosen);
  if ("unreached" in tried) return `${name} could not be tried: ${printable(tried.unreached)}`;
  const note = chosen.kind === "openrouter" ? ", which it lists without a key too: its first reply tries the key" : "";
  return `${name} answers with models: ${tried.models.length}${note}`;
}

async function askModel(io: CliIo, chosen: ProviderChoice, tried: TriedProvider): Promise<ProviderChoice> {
  if (!("models" in tried) || tried.models.length < 2) return chosen;
  const { models, usual = "the first one" } = tried;
  const listed = models.length > MAX_SHOWN ? [] : models;
  const lines = listed.map((id, index) => `\n  ${index + 1}  ${printableLine(id)}`);
  const names = listed.length > 0 ? "" : `\n  Its name: ${shortList(models, MAX_SHOWN)}`;
  const model = await choose(io, {
    question: `\nWhich of its models?${lines.join("")}${names}\n  Empty: ${printableLine(usual)}`,
    read(answer): Read<string> {
      const named = listed[Number(answer) - 1] ?? models.find((id) => id === answer);
      return answer === "" || named !== undefined ? { value: named } : { wrong: `"${answer}" is none of its models` };
    },
  });
  return { ...chosen, model };
}

function shortList(names: readonly string[], count: number): string {
  const more = names.length > count ? `, and ${names.length - count} more` : "";
  return `${names.slice(0, count).map(printableLine).join(", ")}${more}`;
}
