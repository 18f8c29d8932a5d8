import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type FakeSite, type SiteReply, withSite } from "../../support/fake_site.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const COMPOSIO = "https://backend.composio.dev";
const PUSHOVER = "https://api.pushover.net";
const KEY = "key-of-the-service";
const USER = "user-key-of-me";
const ENVIRONMENT = { COMPOSIO_API_KEY: KEY, PUSHOVER_TOKEN: KEY, PUSHOVER_USER: USER };
const ON: ConfigChanges = { autonomy: { level: "full" }, enable_composio: true, enable_pushover: true };

interface Service {
  readonly bench: ToolBench;
  readonly site: FakeSite;
}

/** Runs `use` with a server that stands for both services. */
function withService(
  reply: SiteReply,
  use: (service: Service) => Promise<void>,
  { environment = ENVIRONMENT, config = ON }: {
    readonly environment?: Readonly<Record<string, string>>;
    readonly config?: ConfigChanges;
  } = {},
): Promise<void> {
  return withSite(() => reply, (site) =>
    withWorkspace({}, ({ root }) => {
      const standIns = { [COMPOSIO]: site.origin, [PUSHOVER]: site.origin };
      return use({ bench: createToolBench({ root, config, environment, standIns }), site });
    }));
}

const json = (body: unknown, status = 200): SiteReply => ({ status, body: JSON.stringify(body) });
const CALLS = {
  composio: { action_name: "GITHUB_CREATE_AN_ISSUE", params: { title: "door" } },
  pushover: { message: "The gate is open" },
};

describe("composio", () => {
  test("an action is asked for as the API documents it, and its data comes as JSON", () =>
    withService(
      json({ data: { number: 7 }, successful: true, error: null, log_id: "log_1" }),
      async ({ bench, site }) => {
        const { result } = await bench.call("composio", CALLS.composio);
        assert.deepEqual([result.isError, result.output], [false, '{"number":7}']);
        const [request] = site.seen;
        assert.deepEqual([request?.method, request?.path], ["POST", "/api/v3/tools/execute/GITHUB_CREATE_AN_ISSUE"]);
        assert.deepEqual([request?.headers["x-api-key"], request?.headers["content-type"]], [KEY, "application/json"]);
        assert.deepEqual(JSON.parse(request?.body ?? ""), { user_id: "default", arguments: { title: "door" } });
      },
    ));

  test("the user comes from the environment", () =>
    withService(json({ data: {}, successful: true }), async ({ bench, site }) => {
      await bench.call("composio", { action_name: "A" });
      assert.deepEqual(JSON.parse(site.seen[0]?.body ?? ""), { user_id: "me", arguments: {} });
    }, { environment: { ...ENVIRONMENT, COMPOSIO_USER_ID: "me" } }));

  test("an action that failed is an error with the service's words", () =>
    withService(json({ data: {}, successful: false, error: "Repository not found" }), async ({ bench }) => {
      const { result } = await bench.call("composio", CALLS.composio);
      assert.deepEqual([result.isError, result.output], [
        true,
        'Cannot finish the action "GITHUB_CREATE_AN_ISSUE": "Repository not found"',
      ]);
    }));

  for (const action of ["../../auth_configs", "A/B", "A?b=1", "", "A B", "%2e%2e"]) {
    test(`${JSON.stringify(action)} is no action, and changes no path`, () =>
      withService(json({}), async ({ bench, site }) => {
        const { result } = await bench.call("composio", { action_name: action });
        assert.match(result.output, /"action_name"/);
        assert.equal(site.seen.length, 0);
      }));
  }
});

describe("pushover", () => {
  test("a notification is sent as the API documents it", () =>
    withService(json({ status: 1, request: "647d2300" }), async ({ bench, site }) => {
      const { result } = await bench.call("pushover", { message: "Gate & door", title: "T", priority: -1 });
      assert.deepEqual([result.isError, result.output], [false, "The notification was handed to Pushover"]);
      const [request] = site.seen;
      assert.deepEqual([request?.method, request?.path], ["POST", "/1/messages.json"]);
      assert.deepEqual(Object.fromEntries(new URLSearchParams(request?.body)), {
        token: KEY,
        user: USER,
        message: "Gate & door",
        title: "T",
        priority: "-1",
      });
    }));

  test("the text form is the message; priority 2 is repeated for a while", () =>
    withService(json({ status: 1 }), async ({ bench, site }) => {
      await bench.call("pushover", "Hello");
      await bench.call("pushover", { message: "Help", priority: 2 });
      const [plain, emergency] = site.seen.map(({ body }) => new URLSearchParams(body));
      assert.deepEqual([plain?.get("message"), plain?.get("priority"), plain?.get("retry")], ["Hello", "0", null]);
      assert.deepEqual([emergency?.get("retry"), emergency?.get("expire")], ["60", "3600"]);
    }));

  test("a wrong key, which it answers with 400, is told from a wrong message", async () => {
    await withService(
      json({ status: 0, user: "invalid", errors: ["user identifier is invalid"] }, 400),
      async ({ bench }) => {
        const { result } = await bench.call("pushover", CALLS.pushover);
        assert.match(
          result.output,
          /refuses the key; check the environment variable "PUSHOVER_TOKEN" and "PUSHOVER_USER"/,
        );
      },
    );
    await withService(
      json({ status: 0, message: "cannot be blank", errors: ["message cannot be blank"] }, 400),
      async ({ bench }) => {
        const { result } = await bench.call("pushover", CALLS.pushover);
        assert.match(result.output, /refuses the call; check "message".*message cannot be blank/);
      },
    );
  });
});

for (const tool of ["composio", "pushover"] as const) {
  describe(`${tool} and a service that fails`, () => {
    for (
      const [what, reply, reason] of [
        [
          "refuses the key",
          json({ error: { message: "Invalid API key" } }, 401),
          /refuses the key; check the environment variable/,
        ],
        ["has no quota left", json({}, 429), /quota is used up/],
        ["fails itself", { status: 502, body: "<h1>" }, /failure of its own/],
        ["answers a page", { body: "<html>" }, /no form that this version knows/],
        ["answers other JSON", json([1]), /no form that this version knows/],
        ["answers without success", json({ ok: true }), /no form that this version knows/],
        [
          "redirects",
          { status: 307, headers: { location: "https://elsewhere.example/" } },
          /redirects more than 0 times/,
        ],
      ] as const
    ) {
      test(`it ${what}: an error that says so`, () =>
        withService(reply, async ({ bench, site }) => {
          const { result } = await bench.call(tool, CALLS[tool]);
          assert.equal(result.isError, true);
          assert.match(result.output, reason);
          assert.equal(site.seen.length, 1, "a call with an effect is made once");
        }));
    }

    test("its words cannot show a key, and stand on one line", () =>
      withService(
        json({ error: { message: `Your key ${KEY}\nis wrong` }, errors: [`Your key ${KEY}\nis wrong`] }, 404),
        async ({ bench }) => {
          const { result } = await bench.call(tool, CALLS[tool]);
          assert.match(result.output, /"Your key \[redacted\] is wrong"/);
        },
      ));

    test("a missing key is named before anybody is asked", () =>
      withService({}, async ({ bench, site }) => {
        const { result, ran } = await bench.call(tool, CALLS[tool], { approver: () => assert.fail("nobody is asked") });
        assert.match(result.output, /the environment variable "(COMPOSIO_API_KEY|PUSHOVER_TOKEN)" is not set/);
        assert.deepEqual([ran, site.seen.length], [false, 0]);
      }, { environment: {}, config: { ...ON, autonomy: { level: "supervised" } } }));

    test("it is off by default, and passes [url_access] like any other", async () => {
      await withService({}, async ({ bench }) => {
        const { result } = await bench.call(tool, CALLS[tool]);
        assert.match(result.output, new RegExp(`it is off; set \\[security\\] enable_${tool} = true`));
      }, { config: { autonomy: { level: "full" } } });
      await withWorkspace({}, async ({ root }) => {
        const url_access = { domain_blocklist: ["composio.dev", "pushover.net"] };
        const bench = createToolBench({ root, config: { ...ON, url_access }, environment: ENVIRONMENT });
        assert.match((await bench.call(tool, CALLS[tool])).result.output, /domain_blocklist names/);
      });
    });
  });
}
