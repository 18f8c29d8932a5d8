import { stat } from "node:fs/promises";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";

/** Program whose configuration of MCP servers can be imported. */
export type McpClientProgram = "claude" | "cursor" | "vscode";

/** Configuration file of another program. */
export interface ClientConfigFile {
  readonly path: string;
  readonly text: string;
}

/** Home folder and environment of the person, which say where programs keep their files. */
interface ClientPlace {
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Default: this machine's */
  readonly platform?: NodeJS.Platform;
}

const MAX_BYTES = 4_194_304;

/**
 * Returns the paths where a program keeps its servers. Files of a project are not among them: tools of the agent may have written those.
 * Source: the documentation of Claude Desktop, Cursor and VS Code on MCP servers
 */
export function clientConfigPaths(program: McpClientProgram, place: ClientPlace): readonly string[] {
  const { home, env, platform = process.platform } = place;
  const given = env["XDG_CONFIG_HOME"] ?? "";
  const linux = given.startsWith("/") ? given : join(home, ".config");
  const settings = platform === "darwin" ? join(home, "Library", "Application Support") : linux;
  switch (program) {
    case "claude":
      return [join(settings, "Claude", "claude_desktop_config.json")];
    case "cursor":
      return [join(home, ".cursor", "mcp.json")];
    case "vscode":
      return ["Code", "Code - Insiders", "VSCodium"].flatMap((name) => [
        join(settings, name, "User", "mcp.json"),
        join(settings, name, "User", "settings.json"),
      ]);
  }
}

/** Reads a configuration file. @returns undefined where there is none @throws {Error} with the reason, for a file that cannot be read */
export async function readClientConfig(path: string): Promise<ClientConfigFile | undefined> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return undefined;
    throw error;
  });
  if (found === undefined) return undefined;
  if (!found.isFile()) throw new Error("it is no file");
  if (found.size > MAX_BYTES) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
  return { path, text: await readFile(path, "utf8") };
}
