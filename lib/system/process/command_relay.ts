import { mkdir, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { messageOf } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Relay, RelayProblem } from "../net/relay.ts";
import { type AllowedHosts, isAmongHosts } from "../net/url_rules.ts";
import { sandboxUnavailable } from "./containment.ts";
import type { CommandResult } from "./run_command.ts";
import { workerModule } from "./workers.ts";

/** Relays of contained commands: one for each command, on a socket of its own. */
export interface CommandRelays {
  /**
   * Opens a relay.
   * @param hosts of the one program that uses it. Default: those of `[url_access] domain_allowlist`
   * @throws {ToolError} `sandbox_unavailable` when there can be none: the command must not run without it
   */
  open(command: string, hosts?: AllowedHosts): Promise<CommandRelay>;
}

/** Relay of one command. */
export interface CommandRelay {
  /** Options of bubblewrap that show the socket, and the program that passes bytes on to it, read-only */
  readonly mounts: readonly string[];
  /** Returns the words before the command, inside the sandbox. @param given base64 of what the command reads from its first descriptor behind its outputs. Empty: there is none */
  launcher(given: string): readonly string[];
  /** Variables of the program before the command; the command does not get them */
  readonly env: Readonly<Record<string, string>>;
  /** Returns what the relay has not done until now. */
  problems(): readonly RelayProblem[];
  /** Refuses the result of a command that was not started. @throws {ToolError} `sandbox_unavailable` */
  requireStarted(result: CommandResult): void;
  /** Ends every connection and removes the socket. Repeating it does nothing. Never throws */
  close(): Promise<void>;
}

/** Options of createCommandRelays. */
export interface CommandRelaysOptions {
  /** Absolute path of the folder for the sockets; made private with the first one */
  readonly folder: string;
  readonly random: Random;
  /** Creates a relay that does not listen yet. Undefined: there is none, and such commands are refused */
  readonly createRelay: ((hosts?: AllowedHosts) => Promise<Relay>) | undefined;
  /** `[url_access] domain_allowlist` as it is now. Default: empty */
  readonly allowlist?: (() => readonly string[]) | undefined;
}

/** Places inside the sandbox. The folder is in no system, so that no workspace is hidden by it. */
const INSIDE = "/.postern-relay";
/** Any port will do: nothing else listens in the command's own namespace */
const PORT = "3128";
/** Begin of each complaint of the program in front of the command. */
const COMPLAINT = "postern-relay: ";
const WAY_OUT = 'try again, or set [security.shell] network = "none"';

/** Creates the relays of commands. Makes nothing before the first one. */
export function createCommandRelays({ folder, random, createRelay, allowlist }: CommandRelaysOptions): CommandRelays {
  return {
    async open(command, hosts) {
      if (createRelay === undefined) throw sandboxUnavailable(command, "this gateway has no relay", WAY_OUT);
      const name = random.id("");
      const path = join(folder, name);
      const relay = await createRelay(hosts);
      try {
        await mkdir(folder, { recursive: true, mode: 0o700 });
        const handle = await open(folder);
        const close = async () => {
          await relay.close();
          await rm(path, { force: true }).catch(() => {});
          await handle.close().catch(() => {});
        };
        try {
          // A path of the data directory may be longer than the 107 bytes that a socket's name may have
          await relay.listen(`/proc/self/fd/${handle.fd}/${name}`);
        } catch (error) {
          await close();
          throw error;
        }
        return toCommandRelay({
          command,
          path,
          relay,
          close,
          direct: directHosts(hosts?.entries ?? allowlist?.() ?? []),
        });
      } catch (error) {
        const reason = messageOf(error);
        const why = `the relay that its network goes through cannot listen (${reason})`;
        throw sandboxUnavailable(command, why, hosts === undefined ? WAY_OUT : "try again");
      }
    },
  };
}

/** Removes the sockets, and the folders of sockets, that a killed gateway left. Only for the one that holds the data directory's lock, before its first command. */
export async function removeLeftSockets(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  await Promise.all(names.map((name) => rm(join(folder, name), { recursive: true, force: true }).catch(() => {})));
}

/**
 * Returns the names of loopback that lead to the command's own namespace, so that a test reaches the server that it has started. A name
 * that the allowlist has goes through the relay, to the gateway's machine.
 */
function directHosts(allowlist: readonly string[]): string {
  return ["localhost", "127.0.0.1", "::1"].filter((name) => !isAmongHosts(name, allowlist)).join(",");
}

function toCommandRelay(
  { command, path, relay, close, direct }: Pick<CommandRelay, "close"> & {
    readonly command: string;
    readonly direct: string;
    readonly path: string;
    readonly relay: Relay;
  },
): CommandRelay {
  const forwarder = fileURLToPath(workerModule(import.meta.url, "relay_forwarder"));
  // The runtimes tell by the end of the name what it holds, where no package.json stands beside it
  const inside = {
    socket: `${INSIDE}/socket`,
    program: `${INSIDE}/program`,
    script: `${INSIDE}/forwarder.m${forwarder.slice(-2)}`,
  };
  const isDeno = "Deno" in globalThis;
  const run = isDeno ? ["run", "--allow-all", "--no-config", "--no-lock", "--quiet"] : [];
  return {
    mounts: [
      ...["--ro-bind", path, inside.socket],
      // Deno rewrites the arguments of a command that names its own file: the path is the same, its text is another
      ...["--ro-bind", `/.${process.execPath}`, inside.program],
      ...["--ro-bind", forwarder, inside.script],
    ],
    launcher: (given) => [inside.program, ...run, inside.script, inside.socket, PORT, direct, COMPLAINT, given],
    env: isDeno ? { DENO_DIR: `${INSIDE}/deno`, DENO_NO_UPDATE_CHECK: "1" } : {},
    problems: () => relay.problems(),
    requireStarted({ ending, stdout, stderr }) {
      const hasComplained = ending.kind === "exit" && ending.code === 1 && stdout.bytes === 0 &&
        stderr.text.startsWith(COMPLAINT);
      // The program in front of the command asks the relay before it starts the command
      if (relay.wasReached() && !hasComplained) return;
      if (ending.kind === "timeout" || ending.kind === "uncovered") return;
      const said = stderr.text.trim().slice(0, 200);
      throw sandboxUnavailable(
        command,
        `the way to the relay did not start in the sandbox (${said || ending.kind})`,
        WAY_OUT,
      );
    },
    close,
  };
}
