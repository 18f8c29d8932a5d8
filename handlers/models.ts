import * as v from "valibot";
import type { RequestContext, Route } from "./route.ts";
import { httpError } from "./wire/error_codes.ts";
import { jsonReply } from "./wire/reply.ts";

const modelSchema = v.object({ id: v.string(), object: v.literal("model"), created: v.number(), owned_by: v.string() });

/** GET /v1/models: what the configured providers really serve; an empty list without an agent. */
export const modelsRoute: Route = {
  method: "GET",
  path: "/v1/models",
  access: "chat",
  summary: "Models of the configured providers",
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ object: v.literal("list"), data: v.array(modelSchema) }),
  },
  async handler(_request, context) {
    return jsonReply(context, 200, { object: "list", data: await listModels(context) });
  },
};

/** GET /v1/models/:id; ids may hold slashes, encoded or not. */
export const modelRoute: Route = {
  method: "GET",
  path: "/v1/models/:id+",
  access: "chat",
  summary: "One model",
  reply: { status: 200, type: "application/json", schema: modelSchema },
  async handler(_request, context) {
    const { id } = context.params;
    const model = (await listModels(context)).find((entry) => entry.id === id);
    if (model === undefined) {
      throw httpError("model_not_found", "Cannot find this model: see /v1/models for those that exist", {
        param: "id",
      });
    }
    return jsonReply(context, 200, model);
  },
};

async function listModels({ services, signal }: RequestContext) {
  return services.agent === undefined ? [] : await services.agent.providers.listModels(signal);
}
