import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import { lazyService } from "../base/lazily.ts";
import type { Random } from "../base/random.ts";
import { KEY_BYTES, loadKeyFile } from "../storage/key_file.ts";
import type { Store } from "../storage/store.ts";
import type { Mailbox } from "./mailbox.ts";
import { createMemory, type Memory } from "./memory.ts";
import { createPlans, type Plans } from "./plans.ts";

/** Options of `createMemoryServices`. */
export interface MemoryServicesOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  /** Absolute path of the folder with the key of the mailboxes. */
  readonly dataDir: string;
  /** False: the store is in memory, so that the key is kept nowhere. */
  readonly isKept: boolean;
}

/** Everything that agents keep between conversations and send each other. */
export interface MemoryServices {
  /** Records that the agent keeps between conversations. */
  readonly memory: Memory;
  readonly plans: Plans;
  /** Loaded at its first use, and its key with it. */
  readonly mailbox: Mailbox;
}

/** Creates memory, plans and mailboxes over a store. */
export function createMemoryServices(options: MemoryServicesOptions): MemoryServices {
  const { store, clock, random, dataDir, isKept } = options;
  const loadKey = async () =>
    isKept ? await loadKeyFile(join(dataDir, "agents_ipc.key"), random) : random.bytes(KEY_BYTES);
  return {
    memory: createMemory({ store, clock }),
    plans: createPlans({ store, clock }),
    mailbox: lazyService(async () => {
      const [{ createMailbox }, { createRecordCipher }] = await Promise.all([
        import("./mailbox.ts"),
        import("../storage/record_cipher.ts"),
      ]);
      return createMailbox({ store, clock, random, cipher: async () => createRecordCipher(await loadKey(), random) });
    }, ["send", "receive", "list", "clear"]),
  };
}
