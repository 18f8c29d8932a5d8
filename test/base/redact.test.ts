import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { createRedactor, redactJson } from "../../lib/base/redact.ts";
import { processorMs } from "../support/processor_time.ts";

const SECRET = "sk-test+/=?&0123456789";

test("redact() masks a secret in plain, base64, base64url, hex and URL form", () => {
  const { redact } = createRedactor([SECRET]);
  const bytes = Buffer.from(SECRET);
  const forms = [
    SECRET,
    bytes.toString("base64"),
    bytes.toString("base64url"),
    bytes.toString("hex"),
    bytes.toString("hex").toUpperCase(),
    encodeURIComponent(SECRET),
    encodeURIComponent(SECRET).replace(/%../g, (escaped) => escaped.toLowerCase()),
    [...bytes].map((byte) => `%${byte.toString(16)}`).join(""),
    JSON.stringify(SECRET).slice(1, -1).replaceAll("/", "\\/"),
  ];
  for (const form of forms) {
    const shown = redact(`before ${form} after`);
    assert.ok(!shown.includes(form.slice(4, 20)), shown);
    assert.match(shown, /^before .*\[redacted\].* after$/);
  }
});

test("redact() finds a secret inside a longer base64 text at any offset", () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (before, after) => {
      const encoded = Buffer.from(before + SECRET + after).toString("base64");
      assert.ok(createRedactor([SECRET]).redact(encoded).includes("[redacted]"), encoded);
    }),
    { numRuns: 100 },
  );
});

test("redact() masks a secret as writers of JSON and HTML escape it", () => {
  const secret = `a"b'c<d>&e+f/é`;
  const { redact } = createRedactor([secret]);
  const forms = [
    JSON.stringify(secret),
    JSON.stringify(secret).replaceAll("/", "\\/"),
    `"a\\"b'c\\u003Cd\\u003E\\u0026e+f/é"`,
    `"a\\"b'c<d>&e+f/\\u00E9"`,
    `"a\\u0022b\\u0027c\\u003Cd\\u003E\\u0026e\\u002Bf/\\u00E9"`,
  ];
  for (const form of forms) {
    assert.equal(redact(form), '"[redacted]"', form);
    assert.equal(redact(form.toLowerCase()), '"[redacted]"', form.toLowerCase());
  }
  assert.equal(redact("<p>a&quot;b&#39;c&lt;d&gt;&amp;e+f/é</p>"), "<p>[redacted]</p>");
});

test("redact() masks a secret in a form's field", () => {
  const secret = "two words & more";
  const shown = createRedactor([secret]).redact(new URLSearchParams({ field: secret }).toString());
  assert.equal(shown, "field=[redacted]");
});

test("redact() leaves less than half of a long secret where a cut took the rest", () => {
  const long = "sk-0123456789abcdefghijklmnopqrstuvwxyzABCD";
  const { redact } = createRedactor([long]);
  for (let length = 8; length < long.length; length++) {
    for (const part of [long.slice(0, length), long.slice(-length)]) {
      const shown = redact(`<${part}>`).replaceAll(/[<>]|\[redacted\]/g, "");
      assert.ok(shown.length <= long.length / 2, `${part}: ${shown}`);
    }
  }
});

test("redact() leaves text without a secret alone, and values under 8 bytes are not secrets", () => {
  const redactor = createRedactor(["short"]);
  assert.equal(redactor.redact("a short text"), "a short text");
  redactor.add(SECRET);
  assert.equal(redactor.redact("nothing to see here"), "nothing to see here");
});

test("redact() masks a secret that contains another one whole", () => {
  const { redact } = createRedactor(["abcdefgh", "abcdefgh-and-more"]);
  assert.equal(redact("x abcdefgh-and-more y"), "x [redacted] y");
});

test("redactJson() masks values and names, and takes any depth", () => {
  const { redact } = createRedactor([SECRET]);
  const masked = redactJson({ [SECRET]: [SECRET, 1, null, { a: `x ${SECRET}` }] }, redact);
  assert.deepEqual(masked, { "[redacted]": ["[redacted]", 1, null, { a: "x [redacted]" }] });
  const deep = JSON.parse("[".repeat(50_000) + "]".repeat(50_000));
  assert.ok(JSON.stringify(redactJson(deep, redact)).length < 300);
});

/** Returns texts as secrets are, each time the same ones. */
const made = (count: number, length: number, seed = "") =>
  Array.from({ length: count }, (_, index) => {
    let text = "";
    for (let part = 0; text.length < length; part++) text += hash("sha256", `${seed}${index}/${part}`, "base64url");
    return text.slice(0, length);
  });

/** Texts of a stranger that cost most: common beginnings, whose ends differ, and texts that follow them. */
const HOSTILE: Readonly<Record<string, { readonly secrets: readonly string[]; readonly text: string }>> = {
  "of 16,384 characters": { secrets: made(1, 16_384), text: made(1, 16_383).join("").repeat(30) },
  "of 4 KiB, 160 of them": { secrets: made(160, 4_096), text: made(1, 500_000, "other").join("") },
  "in thousands of forms": { secrets: made(400, 40), text: made(400, 39).join(" ").repeat(20) },
  "that repeat themselves": {
    secrets: Array.from({ length: 64 }, (_, index) => `${"a".repeat(4_000 + index)}b${"c".repeat(4_000)}`),
    text: `${"a".repeat(3_999)}-`.repeat(100),
  },
  "that share all but their end": {
    secrets: made(100, 24).map((end, index) => "a".repeat(8 + index % 56) + end),
    text: "a".repeat(500_000),
  },
};

for (const [what, { secrets, text }] of Object.entries(HOSTILE)) {
  test(`secrets ${what} are searched in a time that grows with the text alone, and nothing throws`, () => {
    const redactor = createRedactor(secrets);
    // The finders are made at the first text
    redactor.redact("a first text");
    redactor.part.pending(Buffer.from("a first text"));
    const started = processorMs();
    redactor.redact(text);
    redactor.part.redact(Buffer.from(text), { from: 0, to: text.length });
    redactor.part.pending(Buffer.from(text));
    // 1 s at most on a busy machine; they took long, or threw when it was one regular expression
    assert.ok(processorMs() - started < 4_000, `${processorMs() - started} ms`);
    for (const secret of secrets.slice(0, 5)) assert.equal(redactor.redact(`x ${secret} y`), "x [redacted] y");
  });
}

test("redact() masks a long secret as far as it is there, from 64 characters on", () => {
  const [secret = ""] = made(1, 4_096);
  const { redact } = createRedactor([secret]);
  assert.equal(redact(`x ${secret.slice(0, 64)} y`), "x [redacted] y");
  assert.equal(redact(`x ${secret.slice(0, 1_500)} y`), "x [redacted] y");
  assert.equal(redact(`x ${secret.slice(0, 63)} y`), `x ${secret.slice(0, 63)} y`);
});

test("replace() forgets what a name had before, and add() keeps the newest 1,024 values of a name", () => {
  const redactor = createRedactor();
  const [first = "", second = ""] = made(2, 32);
  redactor.replace("a token", [first]);
  assert.equal(redactor.redact(first), "[redacted]");
  redactor.replace("a token", [second]);
  assert.deepEqual([redactor.redact(first), redactor.redact(second)], [first, "[redacted]"]);
  redactor.replace("a token", []);
  assert.equal(redactor.redact(second), second);
  assert.equal(redactor.part.reach(), 0);
  const values = made(1_100, 16);
  for (const value of values) redactor.add(value, "[secrets.shop]");
  redactor.add(values[60] ?? "", "[secrets.shop]");
  const kept = values.filter((value) => redactor.redact(value) === "[redacted]");
  assert.deepEqual([kept.length, kept[0], kept.at(-1)], [1_024, values[60], values[1_099]]);
});

test("masked() names the secrets in a value, and what is the operator's too is the operator's", () => {
  const redactor = createRedactor([[SECRET, 'the environment variable "KEY"']]);
  const [token = ""] = made(1, 40);
  redactor.replace('a token of the MCP server "acme"', [token, SECRET]);
  assert.deepEqual(redactor.masked({ text: "nothing" }), []);
  assert.deepEqual(redactor.masked({ [token.slice(0, 20)]: [`x ${SECRET}`, Buffer.from(token).toString("base64")] }), [
    { name: 'a token of the MCP server "acme"', isOwn: false },
    { name: 'the environment variable "KEY"', isOwn: true },
  ]);
});
