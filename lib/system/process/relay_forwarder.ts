/**
 * The program that runs in the sandbox in front of a command with `network = "allowlist"`, and nowhere else: it imports nothing of Postern.
 * The program takes connections at 127.0.0.1, where programs look for a proxy, passes their bytes on to the gateway's relay, and starts the command
 * once that works. It ends with the command, and the sandbox with it. It may make Unix sockets, which the command may not: the filter of
 * system calls begins behind this program. Otherwise it has no rights that the command has not: the relay decides.
 *
 * Arguments: socket of the relay, port to listen on, hosts that the command reaches in its own namespace, begin of each complaint, base64 of what the command reads from descriptor 3, the command's file, the command's arguments.
 * Exit code: the command's, 128 and the number of the signal that ended it, or 1 with one complaint when the command was not started.
 */
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { constants } from "node:os";
import process from "node:process";
import type { Writable } from "node:stream";

const [relay = "", port = "", direct = "", begin = "", given = "", file = "", ...args] = process.argv.slice(2);

/** Signals that the command may send to its whole group: it decides itself what they do. */
for (const name of ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"] as const) process.on(name, () => {});

function complain(reason: unknown): never {
  writeSync(2, `${begin}${reason instanceof Error ? reason.message : String(reason)}\n`);
  process.exit(1);
}

/** Passes bytes both ways until both ends have ended or one has broken. */
function join(inner: Socket, outer: Socket): void {
  for (const [from, to] of [[inner, outer], [outer, inner]] as const) {
    from.on("error", () => to.destroy());
    from.on("close", () => to.destroySoon());
    from.pipe(to);
  }
}

const dial = () => connect({ path: relay, allowHalfOpen: true });

/** Waits until the relay has said anything at all. */
async function reachRelay(): Promise<void> {
  const socket = dial();
  socket.write("GET / HTTP/1.0\r\n\r\n");
  await once(socket, "data");
  socket.destroy();
}

async function listen(): Promise<void> {
  const server = createServer({ allowHalfOpen: true }, (inner) => join(inner, dial()));
  server.listen(Number(port), "127.0.0.1");
  await once(server, "listening");
}

/** Returns the command's environment: what programs read the address of a proxy from, and nothing that is for this program. */
function environment(): Record<string, string | undefined> {
  const proxy = `http://127.0.0.1:${port}`;
  const { DENO_DIR: _folder, DENO_NO_UPDATE_CHECK: _check, ...given } = process.env;
  return {
    ...given,
    ...Object.fromEntries(["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].flatMap((name) => [
      [name, proxy],
      [name.toLowerCase(), proxy],
    ])),
    NO_PROXY: direct,
    no_proxy: direct,
    // Without it fetch() of Node knows no proxy
    NODE_USE_ENV_PROXY: "1",
  };
}

try {
  await Promise.all([reachRelay(), listen()]);
} catch (error) {
  complain(error);
}
const command = spawn(file, args, {
  stdio: ["inherit", "inherit", "inherit", ...given === "" ? [] : ["pipe" as const]],
  env: environment(),
});
// A pipe of this kind is a socket, which is written to
const pipe = command.stdio[3] as Writable | null | undefined;
// A command that ends early reads nothing. Its end says why
pipe?.on("error", () => {});
pipe?.end(Buffer.from(given, "base64"));
command.on("error", complain);
command.on("exit", (code, signal) => process.exit(code ?? 128 + (signal === null ? 0 : constants.signals[signal])));
