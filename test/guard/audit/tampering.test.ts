import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { canonicalDigest } from "../../../lib/base/json.ts";
import { type AuditHead, auditKey } from "../../../lib/guard/audit/audit_chain.ts";
import type { AuditReport } from "../../../lib/guard/audit/verify_audit.ts";
import { auditedCall } from "../../support/audited_call.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { openAudit } from "./open_audit.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const RECORDS = 7;
const positions = Array.from({ length: RECORDS }, (_, index) => index + 1);

interface Raw {
  /** The record's body as it lies in the database */
  read(seq: number): Record<string, unknown>;
  write(seq: number, body: unknown): void;
  run(sql: string, ...values: (string | number)[]): void;
}

/** Writes a chain, lets `tamper` at the closed database, then verifies it as the next start would. */
async function verifyAfter(
  tamper: (raw: Raw) => void,
  options: { readonly given?: AuditHead; readonly more?: number } = {},
): Promise<AuditReport> {
  let report: AuditReport | undefined;
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    const clock = createFakeClock();
    const first = await openAudit(path, clock);
    for (const seq of positions) await first.audit.append(auditedCall(`tool_${seq}`));
    await first.close();

    const database = new DatabaseSync(path);
    const at = "FROM records WHERE collection = 'audit' AND key = ?";
    tamper({
      read: (seq) => JSON.parse(String(database.prepare(`SELECT body ${at}`).get(auditKey(seq))?.["body"])),
      write: (seq, body) =>
        void database.prepare("UPDATE records SET body = ? WHERE collection = 'audit' AND key = ?")
          .run(typeof body === "string" ? body : JSON.stringify(body), auditKey(seq)),
      run: (sql, ...values) => void database.prepare(sql).run(...values),
    });
    database.close();

    const second = await openAudit(path, clock);
    for (let count = 0; count < (options.more ?? 0); count++) await second.audit.append(auditedCall("later"));
    report = await second.audit.verify({ head: options.given });
    await second.close();
  });
  assert.ok(report !== undefined);
  return report;
}

/** Place and kind of each problem. What was found is also what the report says as a whole */
function found({ problems, problem_count, ok }: AuditReport): readonly string[] {
  assert.deepEqual([ok, problem_count], [problems.length === 0, problems.length]);
  return problems.map(({ seq, code }) => `${code} ${seq}`);
}
/** As someone would who knows how the chain is made */
const rehashed = ({ hash: _, ...content }: Record<string, unknown>) => ({ ...content, hash: canonicalDigest(content) });

test("verify() finds nothing in a chain nobody touched, and gives its head", async () => {
  const report = await verifyAfter(() => {});
  assert.deepEqual({ ...report, head: report.head?.seq }, {
    ok: true,
    records: RECORDS,
    first_seq: 1,
    last_seq: RECORDS,
    head: RECORDS,
    problems: [],
    problem_count: 0,
  });
});

for (const seq of positions) {
  test(`verify() names record ${seq} when one of its fields was altered`, async () => {
    for (const field of ["tool", "time", "hash", "decision", "effects"]) {
      const report = await verifyAfter(({ read, write }) => write(seq, { ...read(seq), [field]: "x" }));
      assert.deepEqual(found(report), [`altered ${seq}`], field);
    }
  });

  test(`verify() names record ${seq} when a field was added or taken away, or it is no JSON any more`, async () => {
    const added = await verifyAfter(({ read, write }) => write(seq, { ...read(seq), extra: 1 }));
    assert.deepEqual(found(added), [`altered ${seq}`]);
    const taken = await verifyAfter(({ read, write }) => write(seq, { ...read(seq), rule: undefined }));
    assert.deepEqual(found(taken), [`altered ${seq}`]);
    for (const body of ["{", "", "null", "[]", "{}"]) {
      assert.deepEqual(found(await verifyAfter(({ write }) => write(seq, body))), [`altered ${seq}`], body);
    }
  });

  test(`verify() finds record ${seq} replaced by one with a hash of its own, where the chain breaks`, async () => {
    const report = await verifyAfter(({ read, write }) => write(seq, rehashed({ ...read(seq), tool: "other" })));
    assert.deepEqual(found(report), [seq === RECORDS ? `head ${seq}` : `broken ${seq + 1}`]);
  });

  test(`verify() names record ${seq} when it was deleted`, async () => {
    const report = await verifyAfter(({ run }) => run("DELETE FROM records WHERE key = ?", auditKey(seq)));
    assert.deepEqual(found(report), [`missing ${seq}`]);
    assert.equal(report.records, RECORDS - 1);
  });

  test(`verify() names the place after record ${seq} where a record was put in`, async () => {
    const insert = "INSERT INTO records (collection, key, version, body, created_at, updated_at) " +
      "SELECT 'audit', ?, 1, body, created_at, updated_at FROM records WHERE key = ?";
    const odd = await verifyAfter(({ run }) => run(insert, `${auditKey(seq)}a`, auditKey(seq)));
    assert.deepEqual(found(odd), [`inserted ${seq}`]);
    const shifted = await verifyAfter(({ run, read, write }) => {
      for (let at = RECORDS; at > seq; at--) {
        run("UPDATE records SET key = ? WHERE key = ?", auditKey(at + 1), auditKey(at));
      }
      run(insert, auditKey(seq + 1), auditKey(seq));
      for (let at = seq + 1; at <= RECORDS + 1; at++) write(at, rehashed({ ...read(at), seq: at }));
      write(seq + 1, rehashed({ ...read(seq + 1), prev: read(seq).hash, tool: "forged" }));
    });
    assert.equal(shifted.ok, false);
    assert.equal(shifted.problems[0]?.seq, seq === RECORDS ? RECORDS + 1 : seq + 2);
  });

  test(`verify() names record ${seq} when it changed places with another`, async () => {
    for (const other of positions.filter((at) => at > seq)) {
      const swap = ({ read, write }: Raw, change: (body: Record<string, unknown>, at: number) => unknown) => {
        const [a, b] = [read(seq), read(other)];
        write(seq, change(b, seq));
        write(other, change(a, other));
      };
      const plain = await verifyAfter((raw) => swap(raw, (body) => body));
      assert.deepEqual(found(plain), [`moved ${seq}`, `moved ${other}`]);
      const skilled = await verifyAfter((raw) => swap(raw, (body, at) => rehashed({ ...body, seq: at })));
      assert.equal(skilled.problems[0]?.code, "broken");
      assert.equal(skilled.problems[0]?.seq, seq);
    }
  });

  test(`verify() names record ${seq} as the first missing one when all from there on were deleted`, async () => {
    const cut = ({ run }: Raw) => run("DELETE FROM records WHERE collection = 'audit' AND key >= ?", auditKey(seq));
    assert.deepEqual(found(await verifyAfter(cut)), [`missing ${seq}`]);
    // Later records do not cover the change up
    assert.deepEqual(found(await verifyAfter(cut, { more: 3 })), [`missing ${seq}`]);
  });

  test(`verify() names the records up to ${seq} when the oldest were deleted`, async () => {
    const report = await verifyAfter(({ run }) =>
      run("DELETE FROM records WHERE collection = 'audit' AND key <= ?", auditKey(seq))
    );
    assert.deepEqual(found(report), ["missing 1"]);
  });
}

test("verify() finds the head deleted or altered, also after new records", async () => {
  const lost = "DELETE FROM records WHERE collection = 'audit_head'";
  assert.deepEqual(found(await verifyAfter(({ run }) => run(lost))), [`head ${RECORDS}`]);
  assert.deepEqual(found(await verifyAfter(({ run }) => run(lost), { more: 2 })), [`broken ${RECORDS + 1}`]);
  const set = "UPDATE records SET body = ? WHERE collection = 'audit_head'";
  const back = JSON.stringify({ v: 1, seq: 3, hash: "0".repeat(64) });
  assert.deepEqual(found(await verifyAfter(({ run }) => run(set, back))), ["inserted 4"]);
  assert.equal((await verifyAfter(({ run }) => run(set, back), { more: 2 })).ok, false);
  assert.deepEqual(found(await verifyAfter(({ run }) => run(set, "{"))), [`head ${RECORDS}`]);
});

/** Deletes the oldest records and writes one that says they were forgotten, as someone would who knows how the chain is made. */
async function afterForgedRetention(
  through: number,
  forge: (raw: Raw) => { readonly through: number; readonly through_hash: unknown },
): Promise<AuditReport> {
  return await verifyAfter((raw) => {
    const { read, run } = raw;
    const last = read(RECORDS);
    const rest: Record<string, unknown> = { ...last, type: "retention", ...forge(raw) };
    delete rest["tool"];
    const body = rehashed({ ...rest, seq: RECORDS + 1, prev: last.hash });
    run(
      "INSERT INTO records (collection, key, version, body, created_at, updated_at) VALUES ('audit', ?, 1, ?, 0, 0)",
      auditKey(RECORDS + 1),
      JSON.stringify(body),
    );
    run(
      "UPDATE records SET body = ? WHERE collection = 'audit_head'",
      JSON.stringify({ v: 1, seq: RECORDS + 1, hash: body.hash }),
    );
    run("DELETE FROM records WHERE collection = 'audit' AND key <= ?", auditKey(through));
  });
}

test("a retention record explains the gap at the begin only with the place and the hash of the last record gone", async () => {
  const hashAt = ({ read }: Raw, seq: number) => read(seq).hash;
  assert.equal((await afterForgedRetention(3, (raw) => ({ through: 3, through_hash: hashAt(raw, 3) }))).ok, true);
  const forged = {
    "the hash of another record": await afterForgedRetention(
      3,
      (raw) => ({ through: 3, through_hash: hashAt(raw, 2) }),
    ),
    "no hash": await afterForgedRetention(3, () => ({ through: 3, through_hash: undefined })),
    "an earlier place": await afterForgedRetention(3, (raw) => ({ through: 2, through_hash: hashAt(raw, 3) })),
    "a later place": await afterForgedRetention(3, (raw) => ({ through: 4, through_hash: hashAt(raw, 3) })),
  };
  for (const [what, report] of Object.entries(forged)) assert.deepEqual(found(report), ["missing 1"], what);
});

test("a head kept elsewhere finds a chain that was rewritten as a whole, and one that was emptied", async () => {
  let given: AuditHead | undefined;
  const rewrite = ({ read, write, run }: Raw) => {
    given = { seq: 5, hash: String(read(5).hash) };
    let prev = read(1).prev;
    for (const seq of positions) {
      const body = rehashed({ ...read(seq), prev, tool: seq === 3 ? "forged" : read(seq).tool });
      write(seq, body);
      prev = body.hash;
    }
    run(
      "UPDATE records SET body = ? WHERE collection = 'audit_head'",
      JSON.stringify({ v: 1, seq: RECORDS, hash: prev }),
    );
  };
  assert.equal((await verifyAfter(rewrite)).ok, true);
  assert.ok(given !== undefined);
  assert.deepEqual(found(await verifyAfter(rewrite, { given })), ["head 5"]);
  const emptied = ({ run }: Raw) => run("DELETE FROM records WHERE collection IN ('audit', 'audit_head')");
  assert.deepEqual(found(await verifyAfter(emptied, { given })), ["missing 1"]);
  assert.equal((await verifyAfter(() => {}, { given })).ok, true);
});

test("records that someone wrote after the head are found, and new ones go on after them", async () => {
  const forge = ({ run, read }: Raw) => {
    const last = read(RECORDS);
    const body = rehashed({ ...last, seq: RECORDS + 1, prev: last.hash });
    run(
      "INSERT INTO records (collection, key, version, body, created_at, updated_at) VALUES ('audit', ?, 1, ?, 0, 0)",
      auditKey(RECORDS + 1),
      JSON.stringify(body),
    );
  };
  assert.deepEqual(found(await verifyAfter(forge)), [`inserted ${RECORDS + 1}`]);
  const report = await verifyAfter(forge, { more: 2 });
  assert.deepEqual(found(report), [`broken ${RECORDS + 2}`]);
  assert.equal(report.records, RECORDS + 3);
});
