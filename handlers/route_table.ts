import { Router } from "itty-router";
import { isCleanPath } from "./request_target.ts";
import type { Route } from "./route.ts";
import { httpError } from "./wire/http_errors.ts";

/** A route that was found. Parameters are decoded. */
export interface RouteMatch {
  readonly route: Route;
  readonly params: Readonly<Record<string, string>>;
}

export interface RouteTable {
  /**
   * The route of a path, which only a clean one has (see isCleanPath); HEAD finds that of GET.
   * @throws {HttpError} 404 not_found, 405 method_not_allowed with `Allow`, 400 invalid_request for a parameter that cannot be decoded
   */
  match(method: string, path: string): RouteMatch;
  /** Value of `Allow` for a path; undefined where no route has it */
  allow(path: string): string | undefined;
}

/** Paths without parameters are found by one look-up; itty-router compiles and matches the others, in the order of `routes`. */
export function createRouteTable(routes: readonly Route[]): RouteTable {
  const fixed = new Map<string, Map<string, RouteMatch>>();
  const router = Router<Request, never>();
  const byPattern = new Map<unknown, Route>();
  for (const route of routes) {
    if (!route.path.includes(":")) {
      const methods = fixed.get(route.path) ?? new Map<string, RouteMatch>();
      methods.set(route.method, { route, params: {} });
      fixed.set(route.path, methods);
      continue;
    }
    router.all(route.path, () => {});
    byPattern.set(router.routes.at(-1), route);
  }
  const methodsOf = (path: string) => {
    const methods = new Set<string>(fixed.get(path)?.keys());
    for (const row of router.routes) {
      const route = byPattern.get(row) as Route; // each row was entered above
      if (row[1].test(path)) methods.add(route.method);
    }
    return methods;
  };
  return {
    match(method, path) {
      const wanted = method === "HEAD" ? "GET" : method;
      const found = fixed.get(path)?.get(wanted);
      if (found !== undefined) return found;
      if (!isCleanPath(path)) throw notFound();
      for (const row of router.routes) {
        const groups = row[1].exec(path)?.groups;
        const route = byPattern.get(row) as Route; // each row was entered above
        if (groups !== undefined && route.method === wanted) return { route, params: decodeParams(groups) };
      }
      const allowed = methodsOf(path);
      throw allowed.size === 0 ? notFound() : methodNotAllowed(toAllow(allowed));
    },
    allow(path) {
      if (!isCleanPath(path)) return undefined;
      const allowed = methodsOf(path);
      return allowed.size === 0 ? undefined : toAllow(allowed);
    },
  };
}

/** The answer for a path that no route has. */
export function notFound() {
  return httpError("not_found", "Cannot find this path: see /openapi.json for those that exist");
}

function toAllow(methods: ReadonlySet<string>): string {
  return [...methods, ...(methods.has("GET") ? ["HEAD"] : []), "OPTIONS"].join(", ");
}

function methodNotAllowed(allow: string) {
  return httpError("method_not_allowed", `Cannot use this method here: allowed are ${allow}`, { headers: { allow } });
}

// deno-lint-ignore no-control-regex -- control characters are what it looks for
const CONTROL = /[\u0000-\u001f\u007f]/;

function decodeParams(groups: Record<string, string>): Record<string, string> {
  const params: Record<string, string> = {};
  for (const [name, value] of Object.entries(groups)) {
    const decoded = decode(value);
    if (decoded === undefined || CONTROL.test(decoded)) {
      throw httpError(
        "invalid_request",
        `Cannot read "${name}" from the path: it is not valid percent-encoded UTF-8 text`,
        { param: name },
      );
    }
    params[name] = decoded;
  }
  return params;
}

function decode(value: string): string | undefined {
  try {
    return decodeURIComponent(value);
  } catch {
    return undefined;
  }
}
