import { Duplex } from "node:stream";

/** Socket that takes connections until it is closed. */
export interface UnixListener {
  close(): void;
}

/** The part of `Deno.listen` that is used. */
interface DenoSockets {
  listen(options: { readonly transport: "unix"; readonly path: string }): {
    accept(): Promise<DenoConnection>;
    close(): void;
  };
}

interface DenoConnection {
  read(into: Uint8Array): Promise<number | null>;
  write(bytes: Uint8Array): Promise<number>;
  closeWrite(): Promise<void>;
  close(): void;
}

const CHUNK_BYTES = 65_536;

/** Receivers of a listener's connections and failures. */
export interface ListenerOptions {
  readonly onConnection: (connection: Duplex) => void;
  /** Runs when no connection can be taken, as without free descriptors. The listener then tries again after `pause` */
  readonly onError: (error: unknown) => void;
  readonly pause: () => Promise<void>;
}

/**
 * Listens on a Unix socket by Deno's own means. The listener of `node:net` in Deno 2.9 is inherited by every program that is started
 * meanwhile, so that one command could take the connections of another.
 * @returns undefined on Node, whose own listener nobody inherits
 * @throws the system's error when there can be no socket
 */
export function listenOnDeno(
  path: string,
  { onConnection, onError, pause }: ListenerOptions,
): UnixListener | undefined {
  // The types of Node do not know Deno
  const { Deno: sockets } = globalThis as { readonly Deno?: DenoSockets };
  if (sockets === undefined) return undefined;
  const listener = sockets.listen({ transport: "unix", path });
  let isClosed = false;
  const acceptAll = async () => {
    while (!isClosed) {
      try {
        onConnection(new DenoStream(await listener.accept()));
      } catch (error) {
        if (isClosed) return;
        onError(error);
        await pause();
      }
    }
  };
  void acceptAll();
  return {
    close() {
      isClosed = true;
      try {
        listener.close();
      } catch {
        // Deno throws for a listener that was closed before
      }
    },
  };
}

/** Connection of Deno as a stream. */
class DenoStream extends Duplex {
  readonly #connection: DenoConnection;

  constructor(connection: DenoConnection) {
    super({ allowHalfOpen: true });
    this.#connection = connection;
  }

  override _read(): void {
    const buffer = new Uint8Array(CHUNK_BYTES);
    this.#connection.read(buffer).then(
      (count) => this.push(count === null ? null : buffer.subarray(0, count)),
      (error) => this.destroy(error),
    );
  }

  override _write(chunk: Uint8Array, _encoding: string, done: (error?: Error) => void): void {
    this.#writeAll(chunk).then(() => done(), done);
  }

  override _final(done: () => void): void {
    this.#connection.closeWrite().then(() => done(), () => done());
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    try {
      this.#connection.close();
    } catch {
      // Deno throws for a connection that was closed before
    }
    done(error);
  }

  async #writeAll(bytes: Uint8Array): Promise<void> {
    for (let written = 0; written < bytes.length;) written += await this.#connection.write(bytes.subarray(written));
  }
}
