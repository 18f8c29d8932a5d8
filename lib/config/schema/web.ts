import * as v from "valibot";
import { boolean, choice, environmentName, httpUrl, integer, named, required, text, texts } from "./value.ts";

/** `[url_access]`: which addresses the network tools may reach. */
export const urlAccessSchema = v.strictObject({
  block_private_ip: boolean(true),
  allow_loopback: boolean(false),
  enforce_domain_allowlist: boolean(false),
  /** `example.com` is that host alone, `*.example.com` its subdomains */
  domain_allowlist: texts([]),
  /** An entry is the host and its subdomains */
  domain_blocklist: texts([]),
});

const credentialSchema = v.strictObject({
  /** Name of the request header */
  header: required(),
  /** Environment variable that holds its value */
  value_env: v.pipe(
    v.string(),
    v.regex(/^[A-Za-z_][A-Za-z0-9_]*$/),
    v.description("the name of an environment variable"),
  ),
  /** Exact hosts that get it */
  hosts: v.pipe(v.array(required()), v.minLength(1)),
});

/** `[http_request]`: an empty `allowed_domains` refuses every host, `*` allows all. */
export const httpRequestSchema = v.strictObject({
  enabled: boolean(false),
  allowed_domains: texts([]),
  /** Bytes */
  max_response_size: integer(1_000_000, 1, 104_857_600),
  timeout_secs: integer(30, 1, 3600),
  credentials: named(credentialSchema),
});

export const webFetchSchema = v.strictObject({
  enabled: boolean(false),
  max_bytes: integer(65_536, 1, 104_857_600),
  timeout_secs: integer(30, 1, 3600),
});

export const webSearchSchema = v.strictObject({
  enabled: boolean(false),
  provider: choice(["duckduckgo", "brave", "perplexity", "exa", "jina"], "duckduckgo"),
  max_results: integer(5, 1, 100),
  timeout_secs: integer(15, 1, 3600),
  api_key_env: environmentName(),
  base_url: httpUrl(),
});

export const browserSchema = v.strictObject({
  enabled: boolean(false),
  /** Path of a Chromium; empty: looked for */
  executable: text(""),
  headless: boolean(true),
  timeout_secs: integer(30, 1, 3600),
  allowed_domains: texts([]),
});

/** `[proxy]`: for the web tools; empty: none. */
export const proxySchema = v.strictObject({ http: httpUrl(), https: httpUrl(), no_proxy: texts([]) });
