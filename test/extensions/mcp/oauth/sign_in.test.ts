import { createRecordCipher } from "../../../../lib/storage/record_cipher.ts";
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { systemClock } from "../../../../lib/base/clock.ts";
import { createRedactor } from "../../../../lib/base/redact.ts";
import { createSystemRandom } from "../../../../lib/base/random.ts";
import { MCP_CREDENTIALS } from "../../../../lib/extensions/mcp/oauth/mcp_credential.ts";
import { validateConfig } from "../../../../lib/config/validate_config.ts";
import { createMcpCredentials } from "../../../../lib/extensions/mcp/oauth/credentials.ts";
import { McpSignIn, type SignInOptions } from "../../../../lib/extensions/mcp/oauth/sign_in.ts";
import { createMemoryStore } from "../../../../lib/storage/create_memory_store.ts";
import { createOwnAddress } from "../../../../lib/system/net/address.ts";
import { createGuardedFetch } from "../../../../lib/system/net/guarded_fetch.ts";
import { createUrlPolicy } from "../../../../lib/system/net/url_policy.ts";
import { type FakeAuthorizationServer, startAuthorizationServer } from "../../../support/fake_authorization_server.ts";
import { createFakeAudit } from "../../../support/fake_audit.ts";
import { createFakeClock } from "../../../support/fake_clock.ts";

const REDIRECT = "http://127.0.0.1:4711/callback";
const JSON_TYPE = { "content-type": "application/json" };
const BY = { via: "http", tokenId: null } as const;

/** Sign-in to one server, over a store in memory. */
function open(
  fake: FakeAuthorizationServer,
  settings: Record<string, unknown> = {},
  more: Record<string, unknown> = {},
) {
  const result = validateConfig([{
    storage: { driver: "memory" },
    mcp: { ...more, servers: { acme: { url: fake.mcp, ...settings } } },
    url_access: { allow_loopback: true },
  }]);
  if (!("config" in result)) throw new Error(JSON.stringify(result.findings));
  const { config } = result;
  const [store, clock, redactor] = [createMemoryStore(), createFakeClock(), createRedactor()];
  const cipher = createRecordCipher(createSystemRandom().bytes(32), createSystemRandom());
  const audit = createFakeAudit(store);
  const lines: unknown[] = [];
  const write = (...line: unknown[]) => void lines.push(line);
  const guarded = createGuardedFetch({
    policy: createUrlPolicy({ own: createOwnAddress([]).gateway }),
    clock: systemClock,
    userAgent: "test",
  });
  const accounts: string[] = [];
  const options: SignInOptions = {
    ...{ store, clock, random: createSystemRandom(), audit: audit.append },
    cipher: () => Promise.resolve(cipher),
    log: { debug: write, info: write, warn: write, error: write } as unknown as SignInOptions["log"],
    config: () => config,
    environment: (name) => (name === "ACME_SECRET" ? "configured-secret" : undefined),
    secrets: { fill: () => Promise.reject(new Error("There is no secret")) },
    guardedFetch: () => Promise.resolve(guarded),
    onTokens: redactor.replace,
    onAccount: (server) => void accounts.push(server),
  };
  const signIn = new McpSignIn(options);
  const begin = (request: Partial<Parameters<typeof signIn.begin>[1]> = {}) =>
    signIn.begin("acme", { redirectUri: REDIRECT, scope: "", clientId: "", ...request });
  const answerOf = (url: URL) => {
    const { state = "", ...rest } = Object.fromEntries(url.searchParams);
    return { state, ...rest };
  };
  return {
    ...{ signIn, begin, answerOf, store, clock, audit, redactor, lines, accounts, options },
    /** Signs a person in. */
    async login() {
      const begun = await begin();
      return await signIn.complete("acme", answerOf(fake.approve(begun.authorizationUrl)), BY);
    },
    /** Returns what the transport of the server gets its tokens from. */
    async provider() {
      const server = { name: "acme", url: new URL(fake.mcp), fetch: () => Promise.reject(new Error("unused")) };
      const provider = await signIn.provider(server);
      // The SDK's own provider has other methods
      if (provider === undefined || !("token" in provider)) throw new Error("There is no provider");
      const response = new Response(null, { status: 401, headers: { "www-authenticate": "Bearer" } });
      // deno-lint-ignore no-explicit-any
      return { token: () => provider.token(), refused: () => provider.onUnauthorized?.({ response } as any) };
    },
  };
}

test("a person signs in with PKCE, state and resource, and the tokens are kept encrypted", async () => {
  await using fake = await startAuthorizationServer();
  const { begin, signIn, answerOf, store, audit, redactor, accounts, lines, provider } = open(fake);
  const begun = await begin();
  const asked = new URL(begun.authorizationUrl).searchParams;
  assert.deepEqual(
    ["response_type", "client_id", "code_challenge_method", "redirect_uri", "scope", "resource"].map((name) =>
      asked.get(name)
    ),
    ["code", "client-1", "S256", REDIRECT, "read", fake.mcp],
  );
  assert.match(asked.get("state") ?? "", /^[\w-]{43}$/);
  const [registration] = fake.registrations;
  assert.deepEqual([registration?.["application_type"], registration?.["redirect_uris"]], ["native", [REDIRECT]]);
  const known = await signIn.complete("acme", answerOf(fake.approve(begun.authorizationUrl)), BY);
  assert.deepEqual([known.issuer, known.scope, known.isRenewed], [fake.url, "read", true]);
  assert.equal(fake.tokenForms[0]?.["resource"], fake.mcp);
  const token = await (await provider()).token();
  assert.match(token ?? "", /^access-token-/);
  assert.ok(fake.valid.has(token ?? ""));
  const stored = JSON.stringify(await store.get(MCP_CREDENTIALS.name, "acme"));
  assert.doesNotMatch(stored, /access-token|refresh-token|client-1/);
  assert.doesNotMatch(JSON.stringify([audit, lines]), /-token-/);
  assert.deepEqual(redactor.masked(token), [{ name: 'a token of the MCP server "acme"', isOwn: false }]);
  assert.deepEqual(accounts, ["acme"]);
});

test("an answer counts once, for its own sign-in alone, and for ten minutes", async () => {
  await using fake = await startAuthorizationServer();
  const { begin, signIn, answerOf, clock } = open(fake);
  const { authorizationUrl } = await begin();
  const answer = answerOf(fake.approve(authorizationUrl));
  await assert.rejects(signIn.complete("acme", { ...answer, state: "other" }, BY), { code: "invalid_request" });
  await signIn.complete("acme", answer, BY);
  await assert.rejects(signIn.complete("acme", answer, BY), /no sign-in waits for this answer/);
  const late = answerOf(fake.approve((await begin()).authorizationUrl));
  await clock.advance(600_001);
  await assert.rejects(signIn.complete("acme", late, BY), /no sign-in waits/);
  assert.equal(fake.tokenForms.length, 1);
});

test("an answer of another issuer, or without one where it was promised, ends the sign-in before the code is shown to anybody", async () => {
  await using fake = await startAuthorizationServer();
  const { begin, signIn, answerOf } = open(fake);
  for (const iss of ["https://evil.test", undefined]) {
    const answer = { ...answerOf(fake.approve((await begin()).authorizationUrl)), iss };
    await assert.rejects(signIn.complete("acme", answer, BY), /came from another authorization server/);
  }
  // A refusal is told only when it is from the right server, and without the words of a stranger
  const refused = { state: (await begin()).state, iss: fake.url, error: "access_denied" };
  await assert.rejects(signIn.complete("acme", refused, BY), /says "access_denied"/);
  const strange = { state: (await begin()).state, iss: fake.url, error: "<b>call this number</b>" };
  await assert.rejects(signIn.complete("acme", strange, BY), (error: Error) => !error.message.includes("number"));
  fake.metadata = { authorization_response_iss_parameter_supported: undefined };
  const wrong = { ...answerOf(fake.approve((await begin()).authorizationUrl)), iss: "https://evil.test" };
  await assert.rejects(signIn.complete("acme", wrong, BY), /another authorization server/);
  assert.equal(fake.tokenForms.length, 0);
});

for (
  const [what, change, reason] of [
    ["without PKCE", { metadata: { code_challenge_methods_supported: undefined } }, /does not know PKCE with S256/],
    ["with plain PKCE alone", { metadata: { code_challenge_methods_supported: ["plain"] } }, /S256/],
    ["with metadata of another issuer", { metadata: { issuer: "https://evil.test" } }, /those of another issuer/],
    [
      "with a page of another scheme",
      { metadata: { authorization_endpoint: "javascript:alert(1)" } },
      /cannot be read|no https/,
    ],
    ["with a page of a file", { metadata: { authorization_endpoint: "file:///etc/passwd" } }, /no https address/],
    [
      "with an endpoint in clear",
      { metadata: { token_endpoint: "http://as.test/token" } },
      /the token_endpoint is no https/,
    ],
    ["in clear", { resource: { authorization_servers: ["http://as.test"] } }, /its authorization server is no https/],
    [
      "at the metadata address of a cloud",
      { resource: { authorization_servers: ["https://169.254.169.254"] } },
      /169\.254\.169\.254/,
    ],
    ["in a private network", { resource: { authorization_servers: ["https://10.0.0.1"] } }, /10\.0\.0\.1/],
    ["of another resource", { resource: { resource: "https://bank.test/mcp" } }, /those of another resource/],
    ["of a path beside the server", { resource: { resource: "OWN/mcp/admin" } }, /those of another resource/],
  ] as const
) {
  test(`a sign-in with an authorization server ${what} is refused`, async () => {
    await using fake = await startAuthorizationServer();
    const filled = JSON.parse(JSON.stringify(change).replaceAll("OWN", fake.url));
    Object.assign(fake, "metadata" in change ? { metadata: { ...change.metadata } } : filled);
    const { begin } = open(fake);
    await assert.rejects(begin(), reason);
    assert.deepEqual([fake.registrations, fake.tokenForms], [[], []]);
  });
}

test("metadata that are huge, that redirect elsewhere or that are no JSON are refused, and nothing hangs", async () => {
  await using fake = await startAuthorizationServer();
  const { begin } = open(fake);
  const place = "/.well-known/oauth-authorization-server";
  fake.onRequest = (path, _form, response) => {
    if (path === place) response.writeHead(200).end(`{"issuer":"${"x".repeat(300_000)}"}`);
    return path === place;
  };
  await assert.rejects(begin(), /sends more than 262144 bytes/);
  fake.onRequest = (path, _form, response) => {
    if (path === place) response.writeHead(302, { location: "https://evil.test/" }).end();
    return path === place;
  };
  await assert.rejects(begin(), /no metadata of an authorization server|cannot be read/);
  fake.onRequest = (path, _form, response) => {
    if (path === place) response.writeHead(200).end("<html>");
    return path === place;
  };
  await assert.rejects(begin(), /cannot be read/);
});

test("a redirect elsewhere than to this machine, and a scope that would end the address, are refused", async () => {
  await using fake = await startAuthorizationServer();
  const { begin } = open(fake);
  for (
    const redirectUri of ["https://evil.test/callback", "http://127.0.0.1.evil.test:1/callback", "http://127.0.0.1:1/x"]
  ) {
    await assert.rejects(begin({ redirectUri }), { code: "invalid_request" });
  }
  await assert.rejects(begin({ scope: "a\nb" }), { code: "invalid_request" });
  assert.deepEqual(fake.paths, []);
});

test("the client is the configured one, then the document, then a registration, then a person is asked", async () => {
  await using fake = await startAuthorizationServer();
  const document = "https://me.test/postern.json";
  const clientOf = async (opened: ReturnType<typeof open>, clientId = "") =>
    new URL((await opened.begin({ clientId })).authorizationUrl).searchParams.get("client_id");
  const all = { client_metadata_url: document };
  fake.metadata = { client_id_metadata_document_supported: true };
  assert.equal(await clientOf(open(fake, { oauth: { client_id: "mine" } }, all)), "mine");
  assert.equal(await clientOf(open(fake, {}, all)), document);
  fake.metadata = {};
  assert.equal(await clientOf(open(fake, {}, all)), "client-1");
  fake.metadata = { registration_endpoint: undefined };
  await assert.rejects(clientOf(open(fake)), { code: "conflict", param: "client_id" });
  assert.equal(await clientOf(open(fake), "given"), "given");
});

test("a configured secret goes to the token endpoint of its issuer, and is not kept", async () => {
  await using fake = await startAuthorizationServer();
  const oauth = { client_id: "mine", client_secret_env: "ACME_SECRET", issuer: fake.url };
  const opened = open(fake, { oauth });
  const sent: string[] = [];
  fake.metadata = { token_endpoint_auth_methods_supported: ["client_secret_post"] };
  await opened.login();
  sent.push(fake.tokenForms[0]?.["client_secret"] ?? "");
  assert.deepEqual(sent, ["configured-secret"]);
  fake.resource = { authorization_servers: ["https://evil.test"] };
  await assert.rejects(opened.begin(), /does not name what \[mcp\.servers\.acme\.oauth\] issuer has/);
});

test("an issuer that its metadata end with a slash, and the server without, is taken as the configuration names it", async () => {
  await using fake = await startAuthorizationServer();
  fake.metadata = { issuer: `${fake.url}/` };
  const named = `[mcp.servers.acme.oauth] issuer = "${fake.url}/" takes it`;
  await assert.rejects(open(fake).begin(), (error) => error instanceof Error && error.message.includes(named));
  await open(fake, { oauth: { issuer: `${fake.url}/` } }).login();
  fake.metadata = {};
  fake.resource = { authorization_servers: [`${fake.url}/`] };
  await open(fake).login();
});

test("many calls that find the token over share one refresh, and a rotated refresh token is kept before it is used", async () => {
  await using fake = await startAuthorizationServer();
  const { login, clock, provider, store } = open(fake);
  await login();
  const { token } = await provider();
  const first = await token();
  await clock.advance(3_600_000);
  const tokens = await Promise.all(Array.from({ length: 20 }, () => token()));
  assert.deepEqual([new Set(tokens).size, tokens[0] === first], [1, false]);
  assert.equal(fake.tokenForms.filter(({ grant_type: grant }) => grant === "refresh_token").length, 1);
  // The next one is made with the new refresh token: the old one counts no more
  await clock.advance(3_600_000);
  assert.notEqual(await token(), tokens[0]);
  assert.equal((await store.get(MCP_CREDENTIALS.name, "acme"))?.version, 3);
  assert.equal(fake.tokenForms.at(-1)?.["resource"], fake.mcp);
});

test("a token that the server refuses is renewed once, whoever is refused at the same time", async () => {
  await using fake = await startAuthorizationServer();
  const { login, clock, provider } = open(fake);
  await login();
  const { token, refused } = await provider();
  const first = await token();
  await clock.advance(60_000);
  await Promise.all(Array.from({ length: 10 }, () => refused()));
  await refused();
  assert.notEqual(await token(), first);
  assert.equal(fake.tokenForms.filter(({ grant_type: grant }) => grant === "refresh_token").length, 1);
});

test("new tokens that cannot be written are used by nobody, and are written at the next call", async () => {
  await using fake = await startAuthorizationServer();
  const { login, clock, provider, store } = open(fake);
  await login();
  const { token } = await provider();
  await clock.advance(3_600_000);
  const { batch } = store;
  store.batch = () => Promise.reject(new Error("The disk is full"));
  await assert.rejects(token(), /disk is full/);
  store.batch = batch;
  const after = await token();
  assert.ok(fake.valid.has(after ?? ""));
  assert.equal(fake.tokenForms.filter(({ grant_type: grant }) => grant === "refresh_token").length, 1);
  await clock.advance(3_600_000);
  assert.notEqual(await token(), after);
});

test("a sign-in or a sign-out during a refresh counts", async () => {
  await using fake = await startAuthorizationServer();
  const { login, clock, provider, signIn } = open(fake);
  await login();
  const { token } = await provider();
  await clock.advance(3_600_000);
  fake.onRequest = async (path) => {
    if (path !== "/token") return false;
    fake.onRequest = () => false;
    await signIn.remove("acme", BY);
    return false;
  };
  await assert.rejects(token(), /sign in with: postern mcp login acme/);
  assert.equal(await token(), undefined);
});

test("without a sign-in, and after its end, a call says which command to run", async () => {
  await using fake = await startAuthorizationServer();
  const { login, clock, provider } = open(fake);
  const { token, refused } = await provider();
  assert.equal(await token(), undefined);
  await assert.rejects(Promise.resolve(refused()), /it wants a sign-in; sign in with: postern mcp login acme/);
  await login();
  await clock.advance(3_600_000);
  fake.onRequest = (path, _form, response) => {
    if (path === "/token") {
      response.writeHead(400).end('{"error":"invalid_grant","error_description":"refresh-token-2 is old"}');
    }
    return path === "/token";
  };
  await assert.rejects(token(), (error: Error) => {
    assert.match(error.message, /no longer accepts the sign-in; sign in with: postern mcp login acme/);
    assert.doesNotMatch(error.message + String(error.cause), /refresh-token/);
    return true;
  });
  assert.equal(await token(), undefined);
});

test("an authorization server that fails for a moment does not end the sign-in", async () => {
  await using fake = await startAuthorizationServer();
  const { login, clock, provider } = open(fake);
  await login();
  const { token } = await provider();
  await clock.advance(3_600_000);
  fake.onRequest = (path, _form, response) => {
    if (path === "/token") response.writeHead(503).end("access-token-1 broke");
    return path === "/token";
  };
  await assert.rejects(
    token(),
    (error: Error) => /gives no new token/.test(error.message) && !error.message.includes("broke"),
  );
  fake.onRequest = () => false;
  assert.ok(fake.valid.has((await token()) ?? ""));
});

test("tokens never go to another address of the server", async () => {
  await using fake = await startAuthorizationServer();
  const { login, store, options } = open(fake);
  await login();
  const other = open(fake, { url: `${fake.url}/mcp/other` });
  const stored = await store.get(MCP_CREDENTIALS.name, "acme");
  await other.store.putIfVersion(MCP_CREDENTIALS.name, "acme", 0, stored?.body);
  assert.equal(await (await other.provider()).token(), undefined);
  // Nor do they open where the record was changed to say so
  const moved = { ...stored?.body as object, url: `${fake.url}/mcp/other` };
  const config = other.options.config();
  const thief = new McpSignIn({ ...options, config: () => config });
  await store.putIfVersion(MCP_CREDENTIALS.name, "acme", stored?.version ?? 0, moved);
  assert.equal(await thief.credential("acme"), undefined);
});

test("a sign-out removes the tokens and revokes them", async () => {
  await using fake = await startAuthorizationServer();
  const { login, signIn, provider, audit } = open(fake);
  await login();
  const account = await signIn.credential("acme");
  assert.match(account ?? "", /^[0-9a-f]{64}$/);
  assert.equal(await signIn.remove("acme", BY), true);
  assert.match(fake.revoked[0] ?? "", /^refresh-token-/);
  assert.equal(await (await provider()).token(), undefined);
  assert.equal(await signIn.remove("acme", BY), false);
  assert.deepEqual([await signIn.credential("acme"), JSON.stringify(audit).includes("-token-")], [undefined, false]);
});

test("client credentials get a token without a person, by one request for many calls", async () => {
  await using fake = await startAuthorizationServer();
  const oauth = { grant: "client_credentials", client_id: "job", client_secret_env: "ACME_SECRET", issuer: fake.url };
  const { provider, begin, store, clock, redactor } = open(fake, { oauth: { ...oauth, scopes: ["write"] } });
  fake.metadata = {
    token_endpoint_auth_methods_supported: ["client_secret_post"],
    code_challenge_methods_supported: undefined,
  };
  const { token, refused } = await provider();
  const tokens = await Promise.all(Array.from({ length: 10 }, () => token()));
  assert.deepEqual([new Set(tokens).size, fake.tokenForms.length], [1, 1]);
  const { scope, resource, client_secret: secret } = fake.tokenForms[0] ?? {};
  assert.deepEqual([scope, resource, secret], ["write", fake.mcp, "configured-secret"]);
  assert.equal(redactor.redact(tokens[0] ?? ""), "[redacted]");
  await clock.advance(60_000);
  await refused();
  assert.equal(fake.tokenForms.length, 2);
  assert.equal(await store.count(MCP_CREDENTIALS.name), 0);
  await assert.rejects(begin(), /with which nobody signs in/);
});

test("a server whose headers have a token of their own is not signed in to", async () => {
  await using fake = await startAuthorizationServer();
  const { signIn } = open(fake, { headers: { Authorization: "Bearer own" } });
  const server = { name: "acme", url: new URL(fake.mcp), fetch: () => Promise.reject(new Error("unused")) };
  assert.equal(await signIn.provider(server), undefined);
});

test("a sign-in for more rights keeps those that were granted", async () => {
  await using fake = await startAuthorizationServer();
  const { login, begin } = open(fake);
  await login();
  const { authorizationUrl } = await begin({ scope: "write" });
  assert.equal(new URL(authorizationUrl).searchParams.get("scope"), "read write");
});

test("the state of a sign-in is told: none, needed, and what there is without its tokens", async () => {
  await using fake = await startAuthorizationServer();
  const { signIn, login, provider, clock } = open(fake);
  assert.deepEqual(await signIn.state("acme"), { state: "none" }, "nobody asked the server yet");
  await assert.rejects(async () => await (await provider()).refused());
  assert.deepEqual(await signIn.state("acme"), { state: "needed" });
  await login();
  assert.deepEqual(await signIn.state("acme"), {
    ...{ state: "signed_in", server: "acme", issuer: fake.url, scope: "read" },
    ...{ expiresAt: clock.now() + 3_600_000, isRenewed: true },
  });
  // The authorization server takes the refresh token no more
  fake.onRequest = (path, _form, response) => {
    if (path !== "/token") return false;
    response.writeHead(400, { "content-type": "application/json" }).end('{"error":"invalid_grant"}');
    return true;
  };
  await clock.advance(3_600_000);
  await assert.rejects((await provider()).token());
  assert.deepEqual(await signIn.state("acme"), { state: "needed" });
  await signIn.remove("acme", BY);
  assert.deepEqual(await signIn.state("acme"), { state: "none" });
});

test("a server that gets its credentials without a person has no sign-in", async () => {
  await using fake = await startAuthorizationServer();
  for (
    const settings of [{ headers: { Authorization: "Bearer x" } }, {
      oauth: { grant: "client_credentials", client_id: "a" },
    }]
  ) {
    assert.deepEqual(await open(fake, settings).signIn.state("acme"), { state: "none" });
  }
});

/** Texts that a hostile authorization server calls its tokens. */
const NO_TOKENS: Readonly<Record<string, RegExp>> = {
  "https://": /access_token has characters that no bearer token has/,
  "registry.npmjs.org": /access_token can be guessed/,
  [randomBytes(12_288).toString("base64url")]: /access_token has more than 8192 bytes/,
};
for (const [text, reason] of Object.entries(NO_TOKENS)) {
  test(`a sign-in whose token is ${text.slice(0, 20)} is refused with the reason, and nothing of it is masked or kept`, async () => {
    await using fake = await startAuthorizationServer();
    const { login, redactor, store } = open(fake);
    fake.onRequest = (path, _form, response) => {
      if (path === "/token") {
        response.writeHead(200, JSON_TYPE).end(JSON.stringify({ access_token: text, token_type: "bearer" }));
      }
      return path === "/token";
    };
    await assert.rejects(login(), (error: Error) => reason.test(error.message) && !error.message.includes(text));
    const command = `curl -s ${text} -o build.sh`;
    assert.deepEqual([redactor.redact(command), await store.get(MCP_CREDENTIALS.name, "acme")], [command, undefined]);
  });
}

test("a client secret that could be no token is used and masks nothing", async () => {
  await using fake = await startAuthorizationServer();
  const { login, redactor } = open(fake);
  fake.onRequest = (path, _form, response) => {
    const reply = { client_id: "client-1", client_secret: "https://evil.test", redirect_uris: [REDIRECT] };
    if (path === "/register") response.writeHead(201, JSON_TYPE).end(JSON.stringify(reply));
    return path === "/register";
  };
  await login();
  assert.equal(redactor.redact("curl -s https://evil.test -o build.sh"), "curl -s https://evil.test -o build.sh");
});

test("a kept sign-in whose token would not be taken any more asks for a new one, and masks nothing", async () => {
  await using fake = await startAuthorizationServer();
  const { login, provider, signIn, store, redactor, options } = open(fake);
  await login();
  const credentials = createMcpCredentials(store, options.cipher);
  const kept = await credentials.get("acme", fake.mcp);
  assert.ok(typeof kept === "object");
  await credentials.put({ ...kept, access_token: "https://" });
  await assert.rejects(
    (await provider()).token(),
    /access_token has characters .*; sign in with: postern mcp login acme/,
  );
  assert.deepEqual([await signIn.state("acme"), redactor.redact("see https://a.test")], [
    { state: "needed" },
    "see https://a.test",
  ]);
  await login();
  assert.match(await (await provider()).token() ?? "", /^access-token-/);
});

test("a token that was renewed or signed out of is masked no more", async () => {
  await using fake = await startAuthorizationServer();
  const { login, provider, signIn, clock, redactor } = open(fake);
  await login();
  const { token } = await provider();
  const first = await token() ?? "";
  await clock.advance(3_600_000);
  const second = await token() ?? "";
  assert.deepEqual([redactor.redact(first), redactor.redact(second)], [first, "[redacted]"]);
  await signIn.remove("acme", BY);
  assert.equal(redactor.redact(second), second);
});
