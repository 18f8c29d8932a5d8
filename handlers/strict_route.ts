import * as v from "valibot";
import type { RequestContext, Route } from "./route.ts";
import { httpError } from "./wire/error_codes.ts";
import { readJson } from "./wire/read_json.ts";

/**
 * Returns a route that refuses every field and query parameter it does not know. For routes where a field that is dropped in silence
 * does more than was meant: `expires_in` in place of `ttl_seconds` would make a token without an end, a misplaced `key` would forget the
 * whole memory.
 *
 * A route with a body validates it with a strict schema; one without takes no field at all.
 */
export function strictRoute(route: Route): Route {
  const { handler, repeat } = route;
  return {
    ...route,
    strict: true,
    async handler(request, context) {
      await refuseUnknown(request, context, route);
      return await handler(request, context);
    },
    ...(repeat === undefined ? {} : {
      async repeat(request, context, runId) {
        await refuseUnknown(request, context, route);
        return await repeat(request, context, runId);
      },
    }),
  };
}

const NO_FIELDS = v.strictObject({});

/** @throws {HttpError} 400 invalid_request with the name in `param` */
async function refuseUnknown(request: Request, context: RequestContext, { query = {}, body }: Route): Promise<void> {
  for (const name of context.query.keys()) {
    if (Object.hasOwn(query, name)) continue;
    const known = Object.keys(query);
    const way = known.length === 0 ? "it takes none" : `it takes ${known.join(", ")}`;
    throw httpError(
      "invalid_request",
      `Cannot accept the query parameter "${shown(name)}": this route does not know it; ${way}`,
      {
        param: shown(name),
      },
    );
  }
  if (body === undefined) await readJson(request, context, NO_FIELDS, { optional: true });
}

const MAX_SHOWN_LENGTH = 64;

function shown(name: string): string {
  return name.slice(0, MAX_SHOWN_LENGTH);
}
