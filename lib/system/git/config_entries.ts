import { ToolError } from "../../base/errors.ts";

/** Line of a repository's configuration. */
export interface ConfigEntry {
  /** `section.name` or `section.subsection.name`: section and name in lower case, the subsection as it is written */
  readonly key: string;
  /** Empty too where the line has no value, which git takes for `true` */
  readonly value: string;
  /** As git names it: `file:.git/config` */
  readonly origin: string;
}

/**
 * Reads what `git config --list --show-origin -z` prints: origin and entry, each ended by NUL.
 * @throws {ToolError} `git_config_refused` for a name that is not valid UTF-8, which could not be overridden by name
 */
export function parseConfigEntries(output: string): readonly ConfigEntry[] {
  const parts = output.split("\0");
  const entries: ConfigEntry[] = [];
  for (let at = 0; at + 1 < parts.length; at += 2) {
    const [origin = "", entry = ""] = [parts[at], parts[at + 1]];
    const end = entry.indexOf("\n");
    const key = end === -1 ? entry : entry.slice(0, end);
    if (key.includes("\ufffd")) {
      throw new ToolError(
        "git_config_refused",
        `Cannot run git: the configuration in ${origin} has the key ${
          JSON.stringify(key)
        }, which is not valid UTF-8; remove it`,
      );
    }
    entries.push({ key, value: end === -1 ? "" : entry.slice(end + 1), origin });
  }
  return entries;
}

/** The three parts of a key; the subsection may hold dots. */
export function keyParts(
  key: string,
): { readonly section: string; readonly subsection: string | undefined; readonly name: string } {
  const first = key.indexOf(".");
  const last = key.lastIndexOf(".");
  return {
    section: key.slice(0, first === -1 ? key.length : first).toLowerCase(),
    subsection: last > first ? key.slice(first + 1, last) : undefined,
    name: key.slice(last + 1).toLowerCase(),
  };
}
