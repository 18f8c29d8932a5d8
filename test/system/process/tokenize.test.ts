import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../../lib/base/errors.ts";
import { defaultConfig } from "../../../lib/config/config.ts";
import { tokenize } from "../../../lib/system/process/tokenize.ts";
import { anyCharacter } from "../../support/any_character.ts";
import { triesOf } from "../../support/seeded_random.ts";

const { forbidden_chars: forbiddenChars, max_args: maxArgs, max_arg_length: maxArgLength } =
  defaultConfig().security.shell;
const RULES = { forbiddenChars, maxArgs, maxArgLength };
const codeOf = (command: string, rules = RULES) => {
  try {
    tokenize(command, rules);
    return "none";
  } catch (error) {
    assert.ok(error instanceof ToolError, String(error));
    return error.code;
  }
};

test("words are split and unquoted", () => {
  const cases: readonly (readonly [command: string, ...words: readonly string[]])[] = [
    ["ls", "ls"],
    ["  ls \t -l  ", "ls", "-l"],
    [`echo 'a b' "c d"`, "echo", "a b", "c d"],
    [`echo a'b'"c"\\ d`, "echo", "abc d"],
    [`echo '' ""`, "echo", "", ""],
    [`echo 'it'\\''s'`, "echo", "it's"],
    [`echo "a\\"b\\\\c\\$d\\e"`, "echo", 'a"b\\c$d\\e'],
    [`echo "a\\\nb" 'a\\\nb'`, "echo", "ab", "a\\\nb"],
    [`echo '\\' \\' \\"`, "echo", "\\", "'", '"'],
    ["echo *.ts ~ {a,b} #x !y (z)", "echo", "*.ts", "~", "{a,b}", "#x", "!y", "(z)"],
  ];
  for (const [command, ...words] of cases) assert.deepEqual(tokenize(command, RULES), words, command);
});

test("each metacharacter, newline and CR is refused unquoted, also after a backslash, and is itself inside quotes", () => {
  for (const char of [";", "&", "|", ">", "<", "$", "\n", "\r"]) {
    for (const command of [`echo a${char}b`, `echo ${char}`, `${char}echo`, `echo a\\${char}b`, `echo 'a'${char}"b"`]) {
      assert.equal(codeOf(command), "command_forbidden_character", JSON.stringify(command));
    }
    assert.deepEqual(tokenize(`echo 'a${char}b' "a${char}b"`, RULES), ["echo", `a${char}b`, `a${char}b`]);
  }
});

test("backtick and NUL are refused everywhere, whatever the configuration says", () => {
  for (const char of ["`", "\0"]) {
    for (const command of [`echo ${char}`, `echo '${char}'`, `echo "${char}"`, `echo \\${char}`, `echo "\\${char}"`]) {
      assert.equal(codeOf(command), "command_forbidden_character", JSON.stringify(command));
      assert.equal(codeOf(command, { ...RULES, forbiddenChars: [] }), "command_forbidden_character");
    }
  }
});

test("forbidden characters are those of the configuration; a line break that is allowed separates words", () => {
  assert.equal(codeOf("echo a%b", { ...RULES, forbiddenChars: ["%"] }), "command_forbidden_character");
  assert.deepEqual(tokenize("echo a;b\nc", { ...RULES, forbiddenChars: [] }), ["echo", "a;b", "c"]);
});

test("what is no command is refused with the reason", () => {
  for (const command of ["", "  ", "''", `"" x`, "echo 'a", 'echo "a', 'echo "a\\"', "echo \\", "echo \ud800"]) {
    assert.equal(codeOf(command), "command_invalid", JSON.stringify(command));
  }
  assert.throws(() => tokenize("echo 'a"), { message: "Cannot run the command: the quote ' is not closed" });
});

test("arguments are counted without the command, and measured in bytes", () => {
  assert.equal(tokenize("c 1 2 3 4 5 6 7 8", RULES).length, 9);
  assert.equal(codeOf("c 1 2 3 4 5 6 7 8 9"), "command_too_long");
  assert.equal(codeOf(`c ${"é".repeat(64)}`), "none");
  assert.equal(codeOf(`c ${"é".repeat(64)}x`), "command_too_long");
  assert.equal(codeOf("x".repeat(200)), "none");
});

test("any words come back from their quoted form", () => {
  const word = fc.string({ unit: anyCharacter }).map((text) => text.replaceAll(/[`\0]|\p{Surrogate}/gu, ""));
  fc.assert(
    fc.property(fc.array(word, { maxLength: 6 }), (words) => {
      const quoted = words.map((text) => `'${text.replaceAll("'", `'"'"'`)}'`);
      assert.deepEqual(tokenize(["c", ...quoted].join(" "), { forbiddenChars }), ["c", ...words]);
    }),
    { numRuns: 200 },
  );
});

test("any text gives words or a ToolError, and a forbidden character is in a word only if it was quoted", () => {
  const text = fc.array(fc.constantFrom(..."ab'\"\\ ;&|><$`\n\r\0\t*")).map((chars) => chars.join(""));
  fc.assert(
    fc.property(text, (command) => {
      const code = codeOf(command, { ...RULES, maxArgs: 1000 });
      if (code !== "none" || /['"]/.test(command)) return;
      assert.ok(!/[;&|><$`\n\r\0]/.test(command), command);
    }),
    { numRuns: 200 },
  );
});

test("agrees with sh on every quoting without expansion", (t) => {
  if (spawnSync("/bin/sh", ["-c", "true"]).status !== 0) return t.skip("there is no /bin/sh here");
  const plain = fc.constantFrom(..."abz09_./:=,%+-*?[]{}^@é€漢😀", "x");
  const special = fc.constantFrom(";", "&", "|", ">", "<", "(", ")", "#", "~", "!", "\n", "\r", "\t", " ", "  ");
  const piece = fc.oneof(
    plain,
    fc.constantFrom(" ", "\t", "  "),
    fc.oneof(plain, fc.constantFrom("'", '"', "\\", " ", "\t", "#", "~", "(", ")")).map((char) => `\\${char}`),
    fc.array(fc.oneof(plain, special, fc.constantFrom("$", "$x", '"', "\\"))).map((all) => `'${all.join("")}'`),
    fc.array(fc.oneof(plain, special, fc.constantFrom("'", '\\"', "\\\\", "\\$", "\\a", "\\\n", "\\'")))
      .map((all) => `"${all.join("")}"`),
  );
  const command = fc.array(piece, { maxLength: 12 }).map((all) => `c ${all.join("")}`);
  fc.assert(
    fc.property(fc.array(command, { minLength: 20, maxLength: 40 }), (commands) => {
      const script = commands.map((each) => `printf '%s\\0' ${each}; printf '\\1\\0'\n`).join("");
      const { stdout, stderr } = spawnSync("/bin/sh", ["-f"], { input: script, encoding: "utf8" });
      assert.equal(stderr, "");
      const expected = stdout.split("\x01\0").slice(0, -1).map((words) => words.split("\0").slice(0, -1));
      assert.deepEqual(commands.map((each) => tokenize(each, { forbiddenChars })), expected);
    }),
    { numRuns: triesOf(15) },
  );
});
