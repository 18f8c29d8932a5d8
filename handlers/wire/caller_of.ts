import type { Caller } from "../../lib/base/records/caller.ts";
import type { RequestContext } from "../route.ts";

/** Who asks for a run, in the words of the records. */
export function callerOf(context: Pick<RequestContext, "identity">, via: Caller["via"]): Caller {
  return { via, tokenId: context.identity?.tokenId ?? null, scopes: context.identity?.scopes ?? [] };
}
