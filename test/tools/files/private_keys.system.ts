import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { describe, test } from "node:test";
import fc from "fast-check";
import { holdsPrivateKey, KEY_HEAD_BYTES } from "../../../lib/system/files/sensitive_files.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const PEM = generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }).toString();
const BODY = PEM.split("\n")[1] ?? "";
const RSA = `-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,0123456789ABCDEF

${BODY}${BODY}
-----END RSA PRIVATE KEY-----
`;
const OPENSSH = `-----BEGIN OPENSSH PRIVATE KEY-----\n${BODY}\n-----END OPENSSH PRIVATE KEY-----\n`;
const PGP = `-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n${BODY}\n-----END PGP PRIVATE KEY BLOCK-----\n`;

const KEYS: Readonly<Record<string, string>> = {
  "PKCS 8": PEM,
  "encrypted RSA": RSA,
  OpenSSH: OPENSSH,
  OpenPGP: PGP,
  "Windows line ends": PEM.replaceAll("\n", "\r\n"),
  "certificates before it": `-----BEGIN CERTIFICATE-----\n${`${BODY}\n`.repeat(40)}-----END CERTIFICATE-----\n${PEM}`,
  "attributes before it": `Bag Attributes\n    localKeyID: 01\n${PEM}`,
  "a service account": JSON.stringify({ type: "service_account", private_key: PEM }, null, 2),
  SSH2: `---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n${BODY}\n`,
  PuTTY: `PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n`,
  age: `# created: today\nAGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ\n`,
};

const NO_KEYS: Readonly<Record<string, string>> = {
  "a certificate": `-----BEGIN CERTIFICATE-----\n${BODY}\n`,
  "a public key": `-----BEGIN PUBLIC KEY-----\n${BODY}\n`,
  "a text about keys": "A key begins with -----BEGIN PRIVATE KEY-----\nand ends with the same.\n",
  "a form to fill in": "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n",
  "a header in a program": 'const header = "-----BEGIN PRIVATE KEY-----";\n',
  nothing: "",
};

const TOOLS = [
  ["read_file", (path: string) => ({ path })],
  ["read_file", (path: string) => ({ path, start_line: 2 })],
  ["docx_read", (path: string) => ({ path })],
  ["pdf_read", (path: string) => ({ path })],
  ["file_edit", (path: string) => ({ path, edits: [{ old_text: "KEY", new_text: "K" }] })],
] as const;

const WRITES = { write_file: { enabled: true }, autonomy: { level: "full" } } as const;

for (const variant of ["handles", "checked"] as const) {
  describe(`private keys under plain names, ${variant}`, () => {
    for (const [what, key] of Object.entries(KEYS)) {
      test(`${what}: no tool gives a byte of it, unless sensitive files are allowed`, () =>
        withWorkspace({ "notes.txt": key, "plain.txt": "PRIVATE\n" }, async ({ root }) => {
          const bench = createToolBench({ root, variant, config: WRITES });
          for (const [tool, input] of TOOLS) {
            const { result } = await bench.call(tool, input("notes.txt"));
            assert.equal(result.isError, true, `${tool}: ${result.output}`);
            assert.ok(!result.output.includes(BODY), tool);
          }
          const { result } = await bench.call("read_file", "notes.txt");
          assert.match(result.output, /it holds a private key; \[autonomy\] allow_sensitive_file_reads = true/);
          const found = await bench.call("content_search", { pattern: "PRIVATE|SECRET|PuTTY" });
          assert.equal(found.result.output, "plain.txt:1: PRIVATE");
          bench.configure({ autonomy: { level: "full", allow_sensitive_file_reads: true } });
          assert.equal((await bench.call("read_file", "notes.txt")).result.output, key);
        }));
    }

    for (const [what, text] of Object.entries(NO_KEYS)) {
      test(`${what} is read`, () =>
        withWorkspace({ "notes.txt": text }, async ({ root }) => {
          const { result } = await createToolBench({ root, variant }).call("read_file", "notes.txt");
          assert.deepEqual([result.isError, result.output], [false, text]);
        }));
    }
  });
}

test("a key is found up to the end of what is looked at", () => {
  const found = (before: number) => holdsPrivateKey(new TextEncoder().encode(`${"x".repeat(before - 1)}\n${OPENSSH}`));
  const last = KEY_HEAD_BYTES - (OPENSSH.indexOf("\n") + 1 + 16);
  assert.equal(found(last), true);
  assert.equal(found(last + 1), false);
});

test("a key in UTF-16 with its mark is one", () => {
  for (const key of Object.values(KEYS)) {
    const little = Buffer.from(`\ufeff${key}`, "utf16le");
    assert.equal(holdsPrivateKey(little), true);
    assert.equal(holdsPrivateKey(Buffer.from(little).swap16()), true);
  }
});

test("no text makes the look slow", () => {
  const parts = fc.constantFrom("-----BEGIN ", "PRIVATE KEY", "-----", "\n", "A: b\n", " ", "AAAA", '"private_key": "');
  fc.assert(fc.property(fc.array(parts, { maxLength: 2000 }), (pieces) => {
    holdsPrivateKey(new TextEncoder().encode(pieces.join("")));
  }));
});
