/** Outcome of one mutant: killed, timed out or survived. */
export interface Verdict {
  /** Folder it was counted in */
  readonly folder: string;
  readonly end: "killed" | "timed_out" | "survived";
}

/** Share of the mutants that a test noticed, in percent; a test that hangs has noticed. */
export function scoreOf(verdicts: readonly Verdict[]): number {
  const noticed = verdicts.filter(({ end }) => end !== "survived").length;
  return verdicts.length === 0 ? 100 : noticed / verdicts.length * 100;
}

/** Returns the table of all folders, with their sum in the last line. @param total mutants that each folder has */
export function scoreTable(verdicts: readonly Verdict[], total: Readonly<Record<string, number>>): string {
  const count = (some: readonly Verdict[], end: Verdict["end"]) => some.filter((verdict) => verdict.end === end).length;
  const row = (name: string, of: number, some: readonly Verdict[]) => [
    name,
    ...[of, some.length, count(some, "killed"), count(some, "timed_out"), count(some, "survived")].map(String),
    some.length === 0 ? "-" : `${scoreOf(some).toFixed(1)} %`,
  ];
  const folders = Object.entries(total);
  const rows = [
    ["folder", "mutants", "tried", "killed", "timed out", "survived", "score"],
    ...folders.map(([name, of]) => row(name, of, verdicts.filter(({ folder }) => folder === name))),
    row("all", folders.reduce((sum, [, of]) => sum + of, 0), verdicts),
  ];
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0))) ?? [];
  return rows.map((cells) =>
    cells.map((cell, at) => at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)).join("  ")
  ).join("\n");
}
