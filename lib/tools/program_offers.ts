import { CLIENT_ABILITIES } from "../base/records/tool_info.ts";
import { ConfigError } from "../base/errors.ts";
import type { ProgramAbility, ProgramQuestions } from "./program_questions.ts";
import type { ProgramPart } from "./program_result.ts";

/** Message of a prompt. */
export interface ProgramPromptMessage {
  /** Speaker of the message */
  readonly role: "user" | "assistant";
  /** Part of the message: text, picture, sound or resource */
  readonly content: ProgramPart;
}

/** Function that completes a value that somebody types. 100 values are shown at most. */
export type ProgramCompletion = (
  typed: string,
  call: { readonly signal: AbortSignal },
) => readonly string[] | Promise<readonly string[]>;

/** Argument of a prompt. */
export interface ProgramPromptArgument {
  /** Text for people who fill it in. Default: none */
  readonly description?: string;
  /** Default false */
  readonly required?: boolean;
  /** Completes a value. Default: nothing is suggested */
  readonly complete?: ProgramCompletion;
}

/** The request for a prompt, which asks the client that wants the prompt. */
export interface ProgramPromptCall extends ProgramQuestions {
  /** Aborts when the client takes its request back, and after 60 s */
  readonly signal: AbortSignal;
}

/** Prompt of the program that mounts the gateway: people choose it in a client of MCP. */
export interface ProgramPrompt {
  /** Name for people. Default: the name of the prompt */
  readonly title?: string;
  /** Text for people who choose among prompts. Default: none */
  readonly description?: string;
  /** Arguments by their names. Default: none */
  readonly arguments?: Readonly<Record<string, ProgramPromptArgument>>;
  /** Kinds of questions that the client must answer. Default: none, and `can` says what is answered */
  readonly clientNeeds?: readonly ProgramAbility[];
  /** Returns the messages, or the text of the user's one. All required arguments are there, and no others than those above */
  readonly get: (
    given: Readonly<Record<string, string>>,
    call: ProgramPromptCall,
  ) => string | readonly ProgramPromptMessage[] | Promise<string | readonly ProgramPromptMessage[]>;
}

/** Resource of the program, or a template of resources, that clients of MCP may read. */
export interface ProgramResource {
  /** Name for programs and people */
  readonly name: string;
  /** Name for people in place of `name`. Default: none */
  readonly title?: string;
  /** Text about the content, for models and people. Default: none */
  readonly description?: string;
  /** Media type of the content, such as `text/plain`. Default: none is told */
  readonly mimeType?: string;
  /** Completes the variables of a template. Default: nothing is suggested */
  readonly complete?: Readonly<Record<string, ProgramCompletion>>;
  /** Returns the content; undefined where there is none. `variables` has those of the template, decoded */
  readonly read: (
    variables: Readonly<Record<string, string>>,
    call: { readonly uri: string; readonly signal: AbortSignal },
  ) => string | Uint8Array | undefined | Promise<string | Uint8Array | undefined>;
}

/** Resource with its address in a form that addresses are compared with. */
export interface OfferedResource {
  /** Address, or template with `{name}` for a part without a slash */
  readonly uri: string;
  readonly isTemplate: boolean;
  readonly resource: ProgramResource;
  /** Returns the variables of an address. undefined: it is no address of this resource */
  readonly match: (uri: string) => Readonly<Record<string, string>> | undefined;
}

/** Prompts and resources of the program. */
export interface ProgramOffers {
  readonly prompts: ReadonlyMap<string, ProgramPrompt>;
  readonly resources: readonly OfferedResource[];
}

const PROMPT_NAME = /^[A-Za-z0-9_.-]{1,128}$/;
const VARIABLE = /\{([A-Za-z_][A-Za-z0-9_]*)\}/g;
const MAX_URI = 2_048;
const MAX_OFFERS = 1_000;
/** Scheme of the gateway's own resources. */
const OWN_SCHEME = "postern:";

/** Returns the prompts and resources that a program gave, checked. @throws {ConfigError} `prompt_invalid`, `resource_invalid` */
export function toOffers({ prompts = {}, resources = {} }: {
  readonly prompts?: Readonly<Record<string, ProgramPrompt>> | undefined;
  readonly resources?: Readonly<Record<string, ProgramResource>> | undefined;
}): ProgramOffers {
  const given = entriesOf(prompts, "prompts");
  for (const [name, prompt] of given) checkPrompt(name, prompt);
  return {
    prompts: new Map(given),
    resources: entriesOf(resources, "resources").map(([uri, resource]) => toOffered(uri, resource)),
  };
}

function entriesOf<T>(table: Readonly<Record<string, T>>, option: "prompts" | "resources"): [string, T][] {
  const code = option === "prompts" ? "prompt_invalid" : "resource_invalid";
  if (typeof table !== "object" || table === null || Array.isArray(table)) {
    throw new ConfigError(code, `Cannot use the option "${option}": it must be an object`);
  }
  const entries = Object.entries(table);
  if (entries.length > MAX_OFFERS) {
    throw new ConfigError(code, `Cannot use the option "${option}": it has over ${MAX_OFFERS} entries`);
  }
  return entries;
}

function checkPrompt(name: string, prompt: ProgramPrompt): void {
  const reason = !PROMPT_NAME.test(name)
    ? `its name must match ${PROMPT_NAME.source}`
    : typeof prompt?.get !== "function"
    ? "get must be a function"
    : !isNeeds(prompt.clientNeeds)
    ? `clientNeeds must be a list of ${CLIENT_ABILITIES.join(", ")}`
    : undefined;
  if (reason !== undefined) {
    throw new ConfigError("prompt_invalid", `Cannot offer the prompt ${JSON.stringify(name)}: ${reason}`);
  }
}

function isNeeds(needs: unknown): boolean {
  return needs === undefined || (Array.isArray(needs) && needs.every((need) => CLIENT_ABILITIES.includes(need)));
}

function toOffered(uri: string, resource: ProgramResource): OfferedResource {
  const plain = uri.replace(VARIABLE, "x");
  const address = uri.length <= MAX_URI && !/[{}]/.test(plain) ? URL.parse(plain) : null;
  const reason = address === null
    ? "its address must be a URI, where {name} stands for a part without a slash"
    : address.protocol === OWN_SCHEME
    ? `addresses that begin with "${OWN_SCHEME}" are the gateway's own`
    : typeof resource?.read !== "function" || typeof resource.name !== "string" || resource.name === ""
    ? "it needs a name, and read must be a function"
    : undefined;
  if (reason !== undefined) {
    throw new ConfigError("resource_invalid", `Cannot offer the resource ${JSON.stringify(uri)}: ${reason}`);
  }
  const names = [...uri.matchAll(VARIABLE)].map(([, name = ""]) => name);
  return { uri, isTemplate: names.length > 0, resource, match: createMatch(uri, names) };
}

function createMatch(uri: string, names: readonly string[]): OfferedResource["match"] {
  if (names.length === 0) return (asked) => (asked === uri ? {} : undefined);
  const parts = uri.split(/\{[A-Za-z_][A-Za-z0-9_]*\}/);
  return (asked) => {
    const found = asked.length > MAX_URI ? undefined : valuesIn(asked, parts);
    if (found === undefined) return undefined;
    try {
      return Object.fromEntries(names.map((name, index) => [name, decodeURIComponent(found[index] ?? "")]));
    } catch {
      return undefined; // a wrong escape
    }
  };
}

/**
 * Returns the texts between parts: each as short as it can be from the last one on, not empty, without a slash. Undefined where the parts do
 * not stand there. Takes linear time, since a client chooses the address: a pattern tries all ways to part it.
 */
function valuesIn(asked: string, [first = "", ...parts]: readonly string[]): readonly string[] | undefined {
  const values: string[] = [];
  let end = asked.length;
  for (const [index, part] of [...parts.entries()].reverse()) {
    // The last part ends the address, and the value behind any other one has a character at least
    const at = index === parts.length - 1 ? end - part.length : asked.lastIndexOf(part, end - 1 - part.length);
    if (at < first.length || !asked.startsWith(part, at)) return undefined;
    if (index < parts.length - 1) values.unshift(asked.slice(at + part.length, end));
    end = at;
  }
  values.unshift(asked.slice(first.length, end));
  const isWhole = asked.startsWith(first) && values.every((value) => value !== "" && !value.includes("/"));
  return isWhole ? values : undefined;
}
