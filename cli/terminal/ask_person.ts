import { exactLine } from "../../lib/base/text.ts";
import type { Approval, RuleOffer } from "../../lib/base/records/approval.ts";
import { describeApproval, toApprovalText } from "../../lib/guard/describe_approval.ts";
import { type CommandContext, CommandError } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import { askForm, describeElicitation } from "./ask_form.ts";
import { messageColumns, wrapText } from "./terminal_text.ts";

/** Most characters of an input that a question shows: a few screens */
const MAX_INPUT_ASKED = 20_000;

/** Descriptions of the calls that a remembered answer covers. */
const MATCH_WORDS: Readonly<Record<RuleOffer["match"], string>> = {
  call: "this exact call",
  folder: "this tool in this folder",
  command: "this command with this first argument",
};

/**
 * Returns what the person at the terminal is told of an approval. Where the server of the call asks, its question comes first.
 * @param options.columns width that sentences are wrapped to, in characters; input and names stay as they are. Undefined: no wrapping
 * @param options.whole true shows a long input whole. Default: cut, with its length and digest
 */
export function shownApproval(
  approval: Approval,
  { columns, whole = false }: { readonly columns: number | undefined; readonly whole?: boolean },
): string {
  const described = describeApproval(approval, { maxInput: whole ? Number.POSITIVE_INFINITY : MAX_INPUT_ASKED });
  const wrap = (sentence: string) => wrapText(sentence, columns);
  if (approval.kind !== "elicitation") return toApprovalText(described, wrap);
  // The question has the reason already
  return `${describeElicitation(approval, { columns })}\n${toApprovalText(described, () => [])}`;
}

/** Describes the rules that an answer may store, each with the flags that store it. */
export function describeOffers(approval: Approval): string {
  if (approval.kind === "elicitation") return "The answer goes to whoever asks once, and is not remembered.";
  const offers = shownOffers(approval).map(({ remember, match, text }) =>
    `  --remember ${remember}${match === "call" ? "" : ` --match ${match}`}\n    ${exactLine(text)}`
  );
  return offers.length === 0
    ? "Such calls are asked about each time: no answer can be remembered."
    : `To remember:\n${offers.join("\n")}`;
}

/** Returns the rules that an answer may store. A record of an earlier version offers only the exact call, for good. */
export function shownOffers({ offers, always_rule: text }: Approval): readonly RuleOffer[] {
  return offers ?? (text === null ? [] : [{ remember: "always", match: "call", text }]);
}

/**
 * Asks the person at the terminal about a call, and answers the approval. Any line but a yes is a denial. A rule is shown before it
 * is stored, and needs a yes of its own.
 * @param options.inRun true while a run waits for the answer: the answer may then be remembered for the rest of the run
 * @returns undefined when nobody answered, for example at Ctrl-C: the approval stays open
 */
export async function askPerson(
  { io, say }: CommandContext,
  gateway: ReachedGateway,
  { id, inRun }: { readonly id: string; readonly inRun: boolean },
): Promise<"approve" | "deny" | undefined> {
  const approval = await gateway.call("GET /v1/approvals/:id", { params: { id } });
  say(shownApproval(approval, { columns: messageColumns(io) }));
  const answer = approval.kind === "elicitation"
    ? await askForm({ io, say }, approval)
    : await askAboutCall({ io, say }, { approval, inRun });
  if (answer === undefined) return undefined;
  try {
    await gateway.call("POST /v1/approvals/:id", { params: { id }, body: answer });
    return answer.decision;
  } catch (error) {
    // The approval expired, or was answered elsewhere
    if (!(error instanceof CommandError)) throw error;
    say(error.message);
    return "deny";
  }
}

/** Asks whether a call may run. @returns undefined when nobody answered */
async function askAboutCall(
  { io, say }: Pick<CommandContext, "say"> & { readonly io: Pick<CommandContext["io"], "ask"> },
  { approval, inRun }: { readonly approval: Approval; readonly inRun: boolean },
): Promise<Answer | undefined> {
  const choices = choicesOf(shownOffers(approval).filter(({ remember }) => inRun || remember === "always"));
  for (const [word, { match, remember }] of choices) {
    say(`  ${word.padEnd(12)} yes, and remember ${MATCH_WORDS[match]}${remember === "run" ? " in this run" : ""}`);
  }
  return await choose(choices, io.ask, say);
}

interface Answer {
  readonly decision: "approve" | "deny";
  readonly remember?: RuleOffer["remember"];
  readonly match?: RuleOffer["match"];
}

/** Asks until an answer is clear. @returns undefined when nobody answered */
async function choose(
  choices: ReadonlyMap<string, RuleOffer>,
  ask: CommandContext["io"]["ask"],
  say: CommandContext["say"],
): Promise<Answer | undefined> {
  for (;;) {
    const line = await ask(`Run this call? [${["y", "N", ...choices.keys()].join("/")}] `);
    if (line === undefined) return undefined;
    const word = line.trim().toLowerCase().replace(/\s+/g, " ");
    if (isYes(word)) return { decision: "approve" };
    const offer = choices.get(word);
    if (offer === undefined) return { decision: "deny" };
    say(`This rule would be stored, until you revoke it:\n  ${exactLine(offer.text)}`);
    const sure = await ask("Store it, and run this call? [y/N] ");
    if (sure === undefined) return undefined;
    const { remember, match } = offer;
    if (isYes(sure.trim().toLowerCase())) return { decision: "approve", remember, match };
  }
}

/** Returns the rules by the word that chooses each: `always`, `folder`, `command`, and with `run` before it for the rest of the run. */
function choicesOf(offers: readonly RuleOffer[]): ReadonlyMap<string, RuleOffer> {
  return new Map(offers.map((offer) => {
    const { remember, match } = offer;
    if (match === "call") return [remember, offer];
    return [remember === "run" ? `run ${match}` : match, offer];
  }));
}

function isYes(word: string): boolean {
  return word === "y" || word === "yes";
}

/**
 * Asks the person at the terminal about a call of a run that works in this process: no other client can reach that run. With --json
 * nobody is asked.
 * @returns true when the approval is answered. Otherwise it stays open, and stderr tells what to do
 */
export async function answerQuestion(context: CommandContext, gateway: ReachedGateway, id: string): Promise<boolean> {
  const { status } = await gateway.call("GET /v1/approvals/:id", { params: { id } });
  if (status !== "pending") return true;
  const answer = context.flags.json ? undefined : await askPerson(context, gateway, { id, inRun: false });
  if (answer !== undefined) return true;
  context.say(`The run waits for an answer: postern approval approve ${id}, or deny; a gateway then goes on with it`);
  return false;
}
