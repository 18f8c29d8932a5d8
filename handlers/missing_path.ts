import { type HttpError, refuse } from "../lib/base/errors.ts";

const OPENAI = "the gateway has POST /v1/chat/completions and GET /v1/models of OpenAI's API";

/** Paths of APIs that the gateway does not have, with what is there in their place. */
const ABSENT: readonly (readonly [path: RegExp, reason: string])[] = [
  [
    /^\/\.well-known\/(?:oauth|openid)|^\/(?:register|authorize|token)$/,
    'it has no OAuth; make a token with "postern token add --scope tools", and give it to the client as the header "Authorization: Bearer <token>"',
  ],
  [/^\/(?:sse|messages?)$/, "MCP is at /mcp, by Streamable HTTP; its older transport (SSE) is not there"],
  [/^\/api\/(?:tags|generate|show|ps|version|embed|embeddings)$/, `it has no API of Ollama: ${OPENAI}`],
  [/\/messages(?:\/|$)/, `it has no Messages API of Anthropic: ${OPENAI}`],
  [/\/responses(?:\/|$)/, `it has no Responses API: ${OPENAI}`],
  [
    /\/(?:completions|embeddings|images|audio|files|batches|moderations|assistants|threads|realtime)(?:\/|$)/,
    `it has no such API: ${OPENAI}`,
  ],
];

/**
 * Returns the refusal of a path that no route has, with the cause where it is a usual one. Names routes, and nothing of the path itself.
 * @param routeOf returns the pattern of the route that a clean path has
 */
export function missingPath(path: string, routeOf: (path: string) => string | undefined): HttpError {
  const parts = path.split("/").filter((part) => part !== "");
  const clean = `/${parts.join("/")}`;
  const isUneven = clean !== path && path !== "";
  const found = isUneven ? routeOf(clean) : undefined;
  if (found !== undefined) return refusal(`it has an empty part ("//", or a slash at the end); ask for ${found}`);
  // Behind /.well-known/ stand names of documents, never a base URL
  const below = clean.startsWith("/.well-known/")
    ? []
    : [clean, `/${parts.slice(1).join("/")}`, `/${parts.slice(2).join("/")}`];
  const meant = below.flatMap((one) => [one, `/v1${one}`]).map(routeOf).find((route) =>
    route !== undefined && route !== "/"
  );
  if (meant !== undefined) return refusal(`it is ${meant} here; the base URL of OpenAI's clients ends with /v1, once`);
  const [, absent] = ABSENT.find(([pattern]) => pattern.test(clean)) ?? [];
  return absent === undefined ? notFound() : refusal(absent);
}

/** Returns the refusal of a path that no route has. */
export function notFound(): HttpError {
  return refusal("see /openapi.json for those that exist");
}

function refusal(reason: string): HttpError {
  return refuse("not_found", `Cannot find this path: ${reason}`);
}
