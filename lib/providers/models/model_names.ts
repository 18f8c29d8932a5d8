import { ProviderError } from "../../base/errors.ts";
import { PLAIN_PROVIDER } from "../../config/schema/provider.ts";

const PLAIN_PREFIX = `${PLAIN_PROVIDER}/`;

/** Returns whether a request asks for plain mode by its model, `plain/<id>`: for a client that cannot set a header. */
export function isPlainModel(wanted: string | undefined): boolean {
  return wanted?.startsWith(PLAIN_PREFIX) === true;
}

/** Returns the model `<id>` of `plain/<id>`, with the prefix taken off once. */
export function plainModelOf(wanted: string): string {
  return wanted.slice(PLAIN_PREFIX.length);
}

/**
 * Returns whether a request leaves the choice of the model to the gateway: it names none, or says `default` or `assistant`.
 * `null` arrives here as undefined.
 */
export function isDefaultModel(wanted: string | undefined): boolean {
  switch (wanted) {
    case undefined:
    case "":
    case "default":
    case "assistant":
      return true;
    default:
      return false;
  }
}

const MAX_NAMES = 10;
const MAX_SHOWN = 128;

/** Says which model names would work, as `the models are "default", "llama3.2" and 4 others of GET /v1/models`. */
export function namesThatWork(names: Iterable<string>): string {
  const all = [...new Set(["default", ...names])].filter((name) => name !== "");
  const shown = all.slice(0, MAX_NAMES).map(quoted);
  const others = all.length - shown.length;
  const more = others === 0
    ? "; GET /v1/models lists them"
    : ` and ${others} ${others === 1 ? "other" : "others"} of GET /v1/models`;
  return `${INTRODUCTION} ${shown.join(", ")}${more}`;
}

const INTRODUCTION = "the models are";

/** The error of a model name that no provider in use has. */
export function unknownModel(wanted: string, names: Iterable<string>, provider = "none"): ProviderError {
  const message = `Cannot use the model ${quoted(wanted)}: no provider in use has it; ${namesThatWork(names)}`;
  return new ProviderError("model_not_found", message, { provider, status: 404, param: "model" });
}

/** The same error of an upstream, with the names that would work; one that names them already as it is. */
export function withNames(error: ProviderError, names: Iterable<string>): ProviderError {
  if (error.message.includes(INTRODUCTION)) return error;
  const { provider, status, upstreamCode, param } = error;
  return new ProviderError("model_not_found", `${error.message}; ${namesThatWork(names)}`, {
    provider,
    status,
    upstreamCode,
    param,
    cause: error,
  });
}

/** The error of a model whose local server was in use and answers no more. It counts as a server that cannot be reached. */
export function lostModel(
  wanted: string,
  server: { readonly software: string; readonly baseUrl: string; readonly kind: string },
): ProviderError {
  const place = `${server.software} at ${new URL(server.baseUrl).host}`;
  const message =
    `Cannot reach the model ${quoted(wanted)}: its server, ${place}, stopped answering; start it again, ` +
    `or ask for the model "default"`;
  return new ProviderError("provider_error", message, { provider: server.kind, param: "model" });
}

function quoted(name: string): string {
  return JSON.stringify(name.length > MAX_SHOWN ? `${name.slice(0, MAX_SHOWN)}...` : name);
}
