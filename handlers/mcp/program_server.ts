import type {
  CompleteRequest,
  CompleteResult,
  GetPromptRequest,
  GetPromptResult,
  ListPromptsResult,
  ReadResourceResult,
  Resource,
  ResourceTemplateType,
} from "@modelcontextprotocol/server";
import { CancelError } from "../../lib/base/cancel.ts";
import type { Services } from "../../lib/services.ts";
import type { OfferedResource, ProgramCompletion, ProgramPrompt } from "../../lib/tools/program_offers.ts";
import { type ProgramPart, toToolContent } from "../../lib/tools/program_result.ts";
import { checkWhole } from "../../lib/tools/runtime/check_whole.ts";
import { runBounded } from "../../lib/tools/runtime/run_call.ts";
import type { ToolContent } from "../../lib/tools/runtime/tool_call.ts";
import { invalidParams, type McpSdk } from "./mcp_errors.ts";

/** Time that a function of the program may take, in milliseconds. */
const LIMIT_MS = 60_000;
const MAX_MESSAGES = 256;
/** Suggestions of one completion. Source: MCP "Completion" */
const MAX_SUGGESTED = 100;

/** Prompts and resources of the program that mounts the gateway, for clients of MCP. What it gives is bounded, and secrets are masked. */
export class ProgramServer {
  readonly #sdk: McpSdk;
  readonly #services: Pick<Services, "offers" | "redactor" | "clock">;

  constructor(
    { sdk, services }: { readonly sdk: McpSdk; readonly services: Pick<Services, "offers" | "redactor" | "clock"> },
  ) {
    this.#sdk = sdk;
    this.#services = services;
  }

  prompts(): ListPromptsResult {
    const prompts = [...this.#services.offers.prompts].map(([name, { title, description, arguments: given = {} }]) => ({
      name,
      ...(title === undefined ? {} : { title }),
      ...(description === undefined ? {} : { description }),
      arguments: Object.entries(given).map(([argument, { description: about, required = false }]) => ({
        name: argument,
        required,
        ...(about === undefined ? {} : { description: about }),
      })),
    }));
    return { prompts };
  }

  /** Returns the messages of a prompt. @throws {ProtocolError} -32602 for an unknown prompt, and for arguments that are not its own */
  async prompt(
    { name, arguments: given = {} }: GetPromptRequest["params"],
    signal: AbortSignal,
  ): Promise<GetPromptResult> {
    const prompt = this.#promptOf(name);
    this.#checkArguments(name, prompt, given);
    const answer = await this.#run((limited) => prompt.get({ ...given }, { signal: limited }), signal);
    const messages = typeof answer === "string"
      ? [{ role: "user" as const, content: { type: "text", text: answer } as ProgramPart }]
      : answer.slice(0, MAX_MESSAGES);
    const parts = await this.#bound(toToolContent(messages.map(({ content }) => content)));
    const { description } = prompt;
    return {
      ...(description === undefined ? {} : { description }),
      // The parts were bounded one for one
      messages: messages.map(({ role }, index) => ({ role, content: parts[index] as ToolContent })),
    };
  }

  /** Returns the resources that have one address. */
  resources(): Resource[] {
    return this.#services.offers.resources.filter(({ isTemplate }) => !isTemplate)
      .map(({ uri, resource }) => ({ uri, ...aboutOf(resource) }));
  }

  templates(): ResourceTemplateType[] {
    return this.#services.offers.resources.filter(({ isTemplate }) => isTemplate)
      .map(({ uri, resource }) => ({ uriTemplate: uri, ...aboutOf(resource) }));
  }

  /** Reads a resource of the program; undefined for an address that none of them has. */
  async read(uri: string, signal: AbortSignal): Promise<ReadResourceResult | undefined> {
    for (const { resource, match } of this.#services.offers.resources) {
      const variables = match(uri);
      if (variables === undefined) continue;
      const content = await this.#run((limited) => resource.read(variables, { uri, signal: limited }), signal);
      if (content === undefined) return undefined;
      const { mimeType } = resource;
      const [part] = await this.#bound(toToolContent([{ type: "resource", uri, mimeType, content }]));
      if (part?.type === "resource") return { contents: [{ ...part.resource, uri }] };
      throw invalidParams(this.#sdk, `Cannot read this resource: ${part?.type === "text" ? part.text : ""}`, { uri });
    }
    return undefined;
  }

  /** Completes an argument of a prompt, or a variable of a template. @throws {ProtocolError} -32602 for an unknown one */
  async complete({ ref, argument }: CompleteRequest["params"], signal: AbortSignal): Promise<CompleteResult> {
    const complete = ref.type === "ref/prompt"
      ? this.#completionOf(this.#promptOf(ref.name), argument.name)
      : this.#templateOf(ref.uri).resource.complete?.[argument.name];
    if (complete === undefined) return { completion: { values: [], total: 0, hasMore: false } };
    const values = await this.#run((limited) => complete(argument.value, { signal: limited }), signal);
    const shown = values.slice(0, MAX_SUGGESTED).map((value) => this.#services.redactor.redact(String(value)));
    return { completion: { values: shown, total: values.length, hasMore: values.length > shown.length } };
  }

  #promptOf(name: string): ProgramPrompt {
    const prompt = this.#services.offers.prompts.get(name);
    if (prompt !== undefined) return prompt;
    throw invalidParams(this.#sdk, "Cannot find this prompt: prompts/list shows those that exist", { name });
  }

  #completionOf({ arguments: known = {} }: ProgramPrompt, name: string): ProgramCompletion | undefined {
    if (Object.hasOwn(known, name)) return known[name]?.complete;
    throw invalidParams(this.#sdk, "Cannot complete this argument: the prompt has no such one", { name });
  }

  #templateOf(uri: string): OfferedResource {
    const offered = this.#services.offers.resources.find((one) => one.uri === uri);
    if (offered !== undefined) return offered;
    throw invalidParams(this.#sdk, "Cannot find this template: resources/templates/list shows those that exist", {
      uri,
    });
  }

  #checkArguments(
    name: string,
    { arguments: known = {} }: ProgramPrompt,
    given: Readonly<Record<string, string>>,
  ): void {
    const unknown = Object.keys(given).find((argument) => !Object.hasOwn(known, argument));
    const missing = Object.entries(known).find(([argument, { required }]) =>
      required === true && !Object.hasOwn(given, argument)
    );
    if (unknown === undefined && missing === undefined) return;
    const reason = missing === undefined
      ? "it has an argument that the prompt does not know"
      : `"${missing[0]}" is missing`;
    throw invalidParams(this.#sdk, `Cannot get the prompt "${name}": ${reason}`);
  }

  async #bound(content: readonly ToolContent[]): Promise<readonly ToolContent[]> {
    return (await checkWhole({ content }, this.#services.redactor)).content;
  }

  /** Runs a function of the program under a time limit. */
  async #run<T>(work: (signal: AbortSignal) => T | Promise<T>, signal: AbortSignal): Promise<T> {
    const { clock } = this.#services;
    const ending = await runBounded(async (limited) => await work(limited), { clock, timeoutMs: LIMIT_MS, signal });
    if (ending.kind === "done") return ending.value;
    if (ending.kind === "failed" || signal.aborted) throw ending.error;
    throw new CancelError("timeout");
  }
}

function aboutOf({ name, title, description, mimeType }: OfferedResource["resource"]) {
  return {
    name,
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(mimeType === undefined ? {} : { mimeType }),
  };
}
