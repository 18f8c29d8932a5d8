import { type HttpError, refuse } from "../lib/base/errors.ts";

const CHAT = "POST /v1/chat/completions answers, in the format of OpenAI";

const OUTSIDE =
  "it is outside the basePath of the gateway, which is the path as the client sends it; a mount that cuts its own path off, such as app.mount() of Hono, needs a gateway without basePath";

/** Paths of APIs that the gateway does not have, with what is there in their place. */
const ABSENT: readonly (readonly [path: RegExp, reason: string])[] = [
  [
    /^\/\.well-known\/(?:oauth|openid)|^\/(?:register|authorize|token)$/,
    'it has no OAuth; make a token with "postern token add --scope tools", and give it to the client as the header "Authorization: Bearer <token>"',
  ],
  [/^\/(?:sse|messages?)$/, "MCP is at /mcp, by Streamable HTTP; its older transport (SSE) is not there"],
  [/^\/api\/(?:tags|show|ps)$/, "it has no API of Ollama: GET /v1/models lists the models"],
  [/^\/api\/embed$/, "it has no API of Ollama: POST /v1/embeddings gives vectors, in the format of OpenAI"],
  [/^\/api\/(?:generate|version)$/, `it has no API of Ollama: ${CHAT}`],
  [
    /\/messages\/batches(?:\/|$)/,
    "it takes no batches: POST /v1/messages answers one request, in the format of Anthropic",
  ],
  [/\/completions(?:\/|$)/, `it completes no bare prompts: ${CHAT}, with the prompt as a message`],
  [/\/(?:assistants|threads)(?:\/|$)/, "it has no such API: POST /v1/runs starts work that goes on by itself"],
  [/\/realtime(?:\/|$)/, "it has no such API: a chat over a WebSocket is at /ws/chat"],
  [/\/(?:rerank|images|audio|files|batches|moderations)(?:\/|$)/, "it has no such API, and no other route does this"],
];

/**
 * Returns the refusal of a path that no route has, with the cause where it is a usual one. Names routes, and nothing of the path itself.
 * @param path within the gateway; empty: outside of its base path
 * @param routeOf returns the pattern of the route that a clean path has
 */
export function missingPath(path: string, routeOf: (path: string) => string | undefined): HttpError {
  if (path === "") return refusal(OUTSIDE);
  const parts = path.split("/").filter((part) => part !== "");
  const clean = `/${parts.join("/")}`;
  const isUneven = clean !== path;
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
