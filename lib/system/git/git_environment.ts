import { FIXED_OVERRIDES, type Override } from "./config_overrides.ts";

/** The part that is the same for each command: no configuration but the repository's, no prompt, no program. */
const FIXED: Readonly<Record<string, string>> = {
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_SYSTEM: "/dev/null",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_ATTR_NOSYSTEM: "1",
  XDG_CONFIG_HOME: "/nonexistent",
  GIT_TERMINAL_PROMPT: "0",
  // Set and empty: nobody is asked, whatever is configured
  GIT_ASKPASS: "",
  SSH_ASKPASS: "",
  GIT_EDITOR: ":",
  GIT_SEQUENCE_EDITOR: ":",
  GIT_MERGE_AUTOEDIT: "no",
  GIT_PAGER: "cat",
  GIT_SSH_COMMAND: "false",
  GIT_NO_LAZY_FETCH: "1",
};

export interface GitEnvironment {
  readonly gitDir: string;
  readonly top: string;
  /** Overrides of the repository's own keys. */
  readonly overrides: readonly Override[];
  /** Further settings, which come last. Default: none. */
  readonly added?: readonly Override[];
  /** false: git does not even refresh its index */
  readonly writes: boolean;
  /** The scheme it may use, as `https`; it wins over the configuration's `protocol.*`. Default: none */
  readonly protocol?: string | undefined;
}

/** The variables of a command. Configuration goes in by number: a key may hold any character. */
export function gitEnvironment(options: GitEnvironment): Readonly<Record<string, string>> {
  const { gitDir, top, writes, protocol } = options;
  const config = [...options.overrides, ...FIXED_OVERRIDES, ...options.added ?? []];
  const numbered = config.flatMap(([key, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, key],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ]);
  return {
    ...FIXED,
    GIT_DIR: gitDir,
    GIT_WORK_TREE: top,
    GIT_ALLOW_PROTOCOL: protocol ?? "none",
    GIT_OPTIONAL_LOCKS: writes ? "1" : "0",
    GIT_CONFIG_COUNT: String(config.length),
    ...Object.fromEntries(numbered),
  };
}
