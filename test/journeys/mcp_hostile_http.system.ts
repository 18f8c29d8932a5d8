import { describe, test } from "node:test";
import { attacksAt, callHttp, meetHttp, signInHttp, withHttpAttacks } from "../support/hostile_http_journey.ts";

const TOO_LATE = { late: /not ready within 30 s, as \[mcp\.servers\.\w+\] startup_timeout_secs has it$/ };
const ENDS = ["hang", "half_head", "breaks", "endless_event", "to_trap", "broken"] as const;
const NO_MESSAGE = { now: /its answer is no message of MCP/ };

describe("a hostile MCP server by url does not hang, flood or end the gateway", () => {
  test("when its tools are listed", () =>
    meetHttp("list", "2025-11-25", {
      hang: TOO_LATE,
      half_head: TOO_LATE,
      silent_stream: TOO_LATE,
      accepted: TOO_LATE,
      wrong_id: TOO_LATE,
      never_resumes: TOO_LATE,
      resumes: "ready",
      half_body_breaks: { now: /its reply broke off/ },
      no_version: NO_MESSAGE,
      endless_list: "ready",
      lost: { now: /does not know the session/ },
      unauthorized: { now: /postern mcp login unauthorized/ },
      to_trap: { now: /status 307/ },
      to_itself: { now: /status 307/ },
    }));

  test("when it is called", () => {
    const late = /no answer within 60 s/;
    const lost = (reason: string) => new RegExp(`Cannot tell what became of .*${reason}`);
    return callHttp("call", "2026-07-28", {
      none: /^hello echo$/,
      hang: late,
      half_head: late,
      half_body: late,
      half_event: late,
      silent_stream: late,
      accepted: late,
      wrong_id: late,
      breaks: lost("connection was reset"),
      no_http: lost("not HTTP"),
      long_head: lost("not HTTP"),
      half_body_breaks: lost("broke off"),
      half_event_breaks: lost("ended the stream"),
      empty_stream: lost("ended the stream"),
      long_event: lost("ended the stream"),
      resumes: lost("ended the stream"),
      endless_line: lost("ended the stream"),
      endless_notices: lost("more than 10000 notifications"),
      asks: lost("more than 32 things|ended|session"),
      deep: lost("64 levels"),
      long_body: /message of more than 10485760 bytes/,
      page: /text\/html/,
      text_type: /text\/plain/,
      no_type: /content type/,
      no_json: /no JSON/,
      no_content: /content type/,
      neither: /no message of MCP/,
      many_wrong: /more than 1000 entries/,
      long_error: /no no no/,
      lost: /does not know the session/,
      forbidden: /status 403/,
      too_many: /status 429/,
      broken: /status 500/,
      odd_status: /status 502/,
      unauthorized: /postern mcp login unauthorized/,
      to_trap: /status 307/,
      to_metadata: /status 307/,
      to_file: /status 307/,
    });
  });

  for (const era of ["2025-11-25", "2026-07-28"] as const) {
    test(`when it is asked for its changes, ${era}: it serves calls all the same`, () =>
      callHttp("stream", era, {
        hang: /^hello echo$/,
        half_head: /^hello echo$/,
        breaks: /^hello echo$/,
        half_event_breaks: /^hello echo$/,
        empty_stream: /^hello echo$/,
        long_event: /^hello echo$/,
        page: /^hello echo$/,
        broken: /^hello echo$/,
        unauthorized: /^hello echo$/,
        to_trap: /^hello echo$/,
        never_resumes: /^hello echo$/,
        wrong_id: /^hello echo$/,
      }));
  }

  test("when its session ends", () =>
    withHttpAttacks(attacksAt("close", "2025-11-25", ENDS), async ({ wait, isReady }) => {
      for (const act of ENDS) await wait(() => isReady(act), `"${act}" is ready`);
    }));

  test("when a person signs in", () =>
    signInHttp({
      hang: /no whole reply came within 15 s/,
      half_head: /no whole reply came within 15 s/,
      half_body: /no whole reply came within 15 s/,
      breaks: /connection was reset/,
      long_body: /more than 262144 bytes/,
      bomb: /more than 262144 bytes/,
      page: /metadata cannot be read/,
      broken: /metadata cannot be read/,
      to_trap: /metadata cannot be read/,
      to_private: /metadata cannot be read/,
      to_metadata: /metadata cannot be read/,
      names_trap: /this machine; \[url_access\] allow_loopback = true allows it/,
      names_private: /private or reserved address/,
      names_cloud: /no https address/,
      names_file: /no https address/,
      names_plain: /no https address/,
      names_itself: /has no metadata/,
      names_many: /private or reserved address/,
      names_nothing: /metadata cannot be read/,
    }));
});
