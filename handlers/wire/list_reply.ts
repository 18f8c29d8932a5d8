import * as v from "valibot";
import type { RequestContext } from "../route.ts";
import { jsonReply } from "./reply.ts";

/** Schema of a list reply (DESIGN.md section 2). */
export function listSchema<S extends v.GenericSchema>(item: S) {
  return v.object({
    object: v.literal("list"),
    data: v.array(item),
    has_more: v.boolean(),
    last_id: v.nullable(v.string()),
  });
}

/** A list reply; `hasMore`: older items follow after `lastId`. */
export function listReply(
  context: RequestContext,
  data: readonly unknown[],
  { hasMore, lastId }: { readonly hasMore: boolean; readonly lastId: string | null },
): Response {
  return jsonReply(context, 200, { object: "list", data, has_more: hasMore, last_id: lastId });
}
