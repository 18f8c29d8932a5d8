/** Meaning of a phrase: cron fields, or an even interval that begins when the schedule was made. */
export type Phrase =
  | { readonly kind: "cron"; readonly expression: string }
  | { readonly kind: "interval"; readonly everyMs: number }
  /** As the end of a sentence */
  | { readonly kind: "problem"; readonly problem: string };

const MINUTE_MS = 60_000;
/** Ten years */
const MAX_INTERVAL_MS = 3650 * 24 * 60 * MINUTE_MS;

const DAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const DAY_SETS: ReadonlyMap<string, string> = new Map(Object.entries({ day: "*", weekday: "1-5", weekend: "0,6" }));
/** Fields after minute and hour, by the periods that may stand alone */
const PERIODS: ReadonlyMap<string, string> = new Map(Object.entries({
  daily: "* * *",
  weekly: "* * 0",
  monthly: "1 * *",
  yearly: "1 1 *",
  annually: "1 1 *",
  "every day": "* * *",
  "every week": "* * 0",
  "every month": "1 * *",
  "every year": "1 1 *",
}));
const UNIT_MINUTES: Readonly<Record<string, number>> = { minute: 1, hour: 60, day: 1440, week: 10_080 };

/**
 * Returns the meaning of a schedule in words, such as `every 15 minutes`, `hourly`, `daily at 9:00`, `weekdays at 9:00`, `mondays and
 * fridays at 6:30 pm`.
 *
 * A number that divides an hour into minutes, or a day into hours, goes by the clock (`every 15 minutes` at :00, :15 ...); any other is
 * an even interval from when the schedule is made, a day of it 24 hours. Without a time of day, a day begins at midnight.
 * @param text in lower case, with single spaces
 */
export function parsePhrase(text: string): Phrase {
  const [, days = "", time] = /^(.+?)(?: at (.+))?$/.exec(text) ?? [];
  if (days === "hourly" && time === undefined) return cron("0 * * * *");
  if (/^every (?:\d+ )?seconds?$/.test(days)) return problem("it must be at least one minute");
  const every = /^every (?:(\d{1,6}) )?(minute|hour|day|week)s?$/.exec(days);
  if (every !== null && PERIODS.get(days) === undefined) {
    return time === undefined
      ? everyOf(Number(every[1] ?? 1), every[2] ?? "")
      : problem("a time of day goes with days of the week, as in mondays at 9:00");
  }
  const rest = restOf(days);
  if (rest === undefined) return problem("not a schedule I understand");
  if (time === undefined) {
    return PERIODS.get(days) !== undefined ? cron(`0 0 ${rest}`) : problem(`it needs a time, as in "${days} at 9:00"`);
  }
  const at = timeOf(time);
  return at === undefined
    ? problem(`the time ${JSON.stringify(time)} must be written as 9:00, 18:30 or 6:30 pm`)
    : cron(`${at.minute} ${at.hour} ${rest}`);
}

function everyOf(count: number, unit: string): Phrase {
  const minutes = count * (UNIT_MINUTES[unit] ?? 0);
  if (minutes === 0) return problem("it must be at least one minute");
  if (minutes < 60 && 60 % minutes === 0) return cron(minutes === 1 ? "* * * * *" : `*/${minutes} * * * *`);
  const hours = minutes / 60;
  if (Number.isInteger(hours) && hours < 24 && 24 % hours === 0) {
    return cron(hours === 1 ? "0 * * * *" : `0 */${hours} * * *`);
  }
  const everyMs = minutes * MINUTE_MS;
  return everyMs > MAX_INTERVAL_MS ? problem("it must be at most ten years") : { kind: "interval", everyMs };
}

/** Returns day of the month, month and day of the week; undefined: the text is no list of days. */
function restOf(days: string): string | undefined {
  const period = PERIODS.get(days);
  if (period !== undefined) return period;
  const items = days.replace(/^(?:every|on) /, "").split(/ ?, ?(?:and )?| and /);
  const fields = items.map(dayOf);
  if (fields.includes(undefined)) return undefined;
  return fields.includes("*") ? "* * *" : `* * ${fields.join(",")}`;
}

/** Returns a day, a range of days or a kind of days as a cron field. */
function dayOf(item: string): string | undefined {
  const range = /^([a-z]+) ?(?:-|to|through) ?([a-z]+)$/.exec(item);
  if (range !== null) {
    const [from, to] = [numberOf(range[1] ?? ""), numberOf(range[2] ?? "")];
    if (from < 0 || to < 0 || from === to) return undefined;
    if (from < to) return `${from}-${to}`;
    const first = from === 6 ? "6" : `${from}-6`;
    return to === 0 ? `${first},0` : `${first},0-${to}`;
  }
  const set = DAY_SETS.get(item.replace(/s$/, ""));
  if (set !== undefined) return set;
  const number = numberOf(item);
  return number < 0 ? undefined : String(number);
}

function numberOf(name: string): number {
  if (name.length < 3) return -1;
  const singular = name.replace(/s$/, "");
  return DAYS.findIndex((day) => day === singular || day.slice(0, 3) === name || day.slice(0, 3) === singular);
}

function timeOf(text: string): { readonly hour: number; readonly minute: number } | undefined {
  if (text === "noon") return { hour: 12, minute: 0 };
  if (text === "midnight") return { hour: 0, minute: 0 };
  const match = /^(\d{1,2})(?::(\d{2}))?(?: ?([ap])\.?m\.?)?$/.exec(text);
  if (match === null) return undefined;
  const [, hours, minutes = "0", half] = match;
  if (half === undefined && match[2] === undefined) return undefined;
  const [hour, minute] = [Number(hours), Number(minutes)];
  if (minute > 59 || (half === undefined ? hour > 23 : hour < 1 || hour > 12)) return undefined;
  return half === undefined ? { hour, minute } : { hour: hour % 12 + (half === "p" ? 12 : 0), minute };
}

function cron(expression: string): Phrase {
  return { kind: "cron", expression };
}

function problem(text: string): Phrase {
  return { kind: "problem", problem: text };
}
