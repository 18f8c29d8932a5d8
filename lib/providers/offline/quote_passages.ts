import { significantWords } from "./significant_words.ts";

/** What a tool answered since the last message of the user; `input` is the call's arguments as text. */
export interface ToolAnswer {
  readonly name: string;
  readonly input: string;
  readonly output: string;
}

interface Passage {
  readonly path: string;
  readonly line: number;
  readonly text: string;
  readonly score: number;
}

const MAX_PASSAGES = 6;
const MAX_PER_FILE = 2;
const MAX_LINE_CHARS = 300;
const MAX_FILE_LINES = 40;
const HIT = /^(.+?):(\d+):\s?(.*)$/;

/**
 * An answer made of quotations: the file that was asked for, the best lines of the search with file and line, what memory
 * holds, and a last line that says that no model was at work. Lines that hold more of the question's words stand first, rare
 * words count more than frequent ones.
 */
export function quotePassages(question: string, results: readonly ToolAnswer[]): string {
  const words = significantWords(question);
  const sections = results.flatMap((result) => {
    switch (result.name) {
      case "content_search":
        return searchSection(result.output, words);
      case "memory_recall":
        return memorySection(result.output);
      case "read_file":
        return fileSection(result);
      case "glob_search":
        return listSection(result.output);
      default:
        return [`${result.name}:\n\n${result.output}`];
    }
  });
  const found = sections.length > 0 ? sections.join("\n\n") : nothing(words);
  return `${found}\n\nThese are quotations, not an answer: no model is connected. /help says how to connect one.`;
}

function nothing(words: readonly string[]): string {
  const what = words.length === 0 ? "that" : words.map((word) => `"${word}"`).join(", ");
  return `I found nothing in the workspace or in memory for ${what}.`;
}

function searchSection(output: string, words: readonly string[]): readonly string[] {
  const passages = best(rank(output, words));
  if (passages.length === 0) return [];
  const quoted = passages.map(({ path, line, text }) => `- \`${path}:${line}\`\n    ${shortened(text)}`);
  return [`In the workspace:\n\n${quoted.join("\n")}`];
}

function rank(output: string, words: readonly string[]): readonly Passage[] {
  const hits = output.split("\n").flatMap((row) => {
    const match = HIT.exec(row);
    return match === null ? [] : [{ path: match[1] ?? "", line: Number(match[2]), text: match[3] ?? "" }];
  });
  const holds = (text: string, word: string) => beginsIn(text.toLowerCase(), word);
  const weight = new Map(words.map((word) => [word, 1 / (1 + hits.filter(({ text }) => holds(text, word)).length)]));
  const scoreOf = (text: string) =>
    words.reduce((score, word) => holds(text, word) ? score + 1 + (weight.get(word) ?? 0) : score, 0);
  // Array.prototype.sort is stable: equal scores stay in the order of the search
  return hits.map((hit) => ({ ...hit, score: scoreOf(hit.text) })).sort((a, b) => b.score - a.score);
}

/** Whether a word of the text begins with `word`: "work" is in "workshop" and not in "network". */
function beginsIn(text: string, word: string): boolean {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (!/[\p{L}\p{N}_]/u.test(text.charAt(at - 1))) return true;
  }
  return false;
}

function best(passages: readonly Passage[]): readonly Passage[] {
  const perFile = new Map<string, number>();
  const chosen = passages.filter(({ path }) => {
    const taken = perFile.get(path) ?? 0;
    perFile.set(path, taken + 1);
    return taken < MAX_PER_FILE;
  });
  return chosen.slice(0, MAX_PASSAGES);
}

function memorySection(output: string): readonly string[] {
  return isEmpty(output) ? [] : [`In memory:\n\n${indented(output)}`];
}

function listSection(output: string): readonly string[] {
  return isEmpty(output) ? [] : [`Files:\n\n${indented(output)}`];
}

function fileSection({ input, output }: ToolAnswer): readonly string[] {
  const path = /"path":"((?:[^"\\]|\\.)*)"/.exec(input)?.[1] ?? "the file";
  const lines = output.split("\n");
  const shown = indented(lines.slice(0, MAX_FILE_LINES).join("\n"));
  const rest = lines.length - MAX_FILE_LINES;
  return [`${path}:\n\n${shown}${rest > 0 ? `\n\n(${rest} more lines: /read_file ${path} shows them)` : ""}`];
}

function isEmpty(output: string): boolean {
  return output.trim() === "" || output.trim() === "[]" || /^no\b/i.test(output.trim());
}

function indented(text: string): string {
  return text.trimEnd().split("\n").map((line) => (line === "" ? "" : `    ${shortened(line)}`)).join("\n");
}

function shortened(text: string): string {
  const line = text.trimEnd();
  return line.length <= MAX_LINE_CHARS ? line : `${[...line.slice(0, MAX_LINE_CHARS)].slice(0, -1).join("")}...`;
}
