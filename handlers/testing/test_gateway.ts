import { TEST_CLOCK } from "../../lib/base/clock.ts";
import { HttpError } from "../../lib/base/errors.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { makePassingFolders } from "../../lib/config/folders.ts";
import { createGateway, type Gateway, type GatewayOptions, type GatewayRequestInit } from "../mod.ts";
import type { SocketHooks } from "../node/node_handler.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";
import { createSocketPeer, driveHooks } from "./socket_peer.ts";

/** Right that a token of a test may have. */
export type TestScope = "chat" | "runs" | "tools" | "approve" | "admin";

/** Credentials of a request of a test: a token; scopes, for which a token is made; null for none. */
export type TestCredentials = string | readonly TestScope[] | null;

/** Options of `createTestGateway`: those of `createGateway` without its folders. */
export interface TestGatewayOptions extends Omit<GatewayOptions, "dataDir" | "workspace"> {
  /** The folder the agent works in. Default: an empty one, removed by `close()` */
  readonly workspace?: string;
  /** Clock of the gateway, which a scripted provider may share. Default: a clock of its own */
  readonly clock?: FakeClock;
}

/** Parts of a request of a test, and whose request it is. */
export interface TestRequestInit extends GatewayRequestInit {
  /** Default: the gateway's token, which has every scope */
  readonly as?: TestCredentials;
}

/** A gateway of a test. It keeps its records in memory, and its time stands still. */
export interface TestGateway extends Gateway {
  /** Answers a request without a socket, by default with `token` */
  readonly request: (path: string, init?: TestRequestInit) => Promise<Response>;
  /** Token with every scope */
  readonly token: string;
  /** Clock of the gateway: time passes with `clock.advance(ms)` alone */
  readonly clock: FakeClock;
  /** Absolute path of the folder the agent works in */
  readonly workspace: string;
  /** Returns the Authorization header of these credentials; undefined for none */
  readonly authorization: (as?: TestCredentials) => Promise<string | undefined>;
}

/** Distance of the steps in which time passes while a gateway closes: what waits for work or time then ends. */
const CLOSING_STEP_MS = 20;

/**
 * Creates a gateway for a test: with its records in memory, a clock that stands still, and a token. It needs no folders: it makes its own,
 * and `close()` removes them.
 * @throws {ConfigError} as `createGateway`
 */
export async function createTestGateway(options: TestGatewayOptions = {}): Promise<TestGateway> {
  const { clock = createFakeClock(), ...rest } = options;
  const { dataDir, workspace: made, remove } = await makePassingFolders();
  try {
    const { workspace = made } = options;
    const token = options.environment?.["POSTERN_TOKEN"] ?? createSystemRandom().id("test_");
    const inside: GatewayOptions & { readonly [TEST_CLOCK]: FakeClock } = {
      ...rest,
      dataDir,
      workspace,
      config: { storage: { driver: "memory" }, ...options.config },
      environment: { ...options.environment, POSTERN_TOKEN: token },
      [TEST_CLOCK]: clock,
    };
    const gateway = await createGateway(inside);
    return toTestGateway(gateway, { token, clock, workspace, remove });
  } catch (error) {
    await remove();
    throw error;
  }
}

function toTestGateway(
  gateway: Gateway,
  { token, clock, workspace, remove }: {
    readonly token: string;
    readonly clock: FakeClock;
    readonly workspace: string;
    readonly remove: () => Promise<void>;
  },
): TestGateway {
  const tokens = new Map<string, Promise<string>>();
  const tokenOf = (as: string | readonly TestScope[]): string | Promise<string> => {
    if (typeof as === "string") return as;
    const key = as.toSorted().join();
    const made = tokens.get(key) ?? makeToken(gateway, { scopes: as, by: token });
    tokens.set(key, made);
    return made;
  };
  const authorization = async (as: TestCredentials = token) => as === null ? undefined : `Bearer ${await tokenOf(as)}`;
  return {
    ...gateway,
    ...{ token, clock, workspace, authorization },
    async request(path, { as, ...init } = {}) {
      const headers = new Headers(init.headers);
      const value = await authorization(as);
      if (value !== undefined && !headers.has("authorization")) headers.set("authorization", value);
      return await gateway.request(path, { ...init, headers });
    },
    async close() {
      let isOver = false;
      const closing = gateway.close().finally(() => isOver = true);
      while (!isOver) await clock.advance(CLOSING_STEP_MS);
      await closing;
      await remove();
    },
  };
}

async function makeToken(
  gateway: Gateway,
  { scopes, by }: { readonly scopes: readonly TestScope[]; readonly by: string },
): Promise<string> {
  const headers = { authorization: `Bearer ${by}` };
  const reply = await gateway.request("/v1/tokens", { headers, json: { scopes, label: "test" } });
  if (!reply.ok) throw await refusalOf(reply);
  // The reply of the route
  return (await reply.json() as { readonly token: string }).token;
}

/** Frame that the gateway sends to a WebSocket: an object with a `type`. */
export interface TestFrame {
  /** Kind of the frame, such as `delta` or `done` (docs/websocket.md) */
  readonly type: string;
  /** Fields of its kind */
  readonly [field: string]: unknown;
}

/** The client's end of a WebSocket that goes through no socket. */
export interface TestSocket {
  /** Every frame that came, in order */
  readonly frames: readonly TestFrame[];
  /** Sends a text or bytes as they are, anything else as JSON */
  readonly send: (frame: unknown) => void;
  /**
   * Returns the next frame that came or comes, each once. With `type`: the next one of this type, past the others.
   * @throws the reason of the signal; an Error once the socket is closed and every frame was given
   */
  readonly next: (options?: { readonly type?: string; readonly signal?: AbortSignal }) => Promise<TestFrame>;
  /** Resolves when the gateway has closed the connection. Code 1006: it ended it without a handshake */
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
  /** Leaves, as a client that goes away */
  readonly close: () => void;
}

/**
 * Opens a WebSocket of a test gateway, or of a handler of `postern/handlers`, without a socket. Its handshake passes every check.
 * @param options.path Default `/ws/chat`
 * @param options.as For a handler a token alone, which its `identify` reads
 * @throws {HttpError} the handshake was refused
 */
export async function connect(
  target: TestGateway | ((handshake: Request) => SocketHooks),
  options: {
    readonly path?: string;
    readonly as?: TestCredentials;
    readonly headers?: Readonly<Record<string, string>>;
  } = {},
): Promise<TestSocket> {
  const { path = "/ws/chat", as, headers: given } = options;
  const isHandler = typeof target === "function";
  const authorization = !isHandler
    ? await target.authorization(as)
    : typeof as === "string"
    ? `Bearer ${as}`
    : undefined;
  const request = new Request(`http://127.0.0.1${isHandler ? "" : target.basePath}${path}`, {
    headers: { upgrade: "websocket", ...(authorization === undefined ? {} : { authorization }), ...given },
  });
  const hooks = isHandler ? target(request) : target.websocket.resolve(request, { remoteAddress: "127.0.0.1" });
  // The hooks read no more of the request than this
  const answer = await hooks.upgrade?.(request as Parameters<NonNullable<typeof hooks.upgrade>>[0]);
  if (answer instanceof Response) throw await refusalOf(answer);
  return openSocket(hooks);
}

function openSocket(hooks: Parameters<typeof driveHooks>[0]): TestSocket {
  const peer = createSocketPeer();
  const frames: TestFrame[] = [];
  const closed = Promise.withResolvers<{ readonly code: number; readonly reason: string }>();
  let wake = Promise.withResolvers<void>();
  const tell = () => {
    wake.resolve();
    wake = Promise.withResolvers<void>();
  };
  let given = 0;
  let isOver = false;
  peer.onSent = (text) => {
    frames.push(JSON.parse(text)); // the gateway sends objects with a type alone
    tell();
  };
  peer.onEnd = () => {
    isOver = true;
    closed.resolve(peer.closedWith ?? { code: 1006, reason: "" });
    client.leave();
    tell();
  };
  const client = driveHooks(hooks, peer);
  return {
    frames,
    send: (frame) => frame instanceof Uint8Array ? client.sendBinary(frame) : client.say(frame),
    async next({ type, signal } = {}) {
      for (;;) {
        signal?.throwIfAborted();
        const frame = frames[given];
        if (frame !== undefined) {
          given++;
          if (type === undefined || frame.type === type) return frame;
          continue;
        }
        if (isOver) throw new Error(`The socket was closed: ${JSON.stringify(peer.closedWith ?? { code: 1006 })}`);
        const onAbort = () => tell();
        signal?.addEventListener("abort", onAbort, { once: true });
        await wake.promise;
        signal?.removeEventListener("abort", onAbort);
      }
    },
    closed: closed.promise,
    close() {
      isOver = true;
      client.leave();
      tell();
    },
  };
}

/** Returns the error that a reply tells of. */
async function refusalOf(reply: Response): Promise<HttpError> {
  // The one shape of errors
  const { error } = await reply.json() as {
    readonly error: {
      readonly code: string;
      readonly message: string;
      readonly type: HttpError["type"];
      readonly param: string | null;
    };
  };
  return new HttpError(error.code, error.message, { status: reply.status, type: error.type, param: error.param });
}
