import { isRecord } from "../base/json.ts";
import type { Approval, ApprovalDescription, DescribedChange } from "../base/records/approval.ts";
import { lineDifference } from "../base/line_difference.ts";
import { cutText, exactLine, exactText, listSome } from "../base/text.ts";

/** Characters of an input that a description has by default; a page with more of them stands still. */
const MAX_INPUT = 200_000;
/** Characters of a name in a title, which is one line. */
const MAX_NAMED = 200;
/** Files that a title names. */
const MAX_FILES = 3;

/** The parts of an approval that its description is made of. */
export type DescribedApproval =
  & Pick<
    Approval,
    "id" | "tool" | "access" | "workspace" | "input" | "input_digest" | "reason" | "files" | "bound" | "containment"
  >
  & Partial<Pick<Approval, "changes" | "fails" | "commands" | "asker" | "run_id" | "kind">>;

/**
 * Describes a call to the person who must answer, for every door: HTTP, WebSocket, dashboard, terminal and the form of a client of MCP.
 * Spells out invisible characters, and says of a long input that it is cut.
 * @param options.maxInput characters of the input that are kept. Default 200,000
 */
export function describeApproval(
  approval: DescribedApproval,
  { maxInput = MAX_INPUT }: { readonly maxInput?: number } = {},
): ApprovalDescription {
  const { id, tool, access, workspace, input_digest: digest, reason, files, bound = [], containment } = approval;
  const { spelled, length, isCut } = spelledInput(approval, maxInput);
  const whole = `postern approval show ${id} shows it whole`;
  return {
    title: titleOf(approval),
    call: `${exactLine(tool)} (${access}) in ${exactLine(workspace)}`,
    asker: askerLines(approval),
    input: [
      ...noticesOf(approval).map((line) => `! ${line}`),
      isCut ? `${cutText(spelled, { limit: maxInput, digest, length })}\n${whole}` : spelled,
      ...commandLines(approval),
    ].join("\n"),
    reason: exactLine(whyAsked(reason)),
    containment: containment === undefined || containment === null ? null : exactLine(containment.text),
    files: files.map(({ path, sha256 }) => exactLine(`${JSON.stringify(path)} ${sayDigest(sha256, "new")}`)),
    bound: bound.map(({ kind, name, sha256 }) =>
      exactLine(`${kind} ${JSON.stringify(name)} ${sayDigest(sha256, "none")}`)
    ),
  };
}

/** Tells whether a description with the default bound shows the whole input, and all that it changes. */
export function isShownWhole(approval: DescribedApproval): boolean {
  return leftOut(approval) === 0 && !spelledInput(approval, MAX_INPUT).isCut;
}

/** Returns the input as a person reads it, up to a bound, and the characters of all of it. */
function spelledInput(
  approval: DescribedApproval,
  maxInput: number,
): { readonly spelled: string; readonly length: number; readonly isCut: boolean } {
  const json = JSON.stringify(approval.input, null, 2) ?? "null";
  const change = json.length > maxInput ? undefined : shownChange(approval);
  // Without a bound nothing is left out, and what no difference shows is in the input alone
  const needsInput = hasUnshown(approval) || (maxInput === Number.POSITIVE_INFINITY && leftOut(approval) > 0);
  const shown = change === undefined ? json : needsInput ? `${change}\nThe whole input:\n${json}` : change;
  // Spelling out is slow: the rest of a long input is cut off before
  const spelled = exactText(shown.length > maxInput ? shown.slice(0, maxInput) : shown);
  const isCut = shown.length > maxInput || spelled.length > maxInput;
  return { spelled, length: Math.max(shown.length, spelled.length), isCut };
}

/** Says in one line who wants to do what, such as `The agent wants to create plan.md`. */
function titleOf({ tool, input, changes, asker, kind }: DescribedApproval): string {
  const who = asker === undefined ? "The agent" : whoAsks(asker);
  if (kind === "elicitation") return `${who} has a question for you`;
  return `${who} wants to ${changes === undefined ? deedOf(tool, fieldsOf(input)) : deedOfChanges(changes)}`;
}

function whoAsks({ via, direct, parent_id: parent }: NonNullable<Approval["asker"]>): string {
  if (direct === true) return DIRECT.get(via) ?? "A program";
  if (via === "subagent" || parent !== null) return "A sub-agent";
  return via === "cron" ? "A schedule" : via === "sop" ? "A procedure" : via === "channel" ? "A channel" : "The agent";
}

const DIRECT = new Map([
  ["cli", "Somebody at the terminal"],
  ["mcp", "A client of MCP"],
  ["program", "The program around the gateway"],
]);

const DEEDS = { create: "create", change: "change", delete: "delete", move: "move" } as const;

function deedOfChanges(changes: readonly DescribedChange[]): string {
  const [only, ...more] = changes;
  if (only === undefined) return "try a change, and change no file";
  if (more.length > 0) {
    return `change ${changes.length} files: ${listSome(changes.map(({ path }) => named(path)), MAX_FILES)}`;
  }
  const { kind, path, from } = only;
  return from === undefined ? `${DEEDS[kind]} ${named(path)}` : `move ${named(from)} to ${named(path)}`;
}

function deedOf(tool: string, { path, command, url, method }: Readonly<Record<string, unknown>>): string {
  if (tool === "write_file" && typeof path === "string") return `write ${named(path)}`;
  if (tool === "file_edit" && typeof path === "string") return `change ${named(path)}`;
  if (tool === "apply_patch") return "change files by a patch";
  if (tool === "shell" && typeof command === "string") return `run ${named(command)}`;
  const host = typeof url === "string" ? URL.parse(url)?.host ?? "" : "";
  if (host === "") return `call ${named(tool)}`;
  return tool === "http_request" && typeof method === "string"
    ? `send a ${named(method.toUpperCase())} request to ${named(host)}`
    : `call ${named(tool)} at ${named(host)}`;
}

/** Returns a name for the middle of a sentence: quoted where a person could take a part of it for the sentence. */
function named(name: string): string {
  const line = exactLine(name);
  const cut = line.length <= MAX_NAMED ? line : `${line.slice(0, MAX_NAMED)}... (${line.length} characters)`;
  return /^[\w./:@+-]+$/.test(cut) ? cut : JSON.stringify(cut);
}

/** Returns lines about the work that asks. */
function askerLines({ asker, run_id: run }: DescribedApproval): string[] {
  if (asker === undefined) return [];
  const { conversation_id: conversation, parent_id: parent, message } = asker;
  return [
    ...(conversation === null ? [] : [`Conversation ${conversation}`]),
    ...(run === undefined || asker.direct === true
      ? []
      : [`Run ${run}${parent === null ? "" : `, for the run ${parent}`}`]),
    ...(message === null ? [] : [`Message: ${message}`]),
  ].map(exactLine);
}

/** Returns what a person must know before anything else: that something is left out, or that the call would fail. */
function noticesOf(approval: DescribedApproval): readonly string[] {
  const { id, fails } = approval;
  const left = leftOut(approval);
  return [
    ...(fails === undefined ? [] : [`As things stand the call would fail: ${exactLine(fails)}`]),
    ...(left === 0 ? [] : [
      `Not all is shown here: ${left} lines of the difference are left out. postern approval show ${id} has the whole input`,
    ]),
  ];
}

/** Counts the lines of differences that are not shown. */
function leftOut({ changes = [] }: DescribedApproval): number {
  return changes.reduce((sum, { left_out: lines }) => sum + lines, 0);
}

/** Tells whether a file is written whose difference cannot be shown: what comes into it is in the input alone. */
function hasUnshown({ changes = [] }: DescribedApproval): boolean {
  return changes.some(({ diff, kind }) => diff === null && kind !== "delete");
}

/** Returns the commands of a line of bash, each by itself. */
function commandLines({ commands = [] }: DescribedApproval): readonly string[] {
  if (commands.length === 0) return [];
  return [
    `It has ${commands.length} commands:`,
    ...commands.map((text, index) => `  ${index + 1}. ${exactLine(text)}`),
  ];
}

/**
 * Returns the input of a tool that changes files line by line: its other fields, then what is taken away and added. No line of a text can
 * stand for one of Postern's, since each has a sign or a blank before it. undefined: it is shown as JSON
 */
function shownChange({ tool, input, changes }: DescribedApproval): string | undefined {
  if (tool !== "file_edit" && tool !== "write_file" && tool !== "apply_patch") return undefined;
  const lines = changes === undefined || changes.length === 0 ? changeOf(input) : differencesOf(input, changes);
  return lines?.join("\n");
}

/** Returns the fields beside the text, then each file with its difference. */
function differencesOf(input: unknown, changes: readonly DescribedChange[]): readonly string[] {
  const { edits: _edits, content: _content, patch: _patch, ...rest } = fieldsOf(input);
  return [
    ...headOf(rest),
    ...changes.flatMap(({ path, from, kind, mode, added, removed, diff, left_out: left, note }) => [
      [
        `File ${from === undefined ? "" : `${JSON.stringify(from)} -> `}${JSON.stringify(path)}: ${KIND_WORDS[kind]}`,
        ...(diff === null ? [] : [`+${added} -${removed} lines`]),
        ...(mode === undefined ? [] : [`mode ${(mode & 0o777).toString(8)}`]),
        ...(note === undefined ? [] : [note]),
      ].join(", "),
      ...(diff === null || diff === "" ? [] : diff.split("\n")),
      ...(left === 0 ? [] : [`... ${left} more lines of this difference are left out`]),
    ]),
  ];
}

const KIND_WORDS = { create: "new", change: "changed", delete: "deleted", move: "moved" } as const;

function fieldsOf(input: unknown): Readonly<Record<string, unknown>> {
  // An object of JSON has fields by name
  return typeof input === "object" && input !== null ? input as Readonly<Record<string, unknown>> : {};
}

function headOf(rest: Readonly<Record<string, unknown>>): readonly string[] {
  return Object.entries(rest).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
}

function changeOf(input: unknown): readonly string[] | undefined {
  if (typeof input !== "object" || input === null) return undefined;
  const { edits, content, patch, ...rest } = fieldsOf(input);
  const head = headOf(rest);
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
  { title, call, asker = [], input, reason, containment, files, bound }: ApprovalDescription,
  wrap: (sentence: string) => readonly string[] = (sentence) => [sentence],
): string {
  return [
    ...(title === undefined ? [] : [title]),
    call,
    ...asker,
    input,
    ...wrap(reason),
    ...(containment === null ? [] : wrap(containment)),
    ...(files.length === 0 ? [] : ["Files:", ...files.map((line) => `  ${line}`)]),
    ...(bound.length === 0 ? [] : ["Bound to:", ...bound.map((line) => `  ${line}`)]),
  ].join("\n");
}
