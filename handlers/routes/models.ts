import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { isPlainModel, plainModelOf } from "../../lib/providers/models/model_names.ts";
import type { ModelEntry } from "../../lib/base/records/provider_event.ts";
import type { Services } from "../../lib/services.ts";
import { defineRoute } from "../define_route.ts";
import { countQuery, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

/** Models of one reply. */
const MAX_LISTED = 1000;

const modelSchema = v.object({
  id: v.string(),
  object: v.literal("model"),
  created: v.number(),
  owned_by: v.string(),
  /** Tokens of input and output together. Absent when the provider does not say */
  context_length: v.optional(v.number()),
  /** False when the model is shown no tools, since its chat template knows none. Absent when the provider does not say */
  supports_tools: v.optional(v.boolean()),
  /** Fields of Anthropic's form, for a client that sends `anthropic-version` */
  type: v.optional(v.literal("model")),
  display_name: v.optional(v.string()),
  created_at: v.optional(v.string()),
  max_input_tokens: v.optional(v.nullable(v.number())),
});

/** Header by which clients of Anthropic's SDK say that they expect its form. */
const VERSION_HEADER = {
  "anthropic-version": {
    description: "Adds the fields by which clients of Anthropic know models and pages, and gives errors their form",
    schema: { type: "string" },
  },
} as const;

/** GET /v1/models: what the configured providers really serve; an empty list without an agent. */
export const modelsRoute = defineRoute({
  method: "GET",
  path: "/v1/models",
  access: "chat",
  needs: ["agent"],
  steady: "models",
  summary: "Models of the configured providers",
  query: {
    limit: countQuery("Maximum number of models", { max: MAX_LISTED, usual: MAX_LISTED }),
    after_id: textQuery("Id of the model after which the list begins"),
    before_id: textQuery("Id of the model before which it ends"),
  },
  headers: VERSION_HEADER,
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({
      object: v.literal("list"),
      data: v.array(modelSchema),
      has_more: v.optional(v.boolean()),
      first_id: v.optional(v.nullable(v.string())),
      last_id: v.optional(v.nullable(v.string())),
    }),
  },
  async handle({ agent }, { signal, query, head }) {
    const all = await listModels(agent, signal);
    const { models, hasMore } = pageOf(all, query);
    if (!isAnthropic(head)) return jsonReply(200, { object: "list", data: models });
    const [first, last] = [models[0]?.id ?? null, models.at(-1)?.id ?? null];
    return jsonReply(200, {
      ...{ object: "list", data: models.map(withAnthropicFields) },
      ...{ has_more: hasMore, first_id: first, last_id: last },
    });
  },
});

function pageOf(
  all: readonly ModelEntry[],
  { limit, after_id: after, before_id: before }: {
    readonly limit: number;
    readonly after_id: string | undefined;
    readonly before_id: string | undefined;
  },
): { readonly models: readonly ModelEntry[]; readonly hasMore: boolean } {
  const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
  const end = before === undefined ? -1 : all.findIndex(({ id }) => id === before);
  const rest = all.slice(from, end < 0 ? undefined : end);
  // A page before a model is the one that ends at it
  const models = before === undefined ? rest.slice(0, limit) : rest.slice(-limit);
  return { models, hasMore: models.length < rest.length };
}

function isAnthropic({ headers }: Pick<Request, "headers">): boolean {
  return headers.has("anthropic-version");
}

function withAnthropicFields(model: ModelEntry) {
  return {
    ...model,
    type: "model",
    display_name: model.id,
    // The vendor says the epoch too where it does not know
    created_at: new Date(model.created * 1000).toISOString(),
    max_input_tokens: model.context_length ?? null,
  };
}

/**
 * GET /v1/models/:id; ids may hold slashes, encoded or not. `plain/<id>` is the model `<id>` under the name it was asked by: clients
 * look a model up under the name that they ask it by.
 */
export const modelRoute = defineRoute({
  method: "GET",
  path: "/v1/models/:id+",
  access: "chat",
  needs: ["agent"],
  steady: "models",
  summary: "One model",
  reply: { status: 200, type: "application/json", schema: modelSchema },
  errors: ["model_not_found"],
  headers: VERSION_HEADER,
  async handle({ agent }, { params: { id }, signal, head }) {
    const listed = isPlainModel(id) ? plainModelOf(id) : id;
    const model = (await listModels(agent, signal)).find((entry) => entry.id === listed);
    if (model === undefined) {
      throw refuse(
        "model_not_found",
        'Cannot find this model: "postern models" and GET /v1/models show those that exist',
        {
          param: "id",
        },
      );
    }
    const named = { ...model, id };
    return jsonReply(200, isAnthropic(head) ? withAnthropicFields(named) : named);
  },
});

const trustSchema = v.strictObject({
  /** Address of a model server on this machine, such as `127.0.0.1:11434` */
  address: v.pipe(v.string(), v.minLength(1), v.maxLength(256)),
});

const trustedSchema = v.object({
  origin: v.string(),
  /** User whose server it is: another user's at this address is not trusted. null where owners cannot be seen */
  uid: v.nullable(v.number()),
});

/** POST /v1/model-servers: for `postern models trust`. */
export const trustModelServerRoute = defineRoute({
  method: "POST",
  path: "/v1/model-servers",
  access: "admin",
  strict: true,
  needs: ["trustModelServer"],
  summary: "Trust a model server of this machine that another user runs",
  body: trustSchema,
  idempotency: "honoured",
  reply: { status: 200, type: "application/json", schema: trustedSchema },
  async handle({ trustModelServer }, { body, caller }) {
    return jsonReply(200, await trustModelServer(body.address, caller));
  },
});

async function listModels(agent: Services["agent"], signal: AbortSignal) {
  return agent === undefined ? [] : await agent.providers.listModels(signal);
}
