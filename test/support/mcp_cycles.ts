import assert from "node:assert/strict";
import type { McpConnection } from "../../lib/extensions/mcp/mcp_connection.ts";
import { isGone } from "./is_gone.ts";
import { NEVER, withMcp } from "./mcp_bench.ts";

/** Ways in which a session ends. */
const ENDS: readonly ((server: McpConnection) => Promise<unknown>)[] = [
  // Asked, and closed by the restart that follows
  (server) => server.request("tools/call", { name: "echo", arguments: { text: "a" } }, { signal: NEVER }),
  // The server ends in the middle of a call
  (server) => server.request("tools/call", { name: "crash" }, { signal: NEVER }),
  // A call takes too long, and the server hangs on
  (server) => server.request("tools/call", { name: "hang" }, { signal: NEVER, timeoutMs: 20 }),
  // A call is cancelled
  (server) => {
    const controller = new AbortController();
    const calling = server.request("tools/call", { name: "hang" }, { signal: controller.signal });
    queueMicrotask(() => controller.abort());
    return calling;
  },
];

/** Opens sessions over and over, ends each in another way, and checks that no program of them is left. @returns programs that were started */
export async function endSessions(count: number): Promise<number> {
  let started: readonly string[] = [];
  await withMcp({ stubborn: false }, async ({ server, notes }) => {
    for (let cycle = 0; cycle < count; cycle++) {
      await server().restart(NEVER);
      await ENDS[cycle % ENDS.length]?.(server()).catch(() => {});
    }
    await server().close();
    started = notes().filter((note) => note.startsWith("start ")).map((note) => note.slice(6));
  });
  for (const id of started) assert.ok(await isGone(id), `the program ${id} is gone`);
  return started.length;
}
