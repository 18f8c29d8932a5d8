import type { Passage, StemmedTexts } from "./passages.ts";
import { stemsOf } from "./words.ts";

/** A passage with how well it fits a question. */
export interface RankedPassage {
  readonly passage: Passage;
  readonly score: number;
  /** How much of the question's words it holds, by their weight, 0-1 */
  readonly coverage: number;
}

/** BM25's usual constants. Source: Robertson, Zaragoza, "The Probabilistic Relevance Framework", 2009 */
const K1 = 1.2;
const B = 0.75;
/** A word in the heading counts as so many in the text: it says what the passage is about */
const HEADING_WEIGHT = 2;
const OUTER_WEIGHT = 0.5;
/** Share of its section's score that is added to a passage's own: the neighbours say what the passage is about */
const SECTION_SHARE = 0.5;
const ROW_SHARE = 0.8;
/** A passage of two words is no better than a sentence */
const LEAST_LENGTH = 12;

/**
 * Ranks passages by BM25 for the stems of a question, best first; of equal ones the first stays first. Passages that hold none of the
 * words are left out.
 */
export function rankPassages(stems: readonly string[], passages: readonly Passage[]): readonly RankedPassage[] {
  if (stems.length === 0 || passages.length === 0) return [];
  const counted = passages.map((passage) => ({ passage, ...countIn(passage, stems) }));
  const sections = sectionsOf(counted);
  const weights = weightsOf(stems, counted);
  const total = [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  const scoreOf = scorer(weights, counted);
  const sectionScoreOf = scorer(weights, [...sections.values()]);
  const sectionScores = new Map([...sections].map(([name, section]) => [name, sectionScoreOf(section)]));
  return counted.map((one) => {
    const { passage } = one;
    const own = scoreOf(one) * (passage.isRow ? ROW_SHARE : 1);
    const around = sectionScores.get(sectionOf(passage)) ?? 0;
    const covered = [...weights].reduce((sum, [stem, weight]) => one.counts.has(stem) ? sum + weight : sum, 0);
    return { passage, score: own === 0 ? 0 : own + SECTION_SHARE * around, coverage: covered / total };
  }).filter(({ score }) => score > 0).sort((a, b) => b.score - a.score);
}

interface Counted {
  readonly counts: ReadonlyMap<string, number>;
  readonly length: number;
}

function sectionOf({ source, headings }: Passage): string {
  return `${source}\n${headings}`;
}

function sectionsOf(counted: readonly (Counted & { readonly passage: Passage })[]): ReadonlyMap<string, Counted> {
  const sections = new Map<string, { counts: Map<string, number>; length: number }>();
  for (const { passage, counts, length } of counted) {
    const section = sections.get(sectionOf(passage)) ?? { counts: new Map<string, number>(), length: 0 };
    for (const [stem, count] of counts) section.counts.set(stem, (section.counts.get(stem) ?? 0) + count);
    section.length += length;
    sections.set(sectionOf(passage), section);
  }
  return sections;
}

/** How much each stem says: the fewer passages hold it, the more. */
function weightsOf(stems: readonly string[], counted: readonly Counted[]): ReadonlyMap<string, number> {
  return new Map(stems.map((stem) => {
    const holding = counted.filter(({ counts }) => counts.has(stem)).length;
    return [stem, Math.log(1 + (counted.length - holding + 0.5) / (holding + 0.5))];
  }));
}

function scorer(weights: ReadonlyMap<string, number>, all: readonly Counted[]): (one: Counted) => number {
  const average = all.reduce((sum, { length }) => sum + length, 0) / all.length;
  return ({ counts, length }) => {
    let score = 0;
    for (const [stem, weight] of weights) {
      const count = counts.get(stem) ?? 0;
      score += weight * (count * (K1 + 1)) / (count + K1 * (1 - B + B * length / average));
    }
    return score;
  };
}

function countIn(passage: Passage, stems: readonly string[]): Counted {
  const { text, heading, headings, length } = passage.stems ?? stemmed(passage);
  const counts = new Map<string, number>();
  for (const stem of stems) {
    const word = ` ${stem} `;
    const count = occurrences(word, text) + HEADING_WEIGHT * occurrences(word, heading) +
      OUTER_WEIGHT * occurrences(word, headings);
    if (count > 0) counts.set(stem, count);
  }
  return { counts, length: Math.max(length, LEAST_LENGTH) };
}

/** Returns the stems of a passage, for one that is ranked for many questions: most of the work of a question. */
export function stemmed(passage: Passage): StemmedTexts {
  const [text = [], heading = [], headings = []] = [passage.text, passage.heading, passage.headings].map(stemsOf);
  const spaced = (stems: readonly string[]) => stems.map((stem) => ` ${stem} `).join("");
  return { text: spaced(text), heading: spaced(heading), headings: spaced(headings), length: text.length };
}

function occurrences(word: string, text: string): number {
  let count = 0;
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) count++;
  return count;
}
