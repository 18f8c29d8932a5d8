const NUMBER = String.raw`(0|[1-9]\d{0,8})`;
const LABELS = String.raw`[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*`;
/** Version of something that is published, as semver has it: `major.minor.patch`, with labels of a pre-release or a build. */
const VERSION = new RegExp(
  // No number among the labels of a pre-release begins with 0
  String.raw`^${NUMBER}\.${NUMBER}\.${NUMBER}(?:-(?!(?:[^+]*\.)?0\d+(?:[.+]|$))(${LABELS}))?(?:\+${LABELS})?$`,
);
const MAX_LENGTH = 64;

/** Tells whether a text is a semantic version of at most 64 characters. Source: https://semver.org */
export function isSemanticVersion(text: string): boolean {
  return text.length <= MAX_LENGTH && VERSION.test(text);
}

/**
 * Compares two semantic versions by their precedence: negative when `a` comes before `b`, 0 when neither does. A label of a build counts
 * for nothing.
 * @throws {TypeError} a text that is no semantic version
 */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [partsOf(a), partsOf(b)];
  for (const [index, number] of left.numbers.entries()) {
    const difference = number - (right.numbers[index] ?? 0);
    if (difference !== 0) return difference;
  }
  if (left.labels.length === 0 || right.labels.length === 0) return right.labels.length - left.labels.length;
  return compareLabels(left.labels, right.labels);
}

function partsOf(text: string): { readonly numbers: readonly number[]; readonly labels: readonly string[] } {
  const match = isSemanticVersion(text) ? VERSION.exec(text) : null;
  if (match === null) throw new TypeError(`"${text}" is no semantic version`);
  return { numbers: match.slice(1, 4).map(Number), labels: match[4]?.split(".") ?? [] };
}

/** Compares labels as semver does: numbers by value and before words, words by their ASCII codes, and fewer labels first. */
function compareLabels(left: readonly string[], right: readonly string[]): number {
  for (const [index, label] of left.entries()) {
    const other = right[index];
    if (other === undefined) return 1;
    if (label === other) continue;
    const [isNumber, isOtherNumber] = [/^\d+$/.test(label), /^\d+$/.test(other)];
    if (isNumber && isOtherNumber) return Number(label) - Number(other);
    if (isNumber !== isOtherNumber) return isNumber ? -1 : 1;
    return label < other ? -1 : 1;
  }
  return left.length - right.length;
}
