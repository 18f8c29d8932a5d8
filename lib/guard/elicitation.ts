import { isRecord } from "../base/json.ts";
import { redactJson } from "../base/redact.ts";
import { type Form, FORM_FORMATS, type FormContent, type FormField } from "../base/records/elicitation.ts";
import { listSome } from "../base/text.ts";

/** Question of a tool's server, of the agent or of the program, to a person: checked and within bounds. */
export interface Elicitation {
  /** Name of the MCP server that asks, as the configuration has it. undefined: the agent asks, or the program that mounts the gateway */
  readonly server?: string | undefined;
  /** True when the agent asks, by `ask_user` */
  readonly agent?: true | undefined;
  readonly message: string;
  /** Form to fill in. null: the person opens `url` */
  readonly schema: Form | null;
  /** Address to open, whole. null: the person fills in `schema` */
  readonly url: string | null;
}

/** Bounds of a question. */
export const ELICITATION_LIMITS = {
  messageCharacters: 4_000,
  urlCharacters: 2_048,
  fields: 32,
  nameCharacters: 64,
  /** Characters of a title, of a description and of one choice */
  labelCharacters: 500,
  choices: 200,
  /** Characters of one answer of text, also where the form allows more */
  textCharacters: 10_000,
} as const;

/**
 * Reads the parameters of `elicitation/create`. What the forms of the protocol do not have is left out, such as `pattern`; a form that nobody
 * could fill in is refused.
 * @param options.server name of the MCP server that asks
 * @param options.agent set when the agent asks. Without a server and an agent the program asks
 * @returns `refused`: a sentence for whoever asks
 */
export function parseElicitation(
  params: unknown,
  { redact, ...asker }: Pick<Elicitation, "server" | "agent"> & { readonly redact: (text: string) => string },
): Elicitation | { readonly refused: string } {
  const { mode = "form", message, requestedSchema, url } = asRecord(params);
  if (typeof message !== "string") return { refused: 'Cannot ask a person: "message" must be a text' };
  if (message.length > ELICITATION_LIMITS.messageCharacters) {
    return { refused: `Cannot ask a person: "message" has over ${ELICITATION_LIMITS.messageCharacters} characters` };
  }
  const asked = { ...asker, message: redact(message) };
  if (mode === "url") {
    const address = parseAddress(url);
    if (typeof address !== "string") return address;
    // The address is shown whole, and kept with the run
    if (redact(address) !== address) return { refused: 'Cannot ask a person: "url" has a known secret in it' };
    return { ...asked, schema: null, url: address };
  }
  if (mode !== "form") return { refused: 'Cannot ask a person: "mode" is neither "form" nor "url"' };
  const form = parseForm(requestedSchema);
  // Redaction replaces texts by texts, so a parsed form is a form still
  return "refused" in form ? form : { ...asked, schema: redactJson(form, redact), url: null };
}

/** Result of checking an answer: its content, or the field at fault with the reason. A reason never repeats a value. */
export type CheckedContent =
  | { readonly ok: true; readonly content: FormContent }
  | { readonly ok: false; readonly field: string; readonly reason: string };

/** Checks the content of an answer against its form. `null` equals absent. */
export function checkContent({ properties, required }: Form, given: Readonly<Record<string, unknown>>): CheckedContent {
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(properties, name));
  if (unknown !== undefined) {
    return {
      ok: false,
      field: unknown,
      reason: `the form has no such field; it has ${Object.keys(properties).join(", ")}`,
    };
  }
  const content: [string, FormContent[string]][] = [];
  for (const [name, field] of Object.entries(properties)) {
    const value = Object.hasOwn(given, name) ? given[name] : undefined;
    if (value === undefined || value === null) {
      if (required.includes(name)) return { ok: false, field: name, reason: `it is required: ${wordsOf(field)}` };
      continue;
    }
    if (!fits(field, value)) return { ok: false, field: name, reason: `it must be ${wordsOf(field)}` };
    content.push([name, value]);
  }
  return { ok: true, content: Object.fromEntries(content) };
}

/** Says in words what a field takes, such as `an integer from 1 to 9`. */
export function wordsOf(field: FormField): string {
  switch (field.type) {
    case "boolean":
      return "true or false";
    case "number":
    case "integer":
      return `${field.type === "integer" ? "an integer" : "a number"}${rangeOf(field.minimum, field.maximum, "")}`;
    case "array":
      return `a list of ${listed(field.items.anyOf)}${rangeOf(field.minItems, field.maxItems, " choices")}`;
    case "string": {
      if (field.oneOf !== undefined) return `one of ${listed(field.oneOf)}`;
      const kind = field.format === undefined ? "a text" : FORMAT_WORDS[field.format];
      return `${kind}${rangeOf(field.minLength, field.maxLength, " characters")}`;
    }
  }
}

const FORMAT_WORDS: Readonly<Record<typeof FORM_FORMATS[number], string>> = {
  email: "an e-mail address",
  uri: "an address with its scheme, such as https://example.com/",
  date: "a date such as 2026-01-31",
  "date-time": "a time such as 2026-01-31T09:30:00Z",
};

/** Choices that a sentence names. */
const MAX_LISTED = 20;

function listed(choices: readonly { readonly const: string }[]): string {
  return listSome(choices.map((choice) => JSON.stringify(choice.const)), MAX_LISTED);
}

function rangeOf(from: number | undefined, to: number | undefined, unit: string): string {
  if (from !== undefined && to !== undefined) return ` from ${from} to ${to}${unit}`;
  if (from !== undefined) return ` of at least ${from}${unit}`;
  return to === undefined ? "" : ` of at most ${to}${unit}`;
}

function fits(field: FormField, value: unknown): value is FormContent[string] {
  switch (field.type) {
    case "boolean":
      return typeof value === "boolean";
    case "number":
      return isNumber(value) && isWithin(value, field.minimum, field.maximum);
    case "integer":
      return isNumber(value) && Number.isInteger(value) && isWithin(value, field.minimum, field.maximum);
    case "array":
      return Array.isArray(value) && isWithin(value.length, field.minItems, field.maxItems) &&
        new Set(value).size === value.length && value.every((item) => isChoice(field.items.anyOf, item));
    case "string":
      return typeof value === "string" && fitsText(field, value);
  }
}

function fitsText(field: Extract<FormField, { type: "string" }>, value: string): boolean {
  const { minLength, maxLength = ELICITATION_LIMITS.textCharacters } = field;
  if (value.length > 2 * ELICITATION_LIMITS.textCharacters || !value.isWellFormed()) return false;
  // JSON Schema counts code points
  if (!isWithin([...value].length, minLength, Math.min(maxLength, ELICITATION_LIMITS.textCharacters))) return false;
  if (field.oneOf !== undefined) return isChoice(field.oneOf, value);
  return field.format === undefined || FORMATS[field.format](value);
}

const FORMATS: Readonly<Record<typeof FORM_FORMATS[number], (value: string) => boolean>> = {
  email: (value) => /^[^\s@]{1,64}@[^\s@]{1,255}$/.test(value),
  uri: (value) => /^[a-z][a-z0-9+.-]*:\S+$/i.test(value) && URL.canParse(value),
  date: (value) => /^\d{4}-\d{2}-\d{2}$/.test(value) && isDay(value),
  "date-time": (value) =>
    /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/i.test(value) &&
    isDay(value.slice(0, 10)) &&
    !Number.isNaN(Date.parse(value)),
};

/** Tells whether a calendar has the day: 2026-02-30 is none. */
function isDay(text: string): boolean {
  const time = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(text);
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

function isWithin(value: number, from = -Infinity, to = Infinity): boolean {
  return value >= from && value <= to;
}

function isChoice(choices: readonly { readonly const: string }[], value: unknown): boolean {
  return choices.some((choice) => choice.const === value);
}

/** Reads a form as a server gives it. */
function parseForm(given: unknown): Form | { readonly refused: string } {
  const { type, properties, required = [] } = asRecord(given);
  const refuse = (why: string) => ({ refused: `Cannot ask a person: "requestedSchema" ${why}` });
  if (type !== "object" || !isRecord(properties)) return refuse("must be an object schema with properties");
  const names = Object.keys(properties);
  if (names.length > ELICITATION_LIMITS.fields) return refuse(`has over ${ELICITATION_LIMITS.fields} fields`);
  const fields: [string, FormField][] = [];
  for (const name of names) {
    if (!FIELD_NAME.test(name) || name === "__proto__") return refuse("has a field with a name that is not accepted");
    const field = parseField(properties[name]);
    if (field === undefined) return refuse(`has the field "${name}", which no form can show`);
    fields.push([name, field]);
  }
  if (!Array.isArray(required) || !required.every((name): name is string => names.includes(name))) {
    return refuse('has "required" with a field that is not there');
  }
  return { type: "object", properties: Object.fromEntries(fields), required: [...new Set(required)] };
}

const FIELD_NAME = new RegExp(`^[\\p{L}\\p{N}_.$ -]{1,${ELICITATION_LIMITS.nameCharacters}}$`, "u");

/** @returns undefined for a field that a form cannot show, or that no value fits */
function parseField(given: unknown): FormField | undefined {
  const { type, title, description, ...rest } = asRecord(given);
  const about = { ...label("title", title), ...label("description", description) };
  const field = fieldOf(type, { ...rest, about });
  if (field === undefined) return undefined;
  const fallback = rest["default"];
  // A default that does not fit is none: the person would have to mend it
  return fits(field, fallback) ? { ...field, default: fallback } as FormField : field;
}

type FieldParts = Readonly<Record<string, unknown>> & { readonly about: Pick<FormField, "title" | "description"> };

function fieldOf(type: unknown, { about, ...rest }: FieldParts): FormField | undefined {
  switch (type) {
    case "boolean":
      return { type, ...about };
    case "number":
    case "integer": {
      const { minimum, maximum } = rest;
      if (isNumber(minimum) && isNumber(maximum) && minimum > maximum) return undefined;
      return { type, ...about, ...(isNumber(minimum) ? { minimum } : {}), ...(isNumber(maximum) ? { maximum } : {}) };
    }
    case "array": {
      const anyOf = choicesOf(asRecord(rest["items"]), "anyOf");
      const bounds = countsOf(rest["minItems"], rest["maxItems"]);
      if (anyOf === undefined || bounds === undefined || (bounds.from ?? 0) > anyOf.length) return undefined;
      return {
        type,
        ...about,
        items: { anyOf },
        ...bounds.from === undefined ? {} : { minItems: bounds.from },
        ...bounds.to === undefined ? {} : { maxItems: bounds.to },
      };
    }
    case "string": {
      if ("enum" in rest || "oneOf" in rest) {
        const oneOf = choicesOf(rest, "oneOf");
        return oneOf === undefined ? undefined : { type, ...about, oneOf };
      }
      const bounds = countsOf(rest["minLength"], rest["maxLength"]);
      if (bounds === undefined || (bounds.from ?? 0) > ELICITATION_LIMITS.textCharacters) return undefined;
      const format = FORM_FORMATS.find((known) => known === rest["format"]);
      return {
        type,
        ...about,
        ...bounds.from === undefined ? {} : { minLength: bounds.from },
        ...bounds.to === undefined ? {} : { maxLength: bounds.to },
        ...format === undefined ? {} : { format },
      };
    }
    default:
      return undefined;
  }
}

/** Returns the choices of a field: titled ones, or values, which may have their titles beside them in `enumNames`. */
function choicesOf(
  given: Readonly<Record<string, unknown>>,
  titled: "oneOf" | "anyOf",
): { const: string; title: string }[] | undefined {
  const { enum: values, enumNames } = given;
  const names = Array.isArray(enumNames) ? enumNames : [];
  const pairs = Array.isArray(values)
    ? values.map((value, i) => ({ const: value, title: names[i] ?? value }))
    : given[titled];
  if (!Array.isArray(pairs) || pairs.length === 0 || pairs.length > ELICITATION_LIMITS.choices) return undefined;
  const choices: { const: string; title: string }[] = [];
  for (const pair of pairs) {
    const { const: value, title = value } = asRecord(pair);
    if (!isLabel(value) || !isLabel(title) || isChoice(choices, value)) return undefined;
    choices.push({ const: value, title });
  }
  return choices;
}

function isLabel(value: unknown): value is string {
  return typeof value === "string" && value.length <= ELICITATION_LIMITS.labelCharacters && value.isWellFormed();
}

function label<K extends "title" | "description">(key: K, value: unknown): { [Key in K]?: string } {
  if (typeof value !== "string" || value === "") return {};
  const { labelCharacters: limit } = ELICITATION_LIMITS;
  const text = value.length <= limit ? value : `${value.slice(0, limit)}...`;
  // A computed name has the type of any text
  return { [key]: text.toWellFormed() } as { [Key in K]?: string };
}

/** @returns undefined for bounds that nothing fits */
function countsOf(from: unknown, to: unknown): { readonly from?: number; readonly to?: number } | undefined {
  const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;
  if (isCount(from) && isCount(to) && from > to) return undefined;
  return { ...isCount(from) ? { from } : {}, ...isCount(to) ? { to } : {} };
}

/** Reads an address that a person shall open: of the web, and without a name and a password in it. */
function parseAddress(given: unknown): string | { readonly refused: string } {
  const url = typeof given === "string" && given.length <= ELICITATION_LIMITS.urlCharacters ? URL.parse(given) : null;
  if (url === null || !["https:", "http:"].includes(url.protocol)) {
    return {
      refused:
        `Cannot ask a person: "url" must be an address of the web of at most ${ELICITATION_LIMITS.urlCharacters} characters`,
    };
  }
  // "https://bank.example@evil.example" reads as another host
  if (url.username !== "" || url.password !== "") {
    return { refused: 'Cannot ask a person: "url" has a user name in it' };
  }
  return url.href;
}

function asRecord(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}
