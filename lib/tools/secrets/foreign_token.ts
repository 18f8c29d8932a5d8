/** Bytes of a token. Shorter ones would be masked in texts that have nothing to do with it. */
const MIN_BYTES = 16;
const MAX_BYTES = 8_192;
/** Guessing takes at least 2 to the power of this many tries. */
const MIN_BITS = 64;
/** Bits of a letter in a word, as estimates of English text have them. */
const WORD_BITS = 1.5;
/** Characters of a bearer token. Source: RFC 6750 section 2.1 */
const BEARER = /^[\w.~+/-]+=*$/;
/** Words: letters of one case, also with a capital before them. */
const WORDS = /[A-Z]?[a-z]{4,}|[A-Z]{4,}/g;
const POOLS: readonly (readonly [RegExp, number])[] = [[/\d/, 10], [/[a-z]/, 26], [/[A-Z]/, 26], [/[^\dA-Za-z]/, 6]];

/**
 * Returns why a text that an authorization server calls a token or a client's secret is not taken; undefined where it is.
 *
 * A token that is taken is masked wherever it appears. A server that could name any text would hide the address in a command from the
 * person who approves it, and have requests refused. `//` is taken behind a single first digit alone, as Google's refresh tokens have it.
 * @returns rest of a sentence that begins with what the text is, such as `has fewer than 16 bytes`
 */
export function tokenFault(token: string): string | undefined {
  if (token.length > MAX_BYTES) return `has more than ${MAX_BYTES} bytes`;
  if (!BEARER.test(token)) return "has characters that no bearer token has (RFC 6750)";
  if (token.length < MIN_BYTES) return `has fewer than ${MIN_BYTES} bytes`;
  if (token.replace(/^\d\/\//, "").includes("//")) return 'holds "//" as an address does';
  return bitsOf(token) < MIN_BITS ? `can be guessed: it has fewer than ${MIN_BITS} bits by estimate` : undefined;
}

/** Estimates the bits of a token: those of its kinds of characters, few for the letters of a word, none for text that it has had before. */
function bitsOf(token: string): number {
  const pool = /^[\da-f]+$/i.test(token)
    ? 16
    : POOLS.reduce((sum, [kind, size]) => (kind.test(token) ? sum + size : sum), 0);
  const isInWord = new Uint8Array(token.length);
  for (const { index, 0: word } of token.matchAll(WORDS)) isInWord.fill(1, index, index + word.length);
  const seen = new Set<string>();
  let bits = 0;
  for (let at = 0; at < token.length; at++) {
    const three = token.slice(Math.max(0, at - 2), at + 1);
    if (!seen.has(three)) bits += isInWord[at] === 1 ? WORD_BITS : Math.log2(pool);
    seen.add(three);
  }
  return bits;
}
