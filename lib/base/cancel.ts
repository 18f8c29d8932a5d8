/** Why work was stopped (docs/design/architecture.md "Signals"): the typed reason of every derived signal. */
export type CancelReason =
  | "client_gone"
  | "timeout"
  | "cancelled"
  | "interrupted"
  | "shutdown"
  | "budget"
  | "halted"
  | "taken_in";

/** The `reason` of an aborted signal; also what a cancelled wait rejects with. */
export class CancelError extends Error {
  override readonly name = "CancelError";
  readonly reason: CancelReason;
  constructor(reason: CancelReason, message: string = SENTENCE[reason]) {
    super(message);
    this.reason = reason;
  }
}

const SENTENCE: Record<CancelReason, string> = {
  client_gone: "The client went away",
  timeout: "The time limit was reached",
  cancelled: "The work was cancelled",
  interrupted: "A person interrupted the reply with another message",
  shutdown: "The gateway is shutting down",
  budget: "The token budget is used up",
  halted: "A person has halted the work",
  taken_in: "The run at work took this message in: it answers in its own reply",
};

/** Returns the reason of an aborted signal; `cancelled` for a signal aborted with anything but a CancelError. */
export function cancelReason(signal: AbortSignal): CancelReason {
  return signal.reason instanceof CancelError ? signal.reason.reason : "cancelled";
}

/** Returns the error to throw for an aborted signal: its own CancelError, else one of reason `cancelled`. */
export function cancelError(signal: AbortSignal): CancelError {
  return signal.reason instanceof CancelError ? signal.reason : new CancelError("cancelled");
}

/** Returns a signal for a wait that nothing ends. */
export function neverAborted(): AbortSignal {
  return new AbortController().signal;
}

/** Waits for work that others wait for too, as the one look for bubblewrap. @throws {CancelError} when the signal aborts first; the work goes on */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  // Once the signal has aborted, nobody hears of a failure of the work
  work.catch(() => {});
  if (signal.aborted) throw cancelError(signal);
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(cancelError(signal));
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** Reason of a refusal during a shutdown, as the end of a sentence. */
export const SHUTTING_DOWN = "the gateway is shutting down";
