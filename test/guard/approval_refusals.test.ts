import assert from "node:assert/strict";
import { test } from "node:test";
import * as refusals from "../../lib/guard/approval_refusals.ts";
import { ERROR_TABLE } from "../contract/error_codes.ts";

test("each refusal of the approvals has the status and type that the contract gives its code, and names its field", () => {
  const made = [
    refusals.unknownApproval(),
    refusals.settledBefore("expired"),
    refusals.notRemembered({ rule: "always_ask:shell" }),
    refusals.matchNotOffered("tool", ["call"]),
    refusals.matchWithoutRemember(),
    refusals.tooManyRules(),
    refusals.approvalClaimed(),
    refusals.contentNotTaken("it is about a call"),
    refusals.contentRefused({ field: "age\u202e", reason: "it must be an integer" }),
    refusals.editNotTaken("it does not fit"),
    refusals.notEditable({ reason: "level:supervised asks" }),
    refusals.movedSince(),
    refusals.askedElsewhere(),
  ];
  assert.deepEqual(Object.keys(refusals).length, made.length);
  for (const { code, status, type } of made) {
    const [, known, kind] = ERROR_TABLE.find(([name]) => name === code) ?? [];
    assert.deepEqual([status, type], [known, kind], code);
  }
  assert.deepEqual(made.map(({ param }) => param), [
    null,
    null,
    "remember",
    "match",
    "match",
    null,
    null,
    "content",
    "content.age\\u202e",
    "input",
    "input",
    null,
    null,
  ]);
});
