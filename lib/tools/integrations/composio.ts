import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { refuseSecrets } from "../web/refuse_secrets.ts";
import { askVendor, requireKey, vendorKey, vendorRefusal } from "./vendor_request.ts";

/** Source: https://docs.composio.dev/reference ("Tools": execute a tool, version 3 of the API). Not tried live. */
const URL_EXECUTE = "https://backend.composio.dev/api/v3/tools/execute/";
const KEY = "COMPOSIO_API_KEY";
/** Composio's name for the person whose connected accounts an action uses. Not a secret. */
const USER = "COMPOSIO_USER_ID";
const DEFAULT_USER = "default";
const TIMEOUT_MS = 60_000;

/** `composio`: an action of a service that the user has connected at Composio (docs/design/tools.md "Integrations"). */
export const composio = defineTool({
  name: "composio",
  description: "Runs an action of a service that the user has connected at Composio. Gives its data as JSON",
  access: "network",
  enabled: ({ security }) => security.enable_composio,
  enabledBy: "[security] enable_composio = true",
  needs: ["guardedFetch", "environment", "secrets", "redactor"],
  input: v.strictObject({
    action_name: v.pipe(
      v.string(),
      v.regex(/^[A-Za-z][A-Za-z0-9_]{0,127}$/),
      v.description("As GITHUB_CREATE_AN_ISSUE"),
    ),
    params: v.optional(v.pipe(v.looseObject({}), v.description("Arguments of the action"))),
  }),
  effects: ({ action_name: action }) => ({ urls: [URL_EXECUTE + action] }),
  screen(_input, { services: { environment } }) {
    requireKey("composio", KEY, environment);
    return Promise.resolve();
  },
  async run({ action_name: action, params = {} }, context) {
    refuseSecrets({ params: JSON.stringify(params) }, context.services.redactor);
    const { environment } = context.services;
    const url = URL_EXECUTE + action;
    const key = await vendorKey("composio", KEY, url, context);
    const user = environment(USER)?.trim() ?? "";
    const headers = { accept: "application/json", "content-type": "application/json", "x-api-key": key };
    const request = JSON.stringify({ user_id: user === "" ? DEFAULT_USER : user, arguments: params });
    const { status, body } = await askVendor({ url, headers, body: request, timeoutMs: TIMEOUT_MS }, context);
    if (status === 200 && body.successful === true) {
      const data = body.data ?? null;
      return { output: JSON.stringify(data), isError: false, data: { action, data } };
    }
    const says = messageIn(body.error);
    if (status === 200 && body.successful === false) {
      throw new ToolError(
        "action_failed",
        `Cannot finish the action "${action}": ${JSON.stringify(says.slice(0, 1000))}`,
      );
    }
    throw vendorRefusal("composio", {
      status,
      says,
      variables: `"${KEY}"`,
      wrong: `"action_name" and "params", and that the user "${
        user === "" ? DEFAULT_USER : user
      }" of "${USER}" has connected the service`,
    });
  },
});

/** Returns the words of an error, which is a text or an object with a message. */
function messageIn(error: unknown): string {
  if (typeof error === "string") return error;
  return typeof error === "object" && error !== null && "message" in error && typeof error.message === "string"
    ? error.message
    : "";
}
