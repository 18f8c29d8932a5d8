import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { browserLoginSchema, loginStateSchema } from "../../lib/base/records/browser_login.ts";
import { defineRoute } from "../define_route.ts";
import { listReply, listSchema } from "../wire/lists.ts";
import { emptyReply, jsonReply } from "../wire/reply.ts";

const saveSchema = v.strictObject({
  /** Host that a person signed in at; a login that it has is replaced */
  site: v.pipe(v.string(), v.minLength(1), v.maxLength(253)),
  ...loginStateSchema.entries,
});

/** GET /v1/browser-logins: logins of the agent's browser, without their values. */
export const browserLoginsRoute = defineRoute({
  method: "GET",
  path: "/v1/browser-logins",
  access: "admin",
  strict: true,
  needs: ["browserLogins"],
  summary: "Sites that people signed the agent's browser in at, without cookies and values",
  reply: { status: 200, type: "application/json", schema: listSchema(browserLoginSchema) },
  handle: async (parts) => listReply(await parts.browserLogins.list()),
});

/** POST /v1/browser-logins: keeps a login, encrypted. `postern browser login` sends it. */
export const saveBrowserLoginRoute = defineRoute({
  method: "POST",
  path: "/v1/browser-logins",
  access: "admin",
  strict: true,
  needs: ["browserLogins"],
  summary:
    "Keep the login of a site, encrypted, in the place of the one before; runs get those that [browser] logins names",
  body: saveSchema,
  reply: { status: 201, type: "application/json", schema: browserLoginSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  async handle(parts, { body, caller }) {
    const { site, ...state } = body;
    return jsonReply(201, await parts.browserLogins.save(site, state, caller));
  },
});

/** DELETE /v1/browser-logins/:site: removes a login. Browsers that are open keep it until they end. */
export const removeBrowserLoginRoute = defineRoute({
  method: "DELETE",
  path: "/v1/browser-logins/:site",
  access: "admin",
  strict: true,
  needs: ["browserLogins"],
  summary: "Remove the login of a site; a browser that is open keeps it until it ends",
  reply: { status: 204 },
  errors: ["not_found"],
  async handle(parts, { params, caller }) {
    const { browserLogins } = parts;
    const site = params.site;
    if (await browserLogins.remove(site, caller)) return emptyReply();
    const sites = (await browserLogins.list()).map((login) => JSON.stringify(login.site));
    const known = sites.length === 0 ? "there is none" : `there are ${sites.join(", ")}`;
    throw refuse("not_found", `Cannot find a login of ${JSON.stringify(site.slice(0, 253))}: ${known}`);
  },
});
