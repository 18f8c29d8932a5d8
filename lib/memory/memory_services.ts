import type { Clock } from "../base/clock.ts";
import { lazyService } from "../base/lazily.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { readable } from "../storage/read_records.ts";
import type { KEPT_FILES } from "../storage/back_up.ts";
import type { Store } from "../storage/store.ts";
import type { BrowserLogins, BrowserLoginsOptions } from "./browser_logins.ts";
import type { CookieJars } from "./cookie_jars.ts";
import type { Mailbox } from "./mailbox.ts";
import { createMemory, MEMORY, type Memory, memoryText, parseMemoryRecord } from "./memory.ts";
import { createMemoryVectors, type MemoryVectors } from "./memory_vectors.ts";
import { createPlans, type Plans } from "./plans.ts";

/** Options of `createMemoryServices`. */
export interface MemoryServicesOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Removes known secrets from a text that goes to an embedding model. */
  readonly redact: (text: string) => string;
  /** Absolute path of the folder with the key of the mailboxes. */
  readonly dataDir: string;
  /** False: the store is in memory, so that the key is kept nowhere. */
  readonly isKept: boolean;
  /** Returns the newest `[browser] logins`. */
  readonly usedLogins: BrowserLoginsOptions["used"];
  /** Records a change or use of a login. */
  readonly recordLogin: BrowserLoginsOptions["record"];
}

/** Everything that agents keep between conversations and send each other. */
export interface MemoryServices {
  /** Records that the agent keeps between conversations. */
  readonly memory: Memory;
  /** Vectors of the memories, which begin once the models are there. */
  readonly vectors: MemoryVectors;
  readonly plans: Plans;
  /** Loaded at its first use, and its key with it. */
  readonly mailbox: Mailbox;
  /** Loaded at its first use, and its key with it. */
  readonly cookieJars: CookieJars;
  /** Loaded at its first use, and its key with it. */
  readonly browserLogins: BrowserLogins;
}

/** Creates memory, plans and mailboxes over a store. */
export function createMemoryServices(options: MemoryServicesOptions): MemoryServices {
  const { store, clock, random, log, redact, dataDir, isKept } = options;
  const vectors = createMemoryVectors({
    store,
    clock,
    log,
    redact,
    collection: MEMORY,
    textOf: (record) => readable(store, MEMORY, [record], parseMemoryRecord).map(({ value }) => memoryText(value))[0],
  });
  const openCipher = async (name: typeof KEPT_FILES[number]) => {
    const { openRecordCipher } = await import("../storage/record_cipher.ts");
    return await openRecordCipher({ dataDir, isKept, random }, name);
  };
  return {
    memory: createMemory({ store, clock, vectors }),
    vectors,
    plans: createPlans({ store, clock }),
    mailbox: lazyService(async () => {
      const { createMailbox } = await import("./mailbox.ts");
      const cipher = () => openCipher("agents_ipc.key");
      return createMailbox({ store, clock, random, cipher });
    }, ["send", "receive", "list", "clear"]),
    cookieJars: lazyService(async () => {
      const { createCookieJars } = await import("./cookie_jars.ts");
      const cipher = () => openCipher("browser_cookies.key");
      return createCookieJars({ store, cipher });
    }, ["get", "set"]),
    browserLogins: lazyService(async () => {
      const { createBrowserLogins } = await import("./browser_logins.ts");
      const cipher = () => openCipher("browser_cookies.key");
      const { usedLogins: used, recordLogin: record } = options;
      return createBrowserLogins({ store, clock, cipher, used, record });
    }, ["list", "save", "remove", "open"]),
  };
}
