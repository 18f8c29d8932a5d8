/**
 * Prints what the router and its middleware cost a request, in nanoseconds: `node test/bench/router.bench.ts`. The requests are
 * bare objects with the headers of a client and the body is at hand, so that the server beneath is not measured.
 */
import { FastResponse } from "srvx";
import { createRouter } from "../../handlers/router.ts";
import type { ResponseClass } from "../../handlers/route.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createLogger } from "../../lib/base/telemetry/log.ts";
import { createFakeServices } from "../support/fake_services.ts";
import { median } from "./median.ts";

const ROUNDS = 7;
const OPERATIONS = 50_000;

const log = createLogger({ level: "info", now: Date.now, sink: () => {}, redact: (text) => text });
const services = {
  ...createFakeServices({ gateway: { rate_limit_max: 1e9 } }),
  log,
  clock: systemClock,
  random: createSystemRandom(),
};
const body = new TextEncoder().encode('{"message":"hello"}');
const router = createRouter({
  services,
  routes: ROUTES,
  Response: FastResponse as unknown as ResponseClass,
  readBody: () => ({ bytes: Promise.resolve(body), fail() {} }),
});

function requestOf(method: string, path: string, headers: Readonly<Record<string, string>>): Request {
  const all: Readonly<Record<string, string>> = { host: "127.0.0.1:42617", ...headers };
  const given = { get: (name: string) => all[name] ?? null };
  return {
    method,
    url: `http://127.0.0.1:42617${path}`,
    headers: given,
    signal: new AbortController().signal,
  } as unknown as Request;
}

async function measure(name: string, request: Request): Promise<void> {
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    for (let i = 0; i < OPERATIONS; i++) {
      const reply = router.fetch(request);
      if (reply instanceof Promise) await reply;
    }
    rounds.push(((performance.now() - start) * 1e6) / OPERATIONS);
  }
  console.log(`${name.padEnd(44)} ${median(rounds).toFixed(0).padStart(6)} ns/op`);
}

const client = {
  authorization: "Bearer token_chat",
  "content-type": "application/json",
  "content-length": String(body.length),
};
await measure("GET /health", requestOf("GET", "/health", {}));
await measure("GET /metrics", requestOf("GET", "/metrics", {}));
await measure("POST /v1/ping with a token and a body", requestOf("POST", "/v1/ping", client));
await measure(
  "GET /v1/tools/read_file, by itty-router",
  requestOf("GET", "/v1/tools/read_file", { authorization: "Bearer token_tools" }),
);
await measure("GET /nothing, by itty-router", requestOf("GET", "/nothing", {}));
