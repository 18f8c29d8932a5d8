/**
 * Reads a command line as bash does, as far as it can be judged before it runs (docs/design/paths_and_commands.md "Contained lines").
 *
 * A list of what is understood, never of what is dangerous: pipelines, lists, redirections, quotes, globs, plain variables, `$(...)`,
 * here-documents, groups, `if`, `while` and `for`. Whatever else is in a line makes it ask. Keywords are passed over and not paired:
 * every word at a place where bash could begin a command begins a part, so that the parts are never fewer than what bash runs.
 */

/** Simple command of a command line. */
export interface ShellPart {
  /**
   * Program and arguments. undefined: what it is shows when it runs, which may be any number of words. Empty: redirections or
   * assignments alone
   */
  readonly words: readonly (string | undefined)[];
  /** Files that it is redirected from and to */
  readonly files: readonly RedirectedFile[];
  /** The part as it is in the line */
  readonly text: string;
}

/** Target of a redirection. */
export interface RedirectedFile {
  /** Relative to the folder that the line is at then. undefined: known only when it runs */
  readonly path: string | undefined;
  readonly writes: boolean;
}

/** Parts of a command line, in the order of the text. */
export interface CommandLineParts {
  readonly parts: readonly ShellPart[];
  /** Reason why the line cannot be judged, without a full stop. `parts` holds what was read until there. undefined: it can be */
  readonly asks: string | undefined;
}

/** Parts of one line */
const MAX_PARTS = 256;
/** Words of the commands of one line */
const MAX_WORDS = 8192;
/** Files that one line is redirected from and to */
const MAX_FILES = 256;
/** Substitutions in one another */
const MAX_DEPTH = 8;
/** Builtins and keywords of bash that can change what a line does, or run a text. The tame ones are in `isTame` */
const BUILTINS = new Set(
  (". [ alias bg bind builtin caller command compgen complete compopt coproc declare dirs disown enable eval exec export fc fg " +
    "function getopts hash help history jobs kill let local logout mapfile popd printf pushd read readarray readonly return set shift " +
    "shopt source suspend test time times trap type typeset ulimit umask unalias unset wait case esac select [[ ]] : break cd " +
    "continue echo exit false pwd true").split(" "),
);
const HARMLESS = new Set([":", "cd", "echo", "exit", "false", "pwd", "true"]);
/** Words that begin or end a compound command. A command may follow each */
const KEYWORDS = new Set(["!", "{", "}", "if", "then", "elif", "else", "fi", "while", "until", "do", "done"]);
/** Lower case alone: no variable of bash or of the environment changes what a program is or does */
const NAME = /^[a-z_][a-z0-9_]*$/;
const NO_NAME = /^(?:.*_proxy|histchars|_)$/;
/** Variables that may be set for one command */
const HARMLESS_VARIABLE = /^(?:CI|NO_COLOR|FORCE_COLOR|NODE_ENV|LC_ALL|LANG|TZ|RUST_BACKTRACE)$/;
/** `${...}` that runs nothing: a name, and a default or a pattern in plain letters */
const BRACED = /^\{[A-Za-z_][A-Za-z0-9_]*(?:(?::?-|%%?|##?)[A-Za-z0-9_./* -]*)?\}/;
const PLAIN = /^(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?#$@*!-])/;
const CONTROL = /(?![\n\t])\p{Cc}|\p{Surrogate}/u;
const META = new Set([" ", "\t", "\n", "|", "&", ";", "(", ")", "<", ">"]);
const QUOTING = new Set(["'", '"', "\\", "$"]);
/** Characters that a backslash keeps from their meaning between double quotes */
const ESCAPABLE = new Set(['"', "\\", "$", "`"]);

/** Returns the parts of a command line. Pure; time grows with the length alone. Never throws */
export function parseCommandLine(text: string): CommandLineParts {
  return new LineReader(text).readAll();
}

/** Line that cannot be read further. */
class Unreadable extends Error {}

interface Word {
  /** undefined: known only when it runs */
  readonly value: string | undefined;
  /** The word as it is in the line */
  readonly text: string;
  /** False when something in it is quoted or expanded */
  readonly bare: boolean;
  /** False when it may become several words, or none */
  readonly single: boolean;
}

class LineReader {
  readonly #text: string;
  readonly #parts: ShellPart[] = [];
  #at = 0;
  #asks: string | undefined;
  #files = 0;
  #words = 0;
  /** Here-documents whose text begins behind the next line break */
  readonly #pending: { readonly end: string; readonly quoted: boolean; readonly tabs: boolean }[] = [];

  constructor(text: string) {
    this.#text = text;
  }

  readAll(): CommandLineParts {
    try {
      if (CONTROL.test(this.#text)) throw new Unreadable("it holds a control character, or is no valid Unicode");
      this.#list(0);
      if (this.#pending.length > 0) throw new Unreadable("a here-document has no end");
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      this.#asks ??= error.message;
    }
    return { parts: this.#parts, asks: this.#asks };
  }

  /** Reads commands until the end, or until the `)` of a substitution. @param depth substitutions that it is in */
  #list(depth: number): void {
    if (depth > MAX_DEPTH) throw new Unreadable(`substitutions stand more than ${MAX_DEPTH} deep`);
    let open = 0;
    for (;;) {
      this.#blanks();
      const char = this.#char();
      const two = this.#text.slice(this.#at, this.#at + 2);
      if (char === "") {
        if (depth > 0 || open > 0) throw new Unreadable('a "(" is not closed');
        return;
      }
      if (char === "\n") this.#lineBreak();
      else if (two === "((") throw new Unreadable('"((" computes');
      else if (two === ";;" || two === ";&") throw new Unreadable(`${JSON.stringify(two)} is not understood`);
      else if (char === ";" || char === "|" || (char === "&" && two !== "&>")) this.#at++;
      else if (char === "(") {
        open++;
        this.#at++;
      } else if (char === ")") {
        this.#at++;
        if (open === 0 && depth > 0) return;
        if (open === 0) throw new Unreadable('a ")" closes nothing');
        open--;
      } else this.#command(depth);
    }
  }

  /** Reads one simple command, or passes over one keyword. */
  #command(depth: number): void {
    const from = this.#at;
    const words: Word[] = [];
    const variables: string[] = [];
    const files: RedirectedFile[] = [];
    for (let isFirst = true;; isFirst = false) {
      this.#blanks();
      const char = this.#char();
      const two = this.#text.slice(this.#at, this.#at + 2);
      if (char === "(") throw new Unreadable('a "(" stands behind a word');
      if (char === "<" || char === ">" || two === "&>") {
        this.#redirection(files, depth);
        continue;
      }
      if (char === "" || META.has(char)) break;
      const word = this.#word(depth);
      const next = this.#char();
      if (word.bare && (next === "<" || next === ">")) {
        // A larger number is a word
        if (/^\d{1,9}$/.test(word.text)) continue;
        if (word.text.startsWith("{")) throw new Unreadable("a redirection sets a variable");
      }
      if (isFirst && word.bare && KEYWORDS.has(word.text)) return;
      if (isFirst && word.bare && word.text === "for") return this.#loop(depth);
      const [, name, plus] = words.length > 0 ? [] : /^([A-Za-z_][A-Za-z0-9_]*)(\+?=|\[)/.exec(word.text) ?? [];
      if (++this.#words > MAX_WORDS) throw new Unreadable(`it has more than ${MAX_WORDS} words`);
      if (name === undefined) words.push(word);
      else if (next === "(" || plus === "[") throw new Unreadable(`it sets ${name} to a list`);
      else variables.push(name);
    }
    this.#judge(words, variables);
    const text = this.#text.slice(from, this.#at).trim();
    if (words.length > 0 || files.length > 0) this.#parts.push({ words: words.map(({ value }) => value), files, text });
    if (this.#parts.length > MAX_PARTS) throw new Unreadable(`it has more than ${MAX_PARTS} parts`);
  }

  #judge(words: readonly Word[], variables: readonly string[]): void {
    const [program] = words;
    for (const name of variables) {
      const isHarmless = program === undefined ? isOwnName(name) : HARMLESS_VARIABLE.test(name);
      const isReadOnly = name === "IFS" && program?.value === "read";
      if (!isHarmless && !isReadOnly) this.#asks ??= `it sets ${name}`;
    }
    if (program === undefined) return;
    if (program.value === undefined) this.#asks ??= `which program ${shown(program.text)} is shows only when it runs`;
    else if (BUILTINS.has(program.value) && !isTame(words)) {
      this.#asks ??= `${shown(program.value)} of bash can change what the rest does`;
    }
  }

  /** Reads on behind `for`, up to the `;` or the line break behind its words. */
  #loop(depth: number): void {
    this.#blanks();
    if (this.#char() === "" || META.has(this.#char())) throw new Unreadable('"for" names no variable');
    const { value: name = "" } = this.#word(depth);
    if (!isOwnName(name)) this.#asks ??= `it sets ${shown(name)}`;
    for (;;) {
      this.#blanks();
      const char = this.#char();
      if (char === "" || char === "\n" || char === ";") return;
      if (META.has(char)) throw new Unreadable(`${shown(char)} stands among the words of "for"`);
      this.#word(depth);
    }
  }

  #redirection(files: RedirectedFile[], depth: number): void {
    const operator = /^(?:<<<|<<-|&>>|<<|>>|<>|>\||&>|>&|<&|<|>)/.exec(this.#text.slice(this.#at, this.#at + 3))?.[0] ??
      "";
    this.#at += operator.length;
    if (this.#char() === "(") throw new Unreadable("a process takes the place of a file");
    this.#blanks();
    if (this.#char() === "" || META.has(this.#char())) throw new Unreadable("a redirection names no file");
    if (operator === "<<" || operator === "<<-") return this.#startHere(operator, depth);
    const word = this.#word(depth);
    if (operator === "<<<") return;
    if (operator.endsWith("&") && /^(?:\d{1,4}|-)$/.test(word.text)) return;
    // bash takes the `-` of `>& -a` for a word of its own
    const isFile = operator !== "<&" && (operator !== ">&" || (word.value !== undefined && !word.text.startsWith("-")));
    if (!isFile) {
      throw new Unreadable("a redirection is known only when it runs");
    }
    if (word.value !== undefined && /^\/dev\/(?:tcp|udp)\//.test(word.value)) {
      throw new Unreadable(`${shown(word.value)} is a connection`);
    }
    if (++this.#files > MAX_FILES) throw new Unreadable(`it is redirected more than ${MAX_FILES} times`);
    files.push({ path: word.value, writes: operator !== "<" });
  }

  #startHere(operator: string, depth: number): void {
    const rest = this.#text.slice(this.#at, this.#at + 200);
    const [all, quote = "", end = ""] = /^(['"]?)([A-Za-z0-9_]+)\1(?=[ \t\n|&;<>)])/.exec(rest) ?? [];
    if (all === undefined || depth > 0) throw new Unreadable("a here-document is not understood here");
    this.#at += all.length;
    this.#pending.push({ end, quoted: quote !== "", tabs: operator === "<<-" });
  }

  /** Reads a line break, and the here-documents behind it. */
  #lineBreak(): void {
    this.#at++;
    for (const { end, quoted, tabs } of this.#pending.splice(0)) {
      for (;;) {
        if (this.#at >= this.#text.length) throw new Unreadable("a here-document has no end");
        const until = this.#text.indexOf("\n", this.#at);
        const line = this.#text.slice(this.#at, until === -1 ? undefined : until);
        this.#at = until === -1 ? this.#text.length : until + 1;
        if ((tabs ? line.replace(/^\t+/, "") : line) === end) break;
        if (!quoted && /[`\\]|\$[^A-Za-z_ ]/.test(line)) {
          throw new Unreadable(`the here-document ${end} is known only when it runs; quote its end, as <<'${end}'`);
        }
      }
    }
  }

  #word(depth: number): Word {
    const from = this.#at;
    let value = "";
    /** Characters without quotes, and a letter for each text in quotes */
    let plain = "";
    let last = "";
    let known = true;
    let single = true;
    const unknown = (isSingle: boolean) => {
      known = false;
      single &&= isSingle;
    };
    for (let char = this.#char(); char !== "" && !META.has(char); char = this.#char()) {
      const start = this.#at++;
      if (char === "'") {
        const end = this.#text.indexOf("'", this.#at);
        if (end === -1) throw new Unreadable("the quote ' is not closed");
        value += this.#inQuotes(this.#text.slice(this.#at, end));
        this.#at = end + 1;
      } else if (char === '"') {
        const text = this.#doubleQuoted(depth);
        // "$@" is any number of words
        if (text === undefined) unknown(!this.#text.slice(start, this.#at).includes("$@"));
        else value += text;
      } else if (char === "\\") {
        const next = this.#char();
        if (next === "" || next === "\n") {
          throw new Unreadable("a backslash stands at the end of a line, behind a word");
        }
        value += next;
        this.#at++;
      } else if (char === "$") {
        if (this.#expansion(depth, false)) unknown(false);
        else value += "$";
      } else if (char === "`") throw new Unreadable("a backtick is not understood; use $(...)");
      else {
        if (char === "~" && (last === "" || last === "=" || last === ":")) unknown(true);
        value += char;
      }
      last = QUOTING.has(char) ? "q" : char;
      plain += last;
    }
    const text = this.#text.slice(from, this.#at);
    // Braces with a list, and patterns, are the words that they stand for
    const [brace, bracket] = [plain.indexOf("{"), plain.indexOf("[")];
    if (/[*?]/.test(plain) || (bracket !== -1 && plain.includes("]", bracket))) unknown(false);
    if (brace !== -1 && (text.includes(",") || text.includes(".."))) unknown(false);
    return { value: known ? value : undefined, text, bare: plain === text, single };
  }

  /** Reads on behind `"`. @returns undefined when the text is known only when it runs */
  #doubleQuoted(depth: number): string | undefined {
    let value = "";
    let known = true;
    for (;;) {
      const char = this.#char();
      this.#at++;
      if (char === "") throw new Unreadable('the quote " is not closed');
      if (char === '"') return known ? value : undefined;
      if (char === "`") throw new Unreadable("a backtick is not understood; use $(...)");
      if (char === "$") {
        if (this.#expansion(depth, true)) known = false;
        else value += "$";
      } else if (char === "\\" && ESCAPABLE.has(this.#char())) {
        value += this.#char();
        this.#at++;
      } else if (char === "\\" && this.#char() === "\n") {
        this.#inQuotes("\n");
        this.#at++;
      } else value += this.#inQuotes(char);
    }
  }

  /** Reads on behind `$`. @returns false when the `$` is itself */
  #expansion(depth: number, quoted: boolean): boolean {
    const rest = this.#text.slice(this.#at, this.#at + 200);
    if (rest.startsWith("(")) {
      if (rest.startsWith("((")) throw new Unreadable('"$((" computes');
      if (this.#pending.length > 0) throw new Unreadable("a here-document is not understood here");
      this.#at++;
      this.#list(depth + 1);
      return true;
    }
    const [found] = BRACED.exec(rest) ?? PLAIN.exec(rest) ?? [];
    if (found !== undefined) {
      this.#at += found.length;
      return true;
    }
    if (rest === "" || META.has(rest.charAt(0)) || (quoted && rest.startsWith('"'))) return false;
    throw new Unreadable(`${shown(`$${rest.slice(0, 12)}`)} is not understood`);
  }

  /** Passes over blanks, joined lines and a comment. */
  #blanks(): void {
    const from = this.#at;
    for (;;) {
      const char = this.#char();
      if (char === " " || char === "\t") this.#at++;
      else if (char === "\\" && this.#text.charAt(this.#at + 1) === "\n") {
        const isApart = this.#at === 0 || /[ \t]/.test(this.#text.charAt(this.#at - 1));
        const isBlank = /^[ \t]/.test(this.#text.slice(this.#at + 2));
        if (!isApart || !isBlank || this.#pending.length > 0) {
          throw new Unreadable(
            "a backslash at the end of a line needs a blank before it, and one in front of the next line",
          );
        }
        this.#at += 2;
      } else break;
    }
    const before = this.#at === from ? this.#text.charAt(this.#at - 1) : " ";
    if (this.#char() !== "#" || (before !== "" && !META.has(before))) return;
    const end = this.#text.indexOf("\n", this.#at);
    this.#at = end === -1 ? this.#text.length : end;
  }

  /** Returns a quoted text. @throws {Unreadable} for a line break in front of a here-document: nobody can tell where that begins */
  #inQuotes(text: string): string {
    if (text.includes("\n") && this.#pending.length > 0) throw new Unreadable("a here-document is not understood here");
    return text;
  }

  #char(): string {
    return this.#text.charAt(this.#at);
  }
}

/** Tells whether a variable of this name is one of the line's own. */
function isOwnName(name: string): boolean {
  return NAME.test(name) && !NO_NAME.test(name);
}

/** Tells whether a builtin of bash runs nothing, and changes nothing that another part goes by. */
function isTame([program, ...args]: readonly Word[]): boolean {
  const words = args.map(({ value }) => value);
  const known = words.every((word) => word !== undefined);
  const text = words.join(" ");
  switch (program?.value) {
    case "printf":
      return words[0] !== undefined && !words[0].startsWith("-");
    case "set":
      return known && /^-(?:[eux]+|[eux]*o pipefail)$/.test(text);
    case "command":
      return known && words[0] === "-v";
    case "break":
    case "continue":
    case "wait":
      return words.length === 0;
    case "read":
      return words.every((word) => word === "-r" || isOwnName(word ?? ""));
    case "[":
      return words.at(-1) === "]" && isPlainTest(args.slice(0, -1));
    case "test":
      return isPlainTest(args);
    default:
      return HARMLESS.has(program?.value ?? "");
  }
}

/** Tells whether a test is one comparison whose operator is known: `-v` and `-R` run what is in brackets. */
function isPlainTest(all: readonly Word[]): boolean {
  const args = all[0]?.value === "!" && all.length > 2 ? all.slice(1) : all;
  if (args.length > 3 || args.some(({ value, single }) => !single || /^(?:-[vRao]|[(!)])$/.test(value ?? ""))) {
    return false;
  }
  return args.length < 2 || args.at(-2)?.value !== undefined;
}

function shown(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}...` : text);
}
