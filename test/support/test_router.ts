import { FastResponse } from "srvx";
import { createRouter, type RouterOptions } from "../../handlers/router.ts";
import type { ResponseClass } from "../../handlers/route.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { createReplyCheck } from "./described_reply.ts";
import { createFakeServices, type FakeServices, type FakeServicesOptions } from "./fake_services.ts";

/** The two classes replies are made of: the router must not care which. */
export const RESPONSE_CLASSES: readonly (readonly [name: string, ResponseClass])[] = [
  ["Response", Response],
  ["FastResponse", FastResponse as unknown as ResponseClass],
];

export interface TestRouter {
  readonly services: FakeServices;
  readonly router: ReturnType<typeof createRouter>;
  /** A request to `http://gateway.test` + path, with the token `token_admin` unless `token` says another or none (null) */
  send(method: string, path: string, init?: SendInit): Promise<Response>;
}

export interface SendInit {
  readonly token?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  /** A string or bytes as they are, anything else as JSON; both are sent as application/json unless the headers say otherwise */
  readonly body?: unknown;
  readonly signal?: AbortSignal;
  readonly remoteAddress?: string;
}

export function createTestRouter(
  options: FakeServicesOptions & Partial<Omit<RouterOptions, "services">> & {
    readonly services?: FakeServices;
    /** Address of the peer of requests that give none. Default: the server does not say */
    readonly remoteAddress?: string;
  } = {},
): TestRouter {
  const services = options.services ?? createFakeServices(options);
  const { routes = ROUTES } = options;
  const router = createRouter({ ...options, routes, services });
  // Routes that a test makes up are described by nobody
  const checkReply = createReplyCheck(routes === ROUTES ? ROUTES : []);
  return {
    services,
    router,
    async send(
      method,
      path,
      { token = "token_admin", headers = {}, body, signal, remoteAddress = options.remoteAddress } = {},
    ) {
      const request = new Request(`http://gateway.test${path}`, {
        method,
        headers: {
          ...(token === null ? {} : { authorization: `Bearer ${token}` }),
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: toBody(body) }),
        ...(body instanceof ReadableStream ? { duplex: "half" } : {}),
        ...(signal === undefined ? {} : { signal }),
      } as RequestInit);
      const reply = await router.fetch(request, { remoteAddress });
      await checkReply(method, path, reply);
      return reply;
    },
  };
}

function toBody(body: unknown) {
  if (typeof body === "string" || body instanceof Uint8Array || body instanceof ReadableStream) return body;
  return JSON.stringify(body);
}

/** The body of an error reply, as the one shape. */
export async function errorOf(reply: Response) {
  const { error } = await reply.json() as {
    error: { message: string; type: string; code: string; param: string | null };
  };
  return error;
}
