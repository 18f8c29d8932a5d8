import { ToolError } from "../../base/errors.ts";
import { SCHEDULE_LIMITS } from "../../tools/schedule/schedules.ts";
import { looksLikeCron, parseCronFields } from "./cron_fields.ts";
import { parseDuration, parseIsoTime, type WrittenTime } from "./one_time.ts";
import { parsePhrase } from "./plain_phrase.ts";

/** What a schedule's text says, before it is set into a zone and a present. */
export type ParsedSchedule =
  | { readonly kind: "cron"; readonly expression: string }
  | { readonly kind: "interval"; readonly everyMs: number }
  /** From now */
  | { readonly kind: "in"; readonly ms: number }
  | { readonly kind: "at"; readonly time: WrittenTime };

const RECURRING = 'five cron fields ("30 9 * * 1-5"), "every 15 minutes", "hourly", "every day at 9:00", ' +
  '"weekdays at 9:00", "mondays at 18:30"';
const ONE_TIME = '"in 2h30m", "at 2026-12-24T18:00" or "at 2026-12-24T18:00:00+01:00"';
const MAX_SHOWN = 60;

/**
 * A schedule from its text: five cron fields, a plain phrase, `in <duration>` or `at <ISO 8601>`. Case and spaces do not matter.
 * @throws {ToolError} `invalid_schedule` with the reason and what is accepted
 */
export function parseSchedule(text: string): ParsedSchedule {
  const given = text.trim().replace(/\s+/g, " ");
  if (given === "" || given.length > SCHEDULE_LIMITS.textCharacters) {
    throw unusable(given, `it must be 1-${SCHEDULE_LIMITS.textCharacters} characters`, "either");
  }
  const [, word = "", rest = ""] = /^(in|at) (.*)$/i.exec(given) ?? [];
  if (word.toLowerCase() === "in") {
    const ms = parseDuration(rest);
    if (ms === undefined) {
      throw unusable(given, "it must be 1 second to ten years, as 90s, 10 minutes, 2h30m", "one_time");
    }
    return { kind: "in", ms };
  }
  if (word.toLowerCase() === "at") {
    const time = parseIsoTime(rest);
    if (time === undefined) throw unusable(given, "it must be a date and time of ISO 8601 that exists", "one_time");
    return { kind: "at", time };
  }
  if (looksLikeCron(given)) {
    const parsed = parseCronFields(given);
    if ("problem" in parsed) throw unusable(given, parsed.problem, "recurring");
    return { kind: "cron", expression: parsed.expression };
  }
  const phrase = parsePhrase(given.toLowerCase().replace(/^@/, ""));
  if (phrase.kind === "problem") throw unusable(given, phrase.problem, "either");
  return phrase;
}

/** The refusal of a schedule. @param reason the end of a sentence */
export function unusable(text: string, reason: string, accepted: "recurring" | "one_time" | "either"): ToolError {
  const forms = { recurring: RECURRING, one_time: ONE_TIME, either: `${RECURRING}, ${ONE_TIME}` }[accepted];
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text;
  return new ToolError(
    "invalid_schedule",
    `Cannot use the schedule ${JSON.stringify(shown)}: ${reason}; accepted are ${forms}`,
  );
}
