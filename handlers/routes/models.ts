import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { isPlainModel, plainModelOf } from "../../lib/providers/models/model_names.ts";
import type { Services } from "../../lib/services.ts";
import { defineRoute } from "../define_route.ts";
import { jsonReply } from "../wire/reply.ts";

const modelSchema = v.object({
  id: v.string(),
  object: v.literal("model"),
  created: v.number(),
  owned_by: v.string(),
  /** Tokens of input and output together. Absent when the provider does not say */
  context_length: v.optional(v.number()),
  /** False when the model is shown no tools, since its chat template knows none. Absent when the provider does not say */
  supports_tools: v.optional(v.boolean()),
});

/** GET /v1/models: what the configured providers really serve; an empty list without an agent. */
export const modelsRoute = defineRoute({
  method: "GET",
  path: "/v1/models",
  access: "chat",
  needs: ["agent"],
  steady: "models",
  summary: "Models of the configured providers",
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ object: v.literal("list"), data: v.array(modelSchema) }),
  },
  async handle({ agent }, { signal }) {
    return jsonReply(200, { object: "list", data: await listModels(agent, signal) });
  },
});

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
  async handle({ agent }, { params: { id }, signal }) {
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
    return jsonReply(200, { ...model, id });
  },
});

const trustSchema = v.strictObject({
  /** Address of a model server on this machine, as `127.0.0.1:11434` */
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
