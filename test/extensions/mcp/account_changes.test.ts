import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type FakeAuthorizationServer, startAuthorizationServer } from "../../support/fake_authorization_server.ts";
import { type McpBench, NEVER, withMcp } from "../../support/mcp_bench.ts";
import { until } from "../../support/until.ts";

const BY = { via: "cli", tokenId: null } as const;
const REDIRECT = "http://127.0.0.1:4711/callback";

/** Signs a person in. */
async function login(fake: FakeAuthorizationServer, { signIn }: McpBench): Promise<void> {
  const { authorizationUrl } = await signIn.begin("one", { redirectUri: REDIRECT, scope: "", clientId: "" });
  const { state = "", ...rest } = Object.fromEntries(fake.approve(authorizationUrl).searchParams);
  await signIn.complete("one", { state, ...rest }, BY);
}

/** Runs `use` with a server that wants a sign-in. */
async function withAccounts(use: (fake: FakeAuthorizationServer, bench: McpBench) => Promise<void>): Promise<void> {
  await using fake = await startAuthorizationServer();
  const config = { url_access: { allow_loopback: true } };
  await withMcp({ servers: { one: { url: fake.mcp } } }, (bench) => use(fake, bench), { config });
}

const namesOf = ({ server }: McpBench) => server().tools().map(({ name }) => name);

describe("what a server taught belongs to one account", () => {
  test("a sign-in makes its tools known, and the next gateway knows them before it asks", () =>
    withAccounts(async (fake, bench) => {
      await login(fake, bench);
      await until(() => namesOf(bench).length === 1, "the tools are known");
      await bench.server().close();
      const asked = fake.paths.length;
      await bench.restart();
      assert.deepEqual(namesOf(bench), ["whoami"]);
      assert.equal(fake.paths.length, asked);
    }));

  test("a sign-out takes its tools away at once, and from the next gateway", () =>
    withAccounts(async (fake, bench) => {
      await login(fake, bench);
      await until(() => namesOf(bench).length === 1, "the tools are known");
      await bench.signIn.remove("one", BY);
      await until(() => namesOf(bench).length === 0, "the tools are forgotten");
      await bench.restart();
      assert.deepEqual(namesOf(bench), []);
    }));

  test("a sign-in to another account is asked for its own tools, which the next gateway knows", () =>
    withAccounts(async (fake, bench) => {
      await login(fake, bench);
      await until(() => namesOf(bench).length === 1, "the tools are known");
      fake.tool = "for_the_other_account";
      await login(fake, bench);
      await until(() => namesOf(bench).includes("for_the_other_account"), "the other tools are known");
      await bench.server().freshTools(NEVER);
      await bench.server().close();
      await bench.restart();
      assert.deepEqual(namesOf(bench), ["for_the_other_account"]);
    }));

  test("an account whose server fails has none of the tools of the account before", () =>
    withAccounts(async (fake, bench) => {
      await login(fake, bench);
      await until(() => namesOf(bench).length === 1, "the tools are known");
      fake.onRequest = (path, _form, response) => {
        if (path !== "/mcp") return false;
        response.writeHead(500).end();
        return true;
      };
      await assert.rejects(bench.server().restart(NEVER));
      assert.deepEqual(namesOf(bench), ["whoami"], "an outage takes no tool away");
      fake.onRequest = () => false;
      await bench.signIn.remove("one", BY);
      await until(() => bench.server().status().state === "failed", "the server wants a sign-in");
      assert.deepEqual(namesOf(bench), []);
    }));
});
