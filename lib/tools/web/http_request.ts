import * as v from "valibot";
import { lazily } from "../../base/lazily.ts";
import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import { isAmongHosts } from "../../system/net/url_rules.ts";
import { defineTool } from "../runtime/define_tool.ts";

/** Time beside the request itself, for a token of its credential and so that the request's own limit is met first. */
const MARGIN_MS = 15_000;
const TEXT_METHODS = ["GET", "POST", "PUT", "DELETE"];
const MAX_HEADERS = 50;

const sending = lazily(() => import("./send_request.ts"));

/** `http_request`: one request to an allowed host (docs/design/tools.md "Web"). */
export const httpRequest = defineTool({
  name: "http_request",
  description:
    "Sends an HTTP request to an allowed host. Gives status=<code> and the body. Credentials of a host are added by themselves",
  access: "network",
  verbatim: true,
  // RFC 9110 section 9.2.1: these ask for nothing but the answer. A file that was saved would be in the way of a second call
  repeatable: ({ method, save_to: path }) => path === undefined && (method === "GET" || method === "HEAD"),
  enabled: ({ http_request }) => http_request.enabled,
  enabledBy: "[http_request] enabled = true",
  timeoutMs: ({ http_request }) => http_request.timeout_secs * 1000 + MARGIN_MS,
  needs: ["guardedFetch", "environment", "secrets", "redactor", "files"],
  input: v.strictObject({
    method: v.pipe(v.picklist(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]), v.description("HTTP method")),
    url: v.pipe(v.string(), v.minLength(1), v.maxLength(8192), v.description("http or https address")),
    headers: v.optional(v.pipe(v.looseObject({}), v.description("Request headers, texts by name"))),
    body: v.optional(v.pipe(v.string(), v.description("Body as text"))),
    body_type: v.optional(
      v.pipe(
        v.picklist(["json", "text", "form"]),
        v.description("json (default), text, or form: a JSON object of fields"),
      ),
    ),
    save_to: v.optional(
      v.pipe(v.string(), v.minLength(1), v.description("File that the body of a 2xx reply is written to")),
    ),
    overwrite: v.optional(v.pipe(v.boolean(), v.description("Replaces an existing file. Default false"))),
  }),
  parseText,
  check({ method, headers = {}, body, body_type: type = "json", save_to: path }) {
    requireHeaders(headers);
    if (path !== undefined && method === "HEAD") {
      throw bad('"save_to" must not be given with HEAD, whose reply has no body');
    }
    if (body === undefined) return;
    if (method === "GET" || method === "HEAD") throw bad(`"body" must not be given with ${method}`);
    if (type === "json") parseBody(body, '"body" must be JSON; set "body_type" to "text" for other text');
    if (type === "form") requireFields(body);
  },
  admit({ url: text, save_to: path }, { http_request: { allowed_domains: allowed }, security }) {
    if (path !== undefined && !security.write_file.enabled) {
      throw new ToolError(
        "write_off",
        `Cannot save to ${shown(path)}: set [security.write_file] enabled = true to allow it`,
      );
    }
    const url = URL.parse(text);
    if (url === null || allowed.includes("*") || isAmongHosts(url.hostname, allowed)) return;
    throw new ToolError(
      "url_not_allowed",
      `Cannot reach "${url.hostname.slice(0, 100)}": add it to [http_request] allowed_domains to allow it`,
    );
  },
  effects: ({ url, save_to: path }) => ({
    urls: [url],
    ...(path === undefined ? {} : { root: "write_file", paths: [path] }),
  }),
  run: async (input, context) => await (await sending()).sendRequest(input, context),
});

/** Reads `<METHOD> <URL> [JSON_BODY]`. */
function parseText(text: string): Readonly<Record<string, unknown>> {
  const [, method = "", url = "", body = ""] = /^\s*([A-Za-z]{1,10})\s+(\S+)\s*([^]*)$/.exec(text) ?? [];
  if (!TEXT_METHODS.includes(method.toUpperCase())) {
    throw bad(
      `write <METHOD> <URL> [JSON_BODY] with ${TEXT_METHODS.join(", ")}, or a JSON object with "method" and "url"`,
    );
  }
  return { method: method.toUpperCase(), url, ...(body === "" ? {} : { body }) };
}

function requireHeaders(headers: Readonly<Record<string, unknown>>): void {
  const entries = Object.entries(headers);
  if (entries.length > MAX_HEADERS) throw bad(`"headers" must have at most ${MAX_HEADERS} entries`);
  const wrong = entries.find(([, value]) => typeof value !== "string");
  if (wrong !== undefined) {
    throw bad(`"headers" may hold texts alone, and "${wrong[0].slice(0, 64)}" holds something else`);
  }
}

function requireFields(body: string): void {
  const wanted = '"body" must be a JSON object of texts, numbers and booleans with "body_type" form';
  const fields = parseBody(body, wanted);
  const isFlat = typeof fields === "object" && fields !== null && !Array.isArray(fields) &&
    Object.values(fields).every((value) => ["string", "number", "boolean"].includes(typeof value));
  if (!isFlat) throw bad(wanted);
}

function parseBody(body: string, wanted: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    throw bad(wanted);
  }
}

function bad(reason: string): ToolError {
  return new ToolError("invalid_input", `Cannot call "http_request": ${reason}`);
}
