import { asSentence, exactLine } from "../../lib/base/text.ts";
import { sayAsker } from "../../lib/guard/approvals.ts";
import type { ChatEvent } from "./chat_session.ts";
import type { CommandContext } from "../command.ts";
import { printable, printableLine } from "./terminal_text.ts";

/** View of a run for a person. */
export interface ReplyView {
  /** Shows one event */
  show(event: ChatEvent): void;
  /** Notes that the person at this terminal denied a call */
  denied(callId: string): void;
  /** Ends the line that is being written */
  end(): void;
}

const DENIED_WORDS = {
  you: "denied by you",
  person: "denied by a person",
  program: "denied by the program",
  rule: "denied by a remembered answer",
  nobody: "denied, as nobody answered",
  policy: "denied by the policy",
  halt: "halted",
} as const;

const MAX_SHOWN_INPUT = 200;
const FATES = {
  queue: "it is the next turn",
  steer: "the reply takes it in at its next step, or it is the next turn",
  interrupt: "the reply ends, and it is the next turn",
};

/** Creates a view that writes the text to stdout as it comes, and tool use and notices to stderr. With --json each event is a line of stdout. */
export function createReplyView({ io, flags }: CommandContext): ReplyView {
  let atLineStart = true;
  const answered = new Set<string>();
  const text = (part: string) => {
    io.stdout(io.isTerminal.stdout ? printable(part) : part);
    if (part !== "") atLineStart = part.endsWith("\n");
  };
  const end = () => {
    if (!atLineStart) io.stdout("\n");
    atLineStart = true;
  };
  const aside = (line: string) => {
    // A terminal shows both streams: a notice begins on a line of its own
    if (io.isTerminal.stdout) end();
    io.stderr(`${printableLine(line)}\n`);
  };
  const denied = (callId: string) => void answered.add(callId);
  if (flags.json) return { show: (event) => io.stdout(`${JSON.stringify(event)}\n`), denied, end: () => {} };
  return {
    denied,
    show(event) {
      switch (event.type) {
        case "text_delta":
        case "refusal_delta":
          return text(event.delta);
        case "tool_start":
          return aside(`[tool] ${event.tool} ${shorten(exactLine(JSON.stringify(event.input) ?? ""))}`);
        case "tool_end":
          return aside(
            `[tool] ${event.tool} ${
              event.skipped === true
                ? "skipped: your message came first"
                : event.denied_by !== undefined
                ? `${DENIED_WORDS[answered.has(event.call_id) ? "you" : event.denied_by]}: ${shorten(event.output)}`
                : event.is_error
                ? `failed: ${shorten(event.output)}`
                : `done in ${event.duration_ms} ms`
            }`,
          );
        case "approval_needed":
          return aside(
            event.kind === "elicitation"
              ? `[approval] ${asSentence(sayAsker(event))} asks in ${event.tool}`
              : `[approval] ${event.tool} needs your approval`,
          );
        case "approval_answered":
          return aside(`[approval] ${event.decision}${event.input === undefined ? "" : ", with another input"}`);
        case "accepted":
          return aside(`[steer] Your message is kept: ${FATES[event.mode]}`);
        case "message_taken":
          return aside(`[steer] The agent has your message now: ${shorten(exactLine(event.text))}`);
        case "review_answered":
          return aside(`[review] A person says of the call that was cut off: ${event.outcome}`);
        case "turn_restart":
          return aside(
            "[restart] The gateway stopped during this turn: the model is asked again, and the text so far does not count",
          );
        case "notice":
          return aside(`[notice] ${event.message}`);
        case "error":
          // Another reply may follow
          end();
          return aside(`[error] ${event.message}`);
        case "done":
          return end();
        default:
          return;
      }
    },
    end,
  };
}

function shorten(text: string): string {
  return text.length <= MAX_SHOWN_INPUT ? text : `${text.slice(0, MAX_SHOWN_INPUT)}... (${text.length} characters)`;
}
