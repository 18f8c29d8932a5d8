import { messageOf } from "./format.js";

const RETRY_MS = 1500;
/** Statuses that end a stream for good: the token, the scope, an unknown run, a place that is not there. */
const FINAL = new Set([400, 401, 403, 404]);

/**
 * Reads a run's event stream, and goes on where it broke until the run has ended. fetch instead of EventSource, which sends no token.
 * @param {object} options
 * @param {import("./session.js").Session} options.session
 * @param {string} options.runId
 * @param {AbortSignal} options.signal ends it
 * @param {(event: any) => void} options.onEvent
 * @param {(problem: string) => void} options.onProblem told while the stream is broken; "" once it is whole again
 */
export async function readEvents({ session, runId, signal, onEvent, onProblem }) {
  let seq = 0;
  while (!signal.aborted) {
    try {
      const path = `v1/runs/${encodeURIComponent(runId)}/events?after=${seq}`;
      const response = await session.request(path, { signal });
      onProblem("");
      // All there is was shown already
      if (response.status === 204 || response.body === null) return;
      for await (const event of eventsOf(response.body)) {
        seq = event.seq;
        onEvent(event);
        if (event.type === "done" || event.type === "error") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      onProblem(messageOf(error));
      if (FINAL.has(/** @type {{ status?: number }} */ (error).status ?? 0)) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/**
 * The gateway writes each event as one line of JSON, and comments between them.
 * @param {ReadableStream<Uint8Array>} body
 */
async function* eventsOf(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (let step = await reader.read(); !step.done; step = await reader.read()) {
      text += decoder.decode(step.value, { stream: true });
      const lines = text.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) if (line.startsWith("data: ")) yield JSON.parse(line.slice("data: ".length));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
