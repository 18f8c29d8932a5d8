import { isRecord } from "../base/json.ts";
import type { Approval, ApprovalDescription } from "../base/records/approval.ts";
import { lineDifference } from "../base/line_difference.ts";
import { cutText, exactLine, exactText } from "../base/text.ts";

/** Characters of an input that a description has by default; a page with more of them stands still. */
const MAX_INPUT = 200_000;

/** The parts of an approval that its description is made of. */
export type DescribedApproval = Pick<
  Approval,
  "id" | "tool" | "access" | "workspace" | "input" | "input_digest" | "reason" | "files" | "bound" | "containment"
>;

/**
 * Describes a call to the person who must answer, for every door: HTTP, WebSocket, dashboard, terminal and the form of a client of MCP.
 * Spells out invisible characters, and says of a long input that it is cut.
 * @param options.maxInput characters of the input that are kept. Default 200,000
 */
export function describeApproval(
  { id, tool, access, workspace, input, input_digest: digest, reason, files, bound = [], containment }:
    DescribedApproval,
  { maxInput = MAX_INPUT }: { readonly maxInput?: number } = {},
): ApprovalDescription {
  const json = JSON.stringify(input, null, 2) ?? "null";
  const shown = (json.length > maxInput ? undefined : shownChange(tool, input)) ?? json;
  // Spelling out is slow: the rest of a long input is cut off before
  const spelled = exactText(shown.length > maxInput ? shown.slice(0, maxInput) : shown);
  const isCut = shown.length > maxInput || spelled.length > maxInput;
  const length = Math.max(shown.length, spelled.length);
  return {
    call: `${exactLine(tool)} (${access}) in ${exactLine(workspace)}`,
    input: isCut
      ? `${cutText(spelled, { limit: maxInput, digest, length })}\npostern approval show ${id} shows it whole`
      : spelled,
    reason: exactLine(whyAsked(reason)),
    containment: containment === undefined || containment === null ? null : exactLine(containment.text),
    files: files.map(({ path, sha256 }) => exactLine(`${JSON.stringify(path)} ${sayDigest(sha256, "new")}`)),
    bound: bound.map(({ kind, name, sha256 }) =>
      exactLine(`${kind} ${JSON.stringify(name)} ${sayDigest(sha256, "none")}`)
    ),
  };
}

/**
 * Returns the input of a tool that changes files line by line: its other fields, then what is taken away and added. No line of a text can
 * stand for one of Postern's, since each has a sign or a blank before it. undefined: it is shown as JSON
 */
function shownChange(tool: string, input: unknown): string | undefined {
  const lines = tool === "file_edit" || tool === "write_file" || tool === "apply_patch" ? changeOf(input) : undefined;
  return lines?.join("\n");
}

function changeOf(input: unknown): readonly string[] | undefined {
  if (typeof input !== "object" || input === null) return undefined;
  const { edits, content, patch, ...rest } = input as Readonly<Record<string, unknown>>; // an object has fields by name
  const head = Object.entries(rest).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  if (Array.isArray(edits) && edits.every(isEdit) && content === undefined && patch === undefined) {
    const of = (index: number) => edits.length === 1 ? [] : [`@@ ${index + 1} of ${edits.length} @@`];
    return [...head, ...edits.flatMap((edit, index) => [...of(index), ...differenceOf(edit)])];
  }
  const [text, sign] = typeof content === "string" ? [content, "+"] : [patch, "  "];
  if (typeof text !== "string" || edits !== undefined || (content !== undefined && patch !== undefined)) {
    return undefined;
  }
  const isEnded = text.endsWith("\n");
  const lines = (isEnded ? text.slice(0, -1) : text).split("\n").map((line) => `${sign}${line}`);
  return [...head, ...lines, ...(isEnded || text === patch ? [] : ["\\ no line break at the end"])];
}

interface ShownEdit {
  readonly old_text: string;
  readonly new_text: string;
}

function isEdit(edit: unknown): edit is ShownEdit {
  if (!isRecord(edit) || Object.keys(edit).length !== 2) return false;
  const { old_text: before, new_text: after } = edit;
  return typeof before === "string" && typeof after === "string";
}

/** Returns the lines of an edit, all of them, without the head that counts them. */
function differenceOf({ old_text: before, new_text: after }: ShownEdit): readonly string[] {
  const bounds = { context: Number.MAX_SAFE_INTEGER, maxBytes: Number.MAX_SAFE_INTEGER, ofParts: true };
  return lineDifference(before, after, bounds).split("\n").slice(1);
}

/** Returns the reason of an approval for the person who is asked. The record has the sentence that refuses the call where nobody can be. */
export function whyAsked(reason: string): string {
  const [, why] = /^Cannot call "[^"]*" without approval: (.*)$/s.exec(reason) ?? [];
  return why === undefined ? reason : `You are asked because ${why}`;
}

function sayDigest(sha256: string | null, none: string): string {
  return sha256 === null ? `(${none})` : `sha256:${sha256}`;
}

/** Returns a description as one text. @param wrap breaks a sentence into lines. Default: a sentence is a line */
export function toApprovalText(
  { call, input, reason, containment, files, bound }: ApprovalDescription,
  wrap: (sentence: string) => readonly string[] = (sentence) => [sentence],
): string {
  return [
    call,
    input,
    ...wrap(reason),
    ...(containment === null ? [] : wrap(containment)),
    ...(files.length === 0 ? [] : ["Files:", ...files.map((line) => `  ${line}`)]),
    ...(bound.length === 0 ? [] : ["Bound to:", ...bound.map((line) => `  ${line}`)]),
  ].join("\n");
}
