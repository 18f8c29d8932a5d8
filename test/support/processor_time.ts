import process from "node:process";

/**
 * Returns the milliseconds of a processor that this process has used so far, in all of its threads: for a bound on work that must not grow
 * with a hostile input. What other programs of a busy machine take does not count.
 */
export function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
