import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { VERBS } from "../../../cli/verbs.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

async function scriptOf({ run }: Machine, shell: string): Promise<string> {
  const { code, stdout, stderr } = await run(["completions", shell]);
  assert.equal(code, 0, stderr);
  return stdout;
}

/** Prints a line of offers for each command line, whose words end with a semicolon. */
const OFFER = `
source "$1"; shift
while (($#)); do
  COMP_WORDS=()
  while [[ $1 != ";" ]]; do COMP_WORDS+=("$1"); shift; done
  shift
  COMP_CWORD=$((\${#COMP_WORDS[@]} - 1))
  _postern
  echo "\${COMPREPLY[@]}"
done`;

const isThere = (shell: string) => {
  try {
    execFileSync(shell, ["-c", "exit 0"]);
    return true;
  } catch {
    return false;
  }
};

test("bash completes groups, verbs, flags, and files of flags", () =>
  onMachine(async (machine) => {
    const { cwd } = machine;
    const script = join(cwd, "postern.bash");
    writeFileSync(script, await scriptOf(machine, "bash"));
    writeFileSync(join(cwd, "other.toml"), "");
    mkdirSync(join(cwd, "old"));
    /** Returns what bash offers for the last word of each command line. One bash that reads no startup file answers for all of them. */
    const offeredFor = (lines: readonly (readonly string[])[]): readonly (readonly string[])[] => {
      const args = lines.flatMap((words) => ["postern", ...words, ";"]);
      const output = execFileSync("bash", ["--norc", "-c", OFFER, "bash", script, ...args], { cwd, encoding: "utf8" });
      return output.trimEnd().split("\n").map((line) => line.split(" ").filter((word) => word !== ""));
    };
    const offered = (...words: readonly string[]) => offeredFor([words])[0] ?? [];
    assert.deepEqual(offered("skill", "a"), ["add"]);
    assert.deepEqual(offered("mcp", "ser"), ["serve"]);
    assert.deepEqual(offered("instr"), ["instructions"]);
    assert.deepEqual(offered("models", ""), ["trust"]);
    assert.deepEqual(offered("--json", "--config", "runs", "run", "can"), ["cancel"], "values of flags are no words");
    assert.ok(offered("instructions", "trust", "--").includes("--digest"));
    assert.deepEqual(offered("instructions", "trust", "--y"), ["--yes"]);
    assert.deepEqual(offered("--config", "o").toSorted(), ["old", "other.toml"]);
    assert.deepEqual(offered("--workspace", "o"), ["old"]);
    assert.deepEqual(offered("instructions", "trust", "--digest", "a"), []);
    const first = new Set(Object.keys(VERBS).map((name) => name.split(" ", 1)[0] ?? ""));
    const plurals = ["approvals", "conversations", "memories", "nodes", "plugins", "procedures", "runs", "schedules"];
    const all = new Set([...first, ...plurals, "skills", "tokens", "tools"]);
    assert.deepEqual(offered("").toSorted(), [...all].sort());
    assert.deepEqual(offered("memories", "se"), ["search"]);
    assert.deepEqual(offered("tokens", "add", "--la"), ["--label"]);
    const names = Object.keys(VERBS).filter((name) => name.includes(" "));
    const replies = offeredFor(names.map((name) => name.split(" ")));
    for (const [index, name] of names.entries()) assert.ok(replies[index]?.includes(name.split(" ")[1] ?? ""), name);
  }));

for (const shell of ["zsh", "fish"]) {
  test(`the script for ${shell} is one that ${shell} reads`, {
    skip: isThere(shell) ? false : `${shell} is not installed`,
  }, () =>
    onMachine(async (machine) => {
      const script = join(machine.cwd, "script");
      writeFileSync(script, await scriptOf(machine, shell));
      execFileSync(shell, ["-n", script]);
    }));
}

test("each script names each verb, and another shell is refused", () =>
  onMachine(async (machine) => {
    for (const shell of ["bash", "zsh", "fish"]) {
      const script = await scriptOf(machine, shell);
      for (const name of Object.keys(VERBS)) {
        assert.ok(script.includes(name.split(" ").at(-1) ?? ""), `${shell}: ${name}`);
      }
    }
    const { code, stderr } = await machine.run(["completions", "tcsh"]);
    assert.deepEqual([code, /the shells are bash, zsh, fish/.test(stderr)], [1, true]);
  }));
