import { spawn } from "node:child_process";
import type { Clock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";

/** A larger database than can be read in this time is left to doctor. */
const LIMIT_MS = 2_000;
const MAX_REPLY_CHARACTERS = 4_096;
/** The process reads every page, which nothing could stop in this one. */
const PROGRAM = `import("node:sqlite").then(({ DatabaseSync }) => {
  let said;
  try {
    const database = new DatabaseSync(process.env.POSTERN_CHECKED, { readOnly: true });
    said = String(database.prepare("PRAGMA quick_check(1)").get().quick_check);
  } catch (error) {
    said = String(error.message);
  }
  process.stdout.write(said);
});`;

/** A check that is under way. */
export interface CheckBeside {
  /** Rejects with ConfigError `database_corrupt` once damage was found; stays pending otherwise */
  readonly damage: Promise<never>;
  /** Resolves when the process has ended */
  readonly ended: Promise<void>;
  stop(): void;
}

/**
 * Checks a database in a process of its own, beside whatever uses it, for 2 s at most: it only reads, and a check that was killed says
 * nothing.
 */
export function checkBeside({ path, clock, env }: {
  readonly path: string;
  readonly clock: Clock;
  /** Environment variables of this process */
  readonly env: Readonly<Record<string, string | undefined>>;
}): CheckBeside {
  const { promise: damage, reject } = Promise.withResolvers<never>();
  // Whoever has ended does not wait for it any more
  damage.catch(() => {});
  const args = "Deno" in globalThis ? ["eval", PROGRAM] : ["--no-warnings", "-e", PROGRAM];
  const { PATH = "", HOME = "", DENO_DIR } = env;
  const child = spawn(process.execPath, args, {
    stdio: ["ignore", "pipe", "ignore"],
    env: { PATH, HOME, POSTERN_CHECKED: path, ...(DENO_DIR === undefined ? {} : { DENO_DIR }) },
  });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said = (said + text).slice(0, MAX_REPLY_CHARACTERS);
  });
  const timer = clock.after(LIMIT_MS, () => child.kill("SIGKILL"));
  const { promise: ended, resolve } = Promise.withResolvers<void>();
  child.on("error", () => {
    timer.clear();
    resolve();
  });
  child.on("close", (code) => {
    timer.clear();
    if (code === 0 && isDamage(said)) reject(damaged(path, said));
    resolve();
  });
  return {
    damage,
    ended,
    stop() {
      timer.clear();
      child.kill("SIGKILL");
    },
  };
}

/** A database that is locked, or gone, is not damaged. */
function isDamage(said: string): boolean {
  return said !== "" && said !== "ok" && !/locked|unable to open|no such file/i.test(said);
}

function damaged(path: string, said: string): ConfigError {
  const first = said.split("\n").slice(0, 2).join("; ");
  return new ConfigError(
    "database_corrupt",
    `Cannot go on with "${path}": it is damaged (${first}); restore a backup with postern restore <file>`,
    { file: path },
  );
}
