import type { Approval } from "../../lib/base/records/approval.ts";
import type { Form, FormContent, FormField } from "../../lib/base/records/elicitation.ts";
import { exactLine, exactText } from "../../lib/base/text.ts";
import { sayAsker } from "../../lib/guard/approvals.ts";
import { checkContent, wordsOf } from "../../lib/guard/elicitation.ts";
import type { CommandContext } from "../command.ts";
import { wrapText } from "./terminal_text.ts";

/** Parts of the terminal that a form needs. */
export type FormIo = Pick<CommandContext, "say"> & { readonly io: Pick<CommandContext["io"], "ask"> };

/** Answer of a person to what a server asks. */
export interface ElicitedAnswer {
  readonly decision: "approve" | "deny";
  readonly content?: FormContent;
}

/**
 * Describes what a server asks: its words, and the form with each field, or the address in full. Invisible characters are spelled out.
 * @param options.columns width that sentences are wrapped to. Undefined: no wrapping
 */
export function describeElicitation(
  { reason, message = "", schema, url }: Approval,
  { columns }: { readonly columns: number | undefined },
): string {
  return [
    ...wrapText(`${exactLine(reason)}:`, columns),
    ...exactText(message).split("\n").map((line) => `  | ${line}`),
    ...(schema === null || schema === undefined
      ? []
      : Object.entries(schema.properties).flatMap(([name, field]) => describeField(name, field, schema))),
    ...(url === null || url === undefined ? [] : ["Address to open, in full:", `  ${exactLine(url)}`]),
  ].join("\n");
}

function describeField(name: string, field: FormField, { required }: Form): readonly string[] {
  const { title, description } = field;
  const needed = required.includes(name) ? "required" : "optional";
  const about = [title, description].filter((text) => text !== undefined).map((text) => exactLine(text)).join(". ");
  return [
    `  ${exactLine(name)} (${needed}): ${exactLine(wordsOf(field))}${about === "" ? "" : `\n    ${about}`}`,
    ...choicesOf(field).map(({ const: value, title: words }, i) =>
      `    ${i + 1}. ${exactLine(words)}${words === value ? "" : ` (${exactLine(value)})`}`
    ),
  ];
}

/**
 * Lets the person at the terminal fill in a form, or agree to open an address, which nothing here opens. What is filled in is shown once
 * more before it is sent.
 * @returns undefined when nobody answered, for example at Ctrl-C
 */
export async function askForm(
  { io, say }: FormIo,
  { schema, url, ...asker }: Pick<Approval, "server" | "agent" | "schema" | "url">,
): Promise<ElicitedAnswer | undefined> {
  const name = exactLine(sayAsker(asker));
  if (schema === null || schema === undefined) {
    const question = url === undefined
      ? "Agree"
      : `Open the address yourself if you trust it. Tell ${name} that you agree`;
    const line = await io.ask(`${question}? [y/N] `);
    return line === undefined ? undefined : { decision: isYes(line) ? "approve" : "deny" };
  }
  const begin = await io.ask(`Answer ${name}? [y/N] `);
  if (begin === undefined) return undefined;
  if (!isYes(begin)) return { decision: "deny" };
  const content: Record<string, FormContent[string]> = {};
  for (const [field, about] of Object.entries(schema.properties)) {
    const value = await askField({ io, say }, {
      name: field,
      field: about,
      isRequired: schema.required.includes(field),
    });
    if (value === "gone") return undefined;
    if (value !== undefined) content[field] = value.value;
  }
  say(`This is sent to ${name}:\n${exactText(JSON.stringify(content, null, 2))}`);
  const sure = await io.ask("Send it? [y/N] ");
  if (sure === undefined) return undefined;
  return isYes(sure) ? { decision: "approve", content } : { decision: "deny" };
}

/** Asks until a value fits. @returns undefined for a field that stays empty; `gone` when nobody answered */
async function askField(
  { io, say }: FormIo,
  { name, field, isRequired }: { readonly name: string; readonly field: FormField; readonly isRequired: boolean },
): Promise<{ readonly value: FormContent[string] } | "gone" | undefined> {
  const fallback = field.default;
  const hint = fallback === undefined
    ? isRequired ? "" : " [empty: none]"
    : ` [empty: ${exactLine(JSON.stringify(fallback))}]`;
  for (;;) {
    const line = await io.ask(`${exactLine(name)}${hint}: `);
    if (line === undefined) return "gone";
    if (line.trim() === "") {
      if (fallback !== undefined) return { value: fallback };
      if (!isRequired) return undefined;
    }
    const value = readField(field, line);
    const checked = checkContent({ type: "object", properties: { [name]: field }, required: [name] }, {
      [name]: value,
    });
    if (checked.ok) return { value: value as FormContent[string] }; // it was just checked
    say(`This does not fit: ${exactLine(checked.reason)}`);
  }
}

/** Reads what a person typed as the value of a field. What cannot be read does not fit the field either. */
function readField(field: FormField, line: string): unknown {
  const text = line.trim();
  switch (field.type) {
    case "boolean":
      return /^(?:y|yes|true)$/i.test(text) ? true : /^(?:n|no|false)$/i.test(text) ? false : undefined;
    case "number":
    case "integer":
      return text === "" ? undefined : Number(text);
    case "array":
      return text.split(",").map((part) => choiceOf(field, part.trim())).filter((value) => value !== "");
    case "string":
      return field.oneOf === undefined ? line : choiceOf(field, text);
  }
}

/** Returns the choice that a person means by its value, its words or its number. */
function choiceOf(field: FormField, text: string): string {
  const choices = choicesOf(field);
  const named = choices.find((choice) => choice.const === text) ?? choices.find((choice) => choice.title === text);
  return (named ?? (/^\d{1,3}$/.test(text) ? choices[Number(text) - 1] : undefined))?.const ?? text;
}

function choicesOf(field: FormField): readonly { readonly const: string; readonly title: string }[] {
  if (field.type === "array") return field.items.anyOf;
  return field.type === "string" ? field.oneOf ?? [] : [];
}

function isYes(line: string): boolean {
  return /^\s*(?:y|yes)\s*$/i.test(line);
}
