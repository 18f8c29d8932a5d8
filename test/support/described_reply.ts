import assert from "node:assert/strict";
import * as v from "valibot";
import { errorStatusesOf } from "../../handlers/routes/openapi.ts";
import type { Route } from "../../handlers/route.ts";
import { createRouteTable, type RouteVisitor } from "../../handlers/route_table.ts";

/**
 * Returns a check of replies against what /openapi.json says of their route: the status is described, and a JSON body of a success
 * fits its schema. What no route answers for (an unknown path, another method) is not checked.
 */
export function createReplyCheck(routes: readonly Route[]) {
  const table = createRouteTable(routes);
  const find = async (method: string, target: string): Promise<Route | undefined> => {
    const path = target.split("?", 1)[0] ?? "";
    let found = table.find(method, path)?.route;
    if (found !== undefined) return found;
    const visitor: RouteVisitor = {
      enter({ route }) {
        found = route;
        return new Response(null);
      },
      refuse(error) {
        throw error;
      },
    };
    try {
      await table.route(method, path, visitor);
    } catch {
      return undefined;
    }
    return found;
  };
  return async (method: string, path: string, reply: Response): Promise<void> => {
    const route = await find(method, path);
    if (route === undefined || method === "OPTIONS") return;
    const name = `${route.method} ${route.path}`;
    const type = reply.headers.get("content-type")?.split(";", 1)[0] ?? undefined;
    const successes = [route.reply, ...route.otherReplies ?? []].filter(({ status }) => status === reply.status);
    if (successes.length === 0) {
      assert.ok(errorStatusesOf(route).has(reply.status), `${name} does not describe ${reply.status}`);
      return;
    }
    if (method === "HEAD") return;
    const described = successes.find((success) => success.type === (reply.body === null ? undefined : type));
    assert.ok(described !== undefined, `${name} does not describe ${reply.status} as ${type}`);
    if (described.schema === undefined || type !== "application/json") return;
    const { issues } = v.safeParse(described.schema, await reply.clone().json());
    assert.deepEqual(issues?.map((issue) => `${v.getDotPath(issue)}: ${issue.message}`) ?? [], [], `body of ${name}`);
  };
}
