/** A figure of this tree and of the base, measured beside each other. */
export interface Round {
  readonly tree: number;
  readonly base: number;
}

/** Verdict about one figure, with what it rests on. */
export interface Judged {
  /** `too noisy`: neither can a growth by 15 % be excluded, nor one by 5 % be shown. `missing`: there is nothing to judge */
  readonly verdict: "holds" | "grew" | "too noisy" | "missing";
  /** This tree's value over the base's: the estimate, and the bounds that hold it in 95 of 100 runs */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
}

/** Growth that is no spread any more. */
const GREW = 1.05;
/** Growth that a verdict of `holds` must exclude. */
const EXCLUDED = 1.15;
/** Standard deviations of a normal distribution that hold 95 % of it. */
const DEVIATIONS = 1.96;
const MISSING: Judged = { verdict: "missing", ratio: Number.NaN, low: Number.NaN, high: Number.NaN };

/**
 * Judges a figure by the ratios of its rounds: Hodges and Lehmann's estimate, which is the median of the means of all pairs of rounds, with
 * the interval of Wilcoxon's signed-rank test. A few rounds that something disturbed move neither, and fewer than six rounds have no interval.
 */
export function judge(rounds: readonly Round[]): Judged {
  const logs = rounds.map(({ tree, base }) => Math.log(tree / base));
  if (logs.length === 0 || !rounds.every(({ tree, base }) => isMeasured(tree) && isMeasured(base))) return MISSING;
  const means = logs.flatMap((one, index) => logs.slice(index).map((other) => Math.exp((one + other) / 2)))
    .sort((a, b) => a - b);
  const count = rounds.length;
  const deviation = Math.sqrt(count * (count + 1) * (2 * count + 1) / 24);
  const cut = Math.floor(means.length / 2 - DEVIATIONS * deviation);
  const ratio = means[means.length >> 1] ?? Number.NaN;
  const low = means[cut - 1] ?? 0;
  const high = cut < 1 ? Number.POSITIVE_INFINITY : means[means.length - cut] ?? Number.POSITIVE_INFINITY;
  const verdict = low > GREW ? "grew" : high < EXCLUDED ? "holds" : "too noisy";
  return { verdict, ratio, low, high };
}

const isMeasured = (value: number) => Number.isFinite(value) && value > 0;

/** Returns the exit code of a run: 1 when a figure grew, 2 when none did and one could not be judged, or there is none. */
export function exitCodeOf(judged: readonly Judged[]): 0 | 1 | 2 {
  if (judged.some(({ verdict }) => verdict === "grew")) return 1;
  return judged.length > 0 && judged.every(({ verdict }) => verdict === "holds") ? 0 : 2;
}
