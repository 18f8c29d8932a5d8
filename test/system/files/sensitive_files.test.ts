import assert from "node:assert/strict";
import { test } from "node:test";
import { isSensitive } from "../../../lib/system/files/sensitive_files.ts";

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
  ".kube",
  ".kube/cache",
  ".docker",
  ".docker.bak",
  ".env~",
  ".env-prod",
  ".env_prod",
  ".env2",
  ".env.bak",
  ".env.local~",
  ".env (1)",
  ".env.swp",
  ".#.env",
  "#.env#",
  "prod.env",
  "staging.prod.env",
  "prod.env.bak",
  "server.key.bak",
  "server.key~",
  "server.key.old.1",
  "server.key.2024-01-31",
  "server-key.pem.orig",
  ".server.key.swp",
  "server.key - copy",
  "server.key copy",
  "server.pem.gz",
  "credentials.json.save",
  ".credentials.json.swp",
  "ssh_host_rsa_key",
  "ssh_host_ed25519_key",
  "ssh_host_ed25519_key.bak",
  "id_rsa.old",
  "secrets.yml",
  "secrets.yaml",
  "secret.yaml",
  "secrets.prod.yaml",
  "secrets-prod.json",
  "terraform.tfvars",
  "prod.auto.tfvars.json",
  "terraform.tfstate",
  "terraform.tfstate.backup",
  ".s3cfg",
  ".yarnrc.yml",
  "kubeconfig",
  "kubeconfig-prod.yaml",
  "prod.kubeconfig",
  ".gitconfig",
  ".gitconfig.bak",
  "keys.kdb",
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
  "example.env",
  "sample.env",
  ".environment",
  "ssh_host_rsa_key.pub",
  "secrets.ts",
  "secret_santa.md",
  "kubeconfig.ts",
  "tfvars.md",
  "turkey",
  "monkey.bak",
  "keynote.old",
  "docker",
  "yarnrc.yml",
  "public.asc",
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
