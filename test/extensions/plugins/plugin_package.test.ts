import assert from "node:assert/strict";
import { test } from "node:test";
import { readPackage, toPackage, writePackage } from "../../../lib/extensions/plugins/plugin_package.ts";
import { ExtensionError } from "../../../lib/extensions/extension_error.ts";
import {
  SAMPLE_MODULE,
  sampleManifest,
  samplePackage,
  sampleTool,
  sha256,
  type TarEntry,
  tarOf,
} from "../../support/plugin_package.ts";

const bytes = (text: string) => Buffer.from(text);
const MANIFEST: TarEntry = { name: "plugin.json", bytes: bytes(JSON.stringify(sampleManifest())) };
const MODULE: TarEntry = { name: "words.wasm", bytes: SAMPLE_MODULE };
/** The sample's files and some more. */
const withMore = (...more: readonly TarEntry[]) => tarOf([MANIFEST, MODULE, ...more]);
const good = samplePackage();

/** Packages that are refused: what is hostile about them, the bytes, the code, and what the message says. */
const HOSTILE: readonly (readonly [what: string, bytes: Uint8Array, code: string, message: RegExp])[] = [
  ["traversal", withMore({ name: "../evil" }), "package_invalid", /"\.\.\/evil" has a part/],
  ["traversal inside", withMore({ name: "a/../../evil" }), "package_invalid", /has a part/],
  ["traversal at the end", withMore({ name: "a/.." }), "package_invalid", /has a part/],
  ["traversal by the prefix", withMore({ name: "evil", prefix: ".." }), "package_invalid", /"\.\.\/evil"/],
  ["traversal of a folder", withMore({ name: "../evil/", type: "5" }), "package_invalid", /has a part/],
  ["traversal with backslashes", withMore({ name: "..\\evil" }), "package_invalid", /no file may have/],
  ["an absolute name", withMore({ name: "/etc/passwd" }), "package_invalid", /absolute/],
  ["a drive of Windows", withMore({ name: "C:evil" }), "package_invalid", /absolute/],
  ["a share of Windows", withMore({ name: "\\\\host\\evil" }), "package_invalid", /no file may have/],
  ["an absolute prefix", withMore({ name: "passwd", prefix: "/etc" }), "package_invalid", /absolute/],
  ["a stream of NTFS", withMore({ name: "words.wasm:evil" }), "package_invalid", /no file may have/],
  ["a device of Windows", withMore({ name: "aux.txt" }), "package_invalid", /device/],
  ["a name that ends with a dot", withMore({ name: "plugin.json." }), "package_invalid", /dot or a blank/],
  ["an empty name", withMore({ name: "" }), "package_invalid", /no name/],
  ["an empty part", withMore({ name: "a//b" }), "package_invalid", /has a part/],
  ["a part that is a dot", withMore({ name: "./words.wasm" }), "package_invalid", /postern plugin package$/],
  ["a hard link", withMore({ name: "a", type: "1", link: "/etc/passwd" }), "package_invalid", /hard link/],
  ["a symbolic link", withMore({ name: "a", type: "2", link: "/etc" }), "package_invalid", /symbolic link/],
  ["the target of a link in a file", withMore({ name: "a", link: "/etc" }), "package_invalid", /target of a link/],
  ["a character device", withMore({ name: "a", type: "3" }), "package_invalid", /character device/],
  ["a block device", withMore({ name: "a", type: "4" }), "package_invalid", /block device/],
  ["a FIFO", withMore({ name: "a", type: "6" }), "package_invalid", /FIFO/],
  ["a sparse file", withMore({ name: "a", type: "S" }), "package_invalid", /sparse/],
  [
    "a pax header that renames",
    withMore({ name: "a", type: "x", bytes: bytes("19 path=../../evil\n") }),
    "package_invalid",
    /pax/,
  ],
  [
    "a pax header for all",
    withMore({ name: "a", type: "g", bytes: bytes("14 size=99999\n") }),
    "package_invalid",
    /pax/,
  ],
  [
    "a long name of GNU",
    withMore({ name: "././@LongLink", type: "L", bytes: bytes("../evil\0") }),
    "package_invalid",
    /long name/,
  ],
  ["a type that nobody knows", withMore({ name: "a", type: "Z" }), "package_invalid", /unknown type/],
  ["a file twice", withMore(MODULE), "package_invalid", /twice/],
  ["the manifest twice", withMore(MANIFEST), "package_invalid", /twice/],
  ["names that differ by case", withMore({ name: "Words.wasm" }), "package_invalid", /same name/],
  ["folders that differ by case", withMore({ name: "a/x" }, { name: "A/y" }), "package_invalid", /same name/],
  ["a name that is not composed", withMore({ name: "e\u0301.txt" }), "package_invalid", /normal form/],
  ["names of one look to a file system", withMore({ name: "ﬁle" }, { name: "file" }), "package_invalid", /same name/],
  ["sharp s and double s", withMore({ name: "straße" }, { name: "STRASSE" }), "package_invalid", /same name/],
  ["a Kelvin sign for a K", withMore({ name: "\u212a" }, { name: "k" }), "package_invalid", /same name|normal form/],
  ["a file that is a folder too", withMore({ name: "words.wasm/x" }), "package_invalid", /file and a folder/],
  ["a folder entry over a file", withMore({ name: "words.wasm/", type: "5" }), "package_invalid", /file and a folder/],
  ["a name that turns the text around", withMore({ name: "a\u202egnp.exe" }), "package_invalid", /\\u202e/],
  ["a name with a control", withMore({ name: "a\u001b[2J" }), "package_invalid", /cannot see/],
  ["a name with a line break", withMore({ name: "a\nb" }), "package_invalid", /cannot see/],
  ["a name with text behind its NUL", withMore({ name: "a\0/../evil" }), "package_invalid", /behind the end of a name/],
  ["a name that is no UTF-8", withMore({ name: new Uint8Array([0x61, 0xff]) }), "package_invalid", /UTF-8/],
  ["a name too deep", withMore({ name: "a/".repeat(17) + "b" }), "package_invalid", /deeper/],
  ["a name too long", withMore({ name: "b".repeat(100), prefix: "a".repeat(150) }), "package_invalid", /longer/],
  ["a file with the name of a folder", withMore({ name: "a/" }), "package_invalid", /name of a folder/],
  ["a folder with a size", withMore({ name: "a/", type: "5", bytes: bytes("x") }), "package_invalid", /with a size/],
  ["a set-user-id program", withMore({ name: "a", mode: "0004755\0" }), "package_invalid", /set-user-id/],
  ["a size beyond the end", withMore({ name: "a", size: "77777777777\0" }), "package_invalid", /not there/],
  ["a size in binary", withMore({ name: "a", size: "\x7f\x7f\0\0\0\0\0\0\0\0\0\0" }), "package_invalid", /no number/],
  ["a negative size", withMore({ name: "a", size: "-0000000001\0" }), "package_invalid", /no number/],
  ["a size that hides a file", tarOf([MANIFEST, { ...MODULE, size: "00000000000\0" }]), "package_invalid", /ustar/],
  ["a wrong checksum", withMore({ name: "a", checksum: "000001\0 " }), "package_invalid", /checksum/],
  ["another format", withMore({ name: "a", magic: "\0\0\0\0\0\0\0\0" }), "package_invalid", /ustar/],
  ["bytes behind a file", withMore({ name: "a", bytes: bytes("x"), padding: 7 }), "package_invalid", /behind its end/],
  ["bytes behind the end", Buffer.concat([good, Buffer.alloc(512, 7)]), "package_invalid", /behind its end/],
  ["a second archive behind the end", Buffer.concat([good, good]), "package_invalid", /behind its end/],
  ["a cut tar", good.subarray(0, 1024), "package_invalid", /cut off|not there/],
  ["a tar cut within a block", good.subarray(0, 1000), "package_invalid", /multiple of 512/],
  ["no end", tarOf([MANIFEST, MODULE], new Uint8Array(0)), "package_invalid", /cut off/],
  ["half an end", tarOf([MANIFEST, MODULE], new Uint8Array(512)), "package_invalid", /cut off/],
  ["nothing", new Uint8Array(), "package_invalid", /no tar/],
  ["no tar", Buffer.alloc(1024, "x"), "package_invalid", /ustar/],
  ["a compressed tar", new Uint8Array([0x1f, 0x8b, ...new Uint8Array(510)]), "package_invalid", /compressed/],
  ["a package too large", new Uint8Array(67_108_865), "package_too_large", /67108864/],
  [
    "too many files",
    withMore(...Array.from({ length: 1_000 }, (_, index) => ({ name: `f${index}` }))),
    "package_too_large",
    /1000/,
  ],
  [
    "too many folders",
    withMore(...Array.from({ length: 1_000 }, (_, index) => ({ name: `f${index}/`, type: "5" }))),
    "package_too_large",
    /1000/,
  ],
  ["no manifest", tarOf([MODULE]), "package_invalid", /no plugin\.json/],
  [
    "a manifest in a folder",
    tarOf([{ ...MANIFEST, name: "words/plugin.json" }, MODULE]),
    "package_invalid",
    /no plugin\.json/,
  ],
  [
    "a manifest that is no JSON",
    tarOf([{ name: "plugin.json", bytes: bytes("{") }, MODULE]),
    "manifest_invalid",
    /JSON/,
  ],
  ["a manifest with an unknown field", samplePackage({ scripts: { install: "sh" } }), "manifest_invalid", /"scripts"/],
  ["the name of a built-in tool", samplePackage({ tools: [sampleTool("shell")] }), "tool_name_taken", /"shell"/],
  ["a wrong hash", samplePackage({ wasm: { file: "words.wasm", sha256: "0".repeat(64) } }), "hash_mismatch", /SHA-256/],
  ["another module", samplePackage({}, [{ name: "words.wasm", bytes: bytes("x") }]), "hash_mismatch", /SHA-256/],
  ["no module", samplePackage({}, []), "package_invalid", /"words\.wasm" is missing/],
  [
    "a program that nobody may start",
    samplePackage({ kind: "process", wasm: undefined, process: { command: "./run", sha256: sha256(bytes("x")) } }, [{
      name: "run",
      bytes: bytes("x"),
    }]),
    "package_invalid",
    /not executable/,
  ],
];

test("readPackage() refuses each hostile package with its reason", () => {
  assert.ok(HOSTILE.length > 40);
  for (const [what, tar, code, message] of HOSTILE) {
    assert.throws(() => readPackage(tar), (error) => {
      assert.ok(error instanceof ExtensionError, `${what}: ${error}`);
      assert.equal(error.code, code, `${what}: ${error.message}`);
      assert.match(error.message, message, what);
      assert.doesNotMatch(error.message, /[\p{C}]/u, what);
      return true;
    }, what);
  }
});

test("readPackage() refuses a package in which any byte of a header or of the module was changed, or takes it as the same", () => {
  const { digest } = readPackage(good);
  let refused = 0;
  for (let at = 0; at < good.length; at += 7) {
    const changed = Uint8Array.from(good);
    changed[at] = (changed[at] ?? 0) ^ 0x41;
    try {
      assert.notEqual(readPackage(changed).digest, digest, `byte ${at}`);
    } catch (error) {
      assert.ok(error instanceof ExtensionError, `byte ${at}: ${error}`);
      refused++;
    }
  }
  assert.ok(refused > 200);
});

test("readPackage() takes a good package, as this program and as GNU tar write it", () => {
  const { manifest, files, digest } = readPackage(good);
  assert.equal(manifest.id, "words");
  assert.deepEqual(files.map(({ path }) => path), ["plugin.json", "words.wasm"]);
  const gnu = tarOf([MANIFEST, { name: "doc/", type: "5" }, MODULE].map((entry) => ({ ...entry, magic: "ustar  \0" })));
  assert.equal(readPackage(gnu).digest, digest);
  const long = `${"a".repeat(60)}/${"b".repeat(60)}/${"c".repeat(90)}`;
  const more = toPackage([...files, { path: long, bytes: bytes("x"), executable: true }]);
  assert.notEqual(more.digest, digest);
  const again = readPackage(writePackage(more));
  assert.equal(again.digest, more.digest);
  assert.deepEqual(again.files.map(({ path, executable }) => [path, executable]), [
    [long, true],
    ["plugin.json", false],
    ["words.wasm", false],
  ]);
  assert.deepEqual(writePackage(again), writePackage(more));
});

test("the digest covers names, content and modes", () => {
  const { files, digest } = readPackage(good);
  const file = { path: "a", bytes: bytes("x"), executable: false };
  const others = [[], [file], [{ ...file, path: "b" }], [{ ...file, bytes: bytes("y") }], [{
    ...file,
    executable: true,
  }]];
  const digests = others.map((more) => toPackage([...files, ...more]).digest);
  assert.equal(digests[0], digest);
  assert.equal(new Set(digests).size, digests.length);
});
