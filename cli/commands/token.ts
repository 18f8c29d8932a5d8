import { SCOPES } from "../../lib/base/records/caller.ts";
import { CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { reachGateway, withGateway } from "../reach_gateway.ts";
import { printable, toDefinitions, toTable } from "../terminal/terminal_text.ts";

/** Command `postern pair`: prints a new code for one more client. An earlier unused code stops working. */
export const pairCommand = defineCliCommand({
  args: {},
  example: "postern pair",
  async run(context) {
    const gateway = await reachGateway(context, { agent: false });
    try {
      if (gateway.running === undefined) {
        throw new CommandError(
          "Cannot pair: no gateway is running on this data directory; start it with postern gateway, or give the --data-dir that it has",
        );
      }
      const { code, expires_in: seconds } = await gateway.call("POST /v1/pairing-code");
      context.print({ code, expires_in: seconds, address: gateway.running.record.address }, `Pairing code: ${code}`);
      if (!context.flags.json) {
        context.say(
          `The code works once, for ${Math.round(seconds / 60)} minutes, at ${gateway.running.record.address}`,
        );
      }
      return EXIT.ok;
    } finally {
      await gateway.close();
    }
  },
});

/** Command `postern token list`: stored tokens, without their secret. */
export const tokenListCommand = defineCliCommand({
  args: {},
  example: "postern token list",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const { data } = await gateway.call("GET /v1/tokens");
      const rows = data.map((
        token,
      ) => [
        token.id,
        token.label,
        token.scopes.join(",") + (token.tools === null ? "" : ` (${token.tools.join(",")})`),
        token.created_at,
        token.expires_at ?? "never",
        token.idle_ttl_seconds === null ? "" : `after ${toTime(token.idle_ttl_seconds)}`,
        token.plain ? "plain" : "",
        token.last_used_at ?? "never",
      ]);
      const none = "No token is stored. Make one with: postern token add --label my-script";
      context.print(
        data,
        rows.length === 0 ? context.named(none) : toTable(
          ["ID", "LABEL", "SCOPES", "CREATED", "EXPIRES", "ENDS UNUSED", "COMPLETIONS", "LAST USED"],
          rows,
          context.io.columns,
        ),
      );
    }),
});

/** Command `postern token show <id>`: one stored token, without its secret. */
export const tokenShowCommand = defineCliCommand({
  args: { id: { type: "positional", required: true, description: "Id of the token, from postern token list" } },
  example: "postern token show tok_0123456789",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const token = await gateway.call("GET /v1/tokens/:id", { params: { id } });
      const rows = Object.entries(token).map(([name, value]) => [name, shownValue(value)] as const);
      context.print(token, printable(toDefinitions(rows, context.io.columns)));
    }),
});

function shownValue(value: unknown): string {
  return value === null ? "none" : Array.isArray(value) ? value.join(", ") : String(value);
}

/** Command `postern token add`: makes a token and prints it. No other command shows it again. */
export const tokenAddCommand = defineCliCommand({
  args: {
    scope: {
      type: "string",
      valueHint: "list",
      description: `Scopes of the token, joined by commas: ${SCOPES.join(", ")} (default: chat)`,
    },
    ttl: {
      type: "string",
      valueHint: "time",
      description: "Lifetime, such as 90s, 15m, 12h or 30d (default: for ever)",
    },
    "idle-ttl": {
      type: "string",
      valueHint: "time",
      description: "Lifetime without use, such as 12h or 30d (default: no limit)",
    },
    plain: {
      type: "boolean",
      description:
        "Completions with this token go to the model without the agent's tools, for a client with tools of its own",
    },
    tools: {
      type: "string",
      valueHint: "list",
      description:
        "Tools that it may call, joined by commas, as read_*,mcp__files__* (default: all); needs --scope tools",
    },
    label: { type: "string", valueHint: "text", description: "Purpose of the token, shown in lists" },
  },
  example: "postern token add --scope chat,tools --ttl 30d --label my-script",
  run: (context, args) =>
    withGateway(context, async (gateway) => {
      const { scope, ttl, label, plain, tools, "idle-ttl": idleTtl } = args;
      const body = {
        ...(scope === undefined ? {} : { scopes: parseScopes(scope) }),
        ...(ttl === undefined ? {} : { ttl_seconds: parseTtl("--ttl", ttl) }),
        ...(idleTtl === undefined ? {} : { idle_ttl_seconds: parseTtl("--idle-ttl", idleTtl) }),
        ...(plain === true ? { plain } : {}),
        ...(tools === undefined ? {} : { tools: tools.split(",").map((pattern) => pattern.trim()) }),
        ...(label === undefined ? {} : { label }),
      };
      const token = await gateway.call("POST /v1/tokens", { body });
      context.print(token, token.token);
      if (!context.flags.json) {
        context.say(
          `Token ${token.id}, scopes ${token.scopes.join(", ")}${token.plain ? ", plain completions" : ""}${
            token.tools === null ? "" : `, tools ${token.tools.join(", ")}`
          }. It is shown this once only.`,
        );
      }
    }),
});

/** Command `postern token remove <id>`, or with `--all`: tokens that stop working at once. */
export const tokenRemoveCommand = defineCliCommand({
  args: {
    id: { type: "positional", required: false, description: "Id of the token, from postern token list" },
    all: { type: "boolean", description: "Revoke every stored token" },
  },
  example: "postern token remove tok_0123456789",
  run(context, { id, all }) {
    if ((id === undefined) === (all !== true)) throw new UsageError('Cannot run "token remove": give one id, or --all');
    return withGateway(context, async (gateway) => {
      if (id !== undefined) {
        return context.print(await gateway.call("DELETE /v1/tokens/:id", { params: { id } }), `Revoked ${id}`);
      }
      const reply = await gateway.call("DELETE /v1/tokens");
      context.print(reply, `Revoked ${reply.deleted} tokens`);
    });
  },
});

function parseScopes(text: string): readonly string[] {
  const scopes = text.split(",").map((scope) => scope.trim());
  const unknown = scopes.find((scope) => !SCOPES.some((known) => known === scope));
  if (unknown !== undefined) throw new UsageError(`Cannot use "--scope": "${unknown}" is none of ${SCOPES.join(", ")}`);
  return scopes;
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { "": 1, s: 1, m: 60, h: 3600, d: 86_400 };

/** Returns a time in the largest unit that divides it, such as `30d`. */
function toTime(seconds: number): string {
  const [unit = "s", size = 1] =
    Object.entries(UNIT_SECONDS).findLast(([name, size]) => name !== "" && seconds % size === 0) ?? [];
  return `${seconds / size}${unit}`;
}

function parseTtl(flag: string, text: string): number {
  const [, amount, unit = ""] = /^([1-9]\d{0,9})([smhd]?)$/.exec(text) ?? [];
  if (amount === undefined) {
    throw new UsageError(`Cannot use "${flag}": it must be a time such as 90s, 15m, 12h or 30d, not "${text}"`);
  }
  return Number(amount) * (UNIT_SECONDS[unit] ?? 1);
}
