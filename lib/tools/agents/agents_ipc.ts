import * as v from "valibot";
import type { Caller } from "../../base/records/caller.ts";
import { joinTaints, taintField } from "../../base/taint.ts";
import { ToolError } from "../../base/errors.ts";
import type { MailboxMessage } from "../../memory/mailbox.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { requireOpFields } from "../runtime/parse_input.ts";
import type { ToolResult } from "../runtime/tool_call.ts";

const nameField = (description: string) =>
  v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(128), v.description(description)));

/** `agents_ipc`: mailboxes between agents, encrypted at rest (docs/design/tools.md "Agents"). */
export const agentsIpc = defineTool({
  name: "agents_ipc",
  description:
    "Mailboxes between agents: send a message, receive (and remove) all that wait for a name, list without removing, or clear. " +
    "Gives JSON with the messages; sender is who really sent one, whatever its from says",
  access: "state",
  repeatable: ({ op }) => op === "list",
  // Mail carries the taint; what is cleared is lost to whom it was for
  carriesTaint: ({ op }) => op !== "clear",
  enabled: (config) => config.security.enable_agents_ipc,
  enabledBy: "[security] enable_agents_ipc = true",
  needs: ["mailbox"],
  input: v.strictObject({
    op: v.pipe(v.picklist(["send", "recv", "list", "clear"]), v.description("What to do")),
    from: nameField("send: name of the sender, for a sub-agent its own id; list, clear: only messages from this name"),
    to: nameField("send, recv: whose mailbox; list, clear: only this mailbox"),
    payload: v.optional(v.pipe(v.string(), v.description("send: the message, at most 64 KiB"))),
    limit: v.optional(
      v.pipe(
        v.number(),
        v.integer(),
        v.minValue(1),
        v.maxValue(1000),
        v.description("list: most messages to return. Default 100"),
      ),
    ),
  }),
  check: (input) => requireOpFields("agents_ipc", input, { send: ["from", "to", "payload"], recv: ["to"] }),
  async run({ op, from = "", to = "", payload = "", limit }, context) {
    const { mailbox } = context.services;
    const filter = { ...(to === "" ? {} : { to }), ...(from === "" ? {} : { from }) };
    switch (op) {
      case "send": {
        requireOwnName(from, context);
        const message = { from, to, payload, sender: senderOf(context), ...taintField(context.taint) };
        return shown([await mailbox.send(message)]);
      }
      case "recv":
        return shown(await mailbox.receive(to));
      case "list":
        return shown(await mailbox.list({ ...filter, limit }));
      case "clear":
        return shown([], { cleared: await mailbox.clear(filter) });
    }
  },
});

/** The parts of a call's context that say who sends a message. */
interface Sender {
  readonly caller: Caller;
  readonly runId: string;
  readonly conversationId: string | null;
}

/** Returns the id of the calling sub-agent: its conversation, or its run when it only gives one answer and has no conversation. */
function subAgentId({ conversationId, runId }: Sender): string {
  return conversationId ?? runId;
}

function senderOf(call: Sender): string {
  const { via, tokenId } = call.caller;
  if (via === "subagent") return `subagent:${subAgentId(call)}`;
  return tokenId === null ? via : `${via}:${tokenId}`;
}

function requireOwnName(from: string, call: Sender): void {
  if (call.caller.via !== "subagent" || from === subAgentId(call)) return;
  throw new ToolError(
    "foreign_sender",
    `Cannot send as "${from}": a sub-agent sends only as itself; use "from": "${subAgentId(call)}"`,
  );
}

function shown(messages: readonly MailboxMessage[], more: Readonly<Record<string, number>> = {}): ToolResult {
  const data = { messages, ...more };
  return {
    output: JSON.stringify(data),
    isError: false,
    data,
    taint: joinTaints(...messages.map(({ taint }) => taint)),
  };
}
