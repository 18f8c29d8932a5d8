import { basename } from "node:path";
import { type PackageSpec, parseAddTarget, shownPackage } from "./package_spec.ts";

/** Command line of a server that fetches its program again when it is started. */
export interface FloatingCommand {
  /** Program that fetches: `npx`, `uvx` and their kin */
  readonly runner: string;
  /** Package that it fetches. Undefined where the arguments do not say it plainly */
  readonly spec: PackageSpec | undefined;
  /** Program of the package, where the arguments name one */
  readonly program: string | undefined;
  /** Arguments that the program of the package gets */
  readonly args: readonly string[];
}

/** Runners by their words: the registry that they fetch from, and their flags that take a value. */
const RUNNERS: readonly {
  readonly words: readonly string[];
  readonly registry: "npm" | "pypi";
  readonly valued: RegExp;
  readonly from: RegExp;
}[] = [
  ...[["npx"], ["npm", "exec"], ["npm", "x"], ["bunx"], ["pnpx"], ["pnpm", "dlx"], ["yarn", "dlx"]].map((words) => ({
    words,
    registry: "npm" as const,
    valued: /^(?:-p|--package|-c|--call|--registry|--cache|--prefix|-w|--workspace)$/,
    from: /^(?:-p|--package)$/,
  })),
  ...[["uvx"], ["uv", "tool", "run"], ["pipx", "run"]].map((words) => ({
    words,
    registry: "pypi" as const,
    valued:
      /^(?:--from|--spec|--with|--python|-p|--index|--default-index|--index-url|-i|--extra-index-url|--pip-args|--with-editable|--cache-dir)$/,
    from: /^(?:--from|--spec)$/,
  })),
];

/** Finds out whether a server's command line fetches its program at each start. @returns undefined where it does not */
export function floatingCommand(
  { command, args }: { readonly command: string; readonly args: readonly string[] },
): FloatingCommand | undefined {
  const words = [basename(command).replace(/\.(?:cmd|exe)$/i, ""), ...args];
  const runner = RUNNERS.find((one) => one.words.every((word, index) => words[index] === word));
  if (runner === undefined) return undefined;
  const rest = words.slice(runner.words.length);
  let from: string | undefined;
  let place = 0;
  for (; place < rest.length; place++) {
    const word = rest[place] ?? "";
    if (word === "--") {
      place++;
      break;
    }
    if (!word.startsWith("-")) break;
    const [flag = "", given] = word.split("=", 2);
    if (!runner.valued.test(flag)) continue;
    const value = given ?? rest[++place];
    if (runner.from.test(flag)) from = value;
  }
  const first = rest[place];
  const named = from ?? first;
  return {
    runner: runner.words.join(" "),
    spec: named === undefined ? undefined : readSpec(named, runner.registry),
    program: from === undefined ? undefined : first,
    args: rest.slice(place + 1),
  };
}

/**
 * Returns the warning about a server that fetches its program at each start, with the command that installs it once. Undefined for any other.
 * The arguments of the server itself are left out, since they may hold a secret.
 */
export function floatingWarning(
  name: string,
  server: { readonly command: string; readonly args: readonly string[] },
): string | undefined {
  const found = floatingCommand(server);
  if (found === undefined) return undefined;
  const { runner, spec, program } = found;
  const shown = spec === undefined ? "npm:<package>" : shownPackage(spec);
  const flags = program === undefined || program === spec?.name ? "" : ` --program ${program}`;
  const line = `postern mcp add ${shown} --name ${name} --replace${flags}${
    found.args.length === 0 ? "" : " -- <arguments>"
  }`;
  const reason = `"${runner}" fetches its program at each start, so it may run other code tomorrow`;
  return `[mcp.servers.${name}] ${reason}; install it once with: ${line}`;
}

/** Server of the configuration whose program is fetched at each start, with the warning about it. */
export interface FloatingServer {
  readonly name: string;
  readonly message: string;
}

/** Finds the servers of a configuration whose programs are fetched at each start. */
export function floatingServers(
  servers: Readonly<Record<string, { readonly command: string; readonly args: readonly string[] }>>,
): readonly FloatingServer[] {
  return Object.entries(servers).flatMap(([name, server]) => {
    const message = floatingWarning(name, server);
    return message === undefined ? [] : [{ name, message }];
  });
}

function readSpec(text: string, registry: "npm" | "pypi"): PackageSpec | undefined {
  try {
    const target = parseAddTarget(`${registry}:${text}`);
    return target.kind === "package" ? target.spec : undefined;
  } catch {
    // An address, a folder or a range: nothing that could be installed by its name
    return undefined;
  }
}
