import assert from "node:assert/strict";
import { test } from "node:test";
import { EXIT } from "../../cli/command.ts";
import { VERBS } from "../../cli/verbs.ts";
import { onMachine } from "../cli/support/run_in.ts";
import { comparePicture } from "./picture.ts";

/** Nouns and verbs of the table, sorted. */
const VERB_NAMES = Object.keys(VERBS).sort();
const NAMES = [...new Set(["", ...VERB_NAMES, ...VERB_NAMES.map((name) => name.split(" ", 1)[0] ?? "")])].sort();
const wordsOf = (name: string) => name === "" ? [] : name.split(" ");

test("help.txt shows the help of the program, of each noun and of each verb", () =>
  onMachine(async ({ run }) => {
    const { stdout: whole } = await run(["--help"]);
    // Each help ends with the flags that all commands have
    const shared = whole.slice(whole.indexOf("Flags for every command"), whole.indexOf("\nStart with:"));
    const lines: string[] = [];
    for (const name of NAMES) {
      const words = [...wordsOf(name), "--help"];
      const { stdout, stderr } = await run(words);
      assert.ok(stdout.includes(shared) && stderr === "", name);
      const own = name === "" ? stdout : stdout.replace(shared, "");
      lines.push(`$ postern ${words.join(" ")}`, ...own.trim().split("\n").map((line) => `  ${line}`.trimEnd()));
    }
    comparePicture("help.txt", lines);
  }));

test("exit_codes.txt shows the exit codes, and those of each verb that can be had without its work", () =>
  onMachine(async ({ run }) => {
    const codesOf = async (name: string, ways: readonly string[]) => {
      const codes = ways.map(async (way) =>
        `${way || "alone"} ${(await run([...wordsOf(name), ...wordsOf(way)])).code}`
      );
      return `postern ${name}: ${(await Promise.all(codes)).join(", ")}`.replace(" :", ":");
    };
    const lines = [await codesOf("", ["--help", "--version", "", "no-such-verb"])];
    for (const name of VERB_NAMES) {
      const args = Object.values((await VERBS[name]?.load())?.args ?? {});
      // A verb that needs no word would do its work
      const isWordNeeded = args.some((arg) => arg.type === "positional" && arg.required !== false);
      lines.push(await codesOf(name, ["--help", "--no-such-flag", ...isWordNeeded ? [""] : []]));
    }
    comparePicture("exit_codes.txt", [...Object.entries(EXIT).map(([name, code]) => `${name} ${code}`), ...lines]);
  }));
