import * as v from "valibot";
import { isAbsolute } from "node:path";
import { canonicalJson, isRecord } from "../../../base/json.ts";
import { environmentSecrets, maskSecrets } from "../../../config/secrets.ts";
import { transportNotSpoken } from "../old_transport.ts";
import { floatingWarning } from "./floating_command.ts";
import { isServerName, suggestServerName } from "./package_spec.ts";

/** Place of a value that looks like a secret, such as `API_KEY` of `env`. */
export interface ImportedSecret {
  readonly table: "env" | "headers";
  readonly key: string;
}

/** Server of another program, as it would be entered. */
export interface ImportedServer {
  /** Name in the other program */
  readonly from: string;
  /** Name here */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Address of a server that runs already; empty for a program */
  readonly url: string;
  readonly env: Readonly<Record<string, string>>;
  readonly headers: Readonly<Record<string, string>>;
  /** Values of `env` and `headers` that look like secrets */
  readonly secrets: readonly ImportedSecret[];
  /** Facts that the person should know, each as a sentence without secrets */
  readonly warnings: readonly string[];
}

/** Server of another program that is not taken. */
export interface UntakenServer {
  readonly from: string;
  readonly reason: string;
}

/** Servers of one configuration file. */
export interface ImportedServers {
  readonly taken: readonly ImportedServer[];
  readonly refused: readonly UntakenServer[];
}

const MAX_SERVERS = 100;
const MAX_TEXT = 65_536;
const texts = v.record(v.string(), v.pipe(v.union([v.string(), v.number(), v.boolean()]), v.transform(String)));

/** Source: the documentation of Claude Desktop, Cursor and VS Code: the same fields, of which each program knows some */
const entrySchema = v.looseObject({
  type: v.optional(v.string()),
  transport: v.optional(v.string()),
  command: v.optional(v.pipe(v.string(), v.maxLength(MAX_TEXT))),
  args: v.optional(v.pipe(v.array(v.pipe(v.string(), v.maxLength(MAX_TEXT))), v.maxLength(1000)), []),
  env: v.optional(texts, {}),
  envFile: v.optional(v.string()),
  cwd: v.optional(v.string()),
  url: v.optional(v.pipe(v.string(), v.maxLength(MAX_TEXT))),
  serverUrl: v.optional(v.pipe(v.string(), v.maxLength(MAX_TEXT))),
  headers: v.optional(texts, {}),
  disabled: v.optional(v.boolean()),
});

type Entry = v.InferOutput<typeof entrySchema>;

const NAME_OF_SECRET = /(?:token|secret|passw|credential|api_?key|access_?key|private_?key|auth|_pat$|_key$)/i;
/** Forms of the keys of well-known services, whatever the variable is called. */
const VALUE_OF_SECRET =
  /^(?:Bearer\s|Basic\s|sk-|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|AKIA|AIza|npm_|pypi-|hf_|eyJ[\w-]+\.)/;
const VARIABLE = /\$\{[^{}]*\}/;

/**
 * Reads the servers of a configuration file of Claude Desktop, Cursor or VS Code: JSON, with comments and trailing commas as VS Code takes
 * them. An entry that cannot be taken is among `refused` with the reason.
 * @param taken names that are in use here
 * @throws {Error} the text is no such configuration; with the reason
 */
export function readServers(text: string, taken: ReadonlySet<string>): ImportedServers {
  const entries = serversOf(parseLoose(text));
  if (entries.length > MAX_SERVERS) throw new Error(`it has more than ${MAX_SERVERS} servers`);
  const names = new Set(taken);
  const result: { taken: ImportedServer[]; refused: UntakenServer[] } = { taken: [], refused: [] };
  for (const [from, value] of entries) {
    const name = isServerName(from) ? from : suggestServerName(from);
    const read = name === undefined
      ? "its name has no letter or digit"
      : names.has(name)
      ? `there is a [mcp.servers.${name}] already; remove it first, or change the name there`
      : readEntry(from, name, value);
    if (typeof read === "string") {
      result.refused.push({ from, reason: read });
      continue;
    }
    names.add(read.name);
    result.taken.push(read);
  }
  return result;
}

/** @returns the reason why it cannot be taken, or the server */
function readEntry(from: string, name: string, value: unknown): ImportedServer | string {
  const parsed = v.safeParse(entrySchema, value);
  if (!parsed.success) {
    const path = v.getDotPath(parsed.issues[0]);
    return path === null ? "it is no table" : `its "${path}" is not what a server has there`;
  }
  const entry = parsed.output;
  if (entry.disabled === true) return "it is turned off there";
  const variable = variableOf(entry);
  if (variable !== undefined) {
    return `it uses ${variable}, which the other program fills in; write the value there, or add the server by hand`;
  }
  if (entry.envFile !== undefined) return "it has an envFile, which Postern does not read; add its variables to env";
  if (entry.cwd !== undefined) {
    return "it has a cwd, and a server here runs in a folder of its own; give absolute paths as arguments";
  }
  return readKind(entry, { from, name });
}

function readKind(
  entry: Entry,
  { from, name }: { readonly from: string; readonly name: string },
): ImportedServer | string {
  const { command = "", args, env, headers } = entry;
  const url = entry.url ?? entry.serverUrl ?? "";
  const type = (entry.type ?? entry.transport ?? "").toLowerCase();
  if ((command === "") === (url === "")) return "it must have either a command or a url";
  const common = { from, name, command, args, url, env, headers };
  if (command !== "") {
    if (!isAbsolute(command) && command.includes("/")) {
      return "its command is a path relative to a folder of the other program";
    }
    const floating = floatingWarning(name, { command, args });
    const isMasked = maskSecrets(args, ["args"]).some((shown, index) => shown !== args[index]);
    const inArguments =
      `[mcp.servers.${name}] has a secret in its arguments, which other programs of this machine can see; env hides it`;
    const found = [...floating === undefined ? [] : [floating], ...isMasked ? [inArguments] : []];
    const secrets = secretsOf("env", env);
    return {
      ...common,
      headers: {},
      secrets,
      warnings: [...renamed(from, name), ...found],
    };
  }
  if (type === "sse" || type === "ws" || type === "websocket") {
    return transportNotSpoken(type);
  }
  const address = URL.parse(url);
  if (address === null || !/^https?:$/.test(address.protocol)) return "its url is no http or https address";
  if (address.username !== "" || address.password !== "") {
    return "its url holds a user or a password; give them as headers";
  }
  const inAddress = address.search !== "" && environmentSecrets({ url }).length > 0;
  const warnings = [
    ...renamed(from, name),
    ...inAddress
      ? [`[mcp.servers.${name}] has a secret in its address; a header would keep it out of logs of others`]
      : [],
  ];
  return { ...common, args: [], env: {}, secrets: secretsOf("headers", headers), warnings };
}

function renamed(from: string, name: string): readonly string[] {
  return from === name ? [] : [`${JSON.stringify(from.slice(0, 64))} is called "${name}" here`];
}

function secretsOf(table: "env" | "headers", values: Readonly<Record<string, string>>): readonly ImportedSecret[] {
  return Object.entries(values).flatMap(([key, value]) =>
    value !== "" && (NAME_OF_SECRET.test(key) || VALUE_OF_SECRET.test(value)) ? [{ table, key }] : []
  );
}

/** Returns a placeholder as `${input:key}` that is in an entry. */
function variableOf({ command = "", args, env, url = "", serverUrl = "", headers }: Entry): string | undefined {
  for (const text of [command, url, serverUrl, ...args, ...Object.values(env), ...Object.values(headers)]) {
    const found = VARIABLE.exec(text)?.[0];
    // A secret may stand in the braces as a default
    if (found !== undefined) return /^\$\{[\w:]{1,64}\}$/.test(found) ? found : "a variable in ${...}";
  }
  return undefined;
}

/**
 * Returns the servers: `mcpServers` of Claude and Cursor, also those of the `projects` of Claude Code, each once; `servers` of VS Code,
 * `mcp.servers` of its settings.
 */
function serversOf(config: unknown): readonly (readonly [name: string, entry: unknown])[] {
  if (!isRecord(config)) throw new Error("it is no JSON object");
  const { mcp } = config;
  const inSettings = config["mcp.servers"] ?? (isRecord(mcp) ? mcp["servers"] : undefined);
  const found = config["mcpServers"] ?? config["servers"] ?? inSettings ?? {};
  if (!isRecord(found)) throw new Error("its servers are no table");
  const projects = isRecord(config["projects"]) ? Object.values(config["projects"]) : [];
  const ofProjects = projects.map((project) => isRecord(project) ? project["mcpServers"] : undefined).filter(isRecord);
  const all = [found, ...ofProjects].flatMap((table) => Object.entries(table));
  return [...new Map(all.map((entry) => [canonicalJson(entry), entry])).values()];
}

/** Parses JSON with comments and trailing commas. @throws {Error} without a part of the text, which may be a secret */
function parseLoose(text: string): unknown {
  const plain = text.replace(/^\uFEFF/, "").replace(
    /("(?:[^"\\\n]|\\.)*"?)|\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/g,
    (_whole, quoted: string | undefined) => quoted ?? " ",
  ).replace(/("(?:[^"\\\n]|\\.)*"?)|,(?=\s*[}\]])/g, (_whole, quoted: string | undefined) => quoted ?? "");
  try {
    return JSON.parse(plain);
  } catch {
    throw new Error("it is not valid JSON");
  }
}
