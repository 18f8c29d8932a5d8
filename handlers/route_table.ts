import { Router } from "itty-router";
import { type HttpError, refuse } from "../lib/base/errors.ts";
import { isCleanPath } from "./request_context.ts";
import type { Route, RouteMatch } from "./route.ts";
import { missingPath } from "./missing_path.ts";

/** A request that is being routed. The route table calls exactly one of the methods, once, before `route` returns. */
export interface RouteVisitor<Outcome = Response> {
  /** Goes on with the route that takes the request. */
  enter(match: RouteMatch): Outcome | Promise<Outcome>;
  /** Refuses a request that no route takes. */
  refuse(error: HttpError): never;
}

/** The routes of a gateway by method and path. HEAD finds the route of GET. */
export interface RouteTable {
  /** Finds a route whose path has no parameters, in one look-up and without a promise. */
  find(method: string, path: string): RouteMatch | undefined;
  /**
   * Calls the route of a path that `find` does not know, through itty-router. Only a clean path has one (see isCleanPath).
   *
   * Refuses with 404 not_found, 405 method_not_allowed with `Allow`, or 400 invalid_request for a parameter that cannot be decoded.
   */
  route<Outcome>(method: string, path: string, visitor: RouteVisitor<Outcome>): Outcome | Promise<Outcome>;
  /** Returns the refusal of a path that has no route for the method: 404 not_found, or 405 method_not_allowed with `Allow`. */
  refusal(path: string): HttpError;
  /** Returns the value of `Allow` for a path; undefined when no route has the path. */
  allow(path: string): string | undefined;
}

/** Creates the table of `routes`. Of two patterns that match a path, the first one takes the request. */
export function createRouteTable(routes: readonly Route[]): RouteTable {
  const fixed = new Map<string, Map<string, RouteMatch>>();
  const router = Router<RoutedRequest, [RouteVisitor<unknown>]>();
  for (const route of routes) {
    if (route.path.includes(":")) {
      router[METHOD_NAMES[route.method]](route.path, ({ params }, visitor) => {
        const decoded = decodeParams(params);
        return decoded instanceof Error ? visitor.refuse(decoded) : visitor.enter({ route, params: decoded });
      });
      continue;
    }
    const methods = fixed.get(route.path) ?? new Map<string, RouteMatch>();
    methods.set(route.method, { route, params: {} });
    fixed.set(route.path, methods);
  }
  const patterns = [...router.routes];
  const routeOf = (path: string) => {
    if (!isCleanPath(path)) return undefined;
    return fixed.has(path) ? path : patterns.find(([, pattern]) => pattern.test(path))?.[3];
  };
  const table: RouteTable = {
    find: (method, path) => fixed.get(path)?.get(toRouteMethod(method)),
    route(method, path, visitor) {
      // Else a name of ours would be taken for the parameter of a pattern, as "compact" for the id of a response
      if (!isCleanPath(path) || fixed.has(path)) return visitor.refuse(table.refusal(path));
      // Host and query are left out: itty-router would parse what the guards have read already
      const request = { method: toRouteMethod(method), url: `http://postern${path}`, path, params: {} };
      return router.fetch(request, visitor);
    },
    refusal(path) {
      const allow = table.allow(path);
      return allow === undefined ? missingPath(path, routeOf) : methodNotAllowed(allow);
    },
    allow(path) {
      if (!isCleanPath(path)) return undefined;
      const ofPatterns = () => patterns.flatMap(([method, pattern]) => pattern.test(path) ? [method] : []);
      const methods = new Set<string>(fixed.get(path)?.keys() ?? ofPatterns());
      return methods.size === 0 ? undefined : toAllow(methods);
    },
  };
  router.all("*", ({ path }, visitor) => visitor.refuse(table.refusal(path)));
  return table;
}

/** The part of a request that itty-router reads, and the parameters that it adds. */
interface RoutedRequest {
  readonly method: string;
  readonly url: string;
  readonly path: string;
  readonly params: Readonly<Record<string, string>>;
}

const METHOD_NAMES = { GET: "get", POST: "post", DELETE: "delete" } as const satisfies Record<Route["method"], string>;

function toRouteMethod(method: string): string {
  return method === "HEAD" ? "GET" : method;
}

function toAllow(methods: ReadonlySet<string>): string {
  return [...methods, ...(methods.has("GET") ? ["HEAD"] : []), "OPTIONS"].join(", ");
}

function methodNotAllowed(allow: string): HttpError {
  return refuse("method_not_allowed", `Cannot use this method here: allowed are ${allow}`, { headers: { allow } });
}

// deno-lint-ignore no-control-regex -- control characters are what it looks for
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Most characters of a parameter in a path: the store takes keys of 2,048 bytes, and no id or name is as long. */
const MAX_PARAMETER = 512;

function decodeParams(groups: Readonly<Record<string, string>>): Record<string, string> | HttpError {
  const params: Record<string, string> = {};
  for (const [name, value] of Object.entries(groups)) {
    const decoded = decode(value);
    if (decoded === undefined || CONTROL.test(decoded)) {
      return refuse(
        "invalid_request",
        `Cannot read "${name}" from the path: it is not valid percent-encoded UTF-8 text`,
        { param: name },
      );
    }
    if (decoded.length > MAX_PARAMETER) {
      const message = `Cannot read "${name}" from the path: it is longer than ${MAX_PARAMETER} characters`;
      return refuse("invalid_request", message, { param: name });
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
