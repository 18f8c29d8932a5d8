interface Field {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  /** Names of values, from `min` on; none: numbers alone */
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

/** Whether a text is meant as cron fields: no phrase begins with a digit or a sign. */
export function looksLikeCron(text: string): boolean {
  return /^[\d*?,/-]/.test(text);
}

/**
 * Five cron fields with one space between, names in capitals.
 *
 * Each field is a list of `*`, a value, a range `a-b`, the first or the last with `/step`. Months and days of the week may be three-letter
 * names; Sunday is 0 and 7; `L` is the last day of the month. Where both days are restricted, either one is enough.
 * @returns the fields, or what is wrong with them as the end of a sentence
 * Source: POSIX crontab; crontab(5) for steps and names
 */
export function parseCronFields(text: string): { readonly expression: string } | { readonly problem: string } {
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

/** @param isEnd of a range, where Sunday by name is the day after Saturday */
function valueOf(text: string, { min, max, names }: Field, isEnd: boolean): number | undefined {
  const named = names.indexOf(text);
  if (named >= 0) return min + named || (isEnd ? max : min);
  const value = /^\d{1,2}$/.test(text) ? Number(text) : -1;
  return value >= min && value <= max ? value : undefined;
}
