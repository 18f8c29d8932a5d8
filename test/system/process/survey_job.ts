import { parentPort } from "node:worker_threads";
import { type SurveyRequest, UNFINISHED } from "../../../lib/system/process/surveys.ts";

// Runs as a thread, for the tests of surveys. `home` says what the second of two threads does
parentPort?.on(
  "message",
  ({ id, request: { home, part } }: { readonly id: number; readonly request: SurveyRequest }) => {
    if (part?.index === 1 && home === "end") throw new Error("broken on purpose");
    if (part?.index === 1 && home === "hang") return;
    parentPort?.postMessage({ id, survey: { ...UNFINISHED, finished: true, files: 2000 } });
  },
);
