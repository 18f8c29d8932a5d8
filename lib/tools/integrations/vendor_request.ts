import { ToolError } from "../../base/errors.ts";
import type { ContextWith } from "../runtime/define_tool.ts";

const MAX_REPLY_BYTES = 2_097_152;
const MAX_SAID = 300;

/** Context that a call to a vendor needs. */
export type VendorContext = Pick<
  ContextWith<"guardedFetch" | "environment" | "secrets">,
  "config" | "services" | "signal"
>;

/** Request to the API of a vendor. */
export interface VendorRequest {
  /** Absolute https address */
  readonly url: string;
  /** Go to the vendor's own origin alone */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly timeoutMs: number;
}

/** Reply of a vendor. */
export interface VendorReply {
  readonly status: number;
  /** Object of the body. Empty for a body that is none */
  readonly body: Readonly<Record<string, unknown>>;
}

/**
 * Returns a key of the environment, which the redactor knows from now on.
 * @throws {ToolError} `vendor_key_missing`; `secret_missing` for a value that could not be masked
 */
export async function vendorKey(
  tool: string,
  variable: string,
  url: string,
  { services }: VendorContext,
): Promise<string> {
  requireKey(tool, variable, services.environment);
  const value = services.environment(variable)?.trim() ?? "";
  return await services.secrets.guard(value, { source: `"${variable}"`, url: new URL(url) });
}

/** Refuses a call whose key is not set, before anybody is asked about it. @throws {ToolError} `vendor_key_missing` */
export function requireKey(tool: string, variable: string, environment: (name: string) => string | undefined): void {
  if ((environment(variable)?.trim() ?? "") !== "") return;
  throw new ToolError(
    "vendor_key_missing",
    `Cannot call "${tool}": the environment variable "${variable}" is not set; set it where the gateway starts`,
  );
}

/** Sends one request, once. @throws {ToolError} what a guarded fetch refuses */
export async function askVendor(
  request: VendorRequest,
  { config, services, signal }: VendorContext,
): Promise<VendorReply> {
  const { url, headers, body, timeoutMs } = request;
  const { origin } = new URL(url);
  const send = await services.guardedFetch();
  const reply = await send({
    method: "POST",
    url,
    headers: (to) => (to.origin === origin ? headers : {}),
    body,
    guard: { rules: config.url_access },
    redirects: "refuse",
    maxBytes: MAX_REPLY_BYTES,
    timeoutMs,
    signal,
  });
  return { status: reply.status, body: reply.truncated ? {} : objectIn(reply.body) };
}

/** Returns the error for a reply that is no success. `says` are the vendor's own words, from outside. */
export function vendorRefusal(
  tool: string,
  { status, says, variables, wrong }: {
    readonly status: number;
    readonly says: string;
    /** Variables of the keys, such as `"A" and "B"` */
    readonly variables: string;
    /** Fields to check where the vendor refuses the request itself */
    readonly wrong: string;
  },
): ToolError {
  const [code, reason] = status === 401 || status === 403
    ? ["vendor_key_refused", `it refuses the key; check the environment variable ${variables}`]
    : status === 402 || status === 429
    ? ["vendor_quota", "the quota is used up or too many calls were made; wait, or check your plan"]
    : status >= 500
    ? ["vendor_unavailable", "it has a failure of its own; try again later"]
    : status >= 400
    ? ["vendor_refused", `it refuses the call; check ${wrong}`]
    : ["vendor_changed", "its reply has no form that this version knows"];
  const line = says.replace(/[\s\p{C}]+/gu, " ").trim().slice(0, MAX_SAID);
  const words = line === "" ? "" : `: ${JSON.stringify(line)}`;
  return new ToolError(code, `Cannot call "${tool}": ${reason} (status ${status}${words})`);
}

function objectIn(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    // An object of JSON
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value as Record<string, unknown> : {};
  } catch {
    return {};
  }
}
