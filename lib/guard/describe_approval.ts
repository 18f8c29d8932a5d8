import type { Approval, ApprovalDescription } from "../base/records/approval.ts";
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
  // Spelling out is slow: the rest of a long input is cut off before
  const spelled = exactText(json.length > maxInput ? json.slice(0, maxInput) : json);
  const isCut = json.length > maxInput || spelled.length > maxInput;
  const length = Math.max(json.length, spelled.length);
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
