import assert from "node:assert/strict";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { HttpError } from "../../../lib/base/errors.ts";
import { admission } from "../../../lib/providers/discovery/local_servers.ts";
import type { TrustedServer } from "../../../lib/providers/discovery/provider_memory.ts";
import { createServerOwners, type ServerOwner, trustServer } from "../../../lib/providers/discovery/server_owner.ts";
import { type ListeningSocket, parseUserNames } from "../../../lib/system/net/listening_sockets.ts";
import { createProviderClients } from "../../../lib/system/net/provider_client.ts";

const ORIGIN = "http://127.0.0.1:11434";
const USERS = parseUserNames(
  "root:x:0:0::/root:/bin/sh\nollama:x:998:998::/:/bin/false\nmallory:x:1001:1001::/:/bin/sh\n",
);
const sockets = (...uids: readonly number[]) => uids.map((uid, at) => ({ uid, inode: String(at + 1) }));

function ownerOf(
  found: readonly ListeningSocket[] | undefined,
  { localUsers = ["ollama"], trusted = [], ownUid = 1000, origin = ORIGIN }: {
    readonly localUsers?: readonly string[];
    readonly trusted?: readonly TrustedServer[];
    readonly ownUid?: number | undefined;
    readonly origin?: string;
  } = {},
) {
  return createServerOwners({
    localUsers: () => localUsers,
    memory: { trusted: () => trusted },
    sockets: () => Promise.resolve(found),
    users: () => Promise.resolve(USERS),
    ownUid,
  })(origin);
}

for (
  const [what, uids, options, owner] of [
    ["the gateway's own user", [1000], {}, "run by you"],
    ["root", [0], {}, "run by root"],
    ["root, that is the gateway's own user", [0], { ownUid: 0 }, "run by you"],
    ["a user of local_users", [998], {}, "run by ollama"],
    ["several accepted users", [998, 0], {}, "run by ollama and root"],
    [
      "a user whose server was trusted",
      [1001],
      { trusted: [{ origin: ORIGIN, uid: 1001 }] },
      "run by mallory, trusted by you",
    ],
  ] as const
) {
  test(`a server of ${what} is accepted`, async () => {
    const found = await ownerOf(sockets(...uids), options);
    assert.equal(found.accepted ? found.owner : found.reason, owner);
  });
}

for (
  const [what, uids, options, reason] of [
    ["another user", [1001], {}, /run by mallory \(uid 1001\)/],
    ["a user without a name", [4242], {}, /the user with uid 4242/],
    ["a user that is no longer in local_users", [998], { localUsers: [] }, /run by ollama/],
    ["a name in local_users that nobody has", [4242], { localUsers: ["nobody-has-this"] }, /uid 4242/],
    ["two users, one of them not accepted", [1000, 1001], {}, /mallory/],
    ["another user at an address that was trusted while somebody else had it", [1001], {
      trusted: [{ origin: ORIGIN, uid: 4242 }],
    }, /mallory/],
    ["another user at an address that was trusted where owners were unseen", [1001], {
      trusted: [{ origin: ORIGIN, uid: null }],
    }, /mallory/],
    ["a user of another namespace, who looks like the gateway's own", [65534], { ownUid: 65534 }, /uid 65534|you/],
    ["an unreadable row", [-1], {}, /uid -1/],
    ["nobody any more", [], {}, /nothing listens/],
    ["another machine", [1000], { origin: "http://192.168.1.5:11434" }, /base_url/],
  ] as const
) {
  test(`a server of ${what} is refused`, async () => {
    const found = await ownerOf(sockets(...uids), options);
    assert.equal(found.accepted, false);
    assert.match(found.accepted ? "" : found.reason, reason);
  });
}

test("where owners cannot be seen, a trusted address is accepted and no other", async () => {
  assert.equal((await ownerOf(undefined)).accepted, false);
  assert.equal((await ownerOf(undefined, { trusted: [{ origin: ORIGIN, uid: 1001 }] })).accepted, false);
  assert.equal((await ownerOf(undefined, { trusted: [{ origin: ORIGIN, uid: null }] })).accepted, true);
});

test("the identity changes with the socket, not with the order of the rows", async () => {
  const identity = async (found: readonly ListeningSocket[]) => {
    const owner = await ownerOf(found);
    return owner.accepted ? owner.identity : undefined;
  };
  const [a, b] = [{ uid: 1000, inode: "1" }, { uid: 1000, inode: "2" }];
  assert.equal(await identity([a, b]), await identity([b, a]));
  assert.notEqual(await identity([a]), await identity([b]));
});

test("an address is trusted with the user who runs its server now", async () => {
  const trusted: TrustedServer[] = [];
  const trust = (address: string, found: readonly ListeningSocket[] | undefined) =>
    trustServer(address, {
      memory: { trust: (server) => Promise.resolve(void trusted.push(server)) },
      sockets: () => Promise.resolve(found),
    });
  await trust("127.0.0.1:11434", sockets(1001));
  await trust("http://localhost:1234/v1", sockets(1001, 1001));
  await trust("[::1]:8080", undefined);
  assert.deepEqual(trusted, [
    { origin: "http://127.0.0.1:11434", uid: 1001 },
    { origin: "http://127.0.0.1:1234", uid: 1001 },
    { origin: "http://[::1]:8080", uid: null },
  ]);
  for (
    const address of ["192.168.1.5:11434", "host.docker.internal:11434", "ftp://127.0.0.1", "http://a@127.0.0.1", "::"]
  ) {
    await assert.rejects(trust(address, sockets(1001)), (error) => {
      assert.ok(error instanceof HttpError && error.code === "invalid_request", address);
      return error.message.startsWith(`Cannot trust "${address}": `);
    });
  }
  await assert.rejects(trust("127.0.0.1:11434", []), { code: "conflict" });
  await assert.rejects(trust("127.0.0.1:11434", sockets(1001, 1002)), { code: "conflict" });
  assert.equal(trusted.length, 3);
});

test("a new connection needs an accepted owner before, and the same sockets after it", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a listening TCP server has an address object
  const origin = `http://127.0.0.1:${port}`;
  let connections = 0;
  let bytes = 0;
  server.on("connection", (socket) => {
    connections++;
    socket.on("data", (chunk) => (bytes += chunk.length));
    socket.on("error", () => {});
  });
  const ask = async (...identities: readonly (ServerOwner | undefined)[]) => {
    let looked = 0;
    const owners = () => Promise.resolve(identities[looked++] ?? assert.fail("looked once too often"));
    const client = createProviderClients({ clock: systemClock })({
      provider: "found",
      origin,
      admit: admission(owners, origin),
    });
    const request = {
      method: "GET",
      path: "/",
      headers: {},
      signal: new AbortController().signal,
      timeoutMs: 5_000,
    } as const;
    const error = await client.send(request).then(() => undefined, (error: Error) => error);
    await client.close();
    return [error?.message ?? "", looked] as const;
  };
  const mine: ServerOwner = { accepted: true, owner: "run by you", identity: "1000:1" };
  const other: ServerOwner = { accepted: true, owner: "run by you", identity: "1000:2" };
  const foreign: ServerOwner = { accepted: false, reason: "it is run by mallory (uid 1001)" };
  const gone: ServerOwner = { accepted: false, reason: "nothing listens there", isGone: true };
  try {
    const [refused] = await ask(foreign);
    assert.match(refused, /Cannot use the server at .*mallory/);
    assert.equal(connections, 0);
    for (
      const [before, after, reason] of [[mine, other, /took its place/], [mine, foreign, /mallory/], [
        gone,
        mine,
        /took its place/,
      ]] as const
    ) {
      const [message, looked] = await ask(before, after);
      assert.match(message, reason);
      assert.equal(looked, 2);
    }
    assert.equal(bytes, 0, "nothing was sent to any of them");
  } finally {
    server.close();
  }
});
