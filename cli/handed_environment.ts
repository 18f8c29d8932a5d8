import type { CliIo } from "./command.ts";

/**
 * The process as commands see it, with the environment that `daemon start` hands over through standard input: keys are then in
 * this process's memory alone.
 * @throws {Error} what arrived is no environment
 */
export async function withHandedEnvironment(io: CliIo): Promise<CliIo> {
  const handed: unknown = JSON.parse(await io.readStdin() ?? "");
  if (handed === null || typeof handed !== "object") throw new Error("The environment on standard input is no object");
  const texts = Object.entries(handed).filter((entry): entry is [string, string] => typeof entry[1] === "string");
  return { ...io, env: Object.fromEntries(texts), readStdin: () => Promise.resolve(undefined), isLaunched: true };
}
