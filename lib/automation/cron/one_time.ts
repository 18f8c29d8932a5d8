/** A time as it was written: an instant, or a time of day in a zone that is not named. */
export type WrittenTime =
  | { readonly kind: "instant"; readonly at: number }
  /** `YYYY-MM-DDThh:mm:ss`, with milliseconds beside it */
  | { readonly kind: "local"; readonly local: string; readonly ms: number };

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
 * A duration as `90s`, `10 minutes`, `2h30m`, `1 day and 2 hours`: whole numbers with units from weeks to seconds, each once, the larger
 * before the smaller.
 * @returns milliseconds, 1 s to ten years; undefined for anything else
 */
export function parseDuration(text: string): number | undefined {
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
 * A date and a time of ISO 8601, as `2026-12-24T18:00`, `2026-12-24T18:00:30Z`, `2026-12-24 18:00+01:00`.
 * @returns undefined for anything else, a day that does not exist among it
 */
export function parseIsoTime(text: string): WrittenTime | undefined {
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
