import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { refuseSecrets } from "../web/refuse_secrets.ts";
import { askVendor, requireKey, vendorKey, vendorRefusal } from "./vendor_request.ts";

/** Source: https://pushover.net/api ("Pushing Messages", "Emergency Priority", "Being Friendly to our API"). Not tried live. */
const URL_MESSAGES = "https://api.pushover.net/1/messages.json";
const TOKEN = "PUSHOVER_TOKEN";
const USER = "PUSHOVER_USER";
const TIMEOUT_MS = 20_000;
/** A message of priority 2 comes again each minute until it is confirmed, for an hour at most. */
const EMERGENCY = { retry: "60", expire: "3600" };

/** `pushover`: a notification to the user's devices (docs/design/tools.md "Integrations"). */
export const pushover = defineTool({
  name: "pushover",
  description: "Sends a notification to the user's devices by Pushover",
  access: "network",
  enabled: ({ security }) => security.enable_pushover,
  enabledBy: "[security] enable_pushover = true",
  needs: ["guardedFetch", "environment", "secrets", "redactor"],
  input: v.strictObject({
    message: v.pipe(v.string(), v.minLength(1), v.maxLength(1024), v.description("Text of the notification")),
    title: v.optional(
      v.pipe(v.string(), v.minLength(1), v.maxLength(250), v.description("Default: the application's name")),
    ),
    priority: v.optional(
      v.pipe(
        v.number(),
        v.integer(),
        v.minValue(-2),
        v.maxValue(2),
        v.description("-2 silent to 1 high; 2 repeats until it is confirmed. Default 0"),
      ),
    ),
  }),
  textField: "message",
  effects: () => ({ urls: [URL_MESSAGES] }),
  screen(_input, { services: { environment } }) {
    requireKey("pushover", TOKEN, environment);
    requireKey("pushover", USER, environment);
    return Promise.resolve();
  },
  async run({ message, title, priority = 0 }, context) {
    refuseSecrets({ message, title: title ?? "" }, context.services.redactor);
    // The API takes both keys in the body alone
    const form = new URLSearchParams({
      token: await vendorKey("pushover", TOKEN, URL_MESSAGES, context),
      user: await vendorKey("pushover", USER, URL_MESSAGES, context),
      message,
      ...(title === undefined ? {} : { title }),
      priority: String(priority),
      ...(priority === 2 ? EMERGENCY : {}),
    });
    const headers = { accept: "application/json", "content-type": "application/x-www-form-urlencoded" };
    const { status, body } = await askVendor({
      url: URL_MESSAGES,
      headers,
      body: form.toString(),
      timeoutMs: TIMEOUT_MS,
    }, context);
    if (status === 200 && body.status === 1) {
      return {
        output: "The notification was handed to Pushover",
        isError: false,
        data: { request: body.request ?? null },
      };
    }
    const errors = Array.isArray(body.errors) ? body.errors.filter((each) => typeof each === "string") : [];
    // Pushover answers 400 for wrong keys as for wrong messages
    const isKey = body.token === "invalid" || body.user === "invalid";
    throw vendorRefusal("pushover", {
      status: status === 400 && isKey ? 401 : status,
      says: errors.join("; "),
      variables: `"${TOKEN}" and "${USER}"`,
      wrong: '"message", "title" and "priority"',
    });
  },
});
