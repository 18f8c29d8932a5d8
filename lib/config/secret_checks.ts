import type { Config } from "./config.ts";
import type { KeyPath } from "./toml.ts";

/** A contradiction in `[secrets]`, or in credentials that name a secret. */
interface SecretContradiction {
  readonly path: KeyPath;
  readonly reason: string;
}

const HOST = /^(\*\.)?[^\s/:@?#*]+$|^\[[0-9a-fA-F:.]+\]$/;
const HEADER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;

/** Finds contradictions of `[secrets]` and of `[http_request.credentials]`. Reasons never hold a value: a secret may stand there by mistake. */
export function* secretChecks({ secrets, http_request: { credentials } }: Config): Iterable<SecretContradiction> {
  for (const [name, secret] of Object.entries(secrets)) {
    const path = ["secrets", name];
    const given = [secret.env !== "", secret.file !== "", secret.command.length > 0].filter((is) => is);
    if (given.length !== 1) yield { path, reason: "just one of env, file and command must be given" };
    yield* hostChecks(secret.hosts, path);
  }
  for (const [name, credential] of Object.entries(credentials)) {
    const path = ["http_request", "credentials", name];
    const { secret, value_env, token_url, client_id, client_secret, header } = credential;
    if ([secret, value_env, token_url].filter((text) => text !== "").length !== 1) {
      yield { path, reason: "just one of secret, value_env and token_url must be given" };
    }
    if (!HEADER.test(header)) yield { path: [...path, "header"], reason: "it must be the name of a header" };
    if (token_url !== "" && (client_id === "" || client_secret === "")) {
      yield { path: [...path, "token_url"], reason: "client_id and client_secret are needed too" };
    }
    for (const [key, named] of [["secret", secret], ["client_secret", client_secret]] as const) {
      if (named === "" || Object.hasOwn(secrets, named)) continue;
      yield {
        path: [...path, key],
        reason: "it must be the name of a [secrets.<name>], and there is none of this name",
      };
    }
    yield* hostChecks(credential.hosts, path);
  }
}

function* hostChecks(hosts: readonly string[], path: KeyPath): Iterable<SecretContradiction> {
  for (const [index, host] of hosts.entries()) {
    if (HOST.test(host)) continue;
    yield { path: [...path, "hosts", index], reason: 'it must be the name of a host, as "api.example.com"' };
  }
}
