import { systemCodeOf } from "../../../lib/base/errors.ts";
import type { ReplyOf } from "../../../handlers/routes.ts";
import { CancelError, unlessAborted } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { exactLine } from "../../../lib/base/text.ts";
import type { LoadedConfig } from "../../../lib/config/load_config.ts";
import { type LoopbackRedirect, openLoopbackRedirect } from "../../../lib/system/net/loopback_redirect.ts";
import { type CommandContext, CommandError, defineCliCommand, UsageError } from "../../command.ts";
import { withGateway } from "../../reach_gateway.ts";
import { openPage } from "../../terminal/open_page.ts";

/** Time that a person has to sign in. */
const WAIT_MS = 600_000;

const SERVER = {
  type: "positional",
  required: true,
  description: "Name of the server, as in [mcp.servers.<name>]",
} as const;

/**
 * Command `postern mcp login <server>`: opens the page to sign in, and takes the answer on a port of 127.0.0.1 that is open for this
 * sign-in alone. With --no-browser it prints the address, and reads the address that the browser was led to.
 */
export const mcpLoginCommand = defineCliCommand({
  args: {
    server: SERVER,
    browser: {
      type: "boolean",
      default: true,
      description: "Print the address and read the answer here, without a browser",
    },
    scope: {
      type: "string",
      valueHint: "scopes",
      description: "Scopes to ask for beside those of the present sign-in",
    },
    "client-id": {
      type: "string",
      valueHint: "id",
      description: "Client that you registered at the authorization server",
    },
  },
  example: "postern mcp login acme",
  run: (context, { server, browser, scope = "", "client-id": clientId = "" }) =>
    withGateway(context, async (gateway) => {
      const loaded = await context.loadConfig();
      const { servers } = loaded.config.mcp;
      const settings = Object.hasOwn(servers, server) ? servers[server] : undefined;
      const redirect = await openRedirect(settings?.oauth.redirect_port ?? 0);
      try {
        const params = { name: server };
        const body = { redirect_uri: redirect.uri, scope, client_id: clientId };
        const begun = await gateway.call("POST /v1/mcp-servers/:name/login", { params, body });
        const answer = browser
          ? await signInByBrowser(context, loaded, { begun, redirect, server })
          : await signInByHand(context, { begun, redirect, server });
        const login = await gateway.call("POST /v1/mcp-servers/:name/login/complete", {
          params,
          body: answerOf(answer),
        });
        const renewed = login.is_renewed ? "it is renewed by itself" : "sign in again when it ends";
        const end = login.expires_at === null ? "" : `, until ${login.expires_at}`;
        context.print(login, `Signed in to ${exactLine(server)} with ${exactLine(login.issuer)}${end}: ${renewed}`);
      } finally {
        await redirect.close();
      }
    }),
});

/** Command `postern mcp logout <server>`: removes the sign-in, and tells the authorization server where it takes that. */
export const mcpLogoutCommand = defineCliCommand({
  args: { server: SERVER },
  example: "postern mcp logout acme",
  run: (context, { server }) =>
    withGateway(context, async (gateway) => {
      await gateway.call("DELETE /v1/mcp-servers/:name/login", { params: { name: server } });
      context.print({ server, removed: true }, `Signed out of ${exactLine(server)}`);
    }),
});

interface SignInStep {
  readonly begun: ReplyOf<"POST /v1/mcp-servers/:name/login">;
  readonly redirect: LoopbackRedirect;
  readonly server: string;
}

async function openRedirect(port: number): Promise<LoopbackRedirect> {
  try {
    return await openLoopbackRedirect(port);
  } catch (cause) {
    const code = systemCodeOf(cause);
    throw new CommandError(`Cannot listen on port ${port} of 127.0.0.1 for the answer: ${code}`, { cause });
  }
}

async function signInByBrowser(
  context: CommandContext,
  loaded: LoadedConfig,
  { begun, redirect, server }: SignInStep,
): Promise<URLSearchParams> {
  const { io, say } = context;
  const ending = new AbortController();
  const forget = io.onInterrupt(() => ending.abort(new CancelError("cancelled", "Nobody signed in")));
  const limit = systemClock.timeoutSignal(WAIT_MS);
  try {
    const answer = redirect.answer(begun.state);
    say(`Sign in to ${exactLine(server)} at ${exactLine(new URL(begun.issuer).host)}:\n${begun.authorization_url}`);
    const url = new URL(begun.authorization_url);
    if (!await openPage(context, loaded, { url, signal: ending.signal })) {
      say("The browser could not be opened: open the address above on this machine, or use --no-browser");
    }
    return await unlessAborted(answer, AbortSignal.any([ending.signal, limit.signal]));
  } catch (error) {
    if (!limit.signal.aborted || ending.signal.aborted) throw error;
    throw new CommandError(`Cannot sign in: no answer came within ${WAIT_MS / 60_000} minutes`, { cause: error });
  } finally {
    limit.clear();
    forget();
  }
}

async function signInByHand(
  { io, say }: CommandContext,
  { begun, redirect, server }: SignInStep,
): Promise<URLSearchParams> {
  say(`Sign in to ${exactLine(server)} with this address, in any browser:\n${begun.authorization_url}`);
  say(`At its end the browser is led to ${redirect.uri}, which cannot be opened. Copy that address from the browser.`);
  // Nothing listens: the answer comes by hand
  await redirect.close();
  const line = io.canAsk ? await io.ask("Address: ") : await io.readStdin();
  if (line === undefined || line.trim() === "") throw new CommandError("Nobody signed in");
  const url = URL.parse(line.trim());
  const query = url?.searchParams ?? new URLSearchParams(line.trim().replace(/^\?/, ""));
  if (!query.has("state")) {
    throw new UsageError("Cannot use this address: it has no state, and is not the end of a sign-in");
  }
  if (query.get("state") !== begun.state) {
    throw new CommandError("Cannot use this address: it belongs to another sign-in");
  }
  return query;
}

function answerOf(query: URLSearchParams): Readonly<Record<string, string>> {
  return Object.fromEntries(
    ["state", "code", "iss", "error"].flatMap((name) => {
      const values = query.getAll(name);
      // A name that comes twice could be read in two ways
      if (values.length > 1) throw new CommandError(`Cannot use the answer: it has "${name}" more than once`);
      return values.map((value) => [name, value]);
    }),
  );
}
