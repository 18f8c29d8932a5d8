import type { IncomingMessage, ServerResponse } from "node:http";

const TIME = "2026-01-01T09:00:00.000Z";
const FIRING = {
  id: TIME,
  object: "schedule_firing",
  schedule_id: "report",
  time: TIME,
  at: TIME,
  trigger: "schedule",
  status: "started",
  run_id: "run_report",
  reason: null,
  missed_count: null,
  missed_until: null,
  run_status: "completed",
  run_error: null,
};

export interface FakeSchedules {
  /** Ids that were run now, and tools that were called for them, in order */
  readonly posted: string[];
  /** Adds an active schedule */
  add(id: string, change?: Readonly<Record<string, unknown>>): void;
  /** @returns whether the path was one of its own */
  answer(request: IncomingMessage, response: ServerResponse, path: string): boolean;
}

/** `/v1/schedules`, and the tools that pause and resume one (docs/design/automation.md "Schedules"). */
export function createFakeSchedules(): FakeSchedules {
  const schedules: Record<string, unknown>[] = [];
  const posted: string[] = [];
  const json = (response: ServerResponse, status: number, body: unknown) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
    return true;
  };
  const setState = (id: string, state: string) => {
    for (const schedule of schedules) if (schedule["id"] === id) schedule["state"] = state;
  };
  return {
    posted,
    add: (id, change = {}) =>
      void schedules.push({
        id,
        state: "active",
        schedule: "weekdays at 9:00",
        timezone: "Europe/Berlin",
        next_at: TIME,
        prompt: "Write the <b>report</b>",
        tool: null,
        input: null,
        last: FIRING,
        ...change,
      }),
    answer(request, response, path) {
      const [, , , id = "", action = ""] = path.split("/");
      if (/^\/v1\/tools\/cron_(pause|resume)\/call$/.test(path)) {
        const parts: Uint8Array[] = [];
        request.on("data", (part: Uint8Array) => parts.push(part));
        request.on("end", () => {
          const { input } = JSON.parse(Buffer.concat(parts).toString()) as { input: { id: string } };
          posted.push(`${id} ${input.id}`);
          setState(input.id, id === "cron_pause" ? "paused" : "active");
          json(response, 200, { output: "", is_error: false });
        });
        return true;
      }
      if (path === "/v1/tools/cron_list") return json(response, 200, { name: "cron_list", enabled: true });
      if (path === "/v1/schedules") {
        const isDone = (request.url ?? "").includes("state=done");
        return json(response, 200, { data: isDone ? [] : schedules, has_more: false });
      }
      if (!path.startsWith("/v1/schedules/")) return false;
      if (action === "history") return json(response, 200, { data: [FIRING] });
      if (id === "broken") {
        return json(response, 409, { error: { code: "conflict", message: "Cannot run it: it is busy" } });
      }
      posted.push(`${action} ${id}`);
      return json(response, 202, FIRING);
    },
  };
}
