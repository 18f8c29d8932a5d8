import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  checkTemplates,
  fillInput,
  fillText,
  type KnownNames,
  type TemplateScope,
} from "../../../lib/automation/sops/template.ts";

const KNOWN: KnownNames = {
  inputs: new Map([["version", "string"], ["count", "integer"], ["extra", "object"]]),
  steps: new Set(["build"]),
  allSteps: new Set(["build", "later"]),
};
const scope = (values: Partial<TemplateScope> = {}): TemplateScope => ({
  inputs: { version: "1.2.0", count: 3, extra: { deep: { list: ["a", "b"] } }, none: null },
  steps: { build: { output: "built", data: { path: "out", sizes: [1, 2] }, status: "completed" } },
  execution: { id: "sop_1", date: "2026-01-01" },
  ...values,
});
const as = (_: string, output: string) => output;
const reasons = (value: unknown) => checkTemplates(value, KNOWN).map(({ reason }) => reason);

describe("filling in", () => {
  test("a text that is one expression alone becomes the value, of its type", () => {
    const filled = fillInput(
      { a: "{{inputs.count}}", b: ["{{ steps.build.data.sizes }}"], c: "{{inputs.none}}" },
      scope(),
    );
    assert.deepEqual(filled, { a: 3, b: [[1, 2]], c: null });
  });

  test("in a longer text values are texts, lists and objects JSON, and nothing is empty", () => {
    const text = "v{{inputs.version}} ({{inputs.count}}) {{steps.build.data.sizes}}{{inputs.none}} {{execution.date}}";
    assert.equal(fillText(text, scope(), as), "v1.2.0 (3) [1,2] 2026-01-01");
  });

  test("paths go into objects and lists, by their own properties alone", () => {
    assert.equal(fillInput("{{inputs.extra.deep.list.1}}", scope()), "b");
    for (
      const path of [
        "inputs.extra.constructor",
        "inputs.extra.deep.toString",
        "steps.build.data.path.0.x",
        "steps.x.output",
      ]
    ) {
      assert.throws(() => fillInput(`{{${path}}}`, scope()), {
        name: "TemplateError",
        message: /there is no such value/,
      }, path);
    }
  });

  test("four braces stand for two, and lone closing ones for themselves", () => {
    assert.equal(fillText("${{{{ github.ref }} {{inputs.version}} }}", scope(), as), "${{ github.ref }} 1.2.0 }}");
    assert.deepEqual(reasons("${{{{ github.ref }} }}"), []);
  });

  test("what was filled in is not looked at again", () => {
    const inputs = { version: "{{steps.build.output}}", count: "{{" };
    assert.equal(fillInput("{{inputs.version}}", scope({ inputs })), "{{steps.build.output}}");
    assert.equal(fillText("{{inputs.count}}inputs.version}}", scope({ inputs }), as), "{{inputs.version}}");
  });

  test("what grows without bounds is refused", () => {
    const inputs = { version: "x".repeat(200_000) };
    const text = "{{inputs.version}} ".repeat(4);
    assert.throws(() => fillText(text, scope({ inputs }), as), /grows over/);
    assert.throws(() => fillInput(Array(4).fill("{{inputs.version}}"), scope({ inputs })), /grows over/);
  });

  test("only outputs of steps are shown through the envelope", () => {
    const shown = (id: string, output: string) => `<${id}:${output}>`;
    const text = "{{inputs.version}} {{steps.build.output}} {{steps.build.data.path}} {{steps.build.status}}";
    assert.equal(fillText(text, scope(), shown), "1.2.0 <build:built> <build:out> completed");
  });
});

describe("what is known when a definition is loaded", () => {
  const bad: readonly (readonly [string, RegExp])[] = [
    ["{{inputs.versoin}}", /names an input that is not declared; there are "version"/],
    ["{{inputs.version.x}}", /goes into the input "version", which is of type string/],
    ["{{steps.later.output}}", /names a step that does not come before this one/],
    ["{{steps.nope.output}}", /names a step that there is not; there are "build"/],
    ["{{steps.build}}", /is no value of a step; there are output, data and status/],
    ["{{steps.build.output.length}}", /is no value of a step/],
    ["{{execution.secret}}", /is no name/],
    ["{{env.HOME}}", /is no name; there are inputs/],
    ["{{inputs['version']}}", /is no name/],
    ["{{inputs.version + 1}}", /is no name/],
    ["{{inputs.__proto__}}", /is no name/],
    ["{{inputs.version", /is not closed/],
    ["{{}}", /is no name/],
    [`{{inputs.${"x".repeat(400)}}}`, /is no name/],
    [`{{inputs.extra${".x".repeat(40)}}}`, /is no name/],
  ];
  for (const [text, reason] of bad) {
    test(`refuses ${text.slice(0, 40)}`, () => {
      assert.equal(reasons(`a ${text}`).length, 1);
      assert.match(reasons(text)[0] ?? "", reason);
    });
  }

  test("says where in the value it stands, and that a key is no template", () => {
    const found = checkTemplates({ a: ["fine", "{{inputs.x}}"], "{{inputs.version}}": "1" }, KNOWN);
    assert.deepEqual(found.map(({ path }) => path), [["a", 1], ["{{inputs.version}}"]]);
    assert.match(found[1]?.reason ?? "", /a key cannot be a template/);
  });

  test("takes what it can fill in", () => {
    const fine = "{{inputs.version}} {{ inputs.extra.any.way }} {{steps.build.data.a.0}} {{execution.id}}";
    assert.deepEqual(reasons(fine), []);
  });
});

test("any value stays in its place: the input is valid JSON, with it there and nothing beside it", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.string(), fc.string(), (value, before, after) => {
      const given = scope({ inputs: { version: value } });
      const [head, tail] = [before, after].map((text) => text.replaceAll("{", "("));
      const template = {
        field: "{{inputs.version}}",
        text: `${head}{{inputs.version}}${tail}`,
        list: ["{{inputs.version}}", "last"],
      };
      const filled = JSON.parse(JSON.stringify(fillInput(template, given))) as Record<string, unknown>;
      const kept = JSON.parse(JSON.stringify(value)) as unknown;
      assert.deepEqual(Object.keys(filled), ["field", "text", "list"]);
      assert.deepEqual(filled["field"], kept);
      assert.deepEqual(filled["list"], [kept, "last"]);
      const text = value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
      // A text around it makes it one; without any it is the value alone
      assert.deepEqual(filled["text"], head === "" && tail === "" ? kept : `${head}${text}${tail}`);
    }),
    { numRuns: 200 },
  );
});

test("any text that passes the check is filled in or refused, never half", () => {
  const piece = fc.constantFrom(
    "{{",
    "}}",
    "{",
    "inputs.version",
    "steps.build.output",
    " ",
    "x",
    "{{{{",
    "{{inputs.count}}",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const text = pieces.join("");
      if (reasons(text).length > 0) return;
      assert.equal(typeof fillText(text, scope(), as), "string");
    }),
    { numRuns: 200 },
  );
});
