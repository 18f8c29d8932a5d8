import type { Kit } from "../base/kit.ts";
import { lazily } from "../base/lazily.ts";
import { defineWing } from "../base/opened_list.ts";
import type { Redactor } from "../base/redact.ts";
import type { Config } from "../config/config.ts";
import type { RecordCipher } from "../storage/record_cipher.ts";
import type { RecordKeyName } from "../storage/record_keys.ts";
import type { Store } from "../storage/store.ts";
import type { BrowserLogins, BrowserLoginsOptions } from "./browser_logins.ts";
import type { CookieJars } from "./cookie_jars.ts";
import type { Mailbox } from "./mailbox.ts";
import { MEMORY, Memory, memoryText } from "./memory.ts";
import { MemoryVectors } from "./memory_vectors.ts";
import { type CommandFolders, createCommandFolders } from "./command_folders.ts";
import { Plans } from "./plans.ts";
import type { Uploads } from "./uploads.ts";

/** Needs of `memoryWing`. */
export interface MemoryNeeds {
  readonly kit: Kit;
  readonly config: () => Pick<Config, "browser" | "gateway">;
  readonly storage: {
    readonly store: Store;
    /** Opens the cipher of one kind of records. @throws {ConfigError} a key that cannot be used */
    readonly keys: { readonly cipherOf: (name: RecordKeyName) => Promise<RecordCipher> };
  };
  /** Removes known secrets from a text that goes to an embedding model. */
  readonly telemetry: { readonly redactor: Pick<Redactor, "redact"> };
  /** Records a change or use of a login. */
  readonly guard: { readonly recordLogin: BrowserLoginsOptions["record"] };
  /** Does work by its name, unless another gateway does it now: then it gives false */
  readonly cluster: { readonly alone: (name: string, work: () => Promise<void>) => Promise<boolean> };
}

/** Everything that agents keep between conversations and send each other. */
export interface MemoryServices {
  /** Records that the agent keeps between conversations. */
  readonly memory: Pick<Memory, keyof Memory>;
  /** Vectors of the memories, which begin once the models are there. */
  readonly vectors: MemoryVectors;
  readonly plans: Plans;
  /** Files that clients sent, for messages that name them. Loaded at their first use. */
  readonly uploads: Pick<Uploads, keyof Uploads>;
  /** Folders that conversations run their commands in. */
  readonly commandFolders: CommandFolders;
  /** Messages between agents. Loaded at their first use, with their key */
  readonly mailbox: Pick<Mailbox, keyof Mailbox>;
  /** Cookies of the browser. Loaded at their first use, with their key */
  readonly cookieJars: CookieJars;
  /** Sign-ins of the browser. Loaded at their first use, with their key */
  readonly browserLogins: BrowserLogins;
}

/** Everything that agents keep between conversations and send each other. */
export const memoryWing = defineWing({ name: "memory", start: createMemoryServices });

/** Creates memory, plans and mailboxes over a store. */
function createMemoryServices(needs: MemoryNeeds): MemoryServices {
  const { kit: { clock, random, log }, config, storage: { store, keys: { cipherOf } }, guard, cluster: { alone } } =
    needs;
  const vectors = new MemoryVectors({
    store,
    clock,
    log,
    redact: needs.telemetry.redactor.redact,
    collection: MEMORY.name,
    alone: (work) => alone("memory_vectors", work),
    textOf: (record) => MEMORY.readable(store, [record]).map(({ value }) => memoryText(value))[0],
  });
  const uploads = lazily(async () => {
    const { Uploads } = await import("./uploads.ts");
    return new Uploads({ store, kit: { clock, random }, config });
  });
  const mailbox = lazily(async () => {
    const { Mailbox } = await import("./mailbox.ts");
    const cipher = () => cipherOf("agents_ipc.key");
    return new Mailbox({ store, clock, random, cipher });
  });
  const jars = lazily(async () => {
    const { createCookieJars } = await import("./cookie_jars.ts");
    const cipher = () => cipherOf("browser_cookies.key");
    return createCookieJars({ store, cipher });
  });
  const logins = lazily(async () => {
    const { createBrowserLogins } = await import("./browser_logins.ts");
    const cipher = () => cipherOf("browser_cookies.key");
    const used = () => config().browser.logins;
    return createBrowserLogins({ store, clock, cipher, used, record: guard.recordLogin });
  });
  return {
    memory: new Memory({ store, clock, vectors }),
    vectors,
    plans: new Plans({ store, clock }),
    uploads: {
      add: async (...given) => await (await uploads()).add(...given),
      get: async (...given) => await (await uploads()).get(...given),
      list: async (...given) => await (await uploads()).list(...given),
      content: async (...given) => await (await uploads()).content(...given),
      remove: async (...given) => await (await uploads()).remove(...given),
    },
    commandFolders: createCommandFolders({ store }),
    mailbox: {
      send: async (...given) => await (await mailbox()).send(...given),
      receive: async (...given) => await (await mailbox()).receive(...given),
      list: async (...given) => await (await mailbox()).list(...given),
      clear: async (...given) => await (await mailbox()).clear(...given),
    },
    cookieJars: {
      get: async (...given) => await (await jars()).get(...given),
      set: async (...given) => await (await jars()).set(...given),
    },
    browserLogins: {
      list: async (...given) => await (await logins()).list(...given),
      save: async (...given) => await (await logins()).save(...given),
      remove: async (...given) => await (await logins()).remove(...given),
      open: async (...given) => await (await logins()).open(...given),
    },
  };
}
