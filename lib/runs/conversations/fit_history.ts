import type { AgentEventBody } from "../../base/records/agent_event.ts";
import { type Message, summaryMessages } from "../../base/records/message.ts";
import { NO_USAGE, type Usage } from "../../base/records/usage.ts";
import { messageTokens, shortenedTokens } from "../../agent/estimate_tokens.ts";
import { MIN_SUMMARY_WINDOW, type Summary, SummaryError } from "../../agent/summarize.ts";
import type { History, HistorySummary } from "./conversations.ts";

/** Window of the model, and the way to condense messages. */
export interface FitHistoryOptions {
  /** Tokens of messages and output together; 0: unknown, and nothing is condensed. */
  readonly windowTokens: number;
  /** Tokens of the window for everything but the history: prompt, tools, the new messages, the reply. */
  readonly reservedTokens: number;
  /** Condenses messages; undefined when no real model answers. Whole turns are then left out later. */
  readonly summarize:
    | ((messages: readonly Message[], earlier: string | undefined) => Promise<Summary>)
    | undefined;
}

/** The history that the model is sent. */
export interface FittedHistory {
  readonly messages: readonly Message[];
  /** Summary that was made now and is to be kept. */
  readonly summary: HistorySummary | undefined;
  /** Notices for the reader. */
  readonly notices: readonly AgentEventBody[];
  /** Usage of the calls that condensed the history. */
  readonly usage: Usage;
}

/**
 * Condenses the older turns of a history that outgrew the window, even with shortened tool results. The newest turns that fit into half
 * of the room stay word for word, so that the next turns need no further summary. All turns before them become one text.
 *
 * When the summary fails, the reader gets a notice and the history stays whole: turns are then left out when the request is made.
 * Source: docs/design/runs.md "Conversations"
 * @throws {CancelError} when the run was stopped
 */
export async function fitHistory(history: Omit<History, "taint">, options: FitHistoryOptions): Promise<FittedHistory> {
  const { windowTokens, reservedTokens, summarize } = options;
  const { summary, messages } = history;
  const cut = cutNotices(history);
  const whole = { messages: [...said(summary), ...messages], summary: undefined, notices: cut, usage: NO_USAGE };
  if (windowTokens < MIN_SUMMARY_WINDOW || summarize === undefined) return whole;
  const room = windowTokens - reservedTokens;
  if (messageTokens(said(summary)) + shortenedTokens(messages) <= room) return whole;

  const kept = newestTurns(messages, room / 2);
  const old = messages.slice(0, messages.length - kept.length);
  if (old.length === 0) return whole;
  try {
    const { text, usage } = await summarize(old, summary?.text);
    const made = { text, covers: history.firstSeq - 1 + old.length };
    const notice: AgentEventBody = {
      type: "notice",
      code: "context_summarized",
      message: `To fit the context window, ${old.length} older messages were condensed into a summary, which took ` +
        `${usage.total_tokens} tokens`,
      count: old.length,
    };
    return { messages: [...said(made), ...kept], summary: made, notices: [...cut, notice], usage };
  } catch (error) {
    if (!(error instanceof SummaryError)) throw error;
    const notice: AgentEventBody = {
      type: "notice",
      code: "context_summary_failed",
      message: `The older messages could not be condensed, so some may be left out: ${error.message}`,
    };
    return { ...whole, notices: [...cut, notice], usage: error.usage };
  }
}

/** Returns a notice about the messages that are too old to be read for the model and stand in no summary. */
function cutNotices({ summary, firstSeq }: Pick<History, "summary" | "firstSeq">): readonly AgentEventBody[] {
  const count = firstSeq - 1 - (summary?.covers ?? 0);
  if (count <= 0) return [];
  const message = `The conversation is longer than what is read of it: its first ${count} messages were left out`;
  return [{ type: "notice", code: "history_trimmed", message, count }];
}

function said(summary: HistorySummary | undefined): readonly Message[] {
  return summary === undefined ? [] : summaryMessages(`${summary.covers} messages`, summary.text);
}

/** Returns the newest whole turns that fit. A turn begins with a user message. */
function newestTurns(messages: readonly Message[], maxTokens: number): readonly Message[] {
  let start = messages.length;
  let tokens = 0;
  for (let i = messages.length - 1; i >= 0; i--) {
    const message = messages[i] as Message; // the index is below the length
    tokens += shortenedTokens([message]);
    if (tokens > maxTokens) break;
    if (message.role === "user") start = i;
  }
  return messages.slice(start);
}
