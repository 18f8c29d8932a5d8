import { test } from "node:test";
import { drainPastGrace, drainWithinGrace } from "../support/drained_work.ts";

const LOAD = { streams: 20, requests: 20, sockets: 4, runs: 4 };

test("SIGTERM during 20 streams and 20 requests cuts nothing within the grace, and runs go on at the next start", () =>
  drainWithinGrace(LOAD));

test("SIGTERM during 20 streams and 20 requests that outlive the grace gives each its final event", () =>
  drainPastGrace(LOAD));
