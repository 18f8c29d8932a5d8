import { hash } from "node:crypto";
import * as v from "valibot";
import { describeApproval, toApprovalText } from "../../lib/guard/describe_approval.ts";
import { sayAsker } from "../../lib/guard/approvals.ts";
import { type LinkQuestion, type LinkRefusal, NOT_HERE } from "../../lib/guard/answer_links.ts";
import { refuse } from "../../lib/base/errors.ts";
import { exactLine, exactText } from "../../lib/base/text.ts";
import { defineRoute } from "../define_route.ts";

const MAX_FORM_BYTES = 2_048;

/** Pages that say why a link answers nothing. */
const NO_ANSWERS = [404, 409, 410].map((status) => ({
  ...{ status, type: "text/html", description: "The link answers nothing; the page says why" },
}));

const answerSchema = v.object({
  token: v.pipe(v.string(), v.maxLength(100)),
  nonce: v.pipe(v.string(), v.maxLength(100)),
  decision: v.picklist(["allow", "deny"]),
});

/** GET /answer/:token: the question of an answer link. Answers nothing: scanners of mail and previews of messages open links too. */
export const answerPageRoute = defineRoute({
  method: "GET",
  path: "/answer/:token",
  access: "public",
  needs: ["answerLinks"],
  summary: "Page with the question of an answer link; it answers nothing",
  reply: { status: 200, type: "text/html" },
  otherReplies: NO_ANSWERS,
  errors: ["rate_limited"],
  async handle({ answerLinks }, { params: { token }, address }) {
    const found = await (await answerLinks()).look({ token, address });
    return "refused" in found ? refusalPage(found) : page(200, "A question", questionOf(found, token));
  },
});

/** POST /answer: answers the question of an answer link, once, from its own page. */
export const answerRoute = defineRoute({
  method: "POST",
  path: "/answer",
  access: "public",
  needs: ["answerLinks"],
  summary: "Answer the question of an answer link, once, from its page",
  rawBody: { type: "application/x-www-form-urlencoded", maxBytes: MAX_FORM_BYTES, what: "answer" },
  reply: { status: 200, type: "text/html" },
  otherReplies: NO_ANSWERS,
  errors: ["rate_limited"],
  idempotency: "harmless",
  async handle({ answerLinks }, { body, address }) {
    const form = v.safeParse(answerSchema, Object.fromEntries(new URLSearchParams(new TextDecoder().decode(body))));
    if (!form.success) {
      throw refuse("invalid_request", "Cannot answer: this is no form of the page of a link; open the link again");
    }
    const { token, nonce, decision } = form.output;
    const refusal = await (await answerLinks()).answer({ token, address }, { nonce, decision });
    if (refusal !== undefined) return refusalPage(refusal);
    const done = decision === "allow" ? "Answered: yes, this once." : "Answered: no.";
    return page(200, "Answered", `<p>${done}</p><p>You can close this page. The link does not count any more.</p>`);
  },
});

function refusalPage({ refused, status }: LinkRefusal) {
  return page(status, "Nothing was answered", `<p>${escaped(refused)}</p>`);
}

function questionOf({ approval, nonce, words }: LinkQuestion, token: string): string {
  const { kind = "call", message = "", expires_at: end } = approval;
  const isQuestion = kind === "elicitation";
  const { title = "", ...described } = describeApproval(approval);
  const asked = isQuestion
    ? `<p>A question of ${escaped(exactLine(sayAsker(approval)))}:</p><pre>${escaped(exactText(message))}</pre>`
    : `<p><strong>${escaped(title)}</strong></p><pre>${escaped(toApprovalText(described))}</pre>`;
  const field = (name: string, value: string) => `<input type="hidden" name="${name}" value="${escaped(value)}">`;
  const button = (id: string, label: string) =>
    `<button id="${id}" name="decision" value="${id}">${escaped(label)}</button>`;
  const form = words === undefined
    ? `<p>${NOT_HERE}</p>`
    : `<form method="post" action="../answer">${field("token", token)}${field("nonce", nonce)}${
      button("allow", words.allow)
    }${button("deny", words.deny)}</form>`;
  return `${asked}${form}<p class="hint">It can be answered until ${escaped(end)}, once.</p>`;
}

const STYLE =
  "body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:46rem;padding:1rem;color-scheme:light dark}" +
  "pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #8888;border-radius:6px;padding:.75rem;font-size:.875rem}" +
  "form{display:flex;gap:.75rem;flex-wrap:wrap}button{flex:1 1 9rem;min-height:3rem;font:inherit;font-weight:600;border:1px solid #8888;" +
  "border-radius:6px;cursor:pointer}button:target{outline:3px solid #0f766e}.hint{opacity:.75;font-size:.875rem}";
const POLICY = `default-src 'none'; style-src 'sha256-${
  hash("sha256", STYLE, "base64")
}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'`;

/** Returns a page without a script. It is never kept, and sends its address nowhere else. */
function page(status: number, title: string, content: string) {
  const body =
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
    `<meta name="robots" content="noindex"><title>${title} - Postern</title><style>${STYLE}</style></head>` +
    `<body><main><h1>${title}</h1>${content}</main></body></html>`;
  const headers = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    // Without a referrer a browser names no origin with the form, and the answer would be refused
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
  };
  return { status, body, type: "text/html; charset=utf-8", headers };
}

function escaped(text: string): string {
  const names: Readonly<Record<string, string>> = { "&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "#39" };
  return text.replace(/[&<>"']/g, (character) => `&${names[character]};`);
}
