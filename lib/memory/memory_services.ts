import type { Clock } from "../base/clock.ts";
import { lazyService } from "../base/lazily.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { readable } from "../storage/read_records.ts";
import type { RecordCipher } from "../storage/record_cipher.ts";
import type { RecordKeyName } from "../storage/record_keys.ts";
import type { Store } from "../storage/store.ts";
import type { BrowserLogins, BrowserLoginsOptions } from "./browser_logins.ts";
import type { CookieJars } from "./cookie_jars.ts";
import type { Mailbox } from "./mailbox.ts";
import { MEMORY, Memory, memoryText, parseMemoryRecord } from "./memory.ts";
import { MemoryVectors } from "./memory_vectors.ts";
import { type CommandFolders, createCommandFolders } from "./command_folders.ts";
import { createPlans, type Plans } from "./plans.ts";

/** Options of `createMemoryServices`. */
export interface MemoryServicesOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Removes known secrets from a text that goes to an embedding model. */
  readonly redact: (text: string) => string;
  /** Does work by its name, unless another gateway of a cluster does it now: then it gives false. Default: the gateway is alone */
  readonly alone?: ((name: string, work: () => Promise<void>) => Promise<boolean>) | undefined;
  /** Opens the cipher of one kind of records. @throws {ConfigError} a key that cannot be used */
  readonly cipherOf: (name: RecordKeyName) => Promise<RecordCipher>;
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
  /** Folders that conversations run their commands in. */
  readonly commandFolders: CommandFolders;
  /** Loaded at its first use, and its key with it. */
  readonly mailbox: Pick<Mailbox, keyof Mailbox>;
  /** Loaded at its first use, and its key with it. */
  readonly cookieJars: CookieJars;
  /** Loaded at its first use, and its key with it. */
  readonly browserLogins: BrowserLogins;
}

/** Creates memory, plans and mailboxes over a store. */
export function createMemoryServices(options: MemoryServicesOptions): MemoryServices {
  const { store, clock, random, log, redact, cipherOf, alone } = options;
  const vectors = new MemoryVectors({
    store,
    clock,
    log,
    redact,
    collection: MEMORY,
    alone: alone && ((work) => alone("memory_vectors", work)),
    textOf: (record) => readable(store, MEMORY, [record], parseMemoryRecord).map(({ value }) => memoryText(value))[0],
  });
  return {
    memory: new Memory({ store, clock, vectors }),
    vectors,
    plans: createPlans({ store, clock }),
    commandFolders: createCommandFolders({ store }),
    mailbox: lazyService(async () => {
      const { Mailbox } = await import("./mailbox.ts");
      const cipher = () => cipherOf("agents_ipc.key");
      return new Mailbox({ store, clock, random, cipher });
    }, ["send", "receive", "list", "clear"]),
    cookieJars: lazyService(async () => {
      const { createCookieJars } = await import("./cookie_jars.ts");
      const cipher = () => cipherOf("browser_cookies.key");
      return createCookieJars({ store, cipher });
    }, ["get", "set"]),
    browserLogins: lazyService(async () => {
      const { createBrowserLogins } = await import("./browser_logins.ts");
      const cipher = () => cipherOf("browser_cookies.key");
      const { usedLogins: used, recordLogin: record } = options;
      return createBrowserLogins({ store, clock, cipher, used, record });
    }, ["list", "save", "remove", "open"]),
  };
}
