import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { browserLoginSchema, loginStateSchema } from "../../lib/base/records/browser_login.ts";
import { callerOf } from "../door.ts";
import type { Route } from "../route.ts";
import { listReply, listSchema } from "../wire/lists.ts";
import { readJson, strictRoute } from "../wire/read_json.ts";
import { jsonReply } from "../wire/reply.ts";

const saveSchema = v.strictObject({
  /** Host that a person signed in at; a login that it has is replaced */
  site: v.pipe(v.string(), v.minLength(1), v.maxLength(253)),
  ...loginStateSchema.entries,
});

/** GET /v1/browser-logins: logins of the agent's browser, without their values. */
export const browserLoginsRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/browser-logins",
  access: "admin",
  summary: "Sites that people signed the agent's browser in at, without cookies and values",
  reply: { status: 200, type: "application/json", schema: listSchema(browserLoginSchema) },
  handler: async (_request, context) => listReply(context, await context.services.browserLogins.list()),
});

/** POST /v1/browser-logins: keeps a login, encrypted. `postern browser login` sends it. */
export const saveBrowserLoginRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/browser-logins",
  access: "admin",
  summary:
    "Keep the login of a site, encrypted, in the place of the one before; runs get those that [browser] logins names",
  body: saveSchema,
  reply: { status: 201, type: "application/json", schema: browserLoginSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  async handler(request, context) {
    const { site, ...state } = await readJson(request, context, saveSchema);
    return jsonReply(context, 201, await context.services.browserLogins.save(site, state, callerOf(context, "http")));
  },
});

/** DELETE /v1/browser-logins/:site: removes a login. Browsers that are open keep it until they end. */
export const removeBrowserLoginRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/browser-logins/:site",
  access: "admin",
  summary: "Remove the login of a site; a browser that is open keeps it until it ends",
  reply: { status: 204 },
  errors: ["not_found"],
  async handler(_request, context) {
    const { browserLogins } = context.services;
    const site = context.params["site"] ?? "";
    if (await browserLogins.remove(site, callerOf(context, "http"))) return new context.Response(null, { status: 204 });
    const sites = (await browserLogins.list()).map((login) => JSON.stringify(login.site));
    const known = sites.length === 0 ? "there is none" : `there are ${sites.join(", ")}`;
    throw refuse("not_found", `Cannot find a login of ${JSON.stringify(site.slice(0, 253))}: ${known}`);
  },
});
