import { answerJobs } from "../../../system/process/workers.ts";
import { type InspectJob, inspectJob } from "./inspect_module.ts";

// Runs as a thread of its own: a large module takes seconds. inspect_in_thread.ts gives exactly this
answerJobs((input) => Promise.resolve(inspectJob(input as InspectJob)));
