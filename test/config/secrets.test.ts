import assert from "node:assert/strict";
import { test } from "node:test";
import { knownSecrets, maskSecrets } from "../../lib/config/secrets.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";

const result = validateConfig([{
  gateway: { node_control: { auth_token: "node-token" } },
  proxy: { https: "http://me:proxy%21pass@proxy.example:8080" },
  web_search: { api_key_env: "SEARCH_KEY" },
  mcp: {
    servers: {
      a: {
        command: "a",
        args: ["--token", "arg-secret", "--api-key=eq-secret", "--fast", "-v"],
        env: { TOKEN: "env-secret" },
      },
      b: { url: "https://mcp.example/?api_key=query-secret&x=1", headers: { Authorization: "Bearer header-secret" } },
    },
  },
}]);
assert.ok("config" in result);
const { config } = result;

test("shown values hide secrets and nothing else", () => {
  const text = JSON.stringify(maskSecrets(config));
  for (
    const secret of [
      "node-token",
      "proxy%21pass",
      "env-secret",
      "query-secret",
      "header-secret",
      "arg-secret",
      "eq-secret",
    ]
  ) {
    assert.ok(!text.includes(secret), secret);
  }
  assert.ok(text.includes("https://mcp.example/?api_key=***&x=1"));
  assert.ok(text.includes('["--token","***","--api-key=***","--fast","-v"]'));
  assert.ok(text.includes("http://***@proxy.example:8080"));
  assert.deepEqual(maskSecrets(config).security, config.security);
});

test("the redactor's secrets are those of the file and those the environment holds under the configured names", () => {
  const secrets = knownSecrets(config, {
    SEARCH_KEY: "search-secret",
    OPENAI_API_KEY: "openai-secret",
    OTHER: "no secret",
  });
  for (
    const secret of ["node-token", "proxy!pass", "env-secret", "Bearer header-secret", "search-secret", "openai-secret"]
  ) {
    assert.ok(secrets.includes(secret), secret);
  }
  assert.ok(!secrets.includes("no secret"));
  assert.ok(!secrets.includes(""));
});
