import { stat } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import { resolvePath } from "../../lib/config/folders.ts";
import { discoverLocalServers, type LocalServer } from "../../lib/providers/discovery/local_servers.ts";
import { createProviderMemory } from "../../lib/providers/discovery/provider_memory.ts";
import { createServerOwners } from "../../lib/providers/discovery/server_owner.ts";
import { INSTRUCTION_FILES } from "../../lib/system/files/forbidden_paths.ts";
import { createProviderClients } from "../../lib/system/net/provider_client.ts";
import { type CliIo, CommandError, UsageError } from "../command.ts";
import type { StarterChoices } from "../starter_config.ts";
import { isYes } from "./require_yes.ts";
import { printable } from "./terminal_text.ts";

/** Tries for one answer: a script may type anything. */
const MAX_TRIES = 5;

/**
 * Asks a person for the choices of a new configuration: which model, which folder, what the agent may change, and whether it follows the
 * AGENTS.md or its like that the folder has. An empty answer keeps the default.
 * @throws {UsageError} there is no terminal, or its input ended
 * @throws {CommandError} no answer could be used
 */
export async function askChoices(io: CliIo): Promise<StarterChoices> {
  const env = io.env;
  const { servers } = await discoverLocalServers({
    net: createProviderClients({ clock: systemClock }),
    clock: systemClock,
    env,
    ownerOf: createServerOwners({
      localUsers: () => defaultConfig().provider.local_users,
      memory: createProviderMemory(),
    }),
  });
  const provider = await choose(io, {
    question: providerQuestion(servers),
    read: (answer) => toProvider(answer, servers),
  });
  const workspace = await choose(io, { question: WORKSPACE, read: (answer) => toFolder(answer, io) });
  const changes = await choose(io, { question: CHANGES, read: toChanges });
  const file = await instructionsIn(workspace ?? io.cwd);
  return {
    ...{ provider, workspace, changes },
    instructions: file === undefined
      ? undefined
      : await choose(io, { question: instructionsQuestion(file), read: toInstructions }),
  };
}

/** Meaning of an answer, or the reason why it cannot be used. An undefined value keeps the default. */
type Read<T> = { readonly value: T | undefined } | { readonly wrong: string };

async function choose<T>(
  io: CliIo,
  { question, read }: { readonly question: string; readonly read: (answer: string) => Read<T> | Promise<Read<T>> },
): Promise<T | undefined> {
  for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
    const answer = await askLine(io, attempt === 0 ? `${question}\n> ` : "> ");
    const result = await read(answer);
    if ("value" in result) return result.value;
    io.stderr(`${printable(result.wrong)}\n`);
  }
  throw new CommandError(
    `Nothing was written: none of ${MAX_TRIES} answers could be taken; postern init --yes asks nothing`,
  );
}

/** Asks for a line. @throws {UsageError} there is no terminal, or its input ended */
export async function askLine(io: CliIo, question: string): Promise<string> {
  const answer = await io.ask(question);
  if (answer === undefined) {
    throw new UsageError(
      "Nothing was written: there is no terminal to ask, or no answer; say --yes to take the defaults",
    );
  }
  return answer.trim();
}

const KINDS = ["openai", "anthropic", "openrouter"] as const;

function providerQuestion(servers: readonly LocalServer[]): string {
  const found = servers.map(({ software, baseUrl }, index) => `\n  ${index + 5}  ${software} at ${printable(baseUrl)}`);
  return `Which model?
  1  whichever is there: a key in the environment, a server on this machine, else the offline assistant (default)
  2  OpenAI
  3  Anthropic
  4  OpenRouter${found.join("")}
  or the address of another server, such as http://127.0.0.1:8000/v1`;
}

function toProvider(answer: string, servers: readonly LocalServer[]): Read<NonNullable<StarterChoices["provider"]>> {
  if (answer === "" || answer === "1") return { value: undefined };
  const number = Number(answer);
  const kind = KINDS[number - 2] ?? KINDS.find((name) => name === answer.toLowerCase());
  if (kind !== undefined) return { value: { kind } };
  const server = servers[number - 5];
  if (server !== undefined) return { value: { kind: server.kind, baseUrl: server.baseUrl } };
  const url = answer.includes("://") ? URL.parse(answer) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    return { wrong: `"${answer}" is neither a number above nor an address` };
  }
  if (url.username !== "" || url.password !== "") {
    return { wrong: "An address with a user name or password in it is not taken" };
  }
  return { value: { kind: "openai_compatible", baseUrl: answer } };
}

const WORKSPACE = `
Which folder may the agent work in?
  Empty: the one the gateway is started in (default)`;

async function toFolder(answer: string, { cwd, home }: CliIo): Promise<Read<string>> {
  if (answer === "") return { value: undefined };
  const path = resolvePath(answer, cwd, home);
  const isFolder = await stat(path).then((found) => found.isDirectory(), () => false);
  return isFolder ? { value: path } : { wrong: `"${path}" is no folder` };
}

const CHANGES = `
What may the agent do?
  1  read files; before it runs a command (ls, pwd, cat, echo) it asks you (default)
  2  change files and use git too, and ask you each time
  3  all of that without asking`;

function toChanges(answer: string): Read<NonNullable<StarterChoices["changes"]>> {
  if (answer === "" || answer === "1") return { value: undefined };
  if (answer === "2") return { value: "ask" };
  return answer === "3" ? { value: "free" } : { wrong: `"${answer}" is none of 1, 2 and 3` };
}

/** Returns the name of the file in a folder that instructs agents. Undefined: there is none. */
async function instructionsIn(folder: string): Promise<string | undefined> {
  for (const name of INSTRUCTION_FILES) {
    if (await stat(join(folder, name)).then((found) => found.isFile(), () => false)) return name;
  }
  return undefined;
}

function instructionsQuestion(file: string): string {
  return `
Shall the agent follow ${file} of that folder, once you trust its content (postern instructions trust)?
  1  no (default)
  2  yes`;
}

function toInstructions(answer: string): Read<true> {
  if (answer === "" || answer === "1" || /^no?$/i.test(answer)) return { value: undefined };
  return answer === "2" || isYes(answer) ? { value: true } : { wrong: `"${answer}" is neither 1 nor 2` };
}
