import type { Random } from "../../lib/base/random.ts";

const SAFE = /^[\w.:-]{1,128}$/;

/** The client's own request id when it has 1-128 safe characters (letters, digits, `_.:-`), else a new one. */
export function requestIdOf(request: Request, random: Random): string {
  const given = request.headers.get("x-request-id");
  return given !== null && SAFE.test(given) ? given : random.id("req_");
}
