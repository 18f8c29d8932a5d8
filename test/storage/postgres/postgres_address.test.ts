import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError } from "../../../lib/base/errors.ts";
import { nameOfAddress, parsePostgresAddress } from "../../../lib/storage/postgres/postgres_address.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const parse = (url: string) => parsePostgresAddress(url, "storage.url");

test("parsePostgresAddress() reads each part, with what is encoded in it", () => {
  assert.deepEqual(parse("postgres://me%40home:p%3Ass@127.0.0.1:6000/my%20db"), {
    host: "127.0.0.1",
    port: 6000,
    user: "me@home",
    password: "p:ss",
    database: "my db",
    ssl: false,
  });
  assert.deepEqual(parse("postgresql:///db?host=/run/postgresql&user=me"), {
    host: "/run/postgresql",
    port: 5432,
    user: "me",
    password: undefined,
    database: "db",
    ssl: false,
  });
  assert.equal(parse("postgres://me@[::1]/db").host, "::1");
  assert.equal(parse("postgres://me@localhost").database, "me");
});

test("a connection over a network is encrypted and the certificate checked, unless sslmode says otherwise", async () => {
  const checked = (host: string) => ({ rejectUnauthorized: true, host });
  for (const host of ["db.example", "10.0.0.1", "127.0.0.1.example"]) {
    assert.deepEqual(parse(`postgres://me@${host}/x`).ssl, checked(host));
  }
  for (const mode of ["allow", "prefer", "require", "verify-full"]) {
    assert.deepEqual(parse(`postgres://me@127.0.0.1/x?sslmode=${mode}`).ssl, checked("127.0.0.1"));
  }
  assert.deepEqual(parse("postgres://me@db.example/x?sslmode=no-verify").ssl, {
    rejectUnauthorized: false,
    host: "db.example",
  });
  assert.equal(parse("postgres://me@db.example/x?sslmode=disable").ssl, false);
  const named = parse("postgres://me@db.example/x?sslmode=verify-ca").ssl;
  assert.equal(named !== false && named.rejectUnauthorized && named.checkServerIdentity?.(), undefined);
  await withTemporaryFolder((folder) => {
    const path = join(folder, "root.pem");
    writeFileSync(path, "a certificate");
    const { ssl } = parse(`postgres://me@db.example/x?sslrootcert=${encodeURIComponent(path)}`);
    assert.deepEqual(ssl, { ...checked("db.example"), ca: "a certificate" });
  });
});

test("an address that cannot be used is refused by the name of its key, without what it says", () => {
  for (
    const url of [
      "",
      "secret",
      "https://me:secret@db.example/x",
      "postgres://me:secret@db.example:99999/x",
      "postgres://me:%secret@db.example/x",
      "postgres://me:secret@db.example/x?sslmod=disable",
      "postgres://me:secret@db.example/x?sslmode=sometimes",
      "postgres://me:secret@db.example/x?port=0",
      "postgres://me:secret@db.example/x?sslrootcert=/none/root.pem",
      // A password that is not encoded
      "postgres://me:p@secret/secret@db.example/x",
      "postgres://me:p@secret#secret@db.example/x",
      "postgres://me:secret?secret@db.example/x",
      "postgres://me:secret/secret@db.example/x",
    ]
  ) {
    assert.throws(() => parse(url), (error) => {
      assert.ok(error instanceof ConfigError, url);
      assert.deepEqual([error.code, error.key], ["config_invalid", "storage.url"]);
      assert.match(error.message, /storage\.url/);
      assert.doesNotMatch(error.message, /secret/);
      return true;
    });
  }
});

test("a password that is not encoded is refused with the way to write it", () => {
  for (const url of ["postgres://me:p@s/w#d@db.example/x", "postgres://me:p/d@db.example/x", "postgres://me:p?d@h/x"]) {
    assert.throws(() => parse(url), /in the password write \/ as %2F, # as %23, \? as %3F, @ as %40 and % as %25/, url);
  }
  assert.equal(parse("postgres://me:p%2Fs%23w%3Fd%40%25@db.example/x").password, "p/s#w?d@%");
});

test("nameOfAddress() tells where the database is, and not who asks", () => {
  assert.equal(nameOfAddress(parse("postgres://me:secret@db.example/x")), "db.example:5432/x");
  assert.equal(nameOfAddress(parse("postgres:///x?host=/run/pg&user=me")), '/run/pg (port 5432), database "x"');
});
