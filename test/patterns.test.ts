import assert from "node:assert/strict";
import { test } from "node:test";
import { patternsIn, slowText } from "./slow_pattern.ts";
import { triesOf } from "./support/seeded_random.ts";
import { codeOnly, sourceFiles } from "./support/source_files.ts";

/**
 * Patterns that take more than linear time, by file and a part of their text, with what bounds the texts they read. Text from outside is cut
 * before it gets to one of them.
 */
const BOUNDED: readonly (readonly [path: string, part: string, bound: string])[] = [
  ["cli/clients/enter_block.ts", '"(?:[^"', "a file of the user that is JSON, so that each of its strings ends"],
  ["lib/automation/cron/plain_phrase.ts", "through", "a schedule, of 200 characters at most"],
  ["lib/config/edit_config.ts", "\\r?\\n", "the operator's own configuration"],
  ["lib/config/secrets.ts", "password", "the operator's own configuration"],
  ["lib/dashboard/page/markdown.js", "1000}", "1,000 characters ahead of each place"],
  ["lib/dashboard/page/metrics.js", "[a-zA-Z_]", "the gateway's own metrics"],
  ["lib/host/service/service_manager.ts", "-->", "a line that Postern wrote into its own service"],
  ["lib/providers/offline/passages.ts", "", "Postern's own documentation"],
  ["lib/providers/upstream/upstream_error.ts", "model", "the first 1,000 characters of a message"],
  ["lib/system/git/checked_git.ts", "(\\d+)\\.(\\d+)", "what git says of its version"],
  ["lib/web/read_feed.ts", "DOCTYPE", "the first 4,000 characters of a document"],
  ["lib/tools/git/git_input.ts", "\\p{L}", "a name, of 256 characters at most"],
];

/** Atoms that are repeated together: patterns.system.ts repeats up to eight */
const MAX_REPEATED = Math.min(8, triesOf(4));

test("every pattern takes linear time, or reads texts of a bounded length", () => {
  const slow: string[] = [];
  let count = 0;
  /** Patterns that stand in many places are tried once */
  const tried = new Map<string, string | undefined>();
  for (const { path, text } of sourceFiles(["cli", "handlers", "lib"])) {
    for (const { line, pattern } of patternsIn(text)) {
      count++;
      if (BOUNDED.some(([file, part]) => file === path && pattern.source.includes(part))) continue;
      const literal = String(pattern);
      if (!tried.has(literal)) tried.set(literal, slowText(pattern, MAX_REPEATED));
      const found = tried.get(literal);
      if (found !== undefined) slow.push(`${path}:${line}: ${pattern} is slow for ${found}`);
    }
  }
  assert.ok(count > 800, `${count} patterns are found`);
  assert.deepEqual(
    slow,
    [],
    "make it linear, as by withoutEnd() or a class that excludes what follows, or cut the text before",
  );
});

test("each pattern that is left out is there", () => {
  const all = sourceFiles(["cli", "handlers", "lib"]);
  const gone = BOUNDED.filter(([path, part]) =>
    !all.some((file) =>
      file.path === path && patternsIn(file.text).some(({ pattern }) => pattern.source.includes(part))
    )
  );
  assert.deepEqual(gone, []);
});

/** Patterns that are put together at run time, by file and a part of what follows, with whose text is in them and what bounds the texts they read. */
const MADE: readonly (readonly [path: string, part: string, why: string])[] = [
  ["lib/base/neutral_text.ts", "[", "constants, of fixed length or a word each"],
  ["lib/base/semantic_version.ts", "NUMBER", "constants, over at most 64 characters"],
  ["lib/config/toml.ts", "PART", "a copy of a constant, which remembers a place"],
  ["lib/dashboard/page/markdown.js", "[", "constants, which look at most 1,000 characters ahead"],
  [
    "lib/documents/docx/open_docx.ts",
    "${name}",
    "a name that the code gives, behind at most 40 characters of a prefix",
  ],
  ["lib/documents/pdf/glyph_text.ts", "ACCENTS", "constants, from the begin to the end of a name"],
  ["lib/guard/elicitation.ts", "ELICITATION_LIMITS", "constants: one class, with a bound"],
  ["lib/host/service/launchd_service.ts", "LAUNCHD_LABEL", "a constant, for what launchctl says"],
  [
    "lib/providers/dialect/fit_keywords.ts",
    "value",
    "a stranger's, which is made to see that it can be, and matches nothing",
  ],
  ["lib/storage/index_terms.ts", "SPACELESS", "constants: runs of a class"],
  ["lib/system/browser/login_hosts.ts", "LABEL", "constants, for a host of 253 characters at most"],
  ["lib/system/files/sensitive_files.ts", "PATTERNS", "constants, for one name of a file"],
  ["lib/system/git/config_copy.ts", "(https?|git|ssh)", "constants, for a value of bounded length"],
  ["lib/system/git/config_copy.ts", "^(?:([^@:/?#", "constants, for a value of bounded length"],
  ["lib/system/git/config_copy.ts", "^(?:file:///)?", "constants, for a value of bounded length"],
  ["lib/system/git/config_copy.ts", "pattern", "a copy of a constant, which remembers a place"],
  ["lib/tools/mcp/mcp.ts", "DIGEST_LENGTH", "a constant, of fixed length"],
  ["lib/tools/process/command_rules.ts", "[", "constants, of fixed length or a word each"],
  ["lib/web/main_content.ts", "(?<![^-_ ", "constants, for 200 characters of a class"],
  ["lib/web/main_content.ts", "^(?:.*[-_])?", "constants, for 200 characters of an id"],
];

test("every pattern that is put together at run time is known, with what bounds it", () => {
  const made = sourceFiles(["cli", "handlers", "lib"]).flatMap(({ path, text }) =>
    [...codeOnly(text).matchAll(/\bRegExp\(\s*/g)].map(({ index, 0: { length } }) => ({
      path,
      line: text.slice(0, index).split("\n").length,
      follows: text.slice(index + length, index + length + 60),
    }))
  );
  const isIt = ([path, part]: typeof MADE[number], found: typeof made[number]) =>
    path === found.path && found.follows.includes(part);
  const unknown = made.filter((found) => !MADE.some((known) => isIt(known, found)));
  assert.deepEqual(
    unknown.map(({ path, line, follows }) => `${path}:${line}: ${follows}`),
    [],
    "say in MADE whose text is in it and what bounds it; a stranger's text is for RE2 (re2js), or for no pattern at all",
  );
  assert.deepEqual(MADE.filter((known) => made.filter((found) => isIt(known, found)).length === 0), []);
  assert.equal(made.length, MADE.length, "an entry is for one pattern");
});

test("slow patterns are known as such, and the usual linear ones are not", () => {
  const slow = [
    /\s+$/,
    /model.*(not found|does not exist|not exist|unknown|not a valid|no such|not loaded)/is,
    /^(?:<!--[^]*?-->\s*)*<html/,
    /(a+)+$/,
    /^(\d+)*;/,
    /<a[^>]*>/,
    /\$\{[^}]*\}/,
    /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/,
  ];
  for (const pattern of slow) assert.ok(slowText(pattern) !== undefined, String(pattern));
  for (
    const pattern of [
      /^\s*\w+:/,
      /[^\0-\x7f]/g,
      /\r?\n/,
      /^(?:<!--(?:(?!-->)[^])*-->\s*)*<html/,
      /"(?:[^"\\\n]|\\.)*"?/g,
    ]
  ) {
    assert.equal(slowText(pattern), undefined, String(pattern));
  }
});

test("literals of patterns are found in code alone", () => {
  const text = [
    "const a = b / c / d; // no /comment/",
    "/* no /comment/ */ const e = [/x\\/[/]+/gi, /y/];",
    "const f = `no /text/ ${g(/z/, `${h / 2}`)} no /text/`;",
    'return /w"/.test("no /text/") ? k[0] / l : m(n) / o;',
  ].join("\n");
  assert.deepEqual(patternsIn(text).map(({ line, pattern }) => [line, String(pattern)]), [
    [2, "/x\\/[/]+/gi"],
    [2, "/y/"],
    [3, "/z/"],
    [4, '/w"/'],
  ]);
});
