#!/usr/bin/env node
import * as nodeModule from "node:module";
import { EXIT, HANDOVER_VARIABLE } from "./command.ts";

const OLDEST_NODE = [22, 19] as const;

// The version is checked before anything large is imported: an old Node would end in a syntax error that explains nothing
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1])) {
  process.stderr.write(
    `Cannot run on Node ${process.versions.node}: Postern needs Node ${
      OLDEST_NODE.join(".")
    } or newer; see https://nodejs.org\n`,
  );
  process.exit(EXIT.failed);
}
// Called through the namespace: an older Node lacks this export, and a missing named import would end it before the sentence above
nodeModule.enableCompileCache?.();

const isHandedOver = process.env[HANDOVER_VARIABLE] === "stdin";
const crash = (error: unknown) => {
  // Stderr of a daemon that was launched is its log file, and secrets in the error cannot be masked here
  const told = isHandedOver ? "nothing caught it" : error instanceof Error ? error.stack : String(error);
  process.stderr.write(`Internal error: ${told}\n`);
  process.exit(EXIT.internal);
};
process.on("unhandledRejection", crash);
process.on("uncaughtException", crash);
// The reader of a pipe may end first, as in `postern tool list | head -1`: that is a success
process.stdout.on("error", (error: { code?: string }) => process.exit(error.code === "EPIPE" ? EXIT.ok : EXIT.failed));

const [{ runCli }, { processIo }] = await Promise.all([import("./run_cli.ts"), import("./process_io.ts")]);
const io = processIo();
const code = await runCli(
  process.argv.slice(2),
  isHandedOver ? await (await import("./process_io.ts")).withHandedEnvironment(io) : io,
);
// The callback of this empty write runs once all earlier output has been written
process.stdout.write("", () => process.exit(code));
