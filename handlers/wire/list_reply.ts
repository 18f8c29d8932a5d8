import * as v from "valibot";
import type { RequestContext } from "../route.ts";
import { jsonReply } from "./reply.ts";

/** Schema of a list reply (docs/design/http.md "Lists and times"). */
export function listSchema<S extends v.GenericSchema>(item: S) {
  return v.object({
    object: v.literal("list"),
    data: v.array(item),
    has_more: v.boolean(),
    last_id: v.nullable(v.string()),
  });
}

/** A list reply of what has an id; `hasMore`: older items follow after the last one. */
export function listReply(
  context: RequestContext,
  items: readonly { readonly id: string }[],
  hasMore = false,
): Response {
  return placedListReply(context, items, { hasMore, lastId: items.at(-1)?.id ?? null });
}

/** A list reply of what has another place in its list; `hasMore`: older items follow after `lastId`. */
export function placedListReply(
  context: RequestContext,
  data: readonly unknown[],
  { hasMore, lastId }: { readonly hasMore: boolean; readonly lastId: string | null },
): Response {
  return jsonReply(context, 200, { object: "list", data, has_more: hasMore, last_id: lastId });
}
