import assert from "node:assert/strict";
import { test } from "node:test";
import { daemonStatusText, toDaemonStatus } from "../../../cli/daemon/daemon_status.ts";
import type { StatusReply } from "../../../lib/base/records/gateway_status.ts";
import type { DaemonState } from "../../../lib/host/daemon/daemon_state.ts";

test("daemon status names the cluster of a daemon, and why it takes no work", () => {
  const record = {
    ...{ address: "http://127.0.0.1:42617/", pid: 7, identity: "7", host: "127.0.0.1", token: "", version: "1.0.0" },
    ...{ started_at: "2026-01-01T00:00:00.000Z", workspace: "/work" },
  };
  const state: DaemonState = {
    kind: "running",
    record,
    health: "draining",
    process: { pid: 7, identity: "7", phase: "running", leads_group: true, grace_seconds: 30 },
  };
  const textOf = (cluster: StatusReply["cluster"]) => {
    const reply = {
      provider: null,
      containment: { text: "x" },
      config: { needs_restart: [], last_reload: null },
      cluster,
    };
    // The text needs nothing else of the reply
    const status = toDaemonStatus(state, { dataDir: "/data", now: 0, reply: reply as unknown as StatusReply });
    return daemonStatusText(state, status);
  };
  const drained = textOf({ gateway: "gw_1", gateways: 3, reason: "somebody has drained this gateway" });
  assert.match(drained, /Health +draining: somebody has drained this gateway/);
  assert.match(drained, /Cluster +gw_1, one of 3 gateways; postern cluster status shows all/);
  assert.match(textOf({ gateway: "gw_1", gateways: 1, reason: null }), /Cluster +gw_1, the only gateway/);
  assert.doesNotMatch(textOf(undefined), /Cluster/);
});
