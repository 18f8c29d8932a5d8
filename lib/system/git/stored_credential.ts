import { Buffer } from "node:buffer";
import type { Processes } from "../process/processes.ts";
import { FIRST_GIVEN } from "../process/process_group.ts";
import type { Override } from "./config_overrides.ts";
import type { GitScope } from "./git.ts";
import { NO_QUESTIONS } from "./git_process.ts";

/** Stored credential of one remote, and the setting by which git reads it from the first descriptor that it is given. */
export interface StoredCredential {
  readonly given: Uint8Array;
  readonly override: Override;
}

const TIMEOUT_MS = 20_000;
const MAX_BYTES = 65_536;
/** Git reads the URL as it reads that of a remote. A password may be of any bytes, and output is text */
const ASK = 'printf "url=%s\\n" "$POSTERN_URL" | git credential fill | base64';
/** Characters that would end a line of what git tells a helper, or that some helpers take for the end of one */
const LINE_ENDS = /%(?:00|0a|0d)/i;
/** Git asks its helper to keep and to forget as well */
const HELPER = `!f() { test "$1" = get && cat <&${FIRST_GIVEN}; }; f`;

/**
 * Asks the helpers of the user's own configuration for the credential of an address, outside the sandbox and away from the repository.
 * @param url as the URL policy has checked it. One with a password needs no other
 * @returns undefined where nothing is stored, or a helper would have to ask a person, and for a URL that no helper can be asked for
 * @throws {ToolError} as `Processes.run` @throws {CancelError} when the signal aborts
 */
export async function storedCredential(
  url: URL,
  { processes, home, scope, signal }: {
    readonly processes: Pick<Processes, "run">;
    readonly home: string;
    readonly scope: GitScope;
    readonly signal: AbortSignal;
  },
): Promise<StoredCredential | undefined> {
  if (url.password !== "" || LINE_ENDS.test(url.href)) return undefined;
  const { workspaceRoot, forbiddenPaths } = scope;
  const { ending, stdout } = await processes.run({
    words: ["sh", "-c", ASK],
    scope: { workspaceRoot, forbiddenPaths, workspaceOnly: true, allowSensitive: true },
    sandbox: "off",
    maxOutputBytes: MAX_BYTES,
    timeoutMs: TIMEOUT_MS,
    signal,
    composed: {
      env: {
        ...NO_QUESTIONS,
        HOME: home,
        GIT_DIR: "/nonexistent",
        POSTERN_URL: url.href,
      },
      network: true,
      writes: false,
    },
  });
  if (ending.kind !== "exit" || ending.code !== 0) return undefined;
  const filled = Buffer.from(stdout.text, "base64").toString("latin1");
  const lines = filled.split("\n").filter((line) => /^(?:username|password)=/.test(line));
  if (!lines.some((line) => line.startsWith("password="))) return undefined;
  return {
    given: Buffer.from(lines.map((line) => `${line}\n`).join(""), "latin1"),
    override: [`credential.${url.origin}.helper`, HELPER],
  };
}
