import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/** Systems give ports from 32,768 (Linux) or 49,152 on to whoever asks for any, so that one of these is not taken while it is free. */
const FIRST = 20_000;
const COUNT = 12_000;

/** A port of 127.0.0.1 that nobody listens on, for who has to know it before, or closes it and opens it again. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + randomInt(COUNT);
    const server = createServer();
    const listening = once(server, "listening").then(() => true, () => false);
    server.listen(port, "127.0.0.1");
    if (!await listening) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}
