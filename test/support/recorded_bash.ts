import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { basename, join, relative, sep } from "node:path";
import fc from "fast-check";
import { parseCommandLine, type ShellPart } from "../../lib/base/parse_command_line.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import { decide } from "../../lib/guard/policy.ts";
import type { RuleAnswer, WrittenRule } from "../../lib/guard/rules.ts";
import { withWorkspace } from "./workspace.ts";

/** Programs of the generated lines: each notes its words, and prints a text that would run more where bash reads it as its own. */
const PROGRAMS = ["ls", "rm", "git", "npm", "cat", "x"];
/** Programs that run what their arguments say, as they are on this machine. */
const LAUNCHERS = ["env", "timeout", "nice", "sh", "xargs"];
const STUB = `#!/bin/sh
printf '%s\\0' "\${0##*/}" "$@" '\x01' >> "$RECORD"
echo '-v a[$(rm second)] ; rm second'
`;

const program = fc.constantFrom(...PROGRAMS);
const word = fc.constantFrom(
  ...[
    "a",
    "-l",
    "'b c'",
    '"d $v"',
    "$v",
    '"$(ls in)"',
    "$(git log)",
    "*.ts",
    "{e,f}",
    "~",
    "h\\ i",
    '"j\\"k"',
    "2",
    "a=b",
    "[ab]",
  ],
  ...[
    "'l\nm'",
    '"n\no"',
    "p#q",
    "#r",
    '""',
    "''",
    "{}",
    "!",
    "$",
    "é",
    "if",
    "${v:-s}",
    "$?",
    "\\;",
    "a~",
    "a=~",
    "{",
    "}",
    "do",
  ],
);
const redirection = fc.constantFrom(
  ...[
    "> out",
    "2>&1",
    ">> out",
    "< in.ts",
    "&> both",
    ">& all",
    "2>/dev/null",
    "<<< x",
    "<<E\nline $v\nE\n",
    "<<'E'\n$(rm)\nE\n",
    ">| t",
    "3<> u",
    "> sub/out",
    '> "$v"',
  ],
);
const simple = fc.tuple(program, fc.array(word, { maxLength: 3 }), fc.array(redirection, { maxLength: 1 }))
  .map(([name, words, ends]) => [name, ...words, ...ends].join(" "));
const statement = fc.oneof(
  { weight: 6, arbitrary: simple },
  fc.constantFrom(
    "v=1",
    "v=$(cat)",
    "cd sub",
    "echo $v",
    '[ -n "$v" ]',
    "test -f in.ts",
    "true",
    "set -e",
    "read -r v",
    "exit",
    ":",
  ),
  fc.constantFrom(
    "eval rm",
    "$v",
    "v=1 x",
    "PATH=. ls",
    "f() { rm; }",
    "f",
    "printf '%s' a",
    "echo `rm`",
    "time ls",
    "command ls",
    "case a in a) rm;; esac",
  ),
  simple.map((text) => `( ${text} )`),
  simple.map((text) => `{ ${text}; }`),
  fc.tuple(simple, simple).map(([one, two]) => `if ${one}; then ${two}; fi`),
  simple.map((text) => `for v in a b; do ${text}; done`),
);
const joint = fc.constantFrom(" && ", " || ", "; ", " | ", "\n", " & ", " |& ", ";", "|", " \\\n ");
const line = fc.tuple(statement, fc.array(fc.tuple(joint, statement), { maxLength: 3 })).map(([first, rest]) =>
  first + rest.flat().join("")
);
const noise = fc.constantFrom(
  ..." \t\n;|&<>()$`'\"\\{}*?[]#!~=,.:-1a9%+^@_",
  ...["$(", "${", "<<", "<<E", "\nE\n", "\\\n", "&&", "$((", "rm", ";;", "|&", "&>", ">&", "<<-", "<<<", "99999999999"],
  ...[
    "coproc ",
    "time ",
    "for ",
    "function ",
    "[[ ",
    "[ ",
    " esac",
    "then ",
    "done",
    "do ",
    "exec ",
    "x=",
    "IFS=",
    "read ",
  ],
);
/** A line that a grammar makes, with a few characters exchanged in most. */
const mutated = fc.tuple(line, fc.array(fc.tuple(fc.nat(200), fc.nat(2), noise), { maxLength: 4 })).map((
  [text, changes],
) =>
  changes.reduce((now, [place, cut, more]) => {
    const at = place % (now.length + 1);
    return now.slice(0, at) + more + now.slice(at + cut);
  }, text)
);

/** Counts of a check: of the lines, how many were judged, and how many commands ran in those. */
export interface RecordedLines {
  readonly lines: number;
  readonly judged: number;
  readonly ran: number;
  /** Each line for which something ran, or was written, that no part of it names */
  readonly wider: readonly string[];
}

/**
 * Runs generated lines by bash itself, in a folder of its own with programs on PATH that note their words, and compares what ran with the parts.
 * Lines that ask run too: they tell nothing.
 */
export async function runRecorded(count: number, seed: number): Promise<RecordedLines> {
  const lines = fc.sample(mutated, { numRuns: count, seed });
  let [judged, ran] = [0, 0];
  const wider: string[] = [];
  await withRecorder(PROGRAMS, async (record) => {
    for (const text of lines) {
      const { parts, asks } = parseCommandLine(text);
      // Bash would leave it out, and the gateway refuses it
      if (asks !== undefined || text.includes("\0")) continue;
      judged++;
      const { commands, written } = await record(text);
      ran += commands.length;
      const missing = commands.filter((words) => !parts.some((part) => covers(part, words)));
      const unseen = written.filter((path) => !parts.some((part) => writes(part, basename(path))));
      if (missing.length + unseen.length > 0) wider.push(JSON.stringify({ text, missing, unseen, parts }));
    }
  });
  return { lines: lines.length, judged, ran, wider };
}

/** Commands and paths of rules. A path fits the file that output goes to. */
const PATTERNS = [
  ...[["rm *", ""], ["git log *", ""], ["git *", ""], ["x *", ""], ["cat a", ""], ["* second *", ""], ["* -l *", ""]],
  ...[["", "out"], ["", "sub/**"], ["", "sub/**"], ["ls *", "out"]],
] as const;
/** Rules of a generated list: the first is an allow, so that many lines run. */
const written = fc.tuple(
  fc.constantFrom("", "", "*", "*", "git *", "ls *", "npm a *"),
  fc.array(fc.tuple(fc.constantFrom(...PATTERNS), fc.constantFrom<RuleAnswer>("allow", "deny", "ask")), {
    maxLength: 2,
  }),
).map(([command, more]) =>
  [[[command, ""], "allow"] as const, ...more].map(([[command = "", path = ""], then], index): WrittenRule => ({
    ...{ name: `rule-${index}`, tool: "shell", op: "", host: "" },
    ...{ command, path, then },
  }))
);
/** A line with programs that start the one behind them. No character of it is exchanged: `sh` without words runs what it is told. */
const launching = fc.tuple(
  fc.constantFrom(
    "env",
    "env A=b",
    "timeout 9",
    "nice",
    "sh -c 'x && rm a' ;",
    "nice env",
    "env sh -c 'rm b' ;",
    "ls | xargs",
  ),
  simple,
  fc.array(fc.tuple(joint, statement), { maxLength: 1 }),
).map(([launcher, text, rest]) => `${launcher} ${text}${rest.flat().join("")}`);
const ruled = fc.tuple(
  fc.tuple(fc.constantFrom("", "", "cd sub\n", "v=sub/out; "), fc.oneof(line, mutated, launching)).map((texts) =>
    texts.join("")
  ),
  written,
);

/** Counts of a check of rules: how many lines were allowed, and how many commands ran in those. */
export interface RuledLines {
  readonly lines: number;
  readonly allowed: number;
  readonly ran: number;
  /** Each allowed line in which a command ran, or a file was written, that a rule denies or asks about, or that no rule allows */
  readonly wider: readonly string[];
}

/** Decides about generated lines by generated rules, and runs those that are allowed as `runRecorded` does. */
export async function runRuled(count: number, seed: number): Promise<RuledLines> {
  const cases = fc.sample(ruled, { numRuns: count, seed });
  let [allowed, ran] = [0, 0];
  const wider: string[] = [];
  await withRecorder([...PROGRAMS, ...LAUNCHERS], async (record) => {
    for (const [text, rules] of cases) {
      if (text.includes("\0") || decideLine(text, rules) !== "allow") continue;
      allowed++;
      const { commands, written } = await record(text);
      ran += commands.length;
      const isLaunched = rules.some(({ command, then }) => then === "allow" && command === "*");
      const refused = commands.filter((words) =>
        rules.some((rule) => rule.then !== "allow" && rule.path === "" && names(rule, words)) ||
        !(isLaunched ||
          rules.some((rule) =>
            rule.then === "allow" && names(rule, words) &&
            (rule.path === "" || written.some((path) => isIn(rule, path)))
          ))
      );
      const unseen = written.filter((path) =>
        rules.some((rule) => rule.then !== "allow" && rule.path !== "" && rule.command === "" && isIn(rule, path)) ||
        !rules.some((rule) => rule.then === "allow" && (rule.path === "" ? rule.command === "" : isIn(rule, path)))
      );
      if (refused.length + unseen.length > 0) wider.push(JSON.stringify({ text, refused, unseen, rules }));
    }
  });
  return { lines: cases.length, allowed, ran, wider };
}

function decideLine(text: string, rules: readonly WrittenRule[]): RuleAnswer {
  const places = { root: FOLDER, fileRoot: FOLDER, home: "/home/nobody", ownPaths: [] };
  return decide({
    ...{ tool: "shell", access: "write", offUntil: undefined, taint: [], workspace: places },
    effects: { command: ["bash", "-c", text], line: parseCommandLine(text) },
    autonomy: { ...defaultConfig().autonomy, level: "supervised", rules, auto_approve: [], always_ask: [] },
  }).kind;
}

/** Stands for the folder of a line, whose own name no rule has. */
const FOLDER = "/work";

/** Tells whether the command of a rule is one that ran. */
function names({ command }: WrittenRule, words: readonly string[]): boolean {
  return matches(
    command === "" ? [undefined] : command.split(" ").map((word) => word === "*" ? undefined : word),
    words,
  );
}

function isIn({ path }: WrittenRule, name: string): boolean {
  return path === "**" || path === name || (path.endsWith("/**") && name.startsWith(path.slice(0, -2)));
}

/** Programs that a line ran, and files that it wrote. */
interface Recorded {
  /** Words of each command that ran */
  readonly commands: readonly (readonly string[])[];
  /** Files that were written, relative to the folder of the line, with `/` */
  readonly written: readonly string[];
}

/** Calls `use` with a function that runs a line in a folder of its own. @param programs those on PATH */
async function withRecorder(
  programs: readonly string[],
  use: (record: (text: string) => Promise<Recorded>) => Promise<void>,
): Promise<void> {
  await withWorkspace({ "stub": STUB }, async ({ root }) => {
    const [bin, stub] = [join(root, "bin"), join(root, "stub")];
    await chmod(stub, 0o755);
    await mkdir(bin);
    await Promise.all(
      programs.map((name) => symlink(LAUNCHERS.includes(name) ? `/usr/bin/${name}` : stub, join(bin, name))),
    );
    let index = 0;
    await use(async (text) => {
      const folder = join(root, String(index++));
      await mkdir(join(folder, "sub"), { recursive: true });
      await writeFile(join(folder, "in.ts"), "v a[$(rm second)]\n");
      const record = `${folder}.record`;
      await writeFile(record, "");
      await runBash(text, { folder, bin, record });
      return {
        commands: (await readFile(record, "utf8")).split("\x01\0").slice(0, -1).map((all) =>
          all.split("\0").slice(0, -1)
        ),
        written: (await readdir(folder, { recursive: true, withFileTypes: true }))
          .filter((entry) => entry.isFile() && entry.name !== "in.ts")
          .map(({ parentPath, name }) => relative(folder, join(parentPath, name)).replaceAll(sep, "/")),
      };
    });
  });
}

async function runBash(
  text: string,
  { folder, bin, record }: { readonly folder: string; readonly bin: string; readonly record: string },
): Promise<void> {
  const env = {
    PATH: bin,
    HOME: folder,
    RECORD: record,
    LANG: "C.UTF-8",
    // Other names than those of the programs are noted as well
    "BASH_FUNC_command_not_found_handle%%": `() { printf '%s\\0' "$@" '\x01' >> "$RECORD"; }`,
  };
  const child = spawn("/bin/bash", ["--noprofile", "--norc", "-c", text], {
    cwd: folder,
    env,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 10_000,
  });
  // Open until the commands in the background have ended too
  child.stdout.resume();
  child.stderr.resume();
  await once(child, "close");
}

/** Tells whether a part stands for these words: one that is not known stands for any number. */
function covers({ words }: ShellPart, [name, ...args]: readonly string[]): boolean {
  const [program, ...rest] = words;
  return program === name && matches(rest, args);
}

function matches(pattern: readonly (string | undefined)[], args: readonly string[]): boolean {
  const [first, ...rest] = pattern;
  if (pattern.length === 0) return args.length === 0;
  if (first !== undefined) return args[0] === first && matches(rest, args.slice(1));
  return matches(rest, args) || (args.length > 0 && matches(pattern, args.slice(1)));
}

function writes({ files }: ShellPart, name: string): boolean {
  return files.some(({ path, writes: isWritten }) => isWritten && (path === undefined || basename(path) === name));
}
