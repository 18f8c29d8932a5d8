import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createRedactor, redactJson } from "../../lib/base/redact.ts";

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
