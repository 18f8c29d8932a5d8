import assert from "node:assert/strict";
import { test } from "node:test";
import { isSensitive } from "../../../lib/system/files/sensitive_names.ts";

const SENSITIVE = [
  ".env",
  ".env.production",
  ".env.local.example.txt",
  ".envrc",
  ".aws/credentials",
  ".aws",
  ".ssh/id_ed25519",
  ".gnupg/pubring.kbx",
  ".kube/config",
  ".docker/config.json",
  "credentials.json",
  "service-account.json",
  "service-account-prod.json",
  "client_secret_1.apps.googleusercontent.com.json",
  ".npmrc",
  ".pypirc",
  ".netrc",
  ".pgpass",
  ".my.cnf",
  "id_rsa",
  "id_ed25519_work",
  "tls/server.key",
  "cert.pem",
  "cert.p12",
  "cert.pfx",
  ".git-credentials",
  ".git/config",
  "app/.git/modules/sub/config",
  ".git/config.worktree",
];

const PLAIN = [
  ".env.example",
  ".env.sample",
  ".env.template",
  "environment.ts",
  ".git/HEAD",
  "git/config",
  "config",
  "env",
  "id_rsa.pub",
  "ids.txt",
  "config.json",
  "kube/config",
  "monkey",
  "keys.ts",
  "pem.md",
  "credentials.ts",
  "",
];

test("names that hold credentials are known", () => {
  for (const path of SENSITIVE) assert.equal(isSensitive(path.split("/")), true, path);
  for (const path of PLAIN) assert.equal(isSensitive(path.split("/")), false, path);
});

test("depth, case, look-alikes and trailing dots make no difference", () => {
  for (const path of SENSITIVE) {
    const variants = [
      `deep/er/${path}`,
      path.toUpperCase(),
      path.replace("s", "\u017f"),
      path.replaceAll("e", "\uff45"),
      path.replace("k", "\u212a"),
      `${path}.`,
      `${path} `,
      path.replace(".", ".\u200c"),
    ];
    for (const variant of variants) assert.equal(isSensitive(variant.split("/")), true, JSON.stringify(variant));
  }
});

test("the root's own name counts as the folder of a pair", () => {
  assert.equal(isSensitive(["config"], ".kube"), true);
  assert.equal(isSensitive(["known_hosts"], ".ssh"), true);
  assert.equal(isSensitive(["config"], "kube"), false);
  assert.equal(isSensitive(["a.txt"], ".env.d"), false);
});
