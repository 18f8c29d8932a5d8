/** A request to a gateway under test. */
export interface CallInit {
  /** Default: POST with a body, GET without */
  readonly method?: string;
  /** Headers beside the token and the content type, or in place of them */
  readonly headers?: Readonly<Record<string, string>>;
  /** A body that is neither text nor bytes is sent as JSON */
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

/** The part of a gateway that answers requests. */
export interface CalledGateway {
  /** Address without a slash at the end */
  readonly url: string;
  readonly token: string;
}

/** Returns the method that a call has. */
export function methodOf({ method, body }: CallInit): string {
  return method ?? (body === undefined ? "GET" : "POST");
}

/** Fetches a path of a gateway with its token. */
export function callGateway({ url, token }: CalledGateway, path: string, init: CallInit = {}): Promise<Response> {
  const { headers, body, signal } = init;
  const isWhole = body === undefined || typeof body === "string" || body instanceof Uint8Array;
  const text = isWhole ? body as string | Uint8Array<ArrayBuffer> | undefined : JSON.stringify(body);
  return fetch(url + path, {
    method: methodOf(init),
    headers: {
      authorization: `Bearer ${token}`,
      ...(text === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    ...(text === undefined ? {} : { body: text }),
    ...(signal === undefined ? {} : { signal }),
  });
}
