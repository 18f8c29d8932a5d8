import assert from "node:assert/strict";
import { test } from "node:test";
import { askForm, describeElicitation } from "../../../cli/terminal/ask_form.ts";
import type { Approval } from "../../../lib/base/records/approval.ts";
import type { Form } from "../../../lib/base/records/elicitation.ts";

const FORM: Form = {
  type: "object",
  properties: {
    name: { type: "string", title: "Name\u202e", minLength: 2 },
    age: { type: "integer", minimum: 0, default: 7 },
    sure: { type: "boolean" },
    colour: { type: "string", oneOf: [{ const: "r", title: "Red" }, { const: "g", title: "Green" }] },
    days: { type: "array", items: { anyOf: [{ const: "mo", title: "Monday" }, { const: "tu", title: "Tuesday" }] } },
  },
  required: ["name", "sure"],
};

/** Fills in a form by lines; undefined is Ctrl-D. */
async function filled(
  lines: readonly (string | undefined)[],
  question: Parameters<typeof askForm>[1] = { server: "crm", schema: FORM, url: null },
) {
  const rest = [...lines];
  const asked: string[] = [];
  const said: string[] = [];
  const answer = await askForm({
    io: { ask: (words) => (asked.push(words), Promise.resolve(rest.shift())) },
    say: (text) => void said.push(text),
  }, question);
  return { answer, asked, said, rest };
}

test("a form is filled in field by field, asked again where it does not fit, and shown before it is sent", async () => {
  const { answer, said, rest } = await filled(["y", "A", "Ada", "", "maybe", "yes", "2", "1, Tuesday", "y"]);
  assert.deepEqual(answer, {
    decision: "approve",
    content: { name: "Ada", age: 7, sure: true, colour: "g", days: ["mo", "tu"] },
  });
  assert.deepEqual(said.slice(0, 2), [
    "This does not fit: it must be a text of at least 2 characters",
    "This does not fit: it is required: true or false",
  ]);
  assert.match(said[2] ?? "", /^This is sent to the MCP server "crm":\n\{\n {2}"name": "Ada"/);
  assert.deepEqual(rest, []);
});

test("an empty line leaves an optional field out", async () => {
  const { answer } = await filled(["yes", "Ada", "", "no", "", "", "y"]);
  assert.deepEqual(answer?.content, { name: "Ada", age: 7, sure: false });
});

test("nothing is sent by a no, and nobody decides by Ctrl-D", async () => {
  assert.deepEqual((await filled([""])).answer, { decision: "deny" });
  assert.deepEqual((await filled(["y", "Ada", "", "y", "", "", "n"])).answer, { decision: "deny" });
  for (const lines of [[undefined], ["y", undefined], ["y", "Ada", "", "y", "", "", undefined]]) {
    assert.equal((await filled(lines)).answer, undefined);
  }
});

test("an address is shown in full with what cannot be seen spelled out, and only agreed to", async () => {
  const url = `https://crm.example/sign?${"x".repeat(300)}`;
  const approval = {
    reason: 'The MCP server "crm" asks',
    message: "Sign in\u200b\nnow",
    schema: null,
    url,
  } as Approval;
  const text = describeElicitation(approval, { columns: 40 });
  assert.ok(text.includes(`\n  ${url}`));
  assert.match(text, /\| Sign in\\u200b\n {2}\| now/);
  const { answer, asked } = await filled(["y"], { server: "crm", schema: null, url });
  assert.deepEqual(answer, { decision: "approve" });
  assert.match(asked[0] ?? "", /Open the address yourself/);
});

test("a form is described with each field, its bounds and its choices", () => {
  const text = describeElicitation({ reason: "Asks", message: "Who?", schema: FORM, url: null } as Approval, {
    columns: undefined,
  });
  assert.match(text, /name \(required\): a text of at least 2 characters\n {4}Name\\u202e/);
  assert.match(text, /colour \(optional\): one of "r", "g"\n {4}1\. Red \(r\)\n {4}2\. Green \(g\)/);
});
