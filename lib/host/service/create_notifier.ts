import { execFile } from "node:child_process";
import type { Clock, Timer } from "../../base/clock.ts";

/** Tells systemd how its service is. Nothing here throws, and without systemd nothing is done. */
export interface Notifier {
  /** The service works; from now on systemd is told so again and again, where it waits for that. @param status one line for people */
  ready(status: string): Promise<void>;
  stopping(): Promise<void>;
  /** Waits for what is being told */
  close(): Promise<void>;
}

/** Environment, clock and health check that a notifier works with. */
export interface NotifierOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** This process's number */
  readonly pid: number;
  readonly clock: Clock;
  /** Tells whether the service still works. When it does not, systemd gets no notice and restarts it */
  readonly answers: () => Promise<boolean>;
  readonly onError: (message: string) => void;
}

/** For one message to systemd */
const TELL_LIMIT_MS = 10_000;

/**
 * Speaks to systemd through the program `systemd-notify`, since the runtimes have no datagram sockets of Unix. The socket's name goes
 * to that program and to no other.
 *
 * Source: sd_notify(3), sd_watchdog_enabled(3): NOTIFY_SOCKET, WATCHDOG_USEC in microseconds, told in half that time, WATCHDOG_PID
 */
export function createNotifier({ env, pid, clock, answers, onError }: NotifierOptions): Notifier {
  const socket = env["NOTIFY_SOCKET"] ?? "";
  if (socket === "") return { ready: () => DONE, stopping: () => DONE, close: () => DONE };
  const underway = new Set<Promise<void>>();
  let watchdog: Timer | undefined;
  const tell = (...words: readonly string[]): Promise<void> => {
    const telling = new Promise<void>((resolve) => {
      const options = { env: { PATH: env["PATH"] ?? "", NOTIFY_SOCKET: socket }, timeout: TELL_LIMIT_MS };
      execFile("systemd-notify", words, options, (error) => {
        if (error !== null) onError(`Cannot tell systemd ${words[0]}: ${error.message.trim()}`);
        resolve();
      });
    });
    underway.add(telling);
    return telling.finally(() => underway.delete(telling));
  };
  return {
    async ready(status) {
      await tell("READY=1", `STATUS=${status.replaceAll("\n", " ")}`);
      const everyMs = watchdogMs(env, pid) / 2;
      if (everyMs === 0) return;
      watchdog = clock.every(everyMs, () => {
        void answers().then((does) => does ? tell("WATCHDOG=1") : undefined);
      });
    },
    stopping: () => tell("STOPPING=1"),
    async close() {
      watchdog?.clear();
      await Promise.all(underway);
    },
  };
}

const DONE = Promise.resolve();

/** 0: nobody waits for it. */
function watchdogMs(env: NotifierOptions["env"], pid: number): number {
  const forWhom = env["WATCHDOG_PID"];
  if (forWhom !== undefined && forWhom !== String(pid)) return 0;
  const microseconds = Number(env["WATCHDOG_USEC"] ?? 0);
  return Number.isFinite(microseconds) && microseconds > 0 ? microseconds / 1000 : 0;
}
