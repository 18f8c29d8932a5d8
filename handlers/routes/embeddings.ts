import { Buffer } from "node:buffer";
import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { isPlainModel, plainModelOf } from "../../lib/providers/models/model_names.ts";
import { HINT_PREFIX, resolveHint } from "../../lib/providers/models/routing.ts";
import type { Embeddings, EmbedRequest, ResolvedModel } from "../../lib/providers/provider.ts";
import type { Services } from "../../lib/services.ts";
import { defineRoute } from "../define_route.ts";
import { requireAgent } from "../wire/agent_runs.ts";
import { jsonReply } from "../wire/reply.ts";

/** Inputs of one request. Source: https://platform.openai.com/docs/api-reference/embeddings */
const MAX_INPUTS = 2_048;
/** Characters of a model's name */
const MAX_NAME = 256;

const token = v.pipe(v.number(), v.integer(), v.minValue(0));
const inputSchema = v.pipe(
  v.union([v.string(), v.array(v.union([v.string(), token, v.array(token)]))]),
  v.check((given) => isInput(given), `It takes a text, a list of tokens, or a list of 1 to ${MAX_INPUTS} of either`),
);

const embeddingsSchema = v.looseObject({
  /** A name of `GET /v1/models`, or `hint:<name>` for one of `[[embedding_routes]]` */
  model: v.pipe(v.string(), v.minLength(1), v.maxLength(MAX_NAME)),
  /** A text, a list of tokens, or up to 2,048 of either */
  input: inputSchema,
  encoding_format: v.optional(v.picklist(["float", "base64"])),
  dimensions: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
});

const embeddingsReplySchema = v.object({
  object: v.literal("list"),
  data: v.array(v.object({
    object: v.literal("embedding"),
    index: v.number(),
    /** Numbers, or their 32-bit floats in little-endian order as base64 */
    embedding: v.union([v.array(v.number()), v.string()]),
  })),
  model: v.string(),
  /** Absent where the provider does not count */
  usage: v.optional(v.object({ prompt_tokens: v.number(), total_tokens: v.number() })),
});

/** POST /v1/embeddings: vectors of texts, by the provider that serves the model (docs/design/providers.md "Embeddings"). */
export const embeddingsRoute = defineRoute({
  method: "POST",
  path: "/v1/embeddings",
  access: "chat",
  needs: ["agent", "config"],
  summary: "Vectors of texts, from a provider that has an embedding model",
  body: embeddingsSchema,
  reply: { status: 200, type: "application/json", schema: embeddingsReplySchema },
  errors: [
    "agent_unavailable",
    "shutting_down",
    "halted",
    "rate_limited",
    "model_not_found",
    "provider_error",
    "provider_timeout",
    "payload_too_large",
    422,
  ],
  // Vectors are the same each time, and nothing is kept of them
  idempotency: "harmless",
  async handle(parts, { body, signal }) {
    const { model: name, input: given, encoding_format: encoding, dimensions, ...passed } = body;
    const { runs } = requireAgent(parts);
    const { provider, model, shown = name } = embeddingModel(parts, name);
    const { embed } = provider;
    if (embed === undefined) throw withoutEmbeddings(provider.name);
    const input = toInputs(given) ?? [];
    const request = { model, input, passed, dimensions };
    const { vectors, tokens, ignored } = await runs.spend(mostTokens(input), signal, () => embed(request, signal));
    const data = vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: encoding === "base64" ? toBase64(vector) : [...vector],
    }));
    const usage = tokens === undefined ? {} : { usage: { prompt_tokens: tokens, total_tokens: tokens } };
    return { ...jsonReply(200, { object: "list", data, model: shown, ...usage }), ignored };
  },
});

function embeddingModel(parts: Pick<Services, "agent" | "config">, name: string): ResolvedModel {
  const { providers } = requireAgent(parts);
  if (name.startsWith(HINT_PREFIX)) {
    return resolveHint(providers, parts.config().embedding_routes, name.slice(HINT_PREFIX.length));
  }
  return providers.resolve(isPlainModel(name) ? plainModelOf(name) : name);
}

function withoutEmbeddings(provider: string) {
  return refuse(
    "model_not_found",
    `Cannot embed with "${provider}": it has no embeddings; name a model of a provider that has, such as "ollama/nomic-embed-text"`,
    { param: "model" },
  );
}

type Given = string | readonly (string | number | readonly number[])[];

function isInput(given: Given): boolean {
  const inputs = toInputs(given);
  return inputs !== undefined && inputs.length <= MAX_INPUTS &&
    inputs.every((one) => typeof one === "string" || one.length > 0);
}

/** Returns the inputs of a request; undefined for none, and for a list of unlike ones. */
function toInputs(given: Given): EmbedRequest["input"] | undefined {
  if (typeof given === "string") return [given];
  if (given.length === 0) return undefined;
  if (given.every((one) => typeof one === "number")) return [given];
  if (given.every((one) => typeof one === "string")) return given;
  return given.every((one) => typeof one === "object") ? given : undefined;
}

/** Returns the most tokens that inputs can be: no token is shorter than a byte. */
function mostTokens(input: EmbedRequest["input"]): number {
  return input.reduce((sum: number, one) => sum + (typeof one === "string" ? Buffer.byteLength(one) : one.length), 0);
}

function toBase64(vector: Embeddings["vectors"][number]): string {
  const bytes = Buffer.alloc(vector.length * 4);
  vector.forEach((number, index) => bytes.writeFloatLE(number, index * 4));
  return bytes.toString("base64");
}
