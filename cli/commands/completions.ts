import type { ArgDef, ArgsDef } from "citty";
import {
  type CommandContext,
  CommandError,
  defineCliCommand,
  EXIT,
  GLOBAL_ARGS,
  type Noun,
  shownFlag,
  type Verb,
} from "../command.ts";

/** Shells that a script can be written for. */
const SHELLS = ["bash", "zsh", "fish"] as const;
type Shell = (typeof SHELLS)[number];

/** Command `postern completions <shell>`: prints the script by which a shell completes commands, flags and files. */
export const completionsCommand = defineCliCommand({
  args: { shell: { type: "positional", required: true, description: "bash, zsh or fish" } },
  example: "postern completions bash",
  async run(context, { shell }) {
    const known = SHELLS.find((name) => name === shell);
    if (known === undefined) {
      throw new CommandError(`Cannot write completions for "${shell}": the shells are ${SHELLS.join(", ")}`);
    }
    const script = WRITERS[known](await readCommands(context));
    context.print({ shell: known, script }, script);
    return EXIT.ok;
  },
});

/** Flag as a shell completes it. */
interface Flag {
  /** Without `--` */
  readonly name: string;
  readonly about: string;
  /** Kind of the value; undefined: the flag has none */
  readonly value: "file" | "folder" | "text" | undefined;
}

/** Place in the tree of commands: no word, a noun or single command, or a verb of two words. */
interface Place {
  /** Words of the command so far, with the noun in singular and plural; empty: none */
  readonly paths: readonly string[];
  /** Words that may come next, with what they do */
  readonly next: readonly (readonly [word: string, about: string])[];
  readonly flags: readonly Flag[];
}

/** Nouns that are not counted. */
const UNCOUNTED: ReadonlySet<string> = new Set(["mcp", "policy", "taint"]);

const GLOBAL: readonly Flag[] = [
  ...toFlags(GLOBAL_ARGS),
  { name: "help", about: "Help on the command", value: undefined },
];

/** Reads the tree of commands from their definitions. */
async function readCommands({ nouns }: CommandContext): Promise<readonly Place[]> {
  const all = Object.entries(nouns).map(([noun, command]) => ({ forms: formsOf(noun, command), command }));
  const next = all.flatMap(({ forms, command }) => forms.map((form) => [form, command.meta.description] as const));
  const places = all.map(async ({ forms, command }): Promise<readonly Place[]> => {
    const verbs = Object.entries(command.subCommands ?? {});
    return [
      {
        paths: forms,
        next: verbs.map(([verb, { meta }]) => [verb, meta.description]),
        flags: await flagsOf(command),
      },
      ...await Promise.all(verbs.map(async ([verb, below]) => ({
        paths: forms.map((form) => `${form} ${verb}`),
        next: [],
        flags: await flagsOf(below),
      }))),
    ];
  });
  return [{ paths: [""], next, flags: GLOBAL }, ...(await Promise.all(places)).flat()];
}

/** Returns a noun and its plural, if somebody would say one. */
function formsOf(noun: string, { subCommands }: Verb | Noun): readonly string[] {
  if (noun.endsWith("s") || UNCOUNTED.has(noun) || subCommands?.["list"] === undefined) return [noun];
  return [noun, noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`];
}

async function flagsOf({ args = {} }: Verb | Noun): Promise<readonly Flag[]> {
  return [...toFlags(typeof args === "function" ? await args() : args), ...GLOBAL];
}

function toFlags(args: ArgsDef): readonly Flag[] {
  return Object.entries(args).filter(([, { type }]) => type !== "positional").map(([name, arg]) => toFlag(name, arg));
}

function toFlag(name: string, arg: ArgDef): Flag {
  const about = (arg.description ?? "").split(/[.;(]/, 1)[0]?.trim() ?? "";
  if (arg.type === "boolean") return { name: shownFlag(name, arg), about, value: undefined };
  const hint = arg.valueHint ?? "";
  return { name, about, value: /file|archive/.test(hint) ? "file" : /folder|dir/.test(hint) ? "folder" : "text" };
}

const WRITERS: Readonly<Record<Shell, (places: readonly Place[]) => string>> = {
  bash: writeBash,
  zsh: writeZsh,
  fish: writeFish,
};

/** Returns a word for a shell between single quotes. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Returns the names of the flags that take a value of one of these kinds, such as `--config|--limit`. */
function flagsWith(places: readonly Place[], kinds: readonly Flag["value"][]): string {
  const flags = places.flatMap((place) => place.flags).filter(({ value }) => kinds.includes(value));
  return [...new Set(flags.map(({ name }) => `--${name}`))].sort().join("|");
}

/** Returns the lines of shell that bash and zsh share: they find the words of the command before the cursor. */
function findPath(
  places: readonly Place[],
  words: { readonly from: string; readonly to: string; readonly at: string },
) {
  return `  local at='' word skip='' i
  for ((i = ${words.from}; i < ${words.to}; i++)); do
    word="${words.at}"
    if [[ -n $skip ]]; then skip=''; continue; fi
    case "$word" in
      ${flagsWith(places, ["file", "folder", "text"])}) skip=1 ;;
      -*) ;;
      *) case " $at" in *' '*' '*) ;; *) at="\${at:+$at }$word" ;; esac ;;
    esac
  done`;
}

function writeBash(places: readonly Place[]): string {
  const cases = places.map(({ paths, next, flags }) => {
    const words = [...next.map(([word]) => word), ...flags.map(({ name }) => `--${name}`)].join(" ");
    return `    ${paths.map(quoted).join("|")}) all=${quoted(words)} ;;`;
  });
  return `# Completion of postern for bash: source <(postern completions bash)
_postern() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="\${COMP_WORDS[COMP_CWORD-1]}" all=''
${findPath(places, { from: "1", to: "COMP_CWORD", at: "${COMP_WORDS[i]}" })}
  case "$prev" in
    ${
    flagsWith(places, ["folder"])
  }) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    ${
    flagsWith(places, ["file"])
  }) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    ${flagsWith(places, ["text"])}) COMPREPLY=(); return ;;
  esac
  case "$at" in
${cases.join("\n")}
  esac
  if [[ $cur != -* ]]; then all="$(printf '%s\\n' $all | grep -v '^--')"; fi
  mapfile -t COMPREPLY < <(compgen -W "$all" -- "$cur")
}
complete -o default -F _postern postern
`;
}

function writeZsh(places: readonly Place[]): string {
  const pair = (name: string, about: string) => quoted(`${name.replaceAll(":", "\\:")}:${about}`);
  const cases = places.map(({ paths, next, flags }) => {
    const words = next.map(([word, about]) => pair(word, about)).join(" ");
    return `    ${paths.map(quoted).join("|")}) next=(${words}); flags=(${
      flags.map(({ name, about }) => pair(`--${name}`, about)).join(" ")
    }) ;;`;
  });
  return `#compdef postern
# Completion of postern for zsh: source <(postern completions zsh)
_postern() {
  local -a next flags
${findPath(places, { from: "2", to: "CURRENT", at: "${words[i]}" })}
  case "\${words[CURRENT-1]}" in
    ${flagsWith(places, ["folder"])}) _files -/; return ;;
    ${flagsWith(places, ["file"])}) _files; return ;;
    ${flagsWith(places, ["text"])}) return ;;
  esac
  case "$at" in
${cases.join("\n")}
  esac
  if [[ "\${words[CURRENT]}" == -* ]]; then _describe -o 'flag' flags
  elif (( \${#next} )); then _describe 'command' next
  else _files; fi
}
if [[ "\${funcstack[1]}" == _postern ]]; then _postern "$@"; else compdef _postern postern; fi
`;
}

function writeFish(places: readonly Place[]): string {
  const lines = places.flatMap(({ paths, next, flags }) => {
    const at = `-n ${quoted(`__postern_at ${paths.map((path) => `"${path}"`).join(" ")}`)}`;
    const words = next.map(([word, about]) => `complete -c postern -f ${at} -a ${word} -d ${quoted(about)}`);
    const own = paths[0] === "" ? [] : flags.filter((flag) => !GLOBAL.includes(flag));
    return [...words, ...own.map((flag) => `complete -c postern ${at} ${fishFlag(flag)}`)];
  });
  const valued = flagsWith(places, ["file", "folder", "text"]).replaceAll("|", " ");
  return `# Completion of postern for fish: postern completions fish | source
function __postern_at
  set -l at
  set -l skip 0
  set -l words (commandline -opc)
  set -e words[1]
  for word in $words
    if test $skip = 1
      set skip 0
    else if contains -- $word ${valued}
      set skip 1
    else if not string match -q -- '-*' $word
      test (count $at) -lt 2; and set -a at $word
    end
  end
  contains -- "$at" $argv
end
${GLOBAL.map((flag) => `complete -c postern ${fishFlag(flag)}`).join("\n")}
${lines.join("\n")}
`;
}

function fishFlag({ name, about, value }: Flag): string {
  const rule = value === undefined
    ? ""
    : value === "file"
    ? " -r -F"
    : value === "folder"
    ? " -x -a '(__fish_complete_directories)'"
    : " -x";
  return `-l ${name}${rule} -d ${quoted(about)}`;
}
