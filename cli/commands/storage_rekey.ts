import type { RekeyProgress } from "../../lib/storage/rekey_records.ts";
import { defineCliCommand, EXIT } from "../command.ts";
import { reachGateway } from "../reach_gateway.ts";

/** Calls in a row that may encrypt nothing before the command gives up: others change the records that are left all the time. */
const MAX_IDLE = 5;

/** Command `postern storage rekey`: re-encrypts all encrypted records, while gateways work on. Run again, it goes on where it was ended. */
export const storageRekeyCommand = defineCliCommand({
  args: {},
  example: "postern storage rekey",
  async run(context) {
    const gateway = await reachGateway(context, { agent: false });
    try {
      let rewritten = 0;
      for (let idle = 0;;) {
        // A test holds the route to its schema
        const progress = await gateway.call("POST /v1/storage/rekey");
        rewritten += progress.rewritten;
        idle = progress.rewritten === 0 ? idle + 1 : 0;
        if (!progress.complete && idle < MAX_IDLE) continue;
        const total = { ...progress, rewritten };
        context.print(total, toText(total));
        return progress.complete && progress.unreadable.length === 0 ? EXIT.ok : EXIT.failed;
      }
    } finally {
      await gateway.close();
    }
  },
});

function toText({ rewritten, left, unreadable, complete, old_key: old }: RekeyProgress): string {
  const lines = [`Re-encrypted ${rewritten} ${rewritten === 1 ? "record" : "records"}`];
  for (const { collection, key, reason } of unreadable) {
    lines.push(`Cannot read ${JSON.stringify(key)} of ${collection}: ${reason}`);
  }
  if (!complete) lines.push(`${left} left: others change them all the time; run postern storage rekey again`);
  else if (unreadable.length > 0) lines.push("Keep each key that you have: these records may need one of them");
  else lines.push(DONE[old ?? "none"]);
  return lines.join("\n");
}

/** Sentences that are true once every record has the new key, by the key before it. */
const DONE = {
  old_key_env: "Every record has the key of storage.key_env. No record needs the key of storage.old_key_env any more",
  key_files: "Every record has the new key files of the data directory, which have taken the place of the old ones",
  none: "Every record has the key of storage.key_env. storage.old_key_env names no other key",
} as const;
