import assert from "node:assert/strict";
import { test } from "node:test";
import { createTickets } from "../../lib/access/tickets.ts";
import type { Identity } from "../../lib/access/identity.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const identity: Identity = { tokenId: "tok_1", scopes: ["chat"] };
const LIVE = { isLive: () => true };

test("a ticket gives its identity once", () => {
  const tickets = createTickets({ clock: createFakeClock(), random: createSeededRandom(), tokens: LIVE });
  const { ticket, expiresInSeconds } = tickets.issue(identity);
  assert.match(ticket, /^tkt_[A-Za-z0-9_-]{43}$/);
  assert.equal(expiresInSeconds, 30);
  for (const wrong of ["", `${ticket}x`, ticket.slice(1), "__proto__", "x".repeat(100_000)]) {
    assert.equal(tickets.take(wrong), undefined);
  }
  assert.deepEqual(tickets.take(ticket), identity);
  assert.equal(tickets.take(ticket), undefined);
});

test("a ticket expires after 30 seconds", async () => {
  const clock = createFakeClock();
  const tickets = createTickets({ clock, random: createSeededRandom(), tokens: LIVE });
  const { ticket } = tickets.issue(identity);
  const { ticket: late } = tickets.issue(identity);
  await clock.advance(29_999);
  assert.deepEqual(tickets.take(ticket), identity);
  await clock.advance(1);
  assert.equal(tickets.take(late), undefined);
});

test("beyond 1,000 tickets the oldest goes", () => {
  const tickets = createTickets({ clock: createFakeClock(), random: createSeededRandom(), tokens: LIVE });
  const issued = Array.from({ length: 1001 }, () => tickets.issue(identity).ticket);
  assert.equal(tickets.take(issued[0] ?? ""), undefined);
  assert.deepEqual(tickets.take(issued[1] ?? ""), identity);
  assert.deepEqual(tickets.take(issued[1000] ?? ""), identity);
});

test("a ticket ends with its token", () => {
  const revoked = new Set<string | null>();
  const tokens = { isLive: (id: string | null) => !revoked.has(id) };
  const tickets = createTickets({ clock: createFakeClock(), random: createSeededRandom(), tokens });
  const { ticket } = tickets.issue(identity);
  const { ticket: other } = tickets.issue({ tokenId: "tok_2", scopes: ["chat"] });
  revoked.add("tok_1");
  assert.equal(tickets.take(ticket), undefined);
  assert.equal(tickets.take(other)?.tokenId, "tok_2");
});
