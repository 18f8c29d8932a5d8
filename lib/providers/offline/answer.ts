import { codePassages, isProse, type Passage, prosePassages } from "./passages.ts";
import { type RankedPassage, rankPassages } from "./rank_passages.ts";
import { significantWords, stemOf, stemsOf } from "./words.ts";

/** Answer of a tool since the last message of the user; `input` is the call's arguments as text. */
export interface ToolAnswer {
  readonly name: string;
  readonly input: string;
  readonly output: string;
  readonly isError: boolean;
}

/** A question, and everything that an answer may quote. */
export interface AnswerOptions {
  readonly question: string;
  /** The question without the files that it names */
  readonly topic: string;
  readonly results: readonly ToolAnswer[];
  /** Postern's own documentation */
  readonly documentation: readonly Passage[];
  /** Tells whether the answer says how to connect a model: true while none is in use. */
  readonly hints: boolean;
}

const MAX_PASSAGES = 3;
const MAX_LINE_CHARACTERS = 300;
const MAX_FILE_LINES = 40;
const MAX_LISTED_WORDS = 4;
/** A passage must hold so much of the question, by the weight of its words */
const LEAST_COVERAGE = 0.34;
/** Beside the best one only what is about as good is shown */
const LEAST_SHARE = 0.6;
/** A program answers where prose is this much worse */
const PROSE_SHARE = 0.4;
/** Postern's documentation in a question that does not name Postern: the user's own files come first */
const OWN_SHARE = 0.7;
const HIT = /^(.+?):(\d+):\s?(.*)$/;

/**
 * Makes an answer of quotations: what was listed or named, then the passages that fit the question best with their heading, and what
 * memory holds. Where nothing fits it says so in one sentence.
 */
export function answerFrom({ question, topic, results, documentation, hints }: AnswerOptions): string {
  const words = significantWords(topic);
  const best = bestPassages({ question, topic, results, documentation });
  const sections = [
    ...(best.length > 0 ? [] : results.flatMap(({ name, input, output, isError }) => {
      if (isError) return [];
      if (name === "read_file" && isNamed(input, question)) return fileSection(input, output);
      return name === "glob_search" ? listSection(output) : [];
    })),
    ...best.map(toQuotation),
    ...results.filter(({ name, isError }) => name === "memory_recall" && !isError).flatMap(({ output }) =>
      memorySection(output)
    ),
  ];
  if (sections.length === 0) return cannot(words, hints);
  const closing = hints
    ? "\n\nThese are quotations: no language model is connected, and /help says how to connect one."
    : "";
  return `${sections.join("\n\n")}${closing}`;
}

/** The one sentence for what the offline assistant cannot answer. */
function cannot(words: readonly string[], hints: boolean): string {
  const named = words.slice(0, MAX_LISTED_WORDS).map((word) => `"${word}"`).join(", ");
  const about = named === "" ? "" : ` about ${named}`;
  const way = hints ? "no language model is connected (/help says how), and" : "I have no language model, and";
  return `I cannot answer that: ${way} I found nothing${about} in this folder, in memory or in Postern's documentation.`;
}

function bestPassages(
  { question, topic, results, documentation }: Omit<AnswerOptions, "hints">,
): readonly Passage[] {
  const stems = [...new Set(significantWords(topic).map(stemOf))];
  // A file that the question names answers alone
  const named = results.filter(({ name, input, isError }) =>
    name === "read_file" && !isError && isNamed(input, question)
  );
  if (named.length > 0) return bestOf(stems, named.flatMap((result) => passagesOf(result, results)), false);
  const own = results.flatMap((result) => passagesOf(result, results));
  const seen = new Set(own.map(({ text }) => text));
  const all = [...own, ...documentation.filter(({ text }) => !seen.has(text))].filter((passage) =>
    !asks(passage.text) && !quotes(passage, question)
  );
  return bestOf(stems, all, /\bpostern\b/i.test(question));
}

function bestOf(stems: readonly string[], all: readonly Passage[], isAboutPostern: boolean): readonly Passage[] {
  const ranked = rankPassages(stems, all)
    .filter(({ coverage }) => coverage >= LEAST_COVERAGE)
    .map((one) => ({ ...one, score: one.score * (one.passage.isOwn === isAboutPostern ? 1 : OWN_SHARE) }))
    .sort((a, b) => b.score - a.score);
  const [prose, code] = [false, true].map((isCode) => ranked.filter(({ passage }) => passage.isCode === isCode));
  const chosen = scoreOf(prose) >= PROSE_SHARE * scoreOf(code) ? prose : code;
  return (chosen ?? []).filter(({ score }) => score >= LEAST_SHARE * scoreOf(chosen)).slice(0, MAX_PASSAGES)
    .map(({ passage }) => passage);
}

function scoreOf([best]: readonly RankedPassage[] = []): number {
  return best?.score ?? 0;
}

/** Tells whether a passage repeats the question, as a list of questions or an example does. Keywords alone are no question. */
function quotes({ text }: Passage, question: string): boolean {
  const asked = bare(question);
  const isQuestion = question.trimEnd().endsWith("?") || QUESTION.test(asked);
  const words = asked.split(" ");
  if (!isQuestion || words.length <= 2) return false;
  const lower = text.toLowerCase();
  // Most passages lack one of the words, and need no rewriting
  return words.every((word) => lower.includes(word)) && ` ${bare(text)} `.includes(` ${asked} `);
}

/** Tells whether a text is a question itself, as each line of a list of questions is. It answers nothing. */
function asks(text: string): boolean {
  return text.trimEnd().endsWith("?") && QUESTION.test(bare(text));
}

const QUESTION = /^(how|what|when|where|which|who|why|whose|is|are|can|could|do|does|did|should|will|would)\b/;

function bare(text: string): string {
  return text.toLowerCase().replaceAll(/[^\p{L}\p{N}]+/gu, " ").trim();
}

/** Passages of a file that was read, or lines of a search in files that were not. */
function passagesOf({ name, input, output, isError }: ToolAnswer, results: readonly ToolAnswer[]): readonly Passage[] {
  if (isError) return [];
  if (name === "read_file") {
    const source = pathIn(input);
    return isProse(source) ? prosePassages(output, { source }) : codePassages(output, { source });
  }
  if (name !== "content_search") return [];
  const read = new Set(
    results.filter((result) => result.name === "read_file" && !result.isError).map((result) => pathIn(result.input)),
  );
  return hitsOf(output).filter(({ path }) => !read.has(path)).map(({ path, line, text }) => ({
    source: path,
    heading: "",
    headings: path,
    line,
    text: shortened(text.trim()),
    isCode: !isProse(path),
    isRow: false,
    isOwn: false,
  }));
}

/** A line that a search found. */
export interface SearchHit {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

/** Reads the lines `path:line: text` of a search. */
export function hitsOf(output: string): readonly SearchHit[] {
  return output.split("\n").flatMap((row) => {
    const match = HIT.exec(row);
    return match === null ? [] : [{ path: match[1] ?? "", line: Number(match[2]), text: match[3] ?? "" }];
  });
}

/**
 * Chooses the files that a search found to be read: those whose lines hold most of the question's words, rare words first, prose
 * before programs.
 */
export function filesToRead(
  question: string,
  hits: readonly SearchHit[],
  { prose, code }: { readonly prose: number; readonly code: number },
): readonly string[] {
  const stems = [...new Set(significantWords(question).map(stemOf))];
  const found = new Map<string, Set<string>>();
  for (const { path, text } of hits) {
    const held = new Set(stemsOf(text));
    const known = found.get(path) ?? new Set<string>();
    for (const stem of stems) if (held.has(stem)) known.add(stem);
    found.set(path, known);
  }
  const weightOf = (stem: string) => 1 / (1 + [...found.values()].filter((held) => held.has(stem)).length);
  const weights = new Map(stems.map((stem) => [stem, weightOf(stem)]));
  const scored = [...found].map(([path, held]) => ({
    path,
    score: [...held].reduce((sum, stem) => sum + 1 + (weights.get(stem) ?? 0), 0),
  })).filter(({ score }) => score > 0).sort((a, b) => b.score - a.score || depthOf(a.path) - depthOf(b.path));
  return [
    ...scored.filter(({ path }) => isProse(path)).slice(0, prose),
    ...scored.filter(({ path }) => !isProse(path)).slice(0, code),
  ].map(({ path }) => path);
}

function depthOf(path: string): number {
  return path.split("/").length;
}

/** As `From "Installing", README.md:7` and the passage below it. */
function toQuotation({ source, heading, line, text, isCode, isOwn }: Passage): string {
  const place = isOwn ? source : `${source}:${line}`;
  const from = heading === "" ? place : `"${heading}", ${place}`;
  return `From ${from}\n\n${isCode && !text.startsWith("```") ? fenced(text) : text}`;
}

/** As a code block of Markdown, so that nothing in it is taken for formatting. */
export function fenced(output: string): string {
  const longest = Math.max(2, ...[...output.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${output}${output.endsWith("\n") ? "" : "\n"}${fence}`;
}

function memorySection(output: string): readonly string[] {
  return isEmpty(output) ? [] : [`In memory:\n\n${indented(output)}`];
}

function listSection(output: string): readonly string[] {
  return isEmpty(output) ? [] : [`Files:\n\n${indented(output)}`];
}

function fileSection(input: string, output: string): readonly string[] {
  const path = pathIn(input);
  const lines = output.split("\n");
  const shown = indented(lines.slice(0, MAX_FILE_LINES).join("\n"));
  const rest = lines.length - MAX_FILE_LINES;
  return [`${path}:\n\n${shown}${rest > 0 ? `\n\n(${rest} more lines: /read_file ${path} shows them)` : ""}`];
}

function isNamed(input: string, question: string): boolean {
  return question.includes(pathIn(input));
}

function pathIn(input: string): string {
  const text = /"path":("(?:[^"\\]|\\.)*")/.exec(input)?.[1];
  return text === undefined ? "the file" : String(JSON.parse(text));
}

function isEmpty(output: string): boolean {
  return output.trim() === "" || output.trim() === "[]" || /^no\b/i.test(output.trim());
}

function indented(text: string): string {
  return text.trimEnd().split("\n").map((line) => (line === "" ? "" : `    ${shortened(line)}`)).join("\n");
}

function shortened(text: string): string {
  const line = text.trimEnd();
  return line.length <= MAX_LINE_CHARACTERS
    ? line
    : `${[...line.slice(0, MAX_LINE_CHARACTERS)].slice(0, -1).join("")}...`;
}
