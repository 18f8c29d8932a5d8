import type { ClientAbility } from "../../lib/base/records/tool_info.ts";
import type {
  CompleteRequest,
  CompleteResult,
  GetPromptRequest,
  GetPromptResult,
  InputRequiredResult,
  ListPromptsResult,
  ReadResourceResult,
  Resource,
  ResourceTemplateType,
  ServerContext,
} from "@modelcontextprotocol/server";
import { CancelError } from "../../lib/base/cancel.ts";
import { ToolError } from "../../lib/base/errors.ts";
import type { Services } from "../../lib/services.ts";
import type { OfferedResource, ProgramCompletion, ProgramPrompt } from "../../lib/tools/program_offers.ts";
import { type ProgramPart, toToolContent } from "../../lib/tools/program_result.ts";
import { type AskingContext, toProgramQuestions } from "../../lib/tools/ask_caller.ts";
import { checkWhole } from "../../lib/tools/runtime/check_whole.ts";
import { runBounded } from "../../lib/tools/runtime/run_call.ts";
import type { TimeLimit } from "../../lib/tools/runtime/time_limit.ts";
import type { LogSeverity } from "../../lib/tools/runtime/tool_call.ts";
import type { ToolContent } from "../../lib/tools/runtime/tool_content.ts";
import { type CallState, missingCapabilities, requestDigest } from "./call_state.ts";
import type { CallParts } from "./call_tool.ts";
import { ClientQuestions } from "./client_questions.ts";
import type { HeldRequests } from "./held_requests.ts";
import type { ClientWay } from "./asking_work.ts";
import { auditOffer } from "./audit_offer.ts";
import { invalidParams, type McpSdk } from "./mcp_errors.ts";
import { mcpCallerOf, requestOf } from "./mcp_request.ts";

/** Time that a function of the program may take, in milliseconds. */
const LIMIT_MS = 60_000;
const MAX_MESSAGES = 256;
/** Questions of one prompt. */
const MAX_QUESTIONS = 16;
/** Suggestions of one completion. Source: MCP "Completion" */
const MAX_SUGGESTED = 100;

/** Client that asks for a prompt, and the kinds of questions that it answers. */
export interface AskingClient {
  readonly context: ServerContext;
  readonly can: ReadonlySet<ClientAbility>;
}

/** Prompt on its way to a client. */
interface AskedPrompt {
  readonly name: string;
  readonly given: Readonly<Record<string, string>>;
  readonly asking: AskingClient;
  readonly way: ClientWay;
}

/** Prompts and resources of the program that mounts the gateway, for clients of MCP. What it gives is bounded, and secrets are masked. */
export class ProgramServer {
  readonly #sdk: McpSdk;
  readonly #services: Services;
  readonly #held: HeldRequests;

  constructor({ sdk, services, held }: Pick<CallParts, "sdk" | "services" | "held">) {
    this.#sdk = sdk;
    this.#services = services;
    this.#held = held;
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

  /**
   * Returns the messages of a prompt, or what the prompt asks the client first.
   * @throws {ProtocolError} -32602 for an unknown prompt, and for arguments that are not its own; -32021 for a prompt that asks what the
   *   client does not answer
   */
  async prompt(
    params: GetPromptRequest["params"],
    asking: AskingClient,
  ): Promise<GetPromptResult | InputRequiredResult> {
    const { name, arguments: given = {} } = params;
    const { context, can } = asking;
    const state = context.mcpReq.requestState<CallState>();
    if (state !== undefined && "held" in state) {
      return await this.#held.resume<GetPromptResult>(state, { call: requestDigest(params), context });
    }
    const prompt = this.#promptOf(name);
    this.#checkArguments(name, prompt, given);
    const requiredCapabilities = missingCapabilities(prompt.clientNeeds, can);
    if (requiredCapabilities !== undefined) {
      throw new this.#sdk.MissingRequiredClientCapabilityError(
        { requiredCapabilities },
        `Cannot get the prompt "${name}": it asks the client, which does not declare ${
          JSON.stringify(requiredCapabilities)
        }`,
      );
    }
    return await this.#held.begin(context, {
      call: requestDigest(params),
      work: (way) =>
        auditOffer(
          { kind: "prompt", name, input: given, asked: requestOf(context) },
          this.#services,
          () => this.#get(prompt, { name, given, asking, way }),
        ),
    });
  }

  async #get(prompt: ProgramPrompt, { name, given, asking, way }: AskedPrompt): Promise<GetPromptResult> {
    const answer = await this.#run(
      (signal, limit) =>
        prompt.get({ ...given }, {
          signal,
          ...toProgramQuestions(this.#toAsking({ name, asking, way }, { signal, limit })),
        }),
      way.signal,
    );
    const messages = typeof answer === "string"
      ? [{ role: "user" as const, content: { type: "text", text: answer } satisfies ProgramPart }]
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

  /** Tells whether an address is one of the program's. */
  has(uri: string): boolean {
    return this.#services.offers.resources.some(({ match }) => match(uri) !== undefined);
  }

  /** Reads a resource of the program; undefined for an address that none of them has. */
  async read(uri: string, context: ServerContext): Promise<ReadResourceResult | undefined> {
    for (const offered of this.#services.offers.resources) {
      const variables = offered.match(uri);
      if (variables === undefined) continue;
      const { signal } = context.mcpReq;
      return await auditOffer(
        { kind: "resource", name: offered.uri, input: uri, asked: requestOf(context) },
        this.#services,
        () => this.#read(offered, { uri, variables, signal }),
      );
    }
    return undefined;
  }

  async #read(
    { resource }: OfferedResource,
    { uri, variables, signal }: {
      readonly uri: string;
      readonly variables: Readonly<Record<string, string>>;
      readonly signal: AbortSignal;
    },
  ): Promise<ReadResourceResult | undefined> {
    const content = await this.#run((limited) => resource.read(variables, { uri, signal: limited }), signal);
    if (content === undefined) return undefined;
    const { mimeType } = resource;
    const [part] = await this.#bound(toToolContent([{ type: "resource", uri, mimeType, content }]));
    if (part?.type === "resource") return { contents: [{ ...part.resource, uri }] };
    throw invalidParams(this.#sdk, `Cannot read this resource: ${part?.type === "text" ? part.text : ""}`, { uri });
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

  /** Returns the context by which a prompt asks. A prompt runs no tool, so no approval can stand for its question. */
  #toAsking(
    { name, asking: { context, can }, way }: Pick<AskedPrompt, "name" | "asking" | "way">,
    { signal, limit }: { readonly signal: AbortSignal; readonly limit: TimeLimit },
  ): AskingContext {
    const { redactor } = this.#services;
    const asked = requestOf(context);
    const place = { tool: `prompt ${name}`, requestId: asked.requestId, caller: mcpCallerOf(asked) };
    const client = new ClientQuestions({ can, way, place, services: this.#services });
    let count = 0;
    const ask = async <T>(work: () => Promise<T>): Promise<T> => {
      if (++count > MAX_QUESTIONS) {
        throw new ToolError("too_many_questions", `A prompt may ask ${MAX_QUESTIONS} questions`);
      }
      return await limit.pause(work);
    };
    const tell = (level: LogSeverity, message: string) =>
      void way.context()?.mcpReq.log(level, redactor.redact(message), name).catch(() => {});
    return {
      signal,
      redact: redactor.redact,
      tell,
      progress: (message) => tell("info", message),
      elicit: async (elicitation, options = {}) => {
        const kind = elicitation.url === null ? "form" : "url";
        if (!can.has(kind)) return { action: "cancel", reason: `the client does not answer questions by ${kind}` };
        return await ask(() => client.elicit(elicitation, { ...options, signal: options.signal ?? signal }));
      },
      client: {
        can,
        sample: (request, options) => ask(() => client.sample(request, options)),
        roots: (options) => ask(() => client.roots(options)),
      },
    };
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
  async #run<T>(work: (signal: AbortSignal, limit: TimeLimit) => T | Promise<T>, signal: AbortSignal): Promise<T> {
    const { clock } = this.#services;
    const ending = await runBounded(async (limited, limit) => await work(limited, limit), {
      clock,
      timeoutMs: LIMIT_MS,
      signal,
    });
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
