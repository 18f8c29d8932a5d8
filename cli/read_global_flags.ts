import { type GlobalFlags, UsageError } from "./command.ts";

const WITH_VALUE: ReadonlyMap<string, "config" | "dataDir" | "workspace"> = new Map([
  ["--config", "config"],
  ["--data-dir", "dataDir"],
  ["--workspace", "workspace"],
]);

/** Result of reading the global flags: their values, and the words that are left for the command. */
export interface GlobalArguments {
  readonly flags: GlobalFlags;
  readonly help: boolean;
  readonly version: boolean;
  readonly rest: readonly string[];
}

/** Takes the global flags out of an argument list, wherever they stand before `--`. @throws {UsageError} a flag lacks its value */
export function readGlobalFlags(argv: readonly string[]): GlobalArguments {
  const found: { config?: string; dataDir?: string; workspace?: string } = {};
  const rest: string[] = [];
  const seen = new Set<string>();
  for (let index = 0; index < argv.length; index++) {
    // The index is below the length
    const token = argv[index] as string;
    if (token === "--") {
      rest.push(...argv.slice(index));
      break;
    }
    const name = token.split("=", 1)[0] ?? "";
    const key = WITH_VALUE.get(name);
    if (key !== undefined) {
      const value = token.length > name.length ? token.slice(name.length + 1) : argv[++index];
      if (value === undefined || value === "") throw new UsageError(`Cannot use "${name}": it needs a value`);
      found[key] = value;
    } else if (token === "--json" || token === "--help" || token === "-h" || token === "--version") {
      seen.add(token);
    } else {
      rest.push(token);
    }
  }
  const { config, dataDir, workspace } = found;
  return {
    flags: { config, dataDir, workspace, json: seen.has("--json") },
    help: seen.has("--help") || seen.has("-h"),
    version: seen.has("--version"),
    rest,
  };
}
