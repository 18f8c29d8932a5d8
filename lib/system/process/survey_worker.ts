import { parentPort } from "node:worker_threads";
import { systemClock } from "../../base/clock.ts";
import type { SurveyRequest } from "./surveys.ts";
import { createSurveyor } from "./survey_folder.ts";

/** The thread of `createSurveys`: answers one request after the other, and remembers in between. */
const survey = createSurveyor({ now: () => systemClock.now(), monotonic: () => systemClock.monotonic() });

parentPort?.on("message", ({ id, request }: { readonly id: number; readonly request: SurveyRequest }) => {
  parentPort?.postMessage({ id, survey: survey(request) });
});
