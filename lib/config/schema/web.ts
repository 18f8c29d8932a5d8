import * as v from "valibot";
import { about, boolean, choice, environmentName, httpUrl, integer, named, required, text, texts } from "./value.ts";

/** `[url_access]`: which addresses the network tools may reach. */
export const urlAccessSchema = v.strictObject({
  block_private_ip: about("Refuses private and reserved addresses", boolean(true)),
  allow_loopback: about("Allows addresses of this machine", boolean(false)),
  public_ranges: about(
    "Private or reserved ranges that count as public, for networks that map names into them: `198.18.0.0/15`, `64:ff9b::/96`. " +
      "This machine and the metadata addresses of clouds are never public",
    texts([]),
  ),
  enforce_domain_allowlist: about("Refuses every host that is not in `domain_allowlist`", boolean(false)),
  domain_allowlist: about(
    "Hosts that are allowed: `example.com` is that host alone, `*.example.com` its subdomains, `example.com:8443` that port alone",
    texts([]),
  ),
  domain_blocklist: about("Hosts that are refused, each with its subdomains", texts([])),
});

/** `[secrets.<name>]`: a value that tools may use and the model may not see. Just one of `env`, `file` and `command` is given. */
export const secretSchema = v.strictObject({
  env: about("Environment variable that holds the value", environmentName()),
  file: about("Path of a file that holds the value", text("")),
  command: about(
    'Program that prints the value, with its arguments, such as `["pass", "show", "github"]`. Postern runs it outside of the sandbox',
    texts([]),
  ),
  hosts: about(
    "Hosts that the value may go to: `example.com` is that host alone, `*.example.com` its subdomains. Tools, MCP servers by `url` and " +
      "WASM plugins need one",
    texts([]),
  ),
  tools: about("Tools that may use the value", texts([])),
  mcp: about("MCP servers whose `env` or `headers` may name the value", texts([])),
  plugins: about("Plugins whose settings in `[plugins.config.<id>]` may name the value", texts([])),
});

/** `[http_request.credentials.<name>]`: a header for some hosts. Just one of `secret`, `value_env` and `token_url` is given. */
const credentialSchema = v.strictObject({
  header: about("Name of the request header", v.optional(required(), "Authorization")),
  prefix: about("Text before the value, such as `Bearer ` with a space at its end", text("")),
  secret: about("Name of the `[secrets.<name>]` whose value is sent", text("")),
  value_env: about("Environment variable that holds the value", environmentName()),
  hosts: about("Hosts that get the header, each exactly", v.pipe(v.array(required()), v.minLength(1))),
  token_url: about(
    "Address that gives a token for a client (OAuth 2.0 client credentials). The token is sent as `Bearer`",
    httpUrl(),
  ),
  client_id: about("Client that the token is for", text("")),
  client_secret: about("Name of the `[secrets.<name>]` that holds the client's secret", text("")),
  scopes: about("Scopes that the token is asked for", texts([])),
});

/** `[http_request]`: an empty `allowed_domains` refuses every host, `*` allows all. */
export const httpRequestSchema = v.strictObject({
  enabled: about("Turns the tool on", boolean(false)),
  allowed_domains: about(
    "Hosts that may be reached, as in `[url_access] domain_allowlist`. An empty list refuses all, `*` allows all",
    texts([]),
  ),
  max_response_size: about("Bytes of a reply", integer(1_000_000, 1, 104_857_600)),
  max_download_bytes: about("Bytes of a reply that is saved to a file", integer(104_857_600, 1, 10_737_418_240)),
  timeout_secs: about("Seconds of one request", integer(30, 1, 3600)),
  credentials: about("Headers with secrets, by a name of your choice", named(credentialSchema)),
});

/** `[web_fetch]`: bounds of fetching a page. */
export const webFetchSchema = v.strictObject({
  enabled: about("Turns the tool on", boolean(false)),
  max_bytes: about("Bytes of a page's text in one answer, 261,000 at most", integer(65_536, 1, 104_857_600)),
  timeout_secs: about("Seconds of one page, with its redirects and its robots.txt", integer(30, 1, 3600)),
  respect_robots: about("Fetches nothing that the robots.txt of a site forbids", boolean(true)),
});

/** `[web_search]`: the search service and the bounds of a search. */
export const webSearchSchema = v.strictObject({
  enabled: about("Turns the tool on", boolean(false)),
  provider: about(
    "Search engine. `searxng` is an instance of your own at `base_url`",
    choice(["duckduckgo", "brave", "perplexity", "exa", "jina", "searxng"], "duckduckgo"),
  ),
  max_results: about("Most results of one search", integer(5, 1, 100)),
  timeout_secs: about("Seconds of one search", integer(15, 1, 3600)),
  api_key_env: about(
    "Environment variable that holds the engine's key. Empty: `BRAVE_API_KEY`, `PERPLEXITY_API_KEY`, `EXA_API_KEY` or `JINA_API_KEY`",
    environmentName(),
  ),
  base_url: about("Address of the engine's API, which may be private. Empty: its own. `searxng` needs it", httpUrl()),
});

/** `[browser]`: the browser of the agent and its bounds. */
export const browserSchema = v.strictObject({
  enabled: about("Turns the tools `browser` and `browser_open` on", boolean(false)),
  executable: about("Absolute path of a Chromium. Empty: looked for by its usual names", text("")),
  headless: about(
    "Shows no window. `false` needs a desktop session, whose display the browser then reaches",
    boolean(true),
  ),
  keep_cookies: about(
    "Keeps the cookies of a conversation's pages, encrypted, until the conversation is deleted. They sign its next runs in",
    boolean(false),
  ),
  logins: about(
    "Sites whose logins the browsers of all runs get. `postern browser login` keeps a login, and `postern browser logins` shows their names",
    texts([]),
  ),
  sandbox: about(
    "`auto` runs the browser in bubblewrap where that works, and else in a weaker way, of which `postern doctor` warns. `require` refuses the " +
      'weaker way, as does `[security.shell] sandbox = "require"`',
    choice(["auto", "require"], "auto"),
  ),
  timeout_secs: about("Seconds of one operation", integer(30, 1, 3600)),
  max_download_bytes: about(
    "Largest file that the operation `download` saves. The file is held in memory meanwhile",
    integer(104_857_600, 1, 1_073_741_824),
  ),
  allowed_domains: about(
    "Hosts that pages may reach, and that `browser_open` may open. Empty: all that `[url_access]` allows",
    texts([]),
  ),
});

/** `[proxy]`: the way to other machines; empty: none. */
export const proxySchema = v.strictObject({
  http: about(
    "Proxy of requests to http addresses. Empty: that of the variable `http_proxy`, else none",
    httpUrl(),
  ),
  https: about(
    "Proxy of requests to https addresses. Empty: that of the variable `https_proxy`, else none",
    httpUrl(),
  ),
  no_proxy: about(
    "Hosts that are reached without a proxy: `example.com`, `.example.com` for its subdomains, `10.0.0.0/8`, each with `:port`, `*` for all",
    texts([]),
  ),
  resolve: about(
    "Who looks up the names of hosts: `local` gives the proxy a checked address; with `proxy` no address is checked, and names may lead to " +
      "private networks",
    choice(["local", "proxy"], "local"),
  ),
});
