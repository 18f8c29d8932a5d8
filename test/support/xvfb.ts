import { spawn } from "node:child_process";
import { until } from "./until.ts";

/** Starts an X server on a free display and waits until it answers. @param file path of Xvfb */
export async function startXvfb(
  file: string,
): Promise<{ readonly display: string; readonly stop: () => void }> {
  const server = spawn(file, ["-displayfd", "1", "-screen", "0", "320x200x24", "-nolisten", "tcp"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  let display = "";
  server.stdout.on("data", (chunk: Uint8Array) => void (display += Buffer.from(chunk).toString()));
  await until(() => display.endsWith("\n") || server.exitCode !== null, "the X server never answered");
  return { display: `:${display.trim()}`, stop: () => void server.kill() };
}
