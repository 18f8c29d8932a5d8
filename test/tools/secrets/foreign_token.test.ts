import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { test } from "node:test";
import { tokenFault } from "../../../lib/tools/secrets/foreign_token.ts";

const REFUSED: Readonly<Record<string, RegExp>> = {
  "https://": /characters that no bearer token has/,
  "a:b0123456789ABCDEFxyz": /characters/,
  "tab\tand-0123456789ABCDEF": /characters/,
  "": /characters/,
  "//evil.example/a9K2x7Qm4Lp8": /"\/\/" as an address/,
  "a9K2x7//Qm4Lp8wZr3Tn6Vb1": /"\/\/" as an address/,
  "0123456789aBcDe": /fewer than 16 bytes/,
  "registry.npmjs.org": /can be guessed/,
  "install-the-dependencies": /can be guessed/,
  "node_modules/typescript/bin": /can be guessed/,
  "1234567890123456": /can be guessed/,
};
for (const [token, reason] of Object.entries(REFUSED)) {
  test(`${JSON.stringify(token)} is no token`, () => assert.match(tokenFault(token) ?? "taken", reason));
}

test("text that repeats itself is no token, however long, and none has more than 8,192 bytes", () => {
  assert.match(tokenFault("a".repeat(8_000)) ?? "", /can be guessed/);
  assert.match(tokenFault("abc/def-".repeat(1_000)) ?? "", /can be guessed/);
  assert.match(tokenFault(randomBytes(6_200).toString("base64url")) ?? "", /more than 8192 bytes/);
});

test("tokens as servers give them are taken", () => {
  for (let tries = 0; tries < 500; tries++) {
    const tokens = [
      randomBytes(16).toString("hex"),
      randomBytes(24).toString("base64url"),
      randomUUID(),
      `gho_${randomBytes(27).toString("hex").slice(0, 36)}`,
      `xoxb-${randomBytes(20).toString("hex")}`,
      // Google's refresh tokens
      `1//0${randomBytes(60).toString("base64url")}`,
      `${randomBytes(24).toString("base64url")}==`,
      [
        "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9",
        randomBytes(900).toString("base64url"),
        randomBytes(256).toString("base64url"),
      ]
        .join("."),
    ];
    for (const token of tokens) assert.equal(tokenFault(token), undefined, token);
  }
});
