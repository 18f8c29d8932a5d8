import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import { openLoopbackRedirect } from "../../../lib/system/net/loopback_redirect.ts";

/** Sends a request whose Host is free to choose, and returns the status. */
function ask(uri: string, path: string, { method = "GET", host = new URL(uri).host } = {}): Promise<number> {
  return new Promise((resolve, reject) => {
    const { port } = new URL(uri);
    const sent = request(
      { host: "127.0.0.1", port, path, method, headers: { host, connection: "close" } },
      (response) => {
        response.resume().on("end", () => resolve(response.statusCode ?? 0));
      },
    );
    sent.on("error", reject).end();
  });
}

test("only the answer with the right state ends a sign-in, once, and then the port is closed", async () => {
  const redirect = await openLoopbackRedirect();
  assert.match(redirect.uri, /^http:\/\/127\.0\.0\.1:\d+\/callback$/);
  assert.equal(await ask(redirect.uri, "/callback?state=right&code=early"), 400);
  const answer = redirect.answer("right");
  for (
    const query of ["", "?state=wrong&code=x", "?state=wrong&state=right&code=x", "?state=right&state=right&code=x"]
  ) {
    assert.equal(await ask(redirect.uri, `/callback${query}`), 400, query);
  }
  assert.equal(await ask(redirect.uri, "/?state=right&code=x"), 404);
  assert.equal(await ask(redirect.uri, "/callback?state=right&code=x", { method: "POST" }), 404);
  // A page of another name that leads to 127.0.0.1
  assert.equal(await ask(redirect.uri, "/callback?state=right&code=x", { host: "evil.test" }), 404);
  assert.equal(await ask(redirect.uri, `/callback?state=right&code=${"x".repeat(17_000)}`), 404);
  assert.equal(await ask(redirect.uri, "/callback?state=right&code=good&iss=https%3A%2F%2Fas.test"), 200);
  assert.deepEqual([...await answer], [["state", "right"], ["code", "good"], ["iss", "https://as.test"]]);
  assert.equal(await ask(redirect.uri, "/callback?state=right&code=second"), 400);
  await redirect.close();
  await redirect.close();
  await assert.rejects(ask(redirect.uri, "/callback?state=right&code=late"), { code: "ECONNREFUSED" });
});

test("the page that the browser sees repeats nothing of the answer and may load nothing", async () => {
  const redirect = await openLoopbackRedirect();
  void redirect.answer("right");
  const reply = await fetch(`${redirect.uri}?state=right&error=%3Cscript%3E&error_description=%3Cscript%3E`);
  const text = await reply.text();
  assert.match(reply.headers.get("content-security-policy") ?? "", /^default-src 'none'/);
  assert.equal(reply.headers.get("cache-control"), "no-store");
  assert.doesNotMatch(text, /script/);
  await redirect.close();
});

test("a port that is in use is an error", async () => {
  const first = await openLoopbackRedirect();
  await assert.rejects(openLoopbackRedirect(Number(new URL(first.uri).port)), { code: "EADDRINUSE" });
  await first.close();
});
