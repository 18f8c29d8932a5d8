import type { IncomingMessage, ServerResponse } from "node:http";

/** A run of the fake gateway: what its routes say, changed by the test as it goes. */
export interface FakeRun {
  readonly id: string;
  status: string;
  result: string | null;
  readonly events: Record<string, unknown>[];
  /** Reply of `/v1/runs/:id/browser`; undefined: the run has used none */
  browser?: Record<string, unknown>;
}

export interface FakeRuns {
  /** Runs that are listed, the newest first */
  readonly runs: FakeRun[];
  /** Bodies that were posted to a run, in order */
  readonly posted: unknown[];
  /** Positions that event streams were opened at */
  readonly opened: string[];
  add(run: Partial<FakeRun> & { readonly id: string }): FakeRun;
  /** Adds an event to a run, live for those who follow it */
  tell(run: FakeRun, event: Record<string, unknown>): void;
  /** Keeps the next list back. @returns lets it go */
  holdList(): () => void;
  /** Breaks every event stream off */
  breakOff(): void;
  /** @returns whether the path was one of its own */
  answer(request: IncomingMessage, response: ServerResponse, path: string): boolean;
}

const TIME = "2026-01-01T00:00:00.000Z";

/** `/v1/runs` and its events, cancel and resolve (docs/design/http.md "Runs over HTTP"). */
export function createFakeRuns(): FakeRuns {
  const runs: FakeRun[] = [];
  const posted: unknown[] = [];
  const opened: string[] = [];
  let held = Promise.resolve();
  const followers = new Set<{ readonly run: FakeRun; readonly response: ServerResponse }>();
  const json = (response: ServerResponse, status: number, body: unknown) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  };
  const line = (event: Record<string, unknown>) => `id: ${event["seq"]}\ndata: ${JSON.stringify(event)}\n\n`;
  const fake: FakeRuns = {
    runs,
    posted,
    opened,
    add(given) {
      const run: FakeRun = { status: "running", result: null, events: [], ...given };
      runs.unshift(run);
      return run;
    },
    tell(run, body) {
      const event = { seq: run.events.length + 1, time: TIME, ...body };
      run.events.push(event);
      for (const { run: followed, response } of followers) if (followed === run) response.write(line(event));
    },
    holdList() {
      const { promise, resolve } = Promise.withResolvers<void>();
      held = promise;
      return resolve;
    },
    breakOff() {
      for (const { response } of followers) response.destroy();
      followers.clear();
    },
    answer(request, response, path) {
      if (path !== "/v1/runs" && !path.startsWith("/v1/runs/")) return false;
      const query = new URL(request.url ?? "/", "http://gateway.test").searchParams;
      const [, , , id, action] = path.split("/");
      if (id === undefined) {
        const status = query.get("status");
        const data = runs.filter((run) => status === null || run.status === status).map(toWire);
        void held.then(() => json(response, 200, { object: "list", data, has_more: false, last_id: null }));
        held = Promise.resolve();
        return true;
      }
      const run = runs.find((known) => known.id === id);
      if (run === undefined) {
        json(response, 404, { error: { message: "Cannot find this run", code: "not_found" } });
      } else if (action === undefined) json(response, 200, toWire(run));
      else if (action === "browser") {
        json(
          response,
          run.browser === undefined ? 404 : 200,
          run.browser ?? { error: { message: "none", code: "not_found" } },
        );
      } else if (action === "events") {
        const after = query.get("after") ?? "0";
        opened.push(after);
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("retry: 1000\n\n");
        for (const event of run.events.slice(Number(after))) response.write(line(event));
        const follower = { run, response };
        followers.add(follower);
        response.on("close", () => followers.delete(follower));
      } else {
        let text = "";
        request.on("data", (part) => (text += part));
        request.on("end", () => {
          const body = text === "" ? {} : JSON.parse(text);
          posted.push({ action, ...body });
          run.status = action === "cancel" ? "cancelled" : body.action === "close" ? "failed" : "running";
          // As the gateway shows an end that was taken back
          if (body.action === "resume") {
            for (const event of run.events) if (event["type"] === "error") event["type"] = "notice";
          }
          json(response, 200, toWire(run));
        });
      }
      return true;
    },
  };
  return fake;
}

function toWire({ id, status, result }: FakeRun) {
  return {
    id,
    object: "run",
    kind: "chat",
    status,
    created_at: TIME,
    started_at: TIME,
    ended_at: null,
    model: "offline/assistant",
    message: "Look after the garden",
    conversation_id: null,
    parent_id: null,
    result,
    error: null,
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  };
}
