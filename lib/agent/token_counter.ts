import { lazily } from "../base/lazily.ts";

/** Tokens of a text, by a vocabulary; close to what the model counts, and bounded in time. */
export type TokenCounter = (text: string) => number;

/** Characters given to the vocabulary in one piece: a run without a break costs the square of its length. */
const PIECE_CHARS = 256;
/** Characters of one text that are really counted; the rest is taken to be like them. */
const MAX_COUNTED_CHARS = 32_768;
/** Models of the older vocabulary; every other name gets the newer one, which is nearer to most models than bytes are. */
const OLDER_MODELS = /^(?:.*\/)?(?:gpt-4(?!o|\.[1-9])|gpt-3\.5|text-embedding-)/;

const older = lazily(() => load(() => import("gpt-tokenizer/encoding/cl100k_base")));
const newer = lazily(() => load(() => import("gpt-tokenizer/encoding/o200k_base")));

/**
 * The counter for a model, loaded when it is first needed; undefined where the optional package `gpt-tokenizer` is not installed.
 *
 * Vocabulary `cl100k_base` for gpt-4 and gpt-3.5, `o200k_base` for all others. Text that looks like a special token counts as text.
 */
export function loadTokenCounter(model: string): Promise<TokenCounter | undefined> {
  return OLDER_MODELS.test(model) ? older() : newer();
}

interface Encoding {
  countTokens(text: string, options: { readonly disallowedSpecial: Set<string> }): number;
}

async function load(read: () => Promise<Encoding>): Promise<TokenCounter | undefined> {
  try {
    const { countTokens } = await read();
    const options = { disallowedSpecial: new Set<string>() };
    return (text) => {
      const counted = text.length > MAX_COUNTED_CHARS ? text.slice(0, MAX_COUNTED_CHARS) : text;
      let tokens = 0;
      for (let start = 0; start < counted.length;) {
        const end = pieceEnd(counted, start);
        tokens += countTokens(counted.slice(start, end), options);
        start = end;
      }
      return counted.length === text.length ? tokens : Math.ceil(tokens * (text.length / counted.length));
    };
  } catch {
    return undefined;
  }
}

/** Before a space where there is one, since a word's token begins with it. */
function pieceEnd(text: string, start: number): number {
  const end = start + PIECE_CHARS;
  if (end >= text.length) return text.length;
  const space = text.lastIndexOf(" ", end);
  return space > start + PIECE_CHARS / 2 ? space : end;
}
