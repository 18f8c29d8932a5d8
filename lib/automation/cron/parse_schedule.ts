import { ToolError } from "../../base/errors.ts";
import { SCHEDULE_LIMITS } from "../../tools/schedule/schedules.ts";
import { parsePhrase } from "./plain_phrase.ts";

/** A time as it was written: an instant, or a time of day in a zone that is not named. */
export type WrittenTime =
  | { readonly kind: "instant"; readonly at: number }
  /** `YYYY-MM-DDThh:mm:ss`, with milliseconds beside it */
  | { readonly kind: "local"; readonly local: string; readonly ms: number };

/** Times that a schedule's text stands for, before a time zone and the current time are known. */
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
 * Returns the schedule that a text stands for: five cron fields, a plain phrase, `in <duration>` or `at <ISO 8601>`. Case and spaces
 * do not matter.
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
      throw unusable(given, "it must be 1 second to ten years, such as 90s, 10 minutes, 2h30m", "one_time");
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

/** Returns the refusal of a schedule. @param reason the end of a sentence */
export function unusable(text: string, reason: string, accepted: "recurring" | "one_time" | "either"): ToolError {
  const forms = { recurring: RECURRING, one_time: ONE_TIME, either: `${RECURRING}, ${ONE_TIME}` }[accepted];
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text;
  return new ToolError(
    "invalid_schedule",
    `Cannot use the schedule ${JSON.stringify(shown)}: ${reason}. Use ${forms}`,
  );
}

interface Field {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  /** Names of the values from `min` on; empty: the field takes numbers alone */
  readonly names: readonly string[];
}

const FIELDS: readonly Field[] = [
  { name: "minute", min: 0, max: 59, names: [] },
  { name: "hour", min: 0, max: 23, names: [] },
  { name: "day of the month", min: 1, max: 31, names: [] },
  {
    name: "month",
    min: 1,
    max: 12,
    names: ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
  },
  { name: "day of the week", min: 0, max: 7, names: ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"] },
];
const DAY_OF_MONTH = 2;

/** Tells whether a text is meant as cron fields: no phrase begins with a digit or a sign. */
function looksLikeCron(text: string): boolean {
  return /^[\d*?,/-]/.test(text);
}

/**
 * Returns five cron fields with one space between, names in capitals.
 *
 * Each field is a list of `*`, a value, a range `a-b`, the first or the last with `/step`. Months and days of the week may be three-letter
 * names; Sunday is 0 and 7; `L` is the last day of the month. Where both days are restricted, either one is enough.
 * @returns the fields, or what is wrong with them as the end of a sentence
 * Source: POSIX crontab; crontab(5) for steps and names
 */
function parseCronFields(text: string): { readonly expression: string } | { readonly problem: string } {
  const parts = text.trim().toUpperCase().split(/\s+/);
  if (parts.length !== FIELDS.length) {
    return { problem: `it has ${parts.length} ${parts.length === 1 ? "field" : "fields"}, and cron has five` };
  }
  for (const [index, part] of parts.entries()) {
    // Both lists are of one length
    const problem = problemOf(part, FIELDS[index] as Field, index === DAY_OF_MONTH);
    if (problem !== undefined) return { problem };
  }
  return { expression: parts.join(" ") };
}

function problemOf(part: string, field: Field, mayBeLast: boolean): string | undefined {
  for (const item of part.split(",")) {
    if (mayBeLast && item === "L") continue;
    const match = /^(?:\*|([A-Z0-9]+)(?:-([A-Z0-9]+))?)(?:\/(\d{1,4}))?$/.exec(item);
    const [, from, to, step] = match ?? [];
    if (match === null || (step !== undefined && from !== undefined && to === undefined)) {
      return `its ${field.name} ${JSON.stringify(item)} is not *, a value, a range a-b, or one of *, a-b with /step`;
    }
    const values = [from, to].filter((text) => text !== undefined).map((text, i) => valueOf(text, field, i === 1));
    if (values.includes(undefined)) {
      const names = field.names.length === 0 ? "" : `, or ${field.names[0]}-${field.names.at(-1)}`;
      return `its ${field.name} ${JSON.stringify(item)} must be within ${field.min}-${field.max}${names}`;
    }
    const [first = 0, last = first] = values;
    if (first > last) return `its ${field.name} ${JSON.stringify(item)} ends before it begins`;
    const steps = Number(step ?? 1);
    if (steps < 1 || steps > field.max) {
      return `its ${field.name} ${JSON.stringify(item)} must have a step of 1-${field.max}`;
    }
  }
  return undefined;
}

/** Returns the value of a name or number. @param isEnd the end of a range: there Sunday by name is the day after Saturday */
function valueOf(text: string, { min, max, names }: Field, isEnd: boolean): number | undefined {
  const named = names.indexOf(text);
  if (named >= 0) return min + named || (isEnd ? max : min);
  const value = /^\d{1,2}$/.test(text) ? Number(text) : -1;
  return value >= min && value <= max ? value : undefined;
}

const UNIT_MS: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};
const UNITS = /^(?:(w)(?:eeks?)?|(d)(?:ays?)?|(h)(?:ours?|rs?)?|(m)(?:in(?:ute)?s?)?|(s)(?:ec(?:ond)?s?)?)$/;
/** Ten years */
const MAX_DURATION_MS = 3650 * 86_400_000;

/**
 * Returns a duration such as `90s`, `10 minutes`, `2h30m`, `1 day and 2 hours`: whole numbers with units from weeks to seconds, each
 * once, the larger before the smaller.
 * @returns milliseconds, 1 s to ten years; undefined for anything else
 */
function parseDuration(text: string): number | undefined {
  const parts = [...text.toLowerCase().matchAll(/(\d{1,9}) ?([a-z]+)(?: and |, | |$|(?=\d))|(.)/gs)];
  let total = 0;
  let below = Infinity;
  for (const [, count, name = "", other] of parts) {
    const unit = UNITS.exec(name)?.slice(1).find((letter) => letter !== undefined);
    const unitMs = UNIT_MS[unit ?? ""] ?? Infinity;
    if (other !== undefined || unitMs >= below) return undefined;
    below = unitMs;
    total += Number(count) * unitMs;
  }
  return total >= 1000 && total <= MAX_DURATION_MS && !/(?:and|,) ?$/.test(text) ? total : undefined;
}

const ISO = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?: ?(Z|[+-]\d\d(?::?\d\d)?))?$/i;

/**
 * Returns a date and a time of ISO 8601, such as `2026-12-24T18:00`, `2026-12-24T18:00:30Z`, `2026-12-24 18:00+01:00`.
 * @returns undefined for anything else, a day that does not exist among it
 */
function parseIsoTime(text: string): WrittenTime | undefined {
  const match = ISO.exec(text);
  if (match === null) return undefined;
  const [, date, minutes, seconds = "00", fraction = "", zone] = match;
  const ms = Number(fraction.padEnd(3, "0").slice(0, 3));
  const local = `${date}T${minutes}:${seconds}`;
  const asUtc = Date.parse(`${local}Z`);
  // Where a day or hour does not exist, parsing refuses it or moves on to the next
  if (Number.isNaN(asUtc) || new Date(asUtc).toISOString().slice(0, 19) !== local) return undefined;
  if (zone === undefined) return { kind: "local", local, ms };
  const offset = offsetMs(zone);
  return offset === undefined ? undefined : { kind: "instant", at: asUtc + ms - offset };
}

function offsetMs(zone: string): number | undefined {
  if (zone.toUpperCase() === "Z") return 0;
  const [, sign, hours, minutes = "0"] = /^([+-])(\d\d):?(\d\d)?$/.exec(zone) ?? [];
  const total = Number(hours) * 60 + Number(minutes);
  // The widest offsets of the world are -12 and +14 hours
  if (Number(minutes) > 59 || total > 14 * 60) return undefined;
  return (sign === "-" ? -total : total) * 60_000;
}
