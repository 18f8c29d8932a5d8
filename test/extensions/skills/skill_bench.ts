import { mkdirSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { systemClock } from "../../../lib/base/clock.ts";
import { defaultConfig } from "../../../lib/config/config.ts";
import { Skills } from "../../../lib/extensions/skills/skills.ts";
import { StoredTrustedDocuments } from "../../../lib/guard/trusted_documents.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { createDocuments } from "../../../lib/storage/documents.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFakeAudit, type FakeAudit } from "../../support/fake_audit.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

export const BY = { via: "http", tokenId: "tok_1" } as const;

/** Skills over temporary folders of a workspace, a data directory and a home. */
export interface SkillBench {
  readonly skills: Skills;
  readonly store: Store;
  readonly audit: FakeAudit;
  /** Lines of the log */
  readonly logged: string[];
  /** Returns an absolute path below the folder that holds `workspace`, `data` and `home`. */
  at(path: string): string;
  /** Writes a file, with its folders. */
  write(path: string, text: string): void;
  /** Opens the skills once more, as a restart does. */
  open(): Promise<Skills>;
}

/** Writes a SKILL.md. */
export function skillText(name: string, { description = `Does ${name}`, more = [], body = "Do it." }: {
  readonly description?: string;
  readonly more?: readonly string[];
  readonly body?: string;
} = {}): string {
  return ["---", `name: ${name}`, `description: ${description}`, ...more, "---", body, ""].join("\n");
}

export function withSkills(
  work: (bench: SkillBench) => Promise<void>,
  { dirs = [], files = {} }: { readonly dirs?: readonly string[]; readonly files?: Readonly<Record<string, string>> } =
    {},
): Promise<void> {
  return withTemporaryFolder(async (given) => {
    const root = realpathSync(given);
    const at = (path: string) => join(root, path);
    const write = (path: string, text: string) => {
      mkdirSync(dirname(at(path)), { recursive: true });
      writeFileSync(at(path), text);
    };
    for (const folder of ["workspace", "data", "home"]) mkdirSync(at(folder));
    for (const [path, text] of Object.entries(files)) write(path, text);
    const store = createMemoryStore();
    const audit = createFakeAudit(store);
    const logged: string[] = [];
    const take = (message: string, fields?: object) => void logged.push(`${message} ${JSON.stringify(fields ?? {})}`);
    const open = () =>
      Skills.open({
        store,
        clock: systemClock,
        random: createSeededRandom(),
        log: { debug: take, info: take, warn: take, error: take } as never,
        audit: audit.append,
        documents: createDocuments({ store }),
        trustedDocuments: new StoredTrustedDocuments({ store, clock: systemClock, audit: audit.append }),
        config: () => ({ ...defaultConfig(), skills: { dirs: dirs.map(at) } }),
        // Installing from git repositories is tested with a gateway
        ...{ processes: {} as never, git: {} as never, urls: {} as never },
        dataDir: at("data"),
        workspaceRoot: at("workspace"),
        home: at("home"),
      });
    const skills = await open();
    try {
      await work({ skills, store, audit, logged, at, write, open });
    } finally {
      await skills.close();
    }
  });
}
